"""Plans of tiles against a look at every pair of query and key."""

from __future__ import annotations

import numpy as np
import pytest

from gecompiler.backends.cost.attention_tiles import Blocks, Problem
from gecompiler.backends.kernels.tile_plan import MASKED, SKIPPED, WHOLE, TilePlan


def random_plan(seed):
    rng = np.random.default_rng(seed)
    batch, groups, repeats = (int(n) for n in rng.integers(1, 4, 3))
    queries, keys = (int(n) for n in rng.integers(1, 60, 2))
    left, right = (int(n) for n in rng.choice([-1, -1, 0, 3, 17], 2))
    offset = int(rng.choice([0, keys - queries]))
    problem = Problem(batch, groups * repeats, groups, queries, keys, 8, 8, left, right, offset)
    blocks = Blocks(*(int(n) for n in rng.choice([1, 4, 7, 16, 64], 2)))
    full = (batch, groups * repeats, queries, keys)
    kind = rng.choice(["none", "bool", "-inf", "float", "blocks"])
    shape = tuple(int(rng.choice([1, n])) for n in full)
    keep = block_mask = None
    drops = bool(rng.random() < 0.5)
    if kind == "bool":
        keep = rng.random(shape) < rng.choice([0.02, 0.98])
    elif kind in ("-inf", "float"):
        keep = np.where(rng.random(shape) < 0.03, 1.0, -np.inf if kind == "-inf" else 0.0)
    elif kind == "blocks":
        tiles = (*full[:2], -(-queries // blocks.queries), -(-keys // blocks.keys))
        block_mask = rng.random(tuple(int(rng.choice([1, n])) for n in tiles)) < 0.5
    return TilePlan(problem, blocks, keep, drops, block_mask)


def by_pairs(plan):
    """(B, G, R, S, T): what may be attended, and what the band alone touches of each tile."""
    p = plan.problem
    distance = np.arange(p.kv_len)[None] - np.arange(p.q_len)[:, None] - p.offset
    band = np.ones(distance.shape, bool)
    if p.left >= 0:
        band &= distance >= -p.left
    if p.right >= 0:
        band &= distance <= p.right
    full = (p.batch, p.q_heads, p.q_len, p.kv_len)
    masks = np.ones(full, bool)
    if plan.keep is not None and plan.keep.dtype == bool:
        masks = masks & plan.keep
    elif plan.keep is not None and plan.drops:
        masks = masks & (plan.keep != -np.inf)
    if plan.block_mask is not None:
        bq, bk = plan.blocks
        wide = np.broadcast_to(plan.block_mask, (*full[:2], plan.q_blocks, plan.k_blocks))
        wide = np.repeat(np.repeat(wide, bq, axis=2), bk, axis=3)
        masks = masks & wide[:, :, : p.q_len, : p.kv_len]
    split = (p.batch, p.kv_heads, p.q_heads // p.kv_heads, p.q_len, p.kv_len)
    return band, masks.reshape(split)


def state(band, masks):
    """Of one tile of one batch and KV head."""
    if not band.any() or not masks.any():
        return SKIPPED
    return WHOLE if band.all() and masks.all() else MASKED


@pytest.mark.parametrize("seed", range(300))
def test_states_and_totals_are_those_of_the_pairs(seed):
    plan = random_plan(seed)
    p, (bq, bk) = plan.problem, plan.blocks
    band, masks = by_pairs(plan)
    units = (p.batch, p.kv_heads)
    found = np.broadcast_to(plan.states(0, plan.q_blocks), (*units, plan.q_blocks, plan.k_blocks))
    steps = masked = keys = queries = scores = 0
    for b, g, i, j in np.ndindex(found.shape):
        rows, columns = slice(i * bq, i * bq + bq), slice(j * bk, j * bk + bk)
        tile = band[rows, columns]
        want = state(tile, masks[b, g, :, rows, columns])
        assert found[b, g, i, j] == want, (b, g, i, j)
        if want != SKIPPED:
            steps += 1
            masked += want == MASKED
            queries += tile.shape[0]
            keys += tile.shape[1]
            scores += tile.size
        inside = plan.allowed(plan.rows(i, i + 1), plan.keys(j))
        np.testing.assert_array_equal(True if inside is None else inside, tile | (inside is None))
        assert inside is not None or tile.all()
    totals = plan.totals()
    assert (totals.steps, totals.masked) == (steps, masked)
    assert (totals.keys, totals.queries, totals.scores) == (keys, queries, scores)
    assert totals.skipped == found.size - steps


@pytest.mark.parametrize("seed", range(30))
def test_states_do_not_depend_on_how_many_are_asked_for(seed):
    plan = random_plan(seed)
    whole = plan.states(0, plan.q_blocks)
    for first, last in plan.panels(2):
        part = np.broadcast_to(plan.states(first, last), whole[:, :, first:last].shape)
        np.testing.assert_array_equal(part, whole[:, :, first:last])
