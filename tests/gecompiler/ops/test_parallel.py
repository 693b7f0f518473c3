"""Attention over ranks: the numbers of one device, and the bytes that formulas give."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from attention_problems import assert_same, into, random_problem, unfused

import gecompiler as ge
from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.device import load_device
from gecompiler.backends.topology import default_topology
from gecompiler.ir.errors import UsageError
from gecompiler.ops.parallel import SEQUENCE_ALGORITHMS, parallel_counters

PLACEMENTS = ("contiguous", "zigzag")


def random_call(seed, *, smallest=1):
    """A problem in a layout, and flash_attention's result; all options but block masks."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng).typed(np.float32)
    while min(p.q.shape[2], p.k.shape[2]) < smallest:
        p = random_problem(rng).typed(np.float32)
    p.options.pop("block_mask", None)
    layout = str(rng.choice(["BSND", "BNSD", "BSH", "SBH"]))
    arrays = [into(a, layout) for a in (p.q, p.k, p.v)]
    options = {**p.options, "kv_head_num": p.k.shape[1], "input_layout": layout}
    return p, arrays, options


def shares(report):
    return report.sent, report.received, report.kv_bytes, report.counters.flops


@pytest.mark.parametrize("seed", range(60))
def test_heads_dealt_give_the_same_numbers(seed):
    p, arrays, options = random_call(seed)
    heads = p.q.shape[1]
    want = ge.ops.flash_attention(*arrays, heads, **options)
    for ranks in range(1, min(4, heads) + 1):
        for kv, combine in product(("replicated", "sent"), ("all_reduce", "all_gather", "none")):
            found = ge.ops.tensor_parallel(*arrays, heads, ranks, kv=kv, combine=combine, **options)
            if "softcap" in options:  # numpy's tanh depends on an element's place in the array
                np.testing.assert_allclose(found.out, want, rtol=0, atol=2e-6)
            else:
                assert_same(found.out, want)


@pytest.mark.parametrize("seed", range(40))
def test_a_sequence_dealt_gives_the_same_numbers(seed):
    p, arrays, options = random_call(seed, smallest=10)
    heads = p.q.shape[1]
    want = ge.ops.flash_attention(*arrays, heads, **options)
    exact = into(unfused(p, np.float64), options["input_layout"])
    error = np.abs(into(unfused(p, np.float32), options["input_layout"]) - exact).max(initial=0)
    for ranks, algorithm, placement in product((1, 2, 5), SEQUENCE_ALGORITHMS, PLACEMENTS):
        if algorithm == "ulysses" and ranks > heads:
            continue
        found = ge.ops.sequence_parallel(
            *arrays, heads, ranks, algorithm, placement=placement, **options
        )
        shape = [a.shape for a in arrays]
        dry = parallel_counters(
            algorithm, *shape, head_num=heads, ranks=ranks, dtype="f32", placement=placement,
            **options,
        )  # fmt: skip
        assert list(map(shares, dry.ranks)) == list(map(shares, found.ranks))
        if algorithm != "ring" and "softcap" not in options:
            assert_same(found.out, want)
        assert np.abs(found.out - exact).max(initial=0) <= 2 * error + 1e-6


def expected_bytes(algorithm, batch, length, heads, groups, width, ranks, gather, item=2):
    """Bytes a rank sends, in closed form, where everything divides."""
    kv, out = 2 * batch * length * groups * width * item, batch * length * heads * width * item
    others = ranks - 1
    output = others * out // ranks if gather else 0
    if algorithm == "replicated_kv":
        return output
    if algorithm in ("gather_kv", "ring"):
        return others * kv // ranks + output
    copies = max(1, ranks // groups)  # ranks that read one KV head
    return others * (2 * out + copies * kv) // ranks**2 + output


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("groups", [1, 2, 8, 16])
@pytest.mark.parametrize("algorithm", SEQUENCE_ALGORITHMS)
def test_bytes_of_sequence_parallelism_in_closed_form(algorithm, groups, ranks):
    for gather in (False, True):
        done = parallel_counters(
            algorithm, (2, 64, 16, 8), (2, 64, groups, 8), head_num=16, ranks=ranks,
            gather_output=gather,
        )  # fmt: skip
        want = expected_bytes(algorithm, 2, 64, 16, groups, 8, ranks, gather)
        assert [r.sent_bytes for r in done.ranks] == [want] * ranks
        assert [r.received_bytes for r in done.ranks] == [want] * ranks


@pytest.mark.parametrize(("groups", "ranks"), [(16, 4), (8, 8), (2, 8), (1, 4), (4, 16)])
def test_bytes_of_tensor_parallelism_in_closed_form(groups, ranks):
    out, head = 2 * 64 * 16 * 8 * 2, 2 * 2 * 64 * 8 * 2  # of all heads; of a key and a value
    for combine, times in (("all_reduce", 2), ("all_gather", 1), ("none", 0)):
        base = times * (ranks - 1) * out // ranks
        for kv in ("replicated", "sent"):
            done = parallel_counters(
                "heads", (2, 64, 16, 8), (2, 64, groups, 8), head_num=16, ranks=ranks,
                combine=combine, kv=kv,
            )  # fmt: skip
            readers = max(1, ranks // groups)
            extra = groups * (readers - 1) * head if kv == "sent" and ranks > groups else 0
            assert done.total_bytes == ranks * base + extra
            assert done.sent_bytes == base + (extra // groups if extra else 0)


def sent(algorithm, groups, ranks=8, **options):
    return parallel_counters(
        algorithm, (1, 32768, 64, 128), (1, 32768, groups, 128), head_num=64, ranks=ranks,
        block_size_q=128, block_size_k=128, **options,
    ).sent_bytes  # fmt: skip


def test_the_articles_comparison_and_where_it_does_not_hold():
    heads = sent("heads", 8, kv="sent")
    assert sent("replicated_kv", 8) * 2 == heads  # half, not the article's 60% less
    for groups in (1, 2, 8):  # few KV heads: less is moved along the sequence
        assert sent("gather_kv", groups) < sent("heads", groups, kv="sent")
        assert sent("ring", groups, gather_output=False) < sent(
            "heads", groups, combine="all_gather"
        )
    assert sent("gather_kv", 64) > sent("heads", 64)  # as many KV heads as query heads: more
    assert sent("ring", 64, gather_output=False) == sent("heads", 64)
    assert sent("ulysses", 8, gather_output=False) > sent("ring", 8, gather_output=False)
    assert sent("ulysses", 64, gather_output=False) < sent("ring", 64, gather_output=False)


def test_zigzag_shares_causal_work_evenly():
    def balance(placement):
        return parallel_counters(
            "ring", (1, 4096, 8, 16), (1, 4096, 8, 16), head_num=8, ranks=8, is_causal=True,
            placement=placement,
        ).balance  # fmt: skip

    assert balance("contiguous") < 0.6
    assert balance("zigzag") > 0.99


def test_every_ranks_attention_is_profiled():
    q = np.zeros((1, 16, 2, 4), np.float32)
    with ge.profiler.profile() as prof:
        done = ge.ops.sequence_parallel(q, q, q, 2, 4, "ring")
    calls = prof.events()
    assert [c.name for c in calls] == ["sequence_parallel.ring"] * 4
    assert sum(c.counters.flops for c in calls) == 2 * 2 * 16 * 16 * 2 * 4
    assert [c.counters.flops for c in calls] == [r.counters.flops for r in done.ranks]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 0}, "ranks must be a positive integer"),
        ({"ranks": 17}, "cannot be dealt to 17 ranks"),
        ({"algorithm": "rings"}, "did you mean 'ring'"),
        ({"placement": "odd"}, "placement 'odd'"),
        ({"algorithm": "ulysses", "ranks": 4}, "2 query heads cannot be dealt to 4"),
        ({"block_mask": np.ones((1, 1), bool)}, "block_mask is not defined"),
        ({"input_layout": "TND"}, "TND is not defined"),
        ({"windw": 3}, "did you mean 'window'"),
    ],
)
def test_mistakes_are_named(change, message):
    q = np.zeros((1, 16, 2, 4), np.float32)
    arguments = {"ranks": 2, **change}
    with pytest.raises(UsageError, match=message):
        ge.ops.sequence_parallel(q, q, q, 2, **arguments)


def test_mistakes_of_tensor_parallelism_are_named():
    q = np.zeros((1, 16, 2, 4), np.float32)
    with pytest.raises(UsageError, match="2 query heads cannot be dealt to 3"):
        ge.ops.tensor_parallel(q, q, q, 2, 3)
    with pytest.raises(UsageError, match="combine 'sum'"):
        ge.ops.tensor_parallel(q, q, q, 2, 2, combine="sum")
    with pytest.raises(UsageError, match="kv 'send'"):
        ge.ops.tensor_parallel(q, q, q, 2, 2, kv="send")


def test_what_is_sent_takes_the_time_of_the_collectives_that_send_it():
    device = load_device("ascend910b")
    topology, cards = default_topology(device, 8), tuple(range(8))
    shapes = (1, 512, 16, 64), (1, 512, 8, 64)

    def took(algorithm, ranks=8):
        return parallel_counters(
            algorithm, *shapes, head_num=16, ranks=ranks, device=device, input_layout="BSND"
        )

    size = 512 * 16 * 64 * 2.0
    gathered = collective_cost(topology, "AllGather", cards, size).us
    assert took("replicated_kv").transfer_us == pytest.approx(gathered)
    step = collective_cost(topology, "Send", (0, 1), size / 2 / 8).us
    assert took("ring").transfer_us == pytest.approx(2 * 7 * step + gathered)
    assert took("replicated_kv", 1).transfer_us == 0
