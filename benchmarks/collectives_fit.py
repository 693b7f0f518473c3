"""Fits latencies, start-ups, shares of bandwidth and switch sizes of topologies, on one half.

Least mean absolute percentage error, each group of a data set, collective and size class weighing
as much as any other, by the coordinate search of `fidelity_fit`; after every round the switch
sizes are found by trying all places between the sizes measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.collectives import platform_of
from benchmarks.fidelity_rows import Collective, Row
from benchmarks.fidelity_score import device_for
from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.device import Device
from gecompiler.backends.topology.load import bind, read_topology
from gecompiler.backends.topology.read import ProtocolProfile, TopologyProfile
from gecompiler.backends.topology.topology import Topology
from gecompiler.ir.strict_yaml import load_yaml_lines

FOLDER = Path(__file__).resolve().parents[1] / "backends" / "topologies"
ROUNDS = 24


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
    for _ in range(ROUNDS):
        profile, best = fit_limits(profile, rows, best)
        for name, step in steps.items():
            old = value(profile, name)
            for factor in (1 + step, 1 / (1 + step)):
                new = min(1.0, old * factor) if "efficiency" in name else old * factor
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


def _us(device: Device, topology: Topology, case: Collective) -> float:
    cost = collective_cost(topology, case.op_type, case.cards, case.size_bytes)
    return device.alone_us(replace(cost.demand(0), link_bytes=()))


# ------------------------------------------------------------------- figures


def names(profile: TopologyProfile) -> list[str]:
    """The figures that are fitted: those called measured, but for switch sizes."""
    return [f.name for f in profile.provenance if f.kind == "measured" and "up_to" not in f.name]


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
    for place, protocol in enumerate(profile.protocols):
        if not protocol.up_to_bytes:
            continue
        for ranks in tuple(protocol.up_to_bytes):
            used = [c for r in rows if (c := r.case.collective) and c.op_type in protocol.use]
            sizes = sorted({c.size_bytes for c in used if len(c.cards) == ranks})
            for a, b in zip([0.0, *sizes], [*sizes, 2 * max(sizes, default=0.0)], strict=True):
                now = profile.protocols[place].up_to_bytes
                limits = {**now, ranks: round((a + b) / 2048) * 1024.0}
                tried = with_limits(profile, place, replace(protocol, up_to_bytes=limits))
                error = loss(tried, rows)
                if error < best - 1e-6:
                    profile, best = tried, error
    return profile, best


def with_limits(profile: TopologyProfile, place: int, protocol: ProtocolProfile) -> TopologyProfile:
    """The profile with another protocol at that place."""
    protocols = list(profile.protocols)
    protocols[place] = protocol
    return replace(profile, protocols=tuple(protocols))


# ------------------------------------------------------------------- writing


def write(profile: TopologyProfile, source: str) -> None:
    """Puts the fitted values into the topology's file, with their source."""
    path = FOLDER / f"{profile.name}.yaml"
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    at = load_yaml_lines(text, path.name)[1]
    for name in names(profile):
        _put(lines, at[_path(profile, name)], f"{value(profile, name):.4g}", source)
    for i, protocol in enumerate(profile.protocols):
        if protocol.up_to_bytes:
            table = ", ".join(f"{n}: {b / 1024:g}" for n, b in sorted(protocol.up_to_bytes.items()))
            _put(lines, at["library", "protocols", i, "up_to_kib"], f"{{{table}}}", source)
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
        return ("library", "protocols", protocols.index(before[0]), "figures", figure)
    tier = [t.name for t in profile.tiers].index(before[0])
    if len(before) == 1:
        return ("tiers", tier, "figures", figure)
    return ("tiers", tier, "protocols", before[1], figure)
