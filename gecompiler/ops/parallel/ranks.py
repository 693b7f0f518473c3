"""Ranks that hold arrays and send them to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gecompiler.backends.kernels.attention_counters import Part
from gecompiler.ir.constants import Array
from gecompiler.ops.shapes import shaped


@dataclass
class Rank:
    """What one rank has done."""

    sent: Counter[str] = field(default_factory=Counter)
    """Bytes, by what they belong to."""
    received: Counter[str] = field(default_factory=Counter)
    parts: list[Part] = field(default_factory=list)
    """The attentions it computed."""
    kv_bytes: int = 0
    """The most keys and values that it held at once."""


class Ranks:
    """``count`` ranks. ``dry``: arrays have shapes alone, and what is moved is only counted."""

    def __init__(self, count: int, *, dry: bool) -> None:
        self.count, self.dry = count, dry
        self.all = [Rank() for _ in range(count)]

    def send(self, source: int, target: int, array: Array, what: str) -> Array:
        """The array as ``target`` gets it; to itself a rank sends nothing."""
        if source == target:
            return array
        self.all[source].sent[what] += array.nbytes
        self.all[target].received[what] += array.nbytes
        return array if self.dry else array.copy()

    def exchange(self, part: Callable[[int, int], Array], what: str) -> list[list[Array]]:
        """All-to-all: ``part(source, target)`` as a list for each target, by source."""
        ranks = range(self.count)
        return [[self.send(s, t, part(s, t), what) for s in ranks] for t in ranks]

    def all_gather(self, parts: Sequence[Array], what: str) -> list[list[Array]]:
        """Every rank's part, on every rank."""
        return self.exchange(lambda source, _: parts[source], what)

    def all_reduce(self, parts: Sequence[Array], what: str) -> list[Array]:
        """The sum of all parts, on every rank: reduce-scatter along axis 2, then all-gather."""
        length = parts[0].shape[2]
        spans = [span for (span,) in placed(length, self.count, "contiguous")]
        pieces = self.exchange(lambda s, t: parts[s][:, :, spans[t]], f"{what}: reduce-scatter")
        sums = [got[0] if self.dry else _sum(got) for got in pieces]
        gathered = self.all_gather(sums, f"{what}: all-gather")
        return [self.join(got, axis=2) for got in gathered]

    def zeros(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
        """Zeroes."""
        return shaped(shape, dtype) if self.dry else np.zeros(tuple(shape), dtype)

    def join(self, parts: Sequence[Array], axis: int) -> Array:
        """The parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        if not self.dry:
            return np.concatenate(parts, axis=axis)
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return shaped(shape, parts[0].dtype)

    def take(self, array: Array, spans: Sequence[slice]) -> Array:
        """The tokens of some spans of an array (B, N, S, D), one after the other."""
        return self.join([array[:, :, span] for span in spans], axis=2)

    def assemble(self, parts: Sequence[Array], spans: Sequence[Sequence[slice]]) -> Array:
        """The array (B, N, S, D) of which each rank `take`s its spans."""
        length = max(span.stop for own in spans for span in own)
        shape = (*parts[0].shape[:2], length, parts[0].shape[3])
        if self.dry:
            return shaped(shape, parts[0].dtype)
        found: Array = np.empty(shape, parts[0].dtype)
        for part, own in zip(parts, spans, strict=True):
            done = 0
            for span in own:
                found[:, :, span] = part[:, :, done : done + span.stop - span.start]
                done += span.stop - span.start
        return found


def placed(length: int, ranks: int, placement: str) -> list[list[slice]]:
    """The tokens of each rank: one span, or (``zigzag``) the r-th and the r-th last of 2 n.

    With zigzag every rank has early and late queries, so that causal attention is shared out
    evenly (Llama 3 and others place context so).
    """
    count = 2 * ranks if placement == "zigzag" else ranks
    cuts = [length * i // count for i in range(count + 1)]
    spans = [slice(a, b) for a, b in pairwise(cuts)]
    if placement == "zigzag":
        return [[spans[r], spans[count - 1 - r]] for r in range(ranks)]
    return [[span] for span in spans]


def _sum(parts: Sequence[Array]) -> Array:
    total = parts[0].astype(np.result_type(parts[0].dtype, np.float32))
    for part in parts[1:]:
        total += part
    found: Array = total.astype(parts[0].dtype)
    return found
