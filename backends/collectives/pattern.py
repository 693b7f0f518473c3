"""What the steps of a collective ask of a topology's links, for any size of message.

Within a step every link carries what its transfers put on it, all of them at once, so that the
step lasts as long as its fullest link is busy; steps follow each other. All that is linear in
the message, hence found once for a group and an algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.backends.collectives.steps import Plan, Step
from gecompiler.backends.topology import Protocol, Topology


@dataclass(frozen=True)
class Part:
    """One rank's part, as shares of the message."""

    sent: float
    received: float
    reduced: float
    """Of what it received, what it had to add to its own."""
    links: tuple[tuple[str, float], ...]
    """What it puts on each link, or takes from it where that leads to its card alone."""


@dataclass(frozen=True)
class Pattern:
    """See the module's docstring. Times are for one protocol."""

    steps: int
    latency_us: float
    """Of all steps, one after the other."""
    us_per_byte: float
    """Of the message: the fullest link of each step, summed up."""
    parts: tuple[Part, ...]
    """By place."""
    busiest: str
    """The link that carries most of the time."""


class _Step:
    """What a step of some form costs."""

    def __init__(
        self, topology: Topology, cards: Sequence[int], protocol: Protocol, step: Step
    ) -> None:
        latency = 0.0
        loads: dict[str, float] = {}
        sends: dict[int, int] = {}
        for source, target, chunks, _ in step:
            a, b = cards[source], cards[target]
            rate = topology.rate(a, b, protocol.name)
            latency = max(latency, rate.latency_us)
            sends[source] = sends.get(source, -1) + 1
            for link in topology.route(a, b):
                pace = topology.link_rate(link, protocol.name)
                loads[link] = loads.get(link, 0.0) + len(chunks) / pace
        self.latency_us = latency + protocol.issue_us * max(sends.values(), default=0)
        self.busiest = max(loads, key=lambda link: loads[link]) if loads else ""
        self.us = loads.get(self.busiest, 0.0)


def pattern(topology: Topology, cards: Sequence[int], plan: Plan, protocol: Protocol) -> Pattern:
    """What the plan asks, its places being those cards. O(transfers)."""
    count = len(cards)
    sent, received, reduced = [0.0] * count, [0.0] * count, [0.0] * count
    links: list[dict[str, float]] = [{} for _ in cards]
    known: dict[tuple[tuple[int, int, int], ...], _Step] = {}
    busy: dict[str, float] = {}
    latency = us = 0.0
    for step in plan.steps:
        form = tuple([(s, t, len(chunks)) for s, t, chunks, _ in step])
        cost = known.get(form)
        if cost is None:
            cost = known[form] = _Step(topology, cards, protocol, step)
        latency += cost.latency_us
        us += cost.us
        busy[cost.busiest] = busy.get(cost.busiest, 0.0) + cost.us
        for source, target, chunks, reduce in step:
            amount = len(chunks) / plan.chunks
            sent[source] += amount
            received[target] += amount
            reduced[target] += amount if reduce else 0.0
            _put(links, topology.route(cards[source], cards[target]), (source, target), amount)
    parts = tuple(
        Part(sent[i], received[i], reduced[i], tuple(links[i].items())) for i in range(count)
    )
    return Pattern(
        len(plan.steps),
        latency,
        us / plan.chunks,
        parts,
        max(busy, key=lambda link: busy[link], default=""),
    )


def _put(
    links: list[dict[str, float]], route: Sequence[str], ends: tuple[int, int], amount: float
) -> None:
    """A wire, and the port that sends, are the sender's; the port that receives is the other's."""
    for place, link in zip(ends, route, strict=False):
        links[place][link] = links[place].get(link, 0.0) + amount
