"""Ops and constants that nothing uses go; inputs, outputs and side effects stay."""

from __future__ import annotations

from gecompiler.ir.graph import Graph
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import Rewriter


class DeadCode(Pass):
    """Removes ops and constants that no output depends on."""

    name = "dead-code"

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns how many ops and constants were removed."""
        return Rewriter(graph, ValueFacts(graph)).drop_dead()
