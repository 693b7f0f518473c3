"""What a pass is.

A pass is a frozen dataclass whose fields are its options. It turns a valid graph into a valid
graph, in place; in between anything goes. It returns the number of rewrites it made: 0 exactly
when the graph is unchanged. The manager checks that, verifies the graph, and times the pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.passes.attention.site import AttentionSite


@dataclass
class PassContext:
    """What passes share besides the graph: where warnings go, and what they found."""

    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    sites: list[AttentionSite] = field(default_factory=list)
    """Every attention of the source model, fused or refused, in order of discovery."""
    custom_seconds: float = 60.0
    """How long a pass that is not the product's own may take."""
    left_alone: dict[str, str] = field(default_factory=dict)
    """Ops (the softmax of an attention, the last op of another fusion) not to fuse, and why."""
    trains: bool = False
    """Whether the model's parameters are to be trained, so that they must stay what they are."""


@dataclass(frozen=True)
class Pass(ABC):
    """Base of all passes; see the module's docstring."""

    name: ClassVar[str]
    """Kebab-case noun phrase or verb-noun, unique: ``fuse-attention``."""

    @abstractmethod
    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of rewrites."""
