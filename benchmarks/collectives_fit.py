"""Fits latencies, start-ups, shares of bandwidth and switch sizes of topologies, on one half.

Least mean absolute percentage error, each group of a data set, collective and size class weighing
as much as any other, by the coordinate search of `fidelity_fit`; after every round the switch
sizes are found by trying all places between the sizes measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from benchmarks.collectives import platform_of
from benchmarks.fidelity_rows import Collective, Row
from benchmarks.fidelity_score import device_for
from gecompiler.backends.collectives import ALGORITHMS, plan_of
from gecompiler.backends.collectives.pattern import Pattern, pattern
from gecompiler.backends.device import Device
from gecompiler.backends.topology.load import bind, read_topology
from gecompiler.backends.topology.read import TopologyProfile
from gecompiler.backends.topology.topology import Topology
from gecompiler.ir.strict_yaml import load_yaml_lines

FOLDER = Path(__file__).resolve().parents[1] / "backends" / "topologies"
ROUNDS = 20


def fit_all(rows: Sequence[Row], only: Sequence[str] = ()) -> None:
    """Fits every topology that rows were measured on, and writes what is found."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(platform_of(row), []).append(row)
    for name, members in sorted(by_name.items()):
        if not only or name in only:
            seen = [row for row in members if row.fitted]
            profile, before, after = fit(read_topology(name), seen)
            sources = " and ".join(sorted({row.data_set for row in seen}))
            print(f"{name}: {before:.1%} -> {after:.1%} on the half that is fitted ({sources})")
            write(profile, f"fitted on half of {sources} (python -m benchmarks.collectives --fit)")


def fit(profile: TopologyProfile, rows: Sequence[Row]) -> tuple[TopologyProfile, float, float]:
    """The profile with the values nearest the measured times, the error before and after."""
    before = loss(profile, rows)
    best = before
    steps = dict.fromkeys(names(profile), 0.3)
    for number in range(ROUNDS):
        if number % 4 == 0:
            profile, best = fit_limits(profile, rows, best)
        for name, step in steps.items():
            old = value(profile, name)
            for factor in (1 + step, 1 / (1 + step)):
                low, high = bounds(name)
                new = min(high, max(low, old * factor))
                tried = changed(profile, name, new)
                error = loss(tried, rows)
                if error < best - 1e-6:
                    profile, best = tried, error
                    steps[name] = min(0.5, step * 1.3)
                    break
            else:
                steps[name] = step * 0.55
    return profile, before, best


def loss(profile: TopologyProfile, rows: Sequence[Row]) -> float:
    """Mean over the groups of the mean absolute percentage error."""
    bound: dict[str, tuple[Device, Topology]] = {}
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if row.device not in bound:
            device = device_for(row.device)
            bound[row.device] = (device, bind(profile, device))
        case = row.case.collective
        assert case is not None
        us = _us(*bound[row.device], case)
        key = (row.data_set, case.op_type, row.family)
        groups.setdefault(key, []).append(abs(us / row.measured_us - 1.0))
    return sum(sum(errors) / len(errors) for errors in groups.values()) / len(groups)


_PATTERNS: dict[tuple[object, ...], Pattern | None] = {}


def _us(device: Device, topology: Topology, case: Collective) -> float:
    """The predicted time; patterns are kept for as long as nothing they depend on changes."""
    protocol = topology.protocol(case.op_type, case.cards, case.size_bytes)
    rates = tuple(
        (t.bandwidth_gb_per_s, t.rates[protocol.name].latency_us, t.rates[protocol.name].efficiency)
        for t in topology.tiers
    )
    copied = 0.0 if case.op_type == "Send" else case.size_bytes / len(case.cards)
    times = []
    for name in topology.algorithms.get(case.op_type, tuple(ALGORITHMS)):
        key = (topology.name, case.op_type, case.cards, name, rates, protocol.issue_us)
        if key not in _PATTERNS:
            plan = plan_of(topology, case.op_type, case.cards, 0, name)
            _PATTERNS[key] = plan and pattern(topology, case.cards, plan, protocol)
        found = _PATTERNS[key]
        if found is not None:
            moved = found.us_per_byte * case.size_bytes + copied / (topology.copy_gb_per_s * 1e3)
            times.append(protocol.start_us + found.latency_us + moved)
    return min(times)


def predicted_us(profile: TopologyProfile, row: Row) -> float:
    """What a topology with those figures says of a row."""
    case, device = row.case.collective, device_for(row.device)
    assert case is not None
    return _us(device, bind(profile, device), case)


# ------------------------------------------------------------------- figures


def names(profile: TopologyProfile) -> list[str]:
    """The figures that are fitted: those called measured, but for switch sizes."""
    return [f.name for f in profile.provenance if f.kind == "measured" and "up_to" not in f.name]


def bounds(name: str) -> tuple[float, float]:
    """What a figure may be: no step is faster than light and a few stores."""
    if name.endswith("efficiency_fraction"):
        return 0.01, 1.0
    return (0.3, 1e3) if name.endswith("latency_us") else (0.0, 1e5)


def value(profile: TopologyProfile, name: str) -> float:
    """The value of a figure by the name that listings give it."""
    return float(next(f.value for f in profile.provenance if f.name == name))


def changed(profile: TopologyProfile, name: str, new: float) -> TopologyProfile:
    """The profile with another value of a figure."""
    figures = tuple(replace(f, value=new) if f.name == name else f for f in profile.provenance)
    of = {f.name: f for f in figures}

    def own(prefix: str, values: Mapping[str, object]) -> dict[str, object]:
        return {key: replace(of[f"{prefix}{key}"], name=key) for key in values}

    return replace(
        profile,
        provenance=figures,
        library=own("", profile.library),
        protocols=tuple(
            replace(p, figures=own(f"{p.name}.", p.figures)) for p in profile.protocols
        ),
        tiers=tuple(
            replace(
                t,
                figures=own(f"{t.name}.", t.figures),
                by_protocol={p: own(f"{t.name}.{p}.", v) for p, v in t.by_protocol.items()},
            )
            for t in profile.tiers
        ),
    )


# -------------------------------------------------------------- switch sizes


def fit_limits(
    profile: TopologyProfile, rows: Sequence[Row], best: float
) -> tuple[TopologyProfile, float]:
    """For every protocol and number of ranks the size that leaves the least error."""
    for place in tables(profile):
        for ranks in tuple(table(profile, place)):
            cases = [c for r in rows if (c := r.case.collective)]
            sizes = sorted({c.size_bytes for c in cases if len(c.cards) == ranks})
            for a, b in pairwise([512.0, *sizes, 2 * max(sizes, default=0.0)]):
                limit = round(math.sqrt(a * b) / 1024) * 1024.0
                tried = with_table(profile, place, {**table(profile, place), ranks: limit})
                error = loss(tried, rows)
                if error < best - 1e-6:
                    profile, best = tried, error
    return profile, best


Place = tuple[str, ...]
"""A protocol, or a tier and a protocol."""


def tables(profile: TopologyProfile) -> list[Place]:
    """The places of all tables of switch sizes that are to be fitted."""
    found: list[Place] = [(p.name,) for p in profile.protocols if p.up_to_bytes]
    for tier in profile.tiers:
        measured = [p for p, sizes in tier.up_to_bytes.items() if any(sizes.values())]
        found += [(tier.name, protocol) for protocol in measured]
    return found


def table(profile: TopologyProfile, place: Place) -> Mapping[int, float]:
    """The largest messages by the ranks of a group."""
    if len(place) == 1:
        return next(p.up_to_bytes for p in profile.protocols if p.name == place[0])
    return next(t.up_to_bytes[place[1]] for t in profile.tiers if t.name == place[0])


def with_table(profile: TopologyProfile, place: Place, new: Mapping[int, float]) -> TopologyProfile:
    """The profile with another table."""
    if len(place) == 1:
        protocols = [
            replace(p, up_to_bytes=new) if p.name == place[0] else p for p in profile.protocols
        ]
        return replace(profile, protocols=tuple(protocols))
    tiers = [
        replace(t, up_to_bytes={**t.up_to_bytes, place[1]: new}) if t.name == place[0] else t
        for t in profile.tiers
    ]
    return replace(profile, tiers=tuple(tiers))


# ------------------------------------------------------------------- writing


def write(profile: TopologyProfile, source: str) -> None:
    """Puts the fitted values into the topology's file, with their source."""
    path = FOLDER / f"{profile.name}.yaml"
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    at = load_yaml_lines(text, path.name)[1]
    for name in names(profile):
        _put(lines, at[_path(profile, name)], f"{value(profile, name):.4g}", source)
    for place in tables(profile):
        sizes = sorted(table(profile, place).items())
        text = ", ".join(f"{n}: {b / 1024:g}" for n, b in sizes)
        _put(lines, at[_path(profile, ".".join((*place, "up_to_kib")))], f"{{{text}}}", source)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _put(lines: list[str], line: int, new: str, source: str) -> None:
    key = re.match(r"\s*\w+: ", lines[line - 1])
    assert key is not None
    lines[line - 1] = f'{key[0]}{{value: {new}, kind: measured, source: "{source}"}}'


def _path(profile: TopologyProfile, name: str) -> tuple[str | int, ...]:
    *before, figure = name.split(".")
    if not before:
        return ("library", "figures", figure)
    protocols = [p.name for p in profile.protocols]
    if before[0] in protocols:
        where = ("library", "protocols", protocols.index(before[0]))
        return (*where, figure) if figure == "up_to_kib" else (*where, "figures", figure)
    tier = [t.name for t in profile.tiers].index(before[0])
    if len(before) == 1:
        return ("tiers", tier, "figures", figure)
    return ("tiers", tier, "protocols", before[1], figure)
