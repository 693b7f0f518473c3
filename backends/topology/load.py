"""Topologies by name or from a file, and what becomes of them with a device's cards."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gecompiler.backends.catalog import Catalog
from gecompiler.backends.topology.read import (
    TierProfile,
    TopologyProfile,
    TopologyReader,
    Values,
)
from gecompiler.backends.topology.topology import Protocol, Rate, Tier, Topology

if TYPE_CHECKING:
    from gecompiler.backends.device import Device


def _read(path: Path, where: str) -> TopologyProfile:
    built_in = path.parent == _FOLDER
    return replace(TopologyReader.of_file(path, where).profile(), built_in=built_in)


_FOLDER = Path(__file__).resolve().parents[1] / "topologies"
TOPOLOGIES = Catalog("topology", _FOLDER, _read)
"""The built-in topologies."""


def topology_names() -> tuple[str, ...]:
    """The names of the built-in topologies, sorted."""
    return TOPOLOGIES.names()


def load_topology(name_or_path: str, device: Device) -> Topology:
    """The topology of that built-in name or alias, or of that YAML file, of a device's cards.

    UsageError for an unknown name or a file that is wrong, with the line and what to try.
    """
    profile = read_topology(name_or_path)
    return _bound(profile.name, device) if profile.built_in else bind(profile, device)


@lru_cache(maxsize=256)
def _bound(name: str, device: Device) -> Topology:
    return bind(TOPOLOGIES.built_in(name), device)


@lru_cache(maxsize=256)
def default_topology(device: Device, cards: int) -> Topology:
    """How cards of that device are linked unless it is said: built in, or from its figures.

    More cards than the usual server has make several of them (``pod64``).
    """
    usual = [p for p in map(TOPOLOGIES.built_in, topology_names()) if device.name in p.default_for]
    for profile in usual:
        if cards <= profile.cards:
            return _bound(profile.name, device)
    return _bound("pod64", device).at_least(cards) if usual else flat(device, cards)


def read_topology(name_or_path: str) -> TopologyProfile:
    """The checked content of a built-in topology or of a file; UsageError otherwise."""
    return TOPOLOGIES.find(name_or_path)


def flat(device: Device, cards: int) -> Topology:
    """What is known of a device's links without a topology: one tier, from its own figures.

    The tier is a mesh, or a switch where collectives go round a ring.
    """
    cards = max(cards, 2)
    tier = TierProfile("hccs", cards, "switch" if device.collective_ring else "mesh")
    return bind(TopologyProfile("flat", cards, (tier,), "all cards linked alike"), device)


def bind(profile: TopologyProfile, device: Device) -> Topology:
    """The topology of that device's cards: its figures stand in for what the file omits."""
    protocols = tuple(
        Protocol(
            p.name,
            p.use,
            _value(p.figures, "start_us", device.collective_start_us),
            _value(p.figures, "issue_us", device.event_record_us),
            int(_value(p.figures, "vector_cores", 0.0)),
            p.up_to_bytes,
        )
        for p in profile.protocols
    )
    tiers: list[Tier] = []
    for tier in profile.tiers:
        inner = tiers[-1].span if tiers else 1
        tiers.append(_tier(tier, inner, device, [p.name for p in protocols]))
    return Topology(
        profile.name,
        profile.description,
        profile.cards,
        tuple(tiers),
        protocols,
        _value(profile.library, "copy_gb_per_s", device.collective_copy_gb_per_s),
        profile.algorithms,
        profile.provenance,
    )


def _tier(tier: TierProfile, inner: int, device: Device, protocols: list[str]) -> Tier:
    others = max(1, tier.span // inner - 1)
    whole = device.hccs_gb_per_s
    bandwidth = _value(
        tier.figures, "bandwidth_gb_per_s", whole / others if tier.wiring == "mesh" else whole
    )
    latency = _value(tier.figures, "latency_us", device.hccs_latency_us)
    efficiency = _value(tier.figures, "efficiency_fraction", device.hccs_efficiency_fraction)
    rates = {
        name: Rate(
            _value(tier.by_protocol.get(name, {}), "latency_us", latency),
            _value(tier.by_protocol.get(name, {}), "efficiency_fraction", efficiency),
            tier.up_to_bytes.get(name, {}),
        )
        for name in protocols
    }
    return Tier(
        tier.name, tier.span, inner, tier.wiring, bandwidth, rates, tier.ports, tier.planes,
        tier.through,
    )  # fmt: skip


def _value(figures: Values, name: str, default: float) -> float:
    return float(figures[name].value) if name in figures else default
