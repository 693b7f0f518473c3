"""What a collective costs on a topology, and which algorithm is the cheapest there.

    cost = start-up of the protocol
         + latencies along the longest chain of messages that wait for each other
         + for every step the time in which its fullest link is busy
         + the copy of a card's own part

which is Hockney's alpha + n / beta (1994) with each link's contention. HBM is read for what is
sent and added, and written for what is received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gecompiler.backends.collectives.algorithms import ALGORITHMS
from gecompiler.backends.collectives.pattern import Part, Pattern, pattern
from gecompiler.backends.collectives.steps import Group, Plan
from gecompiler.backends.topology import Protocol, Topology
from gecompiler.ir.collective_ops import BROADCAST, POINT_TO_POINT, RECV, SEND
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.schedule import Demand

AUTO = "auto"
CHOICES = (AUTO, *ALGORITHMS)

_UNOWNED = (BROADCAST, *POINT_TO_POINT)
"""Collectives of which no rank has a part that it keeps."""


@dataclass(frozen=True)
class Cost:
    """A collective by one algorithm. Times are of a collective with nothing beside it."""

    op_type: str
    algorithm: str
    protocol: Protocol
    cards: tuple[int, ...]
    message_bytes: float
    copy_us: float
    pattern: Pattern

    @property
    def latency_us(self) -> float:
        """Start-up, and what the messages take whatever their size."""
        alone = len(self.cards) < 2
        return 0.0 if alone else self.protocol.start_us + self.pattern.latency_us

    @property
    def transfer_us(self) -> float:
        """In which links are busy, and the copy of the own part."""
        return self.pattern.us_per_byte * self.message_bytes + self.copy_us

    @property
    def us(self) -> float:
        """The whole."""
        return self.latency_us + self.transfer_us

    @property
    def steps(self) -> int:
        """How many there are."""
        return self.pattern.steps

    @property
    def sent_bytes(self) -> float:
        """What the busiest rank sends."""
        return max((part.sent for part in self.pattern.parts), default=0.0) * self.message_bytes

    @property
    def busiest_link(self) -> str:
        """The link that binds it most of the time."""
        return self.pattern.busiest

    def part(self, place: int) -> Part:
        """What one rank does, as shares of the message."""
        return self.pattern.parts[place]

    def demand(self, place: int, vector_bytes_per_us: float = 0.0) -> Demand:
        """The task of the rank at that place of the group.

        ``vector_bytes_per_us``: how fast a vector core adds; where the protocol has cores, they
        do the reductions, else these are made on the way.
        """
        size, part = self.message_bytes, self.part(place)
        own = 0.0 if self.op_type in _UNOWNED or len(self.cards) < 2 else size / len(self.cards)
        load = (part.sent + part.reduced) * size + own
        store = part.received * size + own
        cores = self.protocol.vector_cores
        adding = part.reduced * size / vector_bytes_per_us if cores and vector_bytes_per_us else 0.0
        return Demand(
            load_bytes=load,
            store_bytes=store,
            l2_bytes=load + store,
            vector_us=adding,
            vector_cores=cores,
            link_bytes=tuple((link, share * size) for link, share in part.links),
            fixed_us=self.latency_us,
            least_us=self.transfer_us,
        )


def collective_cost(
    topology: Topology,
    op_type: str,
    cards: tuple[int, ...],
    message_bytes: float,
    *,
    root: int = 0,
    algorithm: str = AUTO,
) -> Cost:
    """The cost by the cheapest algorithm that the library has for it, or by that one.

    ``cards`` by place in the group; of a Send or Recv the sender and the receiver.
    ``message_bytes``: what is reduced, gathered (the result), scattered (before), spread or sent;
    of an all-to-all what each rank has. An algorithm that does not make the collective gives way
    to the cheapest. UsageError for an unknown one, or for cards that are not there. Ties go to
    the first of `ALGORITHMS`.
    """
    if algorithm not in CHOICES:
        raise UsageError(
            f"no algorithm {algorithm!r}",
            where="collective_algorithm",
            hint=nearest(algorithm, CHOICES),
        )
    kind = SEND if op_type == RECV else op_type
    protocol = topology.protocol(kind, cards, message_bytes)
    offered = topology.algorithms.get(kind) or tuple(ALGORITHMS)
    names = (algorithm,) if algorithm != AUTO else offered
    found = _costs(topology, kind, cards, message_bytes, root, protocol, names)
    if not found:
        found = _costs(topology, kind, cards, message_bytes, root, protocol, tuple(ALGORITHMS))
    return min(found, key=lambda cost: cost.us)


def all_costs(
    topology: Topology, op_type: str, cards: tuple[int, ...], message_bytes: float, root: int = 0
) -> Mapping[str, Cost]:
    """The cost by each algorithm that makes the collective in that group."""
    kind = SEND if op_type == RECV else op_type
    protocol = topology.protocol(kind, cards, message_bytes)
    found = _costs(topology, kind, cards, message_bytes, root, protocol, tuple(ALGORITHMS))
    return {cost.algorithm: cost for cost in found}


def _costs(
    topology: Topology,
    kind: str,
    cards: tuple[int, ...],
    message_bytes: float,
    root: int,
    protocol: Protocol,
    names: tuple[str, ...],
) -> list[Cost]:
    own = 0.0 if kind in _UNOWNED or len(cards) < 2 else message_bytes / len(cards)
    copy_us = own / (topology.copy_gb_per_s * 1e3)
    found: list[Cost] = []
    for name in names:
        form = _pattern(topology, kind, cards, root, name, protocol)
        if form is not None:
            found.append(Cost(kind, name, protocol, cards, message_bytes, copy_us, form))
    return found


@lru_cache(maxsize=4096)
def _pattern(
    topology: Topology, kind: str, cards: tuple[int, ...], root: int, name: str, protocol: Protocol
) -> Pattern | None:
    if len(cards) == 1:
        return Pattern(0, 0.0, 0.0, (Part(0.0, 0.0, 0.0, ()),), "")
    plan = plan_of(topology, kind, cards, root, name)
    return None if plan is None else pattern(topology, cards, plan, protocol)


def plan_of(
    topology: Topology, kind: str, cards: tuple[int, ...], root: int, algorithm: str
) -> Plan | None:
    """The step schedule among those cards; None where the algorithm makes none."""
    return ALGORITHMS[algorithm](kind, Group(_units(topology, cards)), root)


def _units(topology: Topology, cards: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The places by the units that the outermost links between the cards join."""
    for tier in range(len(topology.tiers) - 1, -1, -1):
        units = topology.units(cards, tier)
        if len(units) > 1:
            return units
    return (tuple(range(len(cards))),)
