"""The pass that writes fused ops as plain ONNX again, for export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.expand_attention import as_attention
from gecompiler.passes.attention.expand_primitives import as_primitives
from gecompiler.passes.attention.expansion import ROWS_AND_HEADS
from gecompiler.passes.attention.expansion import Expansion as AttentionParts
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.block.expand import EXPANSIONS, Expansion
from gecompiler.passes.bodies import rewrite_bodies
from gecompiler.passes.pass_base import Pass, PassContext


@dataclass(frozen=True)
class ExpandFused(Pass):
    """Replaces the ops of the domain ``gecompiler`` by ops of the graph's own opset.

    From opset 23 on FlashAttention becomes ``ai.onnx.Attention`` where that op promises the same
    numbers in the runtimes there are; otherwise, and with ``primitives``, the ops it is made of.
    The ops of block fusion likewise become what ai.onnx has in that opset.
    """

    name: ClassVar[str] = "expand-fused"
    primitives: bool = False
    """Never use an op that stands for several, whatever the opset."""

    def run(self, graph: Graph, context: PassContext) -> int:
        """Expands every fused op, bodies of ops included; returns how many there were."""
        return self._expand(graph)

    def _expand(self, graph: Graph) -> int:
        count = rewrite_bodies(graph, self._expand)
        build = Builder(graph)
        found = [op.name for op in graph.ops if op.kind in _TABLE]
        for name in found:
            op = graph.op(name)  # as it is now: it may read what another was expanded to
            build.info = op.info
            build.scope = f"{op.info.scope}/" if op.info.scope else ""
            results = _TABLE[op.kind](build, op, self.primitives)
            for position, value in enumerate(results):
                # By position: an output's name goes over to what stands for it.
                graph.replace_uses(graph.op(name).outputs[position], value)
            remove_dead(graph, graph.op(name).outputs)
        return count + len(found)


def _flash_attention(build: Builder, op: Op, primitives: bool) -> tuple[str, ...]:
    whole = AttentionParts.of(build, op)
    out = None if primitives else as_attention(whole)
    out = as_primitives(whole) if out is None else out
    return (build.transpose(out, ROWS_AND_HEADS) if whole.attrs.writes_rows_first else out,)


_TABLE: Mapping[str, Expansion] = {
    f"{GE_DOMAIN}.{FLASH_ATTENTION}": _flash_attention,
    **EXPANSIONS,
}
"""How each kind of op is expanded."""
