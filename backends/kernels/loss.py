"""The loss of a language model in numbers; `training_ops` defines its ops.

Logits may be of some words only, whose numbers ``words`` tells, from 1; 0 is for one that counts
elsewhere. Sums are in float32, in float64 for float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gecompiler.backends.kernels.gradients import wide_type
from gecompiler.ir.constants import Array


@dataclass(frozen=True)
class Labels:
    """What each position is held against. ``shift``: the label of the next one."""

    numbers: Array
    ignore_index: int = -100
    shift: bool = False

    def wanted(self) -> tuple[Array, Array]:
        """The label of each position, 0 where it has none, and whether it has one."""
        found = self.numbers
        if self.shift:
            last = np.full_like(found[..., :1], self.ignore_index)
            found = np.concatenate([found[..., 1:], last], axis=-1)
        counts = found != self.ignore_index
        return np.where(counts, found, 0), counts

    def places(self, words: Array | None) -> tuple[Array, Array, Array]:
        """Where each label's logit is, whether it is here, and whether the position has a label."""
        wanted, counts = self.wanted()
        if words is None:
            return wanted, counts, counts
        order = np.argsort(words, kind="stable")
        at = np.searchsorted(words[order], wanted + 1)
        place = order[np.minimum(at, words.size - 1)]
        return place, counts & (words[place] == wanted + 1), counts


def cross_entropy(
    logits: Array,
    labels: Labels,
    lse: Array | None = None,
    hit: Array | None = None,
    count: Array | None = None,
) -> tuple[Array, Array]:
    """The mean loss () over labelled positions (0 where there is none), and lse (...).

    ``lse`` and ``hit`` of all words are given where the logits are of some, ``count`` where the
    sum is to be divided by another number than theirs.
    """
    if lse is None or hit is None:
        lse, hit = cross_entropy_part(logits, labels)
    counts = labels.wanted()[1]
    total = np.where(counts, lse - hit, 0).sum() / _divisor(counts, count)
    return np.asarray(total, wide_type(logits)), lse


def cross_entropy_part(
    logits: Array, labels: Labels, words: Array | None = None
) -> tuple[Array, Array]:
    """The log-sum-exp of the words here (...), and the label's logit (...), 0 where it is not."""
    scores = logits.astype(wide_type(logits))
    if words is not None:
        scores = np.where(words == 0, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True)
    base = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):  # of no words at all the sum is 0
        lse = (base + np.log(np.exp(scores - base).sum(axis=-1, keepdims=True)))[..., 0]
    place, here, _ = labels.places(words)
    hit = np.where(here, np.take_along_axis(scores, place[..., None], axis=-1)[..., 0], 0)
    return lse.astype(scores.dtype), hit.astype(scores.dtype)


def cross_entropy_grad(
    dloss: Array,
    logits: Array,
    labels: Labels,
    lse: Array,
    words: Array | None = None,
    count: Array | None = None,
) -> Array:
    """The dlogits: the softmax less the label's one, over the number of labels."""
    wide = wide_type(logits)
    place, here, counts = labels.places(words)
    grad = np.exp(logits.astype(wide) - lse[..., None].astype(wide))
    if words is not None:
        grad[..., words == 0] = 0
    chosen = np.take_along_axis(grad, place[..., None], axis=-1) - here[..., None]
    np.put_along_axis(grad, place[..., None], chosen.astype(wide), axis=-1)
    grad *= (dloss.astype(wide) / _divisor(counts, count)).astype(wide)
    grad[~counts] = 0
    return np.asarray(grad.astype(logits.dtype))


def _divisor(counts: Array, count: Array | None) -> float:
    """The number of labels, or the one given; 1 where it is 0, since then there is no loss."""
    return max(1, int(counts.sum())) if count is None else float(count) or 1.0
