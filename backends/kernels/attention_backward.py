"""The gradients of attention, by recomputing the probabilities from the log-sum-exp.

The loop order is FlashAttention-2's (Dao 2023, algorithm 2): blocks of keys outside, blocks of
queries inside. With P = exp(S - L), delta = rowsum(dO * O) and dS = P * (dO V' - delta)::

    dV = P' dO     dK = scale dS' Q     dQ = scale dS K

where softcap c, S = c tanh(s / c), takes dS times 1 - (S / c)^2 first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.cost.attention_tiles import Blocks
from gecompiler.backends.kernels.attention import EXACT_BELOW, PANEL_ROWS, attend
from gecompiler.backends.kernels.attention_check import AttentionSizes, Place, check_attention
from gecompiler.backends.kernels.tile_masks import TileMasks, alike, stretches
from gecompiler.backends.kernels.tile_plan import MASKED, States, TilePlan
from gecompiler.backends.kernels.tile_product import rows_product, tile_product
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.flash_attention import FlashAttention


class Gradients(NamedTuple):
    """Gradients, each of the shape and type of what it belongs to."""

    query: Array
    key: Array
    value: Array
    sinks: Array | None
    mask: Array | None
    """Of a float mask, on request."""


def attend_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    mask: Array | None = None,
    sinks: Array | None = None,
    *,
    attrs: FlashAttention,
    blocks: Blocks,
    block_mask: NDArray[np.bool_] | None = None,
    mask_gradient: bool = False,
) -> Gradients:
    """The gradients of `attend`, whose result ``out`` and ``lse`` are, by ``dout`` of ``out``.

    Shapes and types as for `attend`. Sums are in float32, in float64 where an input is float64.
    Rows without a key have no gradient. Where float32 holds a log-sum-exp to less than 1e-6 it
    is made again, in float64. UsageError names what does not fit.
    """
    sizes = check_attention(q, k, v, mask, sinks, attrs, blocks, block_mask)
    full = (*q.shape[:3], v.shape[3])
    for name, array, shape in (("dout", dout, full), ("out", out, full), ("lse", lse, full[:3])):
        if array.shape != shape:
            raise UsageError(f"{name} must be {shape}, found {array.shape}", where="FlashAttention")
    plan = sizes.plan(attrs, blocks)
    if sizes.dtype == np.float32 and _large(lse).any():
        place = Place(plan.problem.offset, sizes.queries)
        again = attend(q, k, v, mask, sinks, attrs=attrs, blocks=blocks, block_mask=block_mask,
                       with_lse=True, place=place).lse  # fmt: skip
        assert again is not None
        lse = np.where(_large(lse), again, lse)
    run = _Backward(dout, q, k, v, out, lse, sinks, attrs, sizes, plan)
    if mask_gradient and sizes.mask is not None and sizes.mask.dtype != np.bool_:
        run.dmask = np.zeros(sizes.mask.shape, sizes.dtype)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        run.run()
    dmask = None if run.dmask is None or mask is None else run.dmask.reshape(mask.shape)
    return Gradients(
        (run.dq * attrs.scale).reshape(q.shape).astype(q.dtype),
        run.dk.astype(k.dtype),
        run.dv.astype(v.dtype),
        None if sinks is None else run.sinks_gradient(sinks).astype(sinks.dtype),
        None if dmask is None or mask is None else dmask.astype(mask.dtype),
    )


def _large(lse: Array) -> NDArray[np.bool_]:
    """Log-sum-exps of which float32 loses too much."""
    found: NDArray[np.bool_] = np.isfinite(lse) & (np.abs(lse) > EXACT_BELOW)
    return found


class _Backward:
    """One call: its arrays with the heads split into (G, R), and the sums of its gradients."""

    def __init__(
        self,
        dout: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        sinks: Array | None,
        attrs: FlashAttention,
        sizes: AttentionSizes,
        plan: TilePlan,
    ) -> None:
        split = (sizes.batch, sizes.groups, sizes.repeats, sizes.queries)
        self.q = q.reshape(*split, sizes.head_dim)
        self.dout = dout.reshape(*split, sizes.v_dim)
        self.k, self.v, self.attrs, self.sizes, self.plan = k, v, attrs, sizes, plan
        # The order in which numpy sums depends on how an array lies in memory.
        wide = np.array(dout, sizes.dtype, order="C") * np.array(out, sizes.dtype, order="C")
        self.delta = wide.sum(axis=-1).reshape(split)
        # A row without a key has the log-sum-exp -inf; with +inf its probabilities are 0.
        self.lse = np.where(lse == -np.inf, np.inf, lse).reshape(split)
        self.dq: Array = np.zeros(self.q.shape, sizes.dtype)
        self.dk: Array = np.zeros(k.shape, sizes.dtype)
        self.dv: Array = np.zeros(v.shape, sizes.dtype)
        self.dmask: Array | None = None

    def run(self) -> None:
        sizes = self.sizes
        if not self.dout.size or not sizes.keys:
            return
        for batch, groups, states in alike(self.plan.states(0, self.plan.q_blocks), sizes):
            _Heads(self, batch, groups).run(states)

    def sinks_gradient(self, sinks: Array) -> Array:
        """Of each head's sink, whose value is 0: minus the sum of its probability times delta."""
        logits = sinks.reshape(self.sizes.groups, self.sizes.repeats, 1)
        found: Array = -(np.exp(logits - self.lse) * self.delta).sum(axis=(0, 3)).reshape(-1)
        return found


class _Heads:
    """The heads whose tiles are alike; rows hold (query, R)."""

    def __init__(self, run: _Backward, batch: slice, groups: slice) -> None:
        self.run_, self.batch, self.groups = run, batch, groups
        self.masks = TileMasks(run.plan, run.sizes, batch, groups)
        dtype = run.sizes.dtype
        self.queries = self._flat(run.q) * dtype.type(run.attrs.scale)
        self.dout = self._flat(run.dout)
        self.lse = self._flat(run.lse[..., None], np.dtype(np.float64))
        self.far = _large(self.lse) & (dtype == np.float32)
        self.wide: Array | None = None
        self.delta = self._flat(run.delta[..., None])
        self.dq: Array = np.zeros(self.queries.shape, dtype)

    def _flat(self, array: Array, dtype: np.dtype[np.generic] | None = None) -> Array:
        part = array[self.batch, self.groups].swapaxes(2, 3)
        flat: Array = np.array(part, dtype or self.run_.sizes.dtype, order="C")
        return flat.reshape(*part.shape[:2], -1, part.shape[4])

    def run(self, states: States) -> None:
        """Goes along the keys, and for each block of them along the queries."""
        run, sizes = self.run_, self.run_.sizes
        heads = self.queries.shape[0] * self.queries.shape[1] * sizes.repeats
        most = max(1, PANEL_ROWS // (heads * run.plan.blocks.queries))
        for block in np.flatnonzero(states.any(axis=0)).tolist():
            k, v = self._part(run.k, block), self._part(run.v, block)
            for first, last, state in stretches(states[:, block], most):
                self._step(block, first, last, state, k, v)
        shape = (*self.dq.shape[:2], sizes.queries, sizes.repeats, sizes.head_dim)
        run.dq[self.batch, self.groups] = self.dq.reshape(shape).swapaxes(2, 3)

    def _part(self, array: Array, block: int) -> Array:
        batch = self.batch if array.shape[0] > 1 else slice(None)
        part = array[batch, self.groups, self.run_.plan.keys(block)]
        return np.asarray(part, self.run_.sizes.dtype)

    def _step(self, block: int, first: int, last: int, state: int, k: Array, v: Array) -> None:
        run, repeats = self.run_, self.run_.sizes.repeats
        rows = run.plan.rows(first, last)
        flat = slice(rows.start * repeats, rows.stop * repeats)
        queries, dout = self.queries[:, :, flat], self.dout[:, :, flat]
        p, slope = self._scores(queries, k, (first, last, block))
        far = self.far[:, :, flat]
        if far.any():
            if self.wide is None:
                self.wide = self._flat(run.q, np.dtype(np.float64)) * run.attrs.scale
            wide, steep = self._scores(
                self.wide[:, :, flat], k.astype(np.float64), (first, last, block)
            )
            p = np.where(far, wide, p)
            if slope is not None and steep is not None:
                slope = np.where(far, steep, slope).astype(slope.dtype)
        p -= self.lse[:, :, flat].astype(p.dtype, copy=False)
        p = p.astype(run.sizes.dtype, copy=False)
        np.exp(p, out=p)
        allowed = self.masks.allowed(first, last, block) if state == MASKED else None
        if allowed is not None:
            np.copyto(p, 0, where=~allowed)
        ds = tile_product(dout, v.swapaxes(-1, -2))
        ds -= self.delta[:, :, flat]
        ds *= p
        if allowed is not None:  # what is not attended adds nothing, also where it is inf
            np.copyto(ds, 0, where=~allowed)
            k = k if np.isfinite(k).all() else np.where(np.isfinite(k), k, 0)
        self._add(run.dv, block, rows_product(p, dout))
        if run.dmask is not None:
            self._add_mask(ds, first, last, block)
        if slope is not None:
            ds *= slope
        self.dq[:, :, flat] += tile_product(ds, k)
        self._add(run.dk, block, rows_product(ds, queries))

    def _scores(
        self, queries: Array, keys: Array, place: tuple[int, int, int]
    ) -> tuple[Array, Array | None]:
        """The scores, and how they grow with the products where they are capped."""
        softcap, slope = self.run_.attrs.softcap, None
        scores = tile_product(queries, keys.swapaxes(-1, -2))
        if softcap > 0:
            scores /= softcap
            np.tanh(scores, out=scores)
            slope = 1 - scores * scores
            scores *= softcap
        self.masks.add_bias(scores, *place)
        return scores, slope

    def _add(self, total: Array, block: int, part: Array) -> None:
        """Adds to dK or dV; one that serves the whole batch gathers from all of it."""
        keys = self.run_.plan.keys(block)
        if total.shape[0] > 1 or self.run_.sizes.batch == 1:
            total[self.batch, self.groups, keys] += part
        else:
            total[0, self.groups, keys] += part.sum(axis=0)

    def _add_mask(self, ds: Array, first: int, last: int, block: int) -> None:
        """Adds to the gradient of a float mask, summed over what it was broadcast to."""
        run, total = self.run_, self.run_.dmask
        assert total is not None
        rows, keys, sizes = run.plan.rows(first, last), run.plan.keys(block), run.sizes
        part = ds.reshape(*ds.shape[:2], -1, sizes.repeats, ds.shape[3]).swapaxes(2, 3)
        if total.shape[1] == 1:
            part = part.sum(axis=(1, 2), keepdims=True)
        batch, heads = slice(None), slice(None)
        if total.shape[0] > 1:
            batch = self.batch
        else:
            part = part.sum(axis=0, keepdims=True)
        if total.shape[1] > 1:
            heads = slice(self.groups.start * sizes.repeats, self.groups.stop * sizes.repeats)
        part = part.reshape(part.shape[0], -1, *part.shape[3:])
        if total.shape[2] == 1:
            part, rows = part.sum(axis=2, keepdims=True), slice(None)
        if total.shape[3] == 1:
            part, keys = part.sum(axis=3, keepdims=True), slice(None)
        total[batch, heads, rows, keys] += part
