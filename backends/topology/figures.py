"""The figures of a topology: what each is, its unit (in its name), and what it may be."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gecompiler.backends.device_figures import Allowed

ALGORITHM_NAMES = ("ring", "mesh", "halving_doubling", "tree", "hierarchical")
"""Those of `gecompiler.backends.collectives`."""

LIBRARY: Mapping[str, Allowed] = MappingProxyType(
    {
        "copy_gb_per_s": Allowed("a card's own part, from its input to its output", 0.01, 1e6),
    }
)
"""Of the library of collectives on all links alike."""

PROTOCOL: Mapping[str, Allowed] = MappingProxyType(
    {
        "start_us": Allowed("start-up of a collective", 0, 1e5),
        "issue_us": Allowed("between two messages that a card sends in one step", 0, 1e4),
        "vector_cores": Allowed("vector cores that its kernel holds", 0, 8192),
    }
)
"""Of a protocol; `up_to_kib` comes beside them."""

SWITCH = Allowed("largest message that the protocol is used for", 0, 1 << 40)

TIER: Mapping[str, Allowed] = MappingProxyType(
    {
        "bandwidth_gb_per_s": Allowed("of one link or port, one way", 0.001, 1e6),
        "efficiency_fraction": Allowed("share of that in reach", 0.001, 1),
        "latency_us": Allowed("of one step between cards", 0, 1e6),
    }
)
"""Of a tier's links; the last two also by protocol."""
