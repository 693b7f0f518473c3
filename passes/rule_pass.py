"""A pass that is nothing but a table of rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.passes.bodies import rewrite_all
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import Rewriter, RuleTable


@dataclass(frozen=True)
class RulePass(Pass):
    """Infers types and applies `rules` until none matches, bodies of ops included."""

    rules: ClassVar[RuleTable]

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of rewrites."""

        def rewrite(part: Graph) -> int:
            facts = ValueFacts(part, infer_types(part).values)
            rewriter = Rewriter(part, facts, diagnostics=context.diagnostics)
            changes = rewriter.run(self.rules)
            if changes:
                rewriter.drop_unused_constants()
            return changes

        return rewrite_all(graph, rewrite)
