"""What the steps of a collective ask of a topology's links, for any size of message.

Within a step every link carries what its transfers put on it, all of them at once, so that the
step lasts as long as its fullest link is busy; the links of one step are kept busy by the next.
Latencies add up along the way of the messages that depend on each other, no matter in which step
others are. The first is linear in the message, the second does not depend on it: both are found
once for a group and an algorithm.
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
    """Of the longest chain of messages that wait for each other."""
    us_per_byte: float
    """Of the message: the fullest link of each step, summed up."""
    parts: tuple[Part, ...]
    """By place."""
    busiest: str
    """The link that carries most of the time."""


Ready = list[dict[int, float]]
"""By place and chunk, when it is there."""


class _Lanes:
    """The links between the places of a group, for one protocol."""

    def __init__(self, topology: Topology, cards: Sequence[int], protocol: Protocol) -> None:
        self.topology = topology
        self.cards = cards
        self.protocol = protocol
        self.known: dict[tuple[int, int], tuple[float, tuple[str, ...]]] = {}
        self.pace: dict[str, float] = {}

    def between(self, source: int, target: int) -> tuple[float, tuple[str, ...]]:
        """Latency, and the links that are passed."""
        pair = (source, target)
        found = self.known.get(pair)
        if found is None:
            a, b = self.cards[source], self.cards[target]
            latency = self.topology.rate(a, b, self.protocol.name).latency_us
            found = self.known[pair] = (latency, self.topology.route(a, b))
            for link in found[1]:
                self.pace.setdefault(link, self.topology.link_rate(link, self.protocol.name))
        return found

    def fullest(self, step: Step) -> tuple[float, str]:
        """For how long, in chunks, the fullest link of a step is busy, and which one it is."""
        loads: dict[str, float] = {}
        for source, target, chunks, _ in step:
            for link in self.between(source, target)[1]:
                loads[link] = loads.get(link, 0.0) + len(chunks) / self.pace[link]
        busiest = max(loads, key=lambda link: loads[link], default="")
        return loads.get(busiest, 0.0), busiest

    def pass_on(self, step: Step, ready: Ready) -> None:
        """Notes when each place has what a step brings it, from when the sender had it.

        The messages that a place sends in one step leave it one after the other. What is not
        noted is there from the start.
        """
        leaving: dict[int, float] = {}
        arrived: list[tuple[int, tuple[int, ...], float]] = []
        for source, target, chunks, _ in step:
            issued = leaving.get(source, 0.0)
            leaving[source] = issued + self.protocol.issue_us
            held = ready[source]
            at = max([held.get(chunk, 0.0) for chunk in chunks])
            arrived.append((target, chunks, at + issued + self.between(source, target)[0]))
        for target, chunks, at in arrived:
            held = ready[target]
            for chunk in chunks:
                if at > held.get(chunk, 0.0):
                    held[chunk] = at


def pattern(topology: Topology, cards: Sequence[int], plan: Plan, protocol: Protocol) -> Pattern:
    """What the plan asks, its places being those cards. O(transfers)."""
    count = len(cards)
    lanes = _Lanes(topology, cards, protocol)
    sent, received, reduced = [0.0] * count, [0.0] * count, [0.0] * count
    links: list[dict[str, float]] = [{} for _ in cards]
    known: dict[tuple[tuple[int, int, int], ...], tuple[float, str]] = {}
    busy: dict[str, float] = {}
    ready: Ready = [{} for _ in cards]
    us = 0.0
    for step in plan.steps:
        lanes.pass_on(step, ready)
        form = tuple([(s, t, len(chunks)) for s, t, chunks, _ in step])
        cost = known.get(form)
        if cost is None:
            cost = known[form] = lanes.fullest(step)
        us += cost[0]
        busy[cost[1]] = busy.get(cost[1], 0.0) + cost[0]
        for source, target, chunks, reduce in step:
            amount = len(chunks) / plan.chunks
            sent[source] += amount
            received[target] += amount
            reduced[target] += amount if reduce else 0.0
            _put(links, lanes.between(source, target)[1], (source, target), amount)
    parts = tuple(
        Part(sent[i], received[i], reduced[i], tuple(links[i].items())) for i in range(count)
    )
    return Pattern(
        len(plan.steps),
        max((at for held in ready for at in held.values()), default=0.0),
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
