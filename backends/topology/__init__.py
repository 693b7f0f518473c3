"""How cards are linked: topologies from YAML, routes between cards, protocols by size."""

from gecompiler.backends.topology.load import (
    default_topology,
    load_topology,
    read_topology,
    topology_names,
)
from gecompiler.backends.topology.topology import Protocol, Rate, Tier, Topology

__all__ = [
    "Protocol",
    "Rate",
    "Tier",
    "Topology",
    "default_topology",
    "load_topology",
    "read_topology",
    "topology_names",
]
