"""A topology: how cards are linked, in tiers, and what the library of collectives makes of it.

Cards are numbered so that those that are near each other follow each other. The first tier
joins every ``span`` cards to a unit, each next tier units to larger ones; two cards talk over
the lowest tier that has both. Within a tier there is a wire between each two of the smaller
units (``mesh``), or each card, or each of a number of ``ports`` of a unit, leads to a switch
that holds nothing up (``switch``). Links have a direction:

    hccs:0>3     the wire from card (or unit) 0 to 3
    roce:5>      what card 5 sends, or its port (``roce:1.0>``: unit 1's port 0)
    roce:>5      what it receives

Tiers may share links: a tier ``through`` another uses that one's ports and only adds latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from gecompiler.backends.device_figures import Figure
from gecompiler.ir.errors import ScheduleError, UsageError, nearest

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

Wiring = Literal["mesh", "switch"]

NO_LIMIT = float("inf")


@dataclass(frozen=True)
class Rate:
    """What a protocol makes of a tier's links."""

    latency_us: float
    efficiency: float
    up_to_bytes: Mapping[int, float] = field(default_factory=dict)
    """The largest message, where this tier's links are the farthest: see `Protocol`."""


@dataclass(frozen=True)
class Tier:
    """Links of one kind. ``ports`` is 0 where each card has a port of its own."""

    name: str
    span: int
    """Cards that it joins to a unit."""
    inner: int
    """Cards of one of the smaller units that it joins; 1 in the first tier."""
    wiring: Wiring
    bandwidth_gb_per_s: float
    rates: Mapping[str, Rate]
    """By protocol."""
    ports: int = 0
    planes: int = 1
    """Parallel switches over which every port is spread evenly."""
    through: str = ""

    @cached_property
    def link_bytes_per_us(self) -> float:
        """What one link carries one way, by the best protocol."""
        return self.bandwidth_gb_per_s * 1e3 * max(r.efficiency for r in self.rates.values())

    def links(self, source: int, target: int) -> tuple[str, ...]:
        """The links from a card to another of the same unit and of two smaller ones."""
        if self.wiring == "mesh":
            return (f"{self.name}:{source // self.inner}>{target // self.inner}",)
        return (f"{self.name}:{self._port(source)}>", f"{self.name}:>{self._port(target)}")

    def _port(self, card: int) -> str:
        if not self.ports:
            return str(card)
        unit, place = divmod(card, self.inner)
        return f"{unit}.{place % self.ports}"


@dataclass(frozen=True, eq=False)
class Protocol:
    """How messages up to some size are moved: for which ops, and what starting it takes."""

    name: str
    use: tuple[str, ...]
    """Op types: AllReduce, Send and so on."""
    start_us: float
    issue_us: float = 0.0
    """Between two messages that a card sends in one step."""
    vector_cores: int = 0
    up_to_bytes: Mapping[int, float] = field(default_factory=dict)
    """By the size of the group, between which it is interpolated; empty: any size."""


def largest(table: Mapping[int, float], ranks: int) -> float:
    """The largest message in bytes for a group of so many ranks, by the nearest that are given."""
    if not table:
        return NO_LIMIT
    if ranks in table:
        return table[ranks]
    below = max((n for n in table if n < ranks), default=None)
    above = min((n for n in table if n > ranks), default=None)
    if below is None or above is None:
        return table[min(table) if below is None else max(table)]
    part = (ranks - below) / (above - below)
    return table[below] * (1 - part) + table[above] * part


@dataclass(frozen=True, eq=False)
class Topology:
    """See the module's docstring. Bound to a device, whose figures stand in for what it omits."""

    name: str
    description: str
    cards: int
    tiers: tuple[Tier, ...]
    protocols: tuple[Protocol, ...]
    copy_gb_per_s: float
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those that the library has for an op type; all of them where it is not said."""
    provenance: tuple[Figure, ...] = field(default=(), repr=False)
    """Every figure with its source, named by where it stands: ``nvlink.latency_us``."""

    def tier_of(self, source: int, target: int) -> Tier:
        """The lowest tier that has both cards; UsageError for a card that is not there."""
        for card in (source, target):
            if not 0 <= card < self.cards:
                raise UsageError(
                    f"card {card} is not there: {self.name} has {self.cards}", where="topology"
                )
        for tier in self.tiers:
            if source // tier.span == target // tier.span:
                return tier
        raise UsageError(f"nothing joins cards {source} and {target}", where=self.name)

    def route(self, source: int, target: int) -> tuple[str, ...]:
        """The links that what a card sends to another passes; none to itself."""
        if source == target:
            return ()
        tier = self.tier_of(source, target)
        return (self._by_name[tier.through] if tier.through else tier).links(source, target)

    def rate(self, source: int, target: int, protocol: str) -> Rate:
        """Latency and efficiency of a protocol between two cards."""
        return self.tier_of(source, target).rates[protocol]

    def link_bytes_per_us(self, link: str) -> float:
        """What a link carries one way; ScheduleError for one that is not there."""
        tier = self._by_name.get(link.split(":", 1)[0])
        if tier is None:
            raise ScheduleError(
                f"no link {link!r}", where=self.name, hint=nearest(link, self._by_name)
            )
        return tier.link_bytes_per_us

    def link_or_device(self, device: Device, link: str) -> float:
        """The same of a link that is not between cards, such as ``pcie`` to the host."""
        if link.split(":", 1)[0] in self._by_name:
            return self.link_bytes_per_us(link)
        return device.link_bytes_per_us(link)

    def link_rate(self, link: str, protocol: str) -> float:
        """Bytes per microsecond that a protocol moves over a link one way."""
        tier = self._by_name[link.split(":", 1)[0]]
        return tier.bandwidth_gb_per_s * 1e3 * tier.rates[protocol].efficiency

    def protocol(self, op_type: str, cards: tuple[int, ...], message_bytes: float) -> Protocol:
        """What the library uses for that op, those cards and that size."""
        fit = [p for p in self.protocols if op_type in p.use]
        far = self.tier_of(min(cards), max(cards))
        for protocol in fit:
            table = far.rates[protocol.name].up_to_bytes or protocol.up_to_bytes
            if message_bytes <= largest(table, len(cards)):
                return protocol
        return fit[-1]

    def units(self, cards: tuple[int, ...], tier: int = 0) -> tuple[tuple[int, ...], ...]:
        """Places of the cards (their indexes) by the tier's unit that they lie in, in order."""
        found: dict[int, list[int]] = {}
        for place, card in enumerate(cards):
            found.setdefault(card // self.tiers[tier].span, []).append(place)
        return tuple(tuple(places) for places in found.values())

    def at_least(self, cards: int) -> Topology:
        """The same, or one whose last tier joins more cards, where that is a network.

        UsageError where it is not: wires between each two, or ports of a box, are what they are.
        """
        if cards <= self.cards:
            return self
        *below, last = self.tiers
        unit = below[-1].span if below else 1
        if last.wiring == "mesh" or not below:
            raise UsageError(
                f"{self.name} has {self.cards} cards, and {cards} are wanted",
                where="topology",
                hint="such as 'pod64', whose network may join any number of servers",
            )
        count = -(-cards // unit) * unit
        return replace(self, cards=count, tiers=(*below, replace(last, span=count)))

    @cached_property
    def link_names(self) -> tuple[str, ...]:
        """The names of the tiers, which links begin with."""
        return tuple(t.name for t in self.tiers if not t.through)

    @cached_property
    def _by_name(self) -> dict[str, Tier]:
        return {t.name: t for t in self.tiers}

    def figures(self) -> tuple[Figure, ...]:
        """Every figure with its value, source and kind, in a fixed order."""
        return self.provenance
