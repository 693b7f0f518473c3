"""The pass that makes one op of each norm, rotary embedding and activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.passes.block import (
    activations,
    add_norm,
    contrib,
    contrib_embed,
    contrib_moves,
    gated,
    norm_core,
    norm_factored,
    norm_tail,
    norm_turned,
    rotary_broadcast,
)
from gecompiler.passes.block.rotary import RotaryFusion
from gecompiler.passes.bodies import rewrite_all
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import Rewriter, RuleTable, merge_tables


@dataclass(frozen=True)
class FuseBlock(Pass):
    """Rewrites what surrounds attention in a transformer block, however it is spelt.

    ``norms``: RMSNorm and LayerNorm written out; ``rotary``: rotary embedding;
    ``activations``: GELU, SiLU and their gated forms, with a bias before them;
    ``residuals``: a sum and the norm behind it. Each becomes one op: ai.onnx's where its
    meaning and the opset allow, else one of `gecompiler.ir.block_ops`.
    """

    name: ClassVar[str] = "fuse-block"
    norms: bool = True
    rotary: bool = True
    activations: bool = True
    residuals: bool = True

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place, bodies of ops included; returns how many rewrites."""

        def rewrite(part: Graph) -> int:
            rewriter = Rewriter(
                part,
                ValueFacts(part, infer_types(part).values),
                diagnostics=context.diagnostics,
                left_alone=context.left_alone,
            )
            changes = sum(rewriter.run(table) for table in self._tables())
            if changes:
                rewriter.drop_unused_constants()
            return changes

        return rewrite_all(graph, rewrite, lend=True)

    def _tables(self) -> list[RuleTable]:
        """Rules to run one table after the other: sums come when norms are whole."""
        first: list[RuleTable] = []
        if self.norms:
            first += [contrib.NORM_RULES, contrib_embed.RULES, norm_core.RULES, norm_factored.RULES]
            first += [norm_tail.RULES, norm_turned.RULES]
        if self.rotary:
            first += [contrib_moves.RULES, RotaryFusion().rules]
        if self.activations:
            first += [contrib.ACTIVATION_RULES, activations.RULES, gated.RULES]
        second: list[RuleTable] = [rotary_broadcast.RULES] if self.rotary else []
        second += [add_norm.RULES] if self.residuals else []
        return [merge_tables(*first), *second]
