"""The pass that writes FlashAttention as plain ONNX again, for export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.expand_attention import as_attention
from gecompiler.passes.attention.expand_primitives import as_primitives
from gecompiler.passes.attention.expansion import Expansion
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.pass_base import Pass, PassContext


@dataclass(frozen=True)
class ExpandFused(Pass):
    """Replaces ``gecompiler.FlashAttention`` by ops of the graph's own opset.

    From opset 23 on it becomes ``ai.onnx.Attention`` where that op promises the same numbers in
    the runtimes there are; otherwise, and with ``primitives``, the ops it is made of.
    """

    name: ClassVar[str] = "expand-fused"
    primitives: bool = False
    """Never use Attention, whatever the opset."""

    def run(self, graph: Graph, context: PassContext) -> int:
        """Expands every fused op; returns how many there were."""
        build = Builder(graph)
        found = [op for op in graph.ops if op.is_(FLASH_ATTENTION, domain=GE_DOMAIN)]
        for op in found:
            build.info = op.info
            build.scope = f"{op.info.scope}/" if op.info.scope else ""
            whole = Expansion.of(build, op)
            out = None if self.primitives else as_attention(whole)
            graph.replace_uses(op.outputs[0], as_primitives(whole) if out is None else out)
            # Its output may have given its name, if an output's, to what stands for it now.
            remove_dead(graph, graph.op(op.name).outputs)
        return len(found)
