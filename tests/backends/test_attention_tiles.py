"""Tiles of fused attention: SRAM, skipped blocks and traffic against a count of every step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.cost.attention_tiles import (
    Blocks,
    Problem,
    hbm_traffic,
    least_traffic,
    row_blocks,
    sram_bytes,
)

sizes = st.integers(1, 70)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, Blocks]:
    groups = draw(st.integers(1, 3))
    batch = draw(st.integers(1, 3))
    bound = st.one_of(st.just(-1), st.integers(0, 40))
    problem = Problem(
        batch=batch,
        q_heads=groups * draw(st.integers(1, 3)),
        kv_heads=groups,
        q_len=draw(sizes),
        kv_len=draw(sizes),
        head_dim=draw(st.integers(1, 8)),
        v_dim=draw(st.integers(1, 8)),
        left=draw(bound),
        right=draw(bound),
        offset=draw(st.integers(-30, 30)),
        k_batch=draw(st.sampled_from([0, 1])),
        v_batch=draw(st.sampled_from([0, 1])),
    )
    return problem, Blocks(draw(st.integers(1, 33)), draw(st.integers(1, 33)))


def allowed(p: Problem, i: int, j: int) -> bool:
    distance = j - (i + p.offset)
    return (p.left < 0 or -p.left <= distance) and (p.right < 0 or distance <= p.right)


@given(problems(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_block_with_an_allowed_pair_is_read_and_no_other(
    case: tuple[Problem, Blocks], shared: bool
) -> None:
    p, blocks = case
    steps = skipped = keys = 0
    for q0 in range(0, p.q_len, blocks.queries):
        rows = range(q0, min(p.q_len, q0 + blocks.queries))
        for k0 in range(0, p.kv_len, blocks.keys):
            columns = range(k0, min(p.kv_len, k0 + blocks.keys))
            if any(allowed(p, i, j) for i in rows for j in columns):
                steps += 1
                keys += len(columns)
            else:
                skipped += 1
    heads = p.batch * (p.kv_heads if shared else p.q_heads)
    found = hbm_traffic(p, blocks, 2.0, shared=shared)
    assert (found.steps, found.skipped) == (heads * steps, heads * skipped)
    assert found.k == 2.0 * heads * keys * p.head_dim
    assert found.v == 2.0 * heads * keys * p.v_dim
    assert found.q == 2.0 * p.batch * p.q_heads * p.q_len * p.head_dim
    assert found.out == 2.0 * p.batch * p.q_heads * p.q_len * p.v_dim


@given(problems())
@settings(max_examples=150, deadline=None)
def test_row_blocks_cover_the_queries_once(case: tuple[Problem, Blocks]) -> None:
    p, blocks = case
    rows = list(row_blocks(p, blocks))
    assert [i for r in rows for i in range(r.first, r.last)] == list(range(p.q_len))
    assert all(0 <= r.begin <= r.end <= p.kv_len for r in rows)


def test_traffic_falls_with_the_block_of_queries() -> None:
    p = Problem(1, 8, 2, 4096, 4096, 128, 128)
    kv = [hbm_traffic(p, Blocks(q, 128)).k for q in (64, 128, 256)]
    assert kv[0] == 2 * kv[1] == 4 * kv[2]
    assert hbm_traffic(p, Blocks(64, 64)).k == kv[0]
    assert hbm_traffic(p, Blocks(64, 64), shared=False).k == 4 * kv[0]
    assert least_traffic(p).k == 2.0 * 2 * 4096 * 128


def test_one_k_for_the_whole_batch_crosses_memory_once() -> None:
    p = Problem(4, 2, 2, 1, 512, 64, 32, k_batch=1)
    assert least_traffic(p).k == 2.0 * 2 * 512 * 64
    assert least_traffic(p).v == 4 * 2.0 * 2 * 512 * 32


@pytest.mark.parametrize("block", [64, 128, 256])
def test_sram_of_the_usual_blocks(block: int) -> None:
    """d = 128 and fp16: Q, twice K, V and the probabilities, in L1."""
    need = sram_bytes(block, block, 128, 128)
    assert need.l1 == 2 * (block * 128 + 2 * block * 256 + 2 * block * block)
    assert need.l0c == 4 * block * max(block, 128)
    assert need.ub == 2 * sram_bytes(block, block, 128, 128, vectors_per_core=2).ub
    assert need.total == need.l1 + need.l0c + need.ub
