"""Random attentions, the definition in float64, and what numpy users write in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

LAYOUTS = ("BSND", "BNSD", "BSH", "SBH", "TND")
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass
class Problem:
    """Arrays (B, N, S, D) and the options of flash_attention."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    options: dict[str, Any] = field(default_factory=dict)

    def typed(self, dtype):
        q, k, v = (a.astype(dtype) for a in (self.q, self.k, self.v))
        return Problem(q, k, v, self.options)


def into(array, layout):
    """(B, N, S, D) in a layout; TND only of sequences of one length."""
    array = np.ascontiguousarray(array.swapaxes(1, 2))
    if layout == "BSND":
        return array
    if layout == "BNSD":
        return np.ascontiguousarray(array.swapaxes(1, 2))
    if layout == "TND":
        return array.reshape(-1, *array.shape[2:])
    flat = array.reshape(*array.shape[:2], array.shape[2] * array.shape[3])
    return flat if layout == "BSH" else np.ascontiguousarray(flat.swapaxes(0, 1))


def allowed_keys(p):
    """(B, N, S, T): what the options leave."""
    (batch, heads, queries, _), keys = p.q.shape, p.k.shape[2]
    o = p.options
    offset = keys - queries if o.get("causal_align") == "bottom_right" else 0
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None] - offset
    found = np.ones((batch, heads, queries, keys), bool)
    window = o.get("window")
    left, right = window if isinstance(window, tuple) else (window, window)
    if left is not None and left >= 0:
        found &= distance >= -left
    if right is not None and right >= 0:
        found &= distance <= right
    if o.get("is_causal"):
        found &= distance <= 0
    mask = o.get("attn_mask")
    if mask is not None and mask.dtype == bool:
        found &= mask
    if o.get("atten_mask") is not None:
        found &= ~o["atten_mask"]
    if o.get("block_mask") is not None:
        bq, bk = o.get("block_size_q", 64), o.get("block_size_k", 64)
        tiles = np.broadcast_to(o["block_mask"], (batch, heads, -(-queries // bq), -(-keys // bk)))
        wide = np.repeat(np.repeat(tiles, bq, axis=2), bk, axis=3)
        found &= wide[:, :, :queries, :keys]
    return found


def unfused(p, dtype, *, scale_first=False):
    """Attention written out with all scores, in ``dtype``; rows without a key are 0."""
    repeats = p.q.shape[1] // p.k.shape[1]
    q = p.q.astype(dtype)
    k, v = (np.repeat(a.astype(dtype), repeats, axis=1) for a in (p.k, p.v))
    o = p.options
    scale = np.dtype(dtype).type(o["scale"] if "scale" in o else 1 / math.sqrt(q.shape[3]))
    keys = k.swapaxes(-1, -2)
    scores = (q * scale) @ keys if scale_first else (q @ keys) * scale
    if o.get("softcap"):
        cap = np.dtype(dtype).type(o["softcap"])
        scores = np.tanh(scores / cap) * cap
    mask = o.get("attn_mask")
    if mask is not None and mask.dtype != bool:
        scores = scores + mask.astype(dtype)
    scores = np.where(allowed_keys(p), scores, np.dtype(dtype).type(-np.inf))
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    sinks = o.get("sinks")
    if sinks is not None:
        logits = sinks.astype(dtype).reshape(1, -1, 1, 1)
        top = np.maximum(top, logits)
    top = np.where(top == -np.inf, 0, top).astype(dtype)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(logits - top)
    weights /= np.where(total == 0, 1, total)
    return weights @ v


def random_problem(rng, *, largest=70):
    """A configuration of any kind; sizes that blocks do not divide, one key, extreme scores."""
    groups, repeats = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads, batch = groups * repeats, int(rng.integers(1, 3))
    queries = int(rng.choice([1, 2, rng.integers(1, largest)]))
    keys = int(rng.choice([1, queries, rng.integers(1, largest)]))
    width, value_width = (int(n) for n in rng.choice([1, 3, 8, 16, 33, 64], 2))
    size = float(rng.choice([0.1, 1.0, 1.0, 1.0, 4.0, 30.0]))
    q = rng.normal(size=(batch, heads, queries, width)) * size
    k = rng.normal(size=(batch, groups, keys, width)) * size
    v = rng.normal(size=(batch, groups, keys, value_width))
    o: dict[str, Any] = {
        "block_size_q": int(rng.choice([1, 3, 16, 32, 64])),
        "block_size_k": int(rng.choice([1, 3, 16, 32, 64])),
    }
    _choose_scores(rng, o, q, k, size)
    full = (batch, heads, queries, keys)
    _choose_mask(rng, o, full)
    return Problem(q, k, v, o)


def _choose_scores(rng, o, q, k, size):
    groups, heads = k.shape[1], q.shape[1]
    if rng.random() < 0.15:  # scores of about 1e4
        largest_score = np.abs(np.einsum("bgrsd,bgtd->bgrst", _split(q, groups), k)).max()
        o["scale"] = float(1e4 / max(largest_score, 1e-30))
    elif rng.random() < 0.3:
        o["scale"] = float(rng.choice([1.0, 0.3, -0.5, 0.0]))
    if rng.random() < 0.3:
        o["is_causal"] = True
    if rng.random() < 0.3:
        sides = [None, 0, 2, 5, 20]
        o["window"] = (sides[rng.integers(5)], sides[rng.integers(5)])
    if rng.random() < 0.5:
        o["causal_align"] = "bottom_right"
    if rng.random() < 0.2:
        o["softcap"] = float(rng.choice([5.0, 50.0]))
    if rng.random() < 0.2:
        o["sinks"] = (rng.normal(size=heads) * size).astype(np.float32)


def _choose_mask(rng, o, full):
    shape = tuple(int(rng.choice([1, n])) for n in full)[rng.integers(5) :]
    kind = rng.choice(["none", "none", "attn", "atten", "float", "-inf", "blocks"])
    density = float(rng.choice([0.0, 0.05, 0.5, 0.95]))
    if kind == "attn":
        o["attn_mask"] = rng.random(shape) < density
    elif kind == "atten":
        o["atten_mask"] = rng.random(shape) >= density
    elif kind == "float":
        o["attn_mask"] = rng.normal(size=shape).astype(np.float32) + np.float32(0.001)
    elif kind == "-inf":
        o["attn_mask"] = np.where(rng.random(shape) < density, 0.25, -np.inf).astype(np.float32)
    elif kind == "blocks":
        batch, heads, queries, keys = full
        tiles = (batch, heads, -(-queries // o["block_size_q"]), -(-keys // o["block_size_k"]))
        o["block_mask"] = rng.random(tuple(int(rng.choice([1, n])) for n in tiles)) < 0.5


def _split(q, groups):
    return q.reshape(q.shape[0], groups, -1, *q.shape[2:])


def assert_same(found, want, what=""):
    """Equal but for rounding: some BLAS kernels add in another order where a product is larger.

    An element may be off by 256 roundings of what it is computed in, or 2 of its own type, of the
    largest one.
    """
    found, want = np.asarray(found), np.asarray(want)
    assert (found.dtype, found.shape) == (want.dtype, want.shape), what
    own = float(ml_dtypes.finfo(want.dtype).eps)
    inner = float(np.finfo(np.float32).eps)
    wide, other = want.astype(np.float64), found.astype(np.float64)
    largest = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    np.testing.assert_allclose(
        other, wide, rtol=0, atol=max(2 * own, 256 * inner) * largest, err_msg=what
    )
