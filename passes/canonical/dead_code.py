"""Ops and constants that nothing uses go; inputs, outputs and side effects stay."""

from __future__ import annotations

from gecompiler.ir.graph import Graph
from gecompiler.passes.bodies import rewrite_all
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import Rewriter


class DeadCode(Pass):
    """Removes ops and constants that no output depends on, bodies of ops included."""

    name = "dead-code"

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns how many ops and constants were removed."""
        return rewrite_all(graph, lambda part: Rewriter(part, ValueFacts(part)).drop_dead())
