"""Topologies from YAML, checked key by key.

A topology is::

    version: 1
    name: twonodes
    description: what people call it          # optional
    aliases: [other, names]                   # optional
    default_for: [ascend910b]                 # devices whose cards are linked so by default
    cards: 16
    library:                                  # optional: how collectives use the links
      algorithms: {AllReduce: [ring, tree]}   # those that it has; all of them otherwise
      figures: {copy_gb_per_s: ...}
      protocols:                              # the first whose size fits; one for any size last
        - name: ll
          use: [AllReduce, AllGather]         # optional: for all op types
          figures: {start_us: ..., vector_cores: ...}
          up_to_kib: {value: 256, source: ..., kind: measured}
    tiers:                                    # from the nearest cards to the farthest
      - {name: hccs, span: 8, wiring: mesh, figures: {bandwidth_gb_per_s: {value: ...}}}
      - name: roce
        span: 16
        wiring: switch
        ports: 4                              # optional: of each unit; one a card otherwise
        figures: {bandwidth_gb_per_s: ..., latency_us: ..., efficiency_fraction: ...}
        protocols: {ll: {latency_us: ..., efficiency_fraction: ..., up_to_kib: ...}}

A figure is ``{value, source, kind}`` as in device profiles. ``up_to_kib`` may map the ranks of a
group to sizes. Left out, bandwidth, efficiency, latency, start-up and copies are the device's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gecompiler.backends.device_figures import Allowed, Figure
from gecompiler.backends.topology.figures import ALGORITHM_NAMES, LIBRARY, PROTOCOL, SWITCH, TIER
from gecompiler.backends.topology.topology import Wiring
from gecompiler.backends.yaml_reader import Path_, YamlReader, plain_number
from gecompiler.ir.collective_ops import COLLECTIVES
from gecompiler.ir.errors import nearest

VERSION = 1
MOST_CARDS = 1 << 16
RESERVED = ("cube", "vector", "hbm", "l2")
"""What cards have of their own, and no links may be called."""

_TOP = ("version", "name", "description", "aliases", "default_for", "cards", "library", "tiers")
_PROTOCOL = ("name", "use", "figures", "up_to_kib")
_TIER = ("name", "span", "wiring", "ports", "planes", "through", "figures", "protocols")
_WIRINGS: tuple[Wiring, ...] = ("mesh", "switch")
_COUNT = Allowed("a count", 1, MOST_CARDS)

Values = Mapping[str, Figure]


@dataclass(frozen=True)
class ProtocolProfile:
    """What a file says of a protocol."""

    name: str
    use: tuple[str, ...]
    figures: Values
    up_to_bytes: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TierProfile:
    """What a file says of a tier."""

    name: str
    span: int
    wiring: Wiring
    figures: Values = field(default_factory=dict)
    by_protocol: Mapping[str, Values] = field(default_factory=dict)
    up_to_bytes: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    ports: int = 0
    planes: int = 1
    through: str = ""


@dataclass(frozen=True)
class TopologyProfile:
    """What a file says, checked; `bind` makes a topology of it and a device."""

    name: str
    cards: int
    tiers: tuple[TierProfile, ...]
    description: str = ""
    aliases: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    library: Values = field(default_factory=dict)
    protocols: tuple[ProtocolProfile, ...] = (ProtocolProfile("any", COLLECTIVES, {}),)
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provenance: tuple[Figure, ...] = ()
    built_in: bool = False


class TopologyReader(YamlReader):
    """Checks the data of one file."""

    def profile(self) -> TopologyProfile:
        """The whole file."""
        top = self.mapping(self.data, (), "a topology", _TOP)
        self.version(top.get("version"), VERSION)
        self.seen: list[Figure] = []
        library = self.mapping(
            top.get("library", {}),
            ("library",),
            "'library'",
            ("figures", "protocols", "algorithms"),
        )
        figures = self.figures(library.get("figures", {}), ("library", "figures"), LIBRARY, "")
        cards = self.count(top.get("cards"), ("cards",), "cards")
        protocols = self.protocols(library)
        tiers = self.tiers(top, cards, tuple(p.name for p in protocols))
        return TopologyProfile(
            name=self.text(top.get("name"), ("name",), "name"),
            cards=cards,
            tiers=tiers,
            description=self.text(top.get("description", "-"), ("description",), "description"),
            aliases=self.names(top.get("aliases", []), ("aliases",), "aliases"),
            default_for=self.names(top.get("default_for", []), ("default_for",), "default_for"),
            library=figures,
            protocols=protocols,
            algorithms=self.algorithms(library),
            provenance=tuple(self.seen),
        )

    def count(self, data: Any, path: Path_, what: str) -> int:
        """A whole number from 1 on."""
        number = self.number(data, path, what, _COUNT)
        if number != int(number):
            raise self.error(path, f"{what} is {number:g}, expected a whole number")
        return int(number)

    def figures(
        self, data: Any, path: Path_, allowed: Mapping[str, Allowed], prefix: str
    ) -> dict[str, Figure]:
        """Figures of those names, each noted by where it stands."""
        given = self.mapping(data, path, "'figures'")
        found: dict[str, Figure] = {}
        for name, entry in given.items():
            if name not in allowed:
                units = [n for n in allowed if n.startswith(f"{name}_")]
                hint = f"the unit is part of the name: {units[0]}" if units else ""
                raise self.error(
                    (*path, name), f"unknown figure {name!r}", hint or nearest(str(name), allowed)
                )
            found[name] = self.numeric_figure(name, entry, (*path, name), allowed[name])
            self.note(f"{prefix}{name}", found[name])
        return found

    def note(self, name: str, figure: Figure) -> None:
        """Keeps a figure for listings."""
        self.seen.append(Figure(name, figure.value, figure.source, figure.kind))

    def protocols(self, library: Mapping[str, Any]) -> tuple[ProtocolProfile, ...]:
        """The protocols; one for every size by default."""
        data, path = library.get("protocols"), ("library", "protocols")
        if data is None:
            return TopologyProfile.protocols
        if not isinstance(data, list) or not data:
            raise self.error(path, "'protocols' must be a list of protocols")
        found = tuple(self.protocol(item, (*path, i)) for i, item in enumerate(data))
        names = [p.name for p in found]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise self.error((*path, i), f"protocol {name!r} stands there twice")
        for op in COLLECTIVES:
            last = [p for p in found if op in p.use][-1:]
            if not last or last[0].up_to_bytes:
                raise self.error(
                    path,
                    f"no protocol takes {op} of any size",
                    "leave out 'up_to_kib' of the last one",
                )
        return found

    def algorithms(self, library: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The algorithms of each collective."""
        path = ("library", "algorithms")
        given = self.mapping(library.get("algorithms", {}), path, "'algorithms'", COLLECTIVES)
        found: dict[str, tuple[str, ...]] = {}
        for op, names in given.items():
            found[op] = self.names(names, (*path, op), "algorithms")
            for name in found[op]:
                if name not in ALGORITHM_NAMES:
                    hint = nearest(name, ALGORITHM_NAMES)
                    raise self.error((*path, op), f"no algorithm {name!r}", hint)
        return found

    def protocol(self, data: Any, path: Path_) -> ProtocolProfile:
        """One protocol."""
        entry = self.mapping(data, path, "a protocol", _PROTOCOL)
        name = self.text(entry.get("name"), (*path, "name"), "name")
        use = self.names(entry.get("use", list(COLLECTIVES)), (*path, "use"), "use")
        for op in use:
            if op not in COLLECTIVES:
                raise self.error((*path, "use"), f"no collective {op!r}", nearest(op, COLLECTIVES))
        figures = self.figures(entry.get("figures", {}), (*path, "figures"), PROTOCOL, f"{name}.")
        limits: dict[int, float] = {}
        if "up_to_kib" in entry:
            limits = self.limits(name, entry["up_to_kib"], (*path, "up_to_kib"))
        return ProtocolProfile(name, use, figures, limits)

    def limits(self, name: str, data: Any, path: Path_) -> dict[int, float]:
        """The largest message of a protocol in bytes, by the ranks of a group."""
        entry = self.figure("up_to_kib", data, path)
        value, at = entry["value"], (*path, "value")
        if not isinstance(value, dict):
            self.note(f"{name}.up_to_kib", self.numeric_figure("up_to_kib", data, path, SWITCH))
            return {2: 1024.0 * self.number(value, at, "up_to_kib", SWITCH)}
        found: dict[int, float] = {}
        for ranks, size in value.items():
            number = plain_number(ranks)
            if number is None or number != int(number) or number < 2:
                raise self.error(
                    (*at, ranks), f"up_to_kib has {ranks!r} ranks, expected a number from 2 on"
                )
            found[int(number)] = 1024.0 * self.number(size, (*at, ranks), "up_to_kib", SWITCH)
        if not found:
            raise self.error(at, "up_to_kib is empty")
        text = " ".join(f"{n}:{b / 1024:g}" for n, b in sorted(found.items()))
        self.note(f"{name}.up_to_kib", Figure("", text, entry["source"], entry["kind"]))
        return found

    def tiers(
        self, top: Mapping[str, Any], cards: int, protocols: tuple[str, ...]
    ) -> tuple[TierProfile, ...]:
        """All tiers, the last of which joins all cards."""
        data = top.get("tiers")
        if not isinstance(data, list) or not data:
            raise self.error(("tiers",), "'tiers' must be a list of tiers")
        found: list[TierProfile] = []
        for i, item in enumerate(data):
            found.append(self.tier(item, ("tiers", i), protocols, found))
        if found[-1].span != cards:
            raise self.error(
                ("tiers", len(found) - 1),
                f"the last tier joins {found[-1].span} cards, and there are {cards}",
            )
        return tuple(found)

    def tier(
        self, data: Any, path: Path_, protocols: tuple[str, ...], below: list[TierProfile]
    ) -> TierProfile:
        """One tier."""
        entry = self.mapping(data, path, "a tier", _TIER)
        name = self.text(entry.get("name"), (*path, "name"), "name")
        if not name.isidentifier() or name in [t.name for t in below] or name in RESERVED:
            raise self.error((*path, "name"), f"{name!r} is no name of its own (a plain word)")
        span = self.count(entry.get("span"), (*path, "span"), "span")
        inner = below[-1].span if below else 1
        if span % inner or span == inner:
            raise self.error((*path, "span"), f"span {span} is no multiple of {inner} below it")
        wiring = entry.get("wiring", "switch")
        if wiring not in _WIRINGS:
            raise self.error(
                (*path, "wiring"), f"wiring is {wiring!r}, expected {' or '.join(_WIRINGS)}"
            )
        through = entry.get("through", "")
        if through and through not in [t.name for t in below if t.wiring == "switch"]:
            raise self.error(
                (*path, "through"), f"{through!r} is no tier below that leads to a switch"
            )
        own: dict[str, Values] = {}
        limits: dict[str, dict[int, float]] = {}
        given = self.mapping(
            entry.get("protocols", {}), (*path, "protocols"), "'protocols'", protocols
        )
        rates = {k: v for k, v in TIER.items() if k != "bandwidth_gb_per_s"}
        figures = self.figures(entry.get("figures", {}), (*path, "figures"), TIER, f"{name}.")
        for protocol, given_values in given.items():
            place = (*path, "protocols", protocol)
            values = dict(self.mapping(given_values, place, "a protocol", (*rates, "up_to_kib")))
            if "up_to_kib" in values:
                limit, at = values.pop("up_to_kib"), (*place, "up_to_kib")
                limits[protocol] = self.limits(f"{name}.{protocol}", limit, at)
            own[protocol] = self.figures(values, place, rates, f"{name}.{protocol}.")
        planes = self.count(entry.get("planes", 1), (*path, "planes"), "planes")
        ports = 0
        if "ports" in entry:
            ports = self.count(entry["ports"], (*path, "ports"), "ports")
        if ports and (wiring != "switch" or ports > inner or inner % ports):
            raise self.error(
                (*path, "ports"), f"{ports} ports cannot be shared evenly by {inner} cards"
            )
        return TierProfile(name, span, wiring, figures, own, limits, ports, planes, through)
