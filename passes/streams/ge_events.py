"""The graph engine's events: which it inserts, which its clean-up drops, how it numbers them.

What our own schedules use is `sync` (never more events than here) and `event_ids`; this is what
they are compared with. CANN GE, ``stream_allocator.cc`` and ``StreamUtils`` (behaviour only).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]


def needed_events(edges: Iterable[Pair], stream: Sequence[int | None]) -> list[Pair]:
    """An event for each edge between streams; none after a unit that has no stream."""
    return [
        (a, b)
        for a, b in edges
        if stream[a] is not None and stream[b] is not None and stream[a] != stream[b]
    ]


def clean_events(
    events: Iterable[Pair], stream: Sequence[int | None], place: Sequence[int]
) -> list[Pair]:
    """What GE's rules keep of the (sender, receiver) pairs, each rule applied once, in order.

    R1: of one sender's events to one stream only the one to its first receiver. R2: of one
    receiver's events from one stream only the one of its last sender. ``place`` says what comes
    first on a stream.
    """
    first: dict[tuple[int, int | None], int] = {}
    for sender, receiver in events:
        key = (sender, stream[receiver])
        if key not in first or place[receiver] < place[first[key]]:
            first[key] = receiver
    last: dict[tuple[int, int | None], int] = {}
    for (sender, _), receiver in first.items():
        back = (receiver, stream[sender])
        if back not in last or place[sender] > place[last[back]]:
            last[back] = sender
    return sorted((sender, receiver) for (receiver, _), sender in last.items())


@dataclass(frozen=True)
class EventScope:
    """A graph's own events, and alternatives of which one run takes one: a Case's branches."""

    events: int
    branches: tuple[EventScope, ...] = ()

    @property
    def total(self) -> int:
        """All events, each with an id of its own."""
        return self.events + sum(b.total for b in self.branches)

    @property
    def shared(self) -> int:
        """Ids when all branches start again from the same one (GE's ReuseEventForMultiDims)."""
        return self.events + max((b.shared for b in self.branches), default=0)
