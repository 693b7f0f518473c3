"""The pass that writes a graph in another version of ai.onnx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.errors import ModelError, UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.schema import OLDEST_OPSET, newest_opset
from gecompiler.ir.op import Op
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.refusal import Refusal
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.opset.adapters import ADAPTERS
from gecompiler.passes.opset.forms import dropped, refusal, type_refusal
from gecompiler.passes.opset.fused import FUSED
from gecompiler.passes.pass_base import Pass, PassContext


@dataclass(frozen=True)
class ConvertOpset(Pass):
    """Rewrites the ops of ai.onnx whose form differs in version ``target``.

    Ops that stand for several and are not in that version become the product's own, which
    `ExpandFused` writes out. ModelError names an op that has no form there.
    """

    name: ClassVar[str] = "convert-opset"
    target: int = 0
    """0: leave the graph as it is."""

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns how many ops changed, and 1 for the version."""
        source = graph.opsets.get("", 0)
        if not self.target or self.target == source:
            return 0
        if not OLDEST_OPSET <= self.target <= newest_opset():
            raise UsageError(
                f"expected an opset from {OLDEST_OPSET} to {newest_opset()}, found {self.target}",
                where="target-opset",
            )
        return 1 + _convert(graph, source, self.target)


def _convert(graph: Graph, source: int, target: int) -> int:
    graph.opsets[""] = target
    build, count = Builder(graph), 0
    for op in graph.topological():
        if op.domain or op.name not in graph:
            continue
        now = graph.op(op.name)
        build.info, build.sources = now.info, tuple(v for v in now.inputs if v)
        build.scope = f"{now.info.scope}/" if now.info.scope else ""
        try:
            count += _one(graph, build, now, source, target)
        except Refusal as reason:
            raise _error(now, target, str(reason)) from None
    return count


def _one(graph: Graph, build: Builder, op: Op, source: int, target: int) -> bool:
    """Brings one op to its form in ``target``; whether that changed it."""
    since, read = FUSED.get(op.op_type, (0, None))
    if read is not None and target < since:
        graph.replace_op(op.name, read(build, op))
        return True
    adapter = ADAPTERS.get(op.op_type)
    adapted = None if adapter is None else adapter(build, op, source, target)
    if isinstance(adapted, tuple):
        for old, new in zip(op.outputs, adapted, strict=False):
            graph.replace_uses(old, new)
        remove_dead(graph, graph.op(op.name).outputs)
        return True
    now = op if adapted is None else adapted
    now = now.with_bodies(lambda body: _body(body, source, target))
    adapts = adapted is not None
    why = type_refusal(graph, now, target) if adapts else refusal(graph, op, source, target)
    if why:
        raise Refusal(why)
    now = dropped(now, target)
    if now is op or _same(now, op):
        return False
    graph.replace_op(op.name, now)
    return True


def _same(one: Op, other: Op) -> bool:
    return one.inputs == other.inputs and dict(one.attrs) == dict(other.attrs)


def _body(body: Graph, source: int, target: int) -> Graph:
    twin = body.copy()
    _convert(twin, source, target)
    return twin


def _error(op: Op, target: int, reason: str) -> ModelError:
    return ModelError(
        f"cannot be written in opset {target}: {reason}",
        where=f"node {op.name!r} ({op.kind})",
        hint="choose a newer --target-opset, or leave the option out",
    )
