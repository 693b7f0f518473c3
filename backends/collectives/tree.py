"""Binomial trees: whoever has the message passes it on."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.backends.collectives.steps import Step, Steps, Transfer


def spread(places: Sequence[int], root: int, chunks: tuple[int, ...]) -> Steps:
    """The chunks go from the root to all places in ceil(log2 n) steps, the farthest first."""
    n, at = len(places), places.index(root)
    found: list[Step] = []
    distance = 1 << (n - 1).bit_length()
    while distance > 1:
        half = distance >> 1
        found.append(
            tuple(
                Transfer(places[(at + i) % n], places[(at + i + half) % n], chunks)
                for i in range(0, n, distance)
                if i + half < n
            )
        )
        distance = half
    return tuple(found)
