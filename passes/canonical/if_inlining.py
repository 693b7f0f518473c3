"""An If whose condition is known becomes the branch that is taken."""

from __future__ import annotations

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes.canonical.uniform_values import uniform
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.user_marks import with_marks


def inline_branch(r: Rewriter, op: Op) -> Result | None:
    """The ops of the branch in the place of the If; bodies within it are inlined before it."""
    taken = uniform(r, op.inputs[0])
    branch = op.attr("then_branch" if taken else "else_branch")
    if taken is None or r.is_pinned(op) or not isinstance(branch, Graph):
        return None
    if len(branch.outputs) != len(op.outputs) or any(inner.bodies for inner in branch.ops):
        return None
    names = {value: value for value in branch.outer}
    for value, constant in branch.constants.items():
        names[value] = r.constant(constant, value)
    for inner in branch.topological():
        _copy(r, branch, inner, names, op)
    # An Identity each, so that every output has a maker that can take its name over.
    return tuple(
        r.emit("Identity", (names[inner],), r.graph.type(names[inner]), stem=op.name)
        for inner in branch.outputs
    )


def _copy(r: Rewriter, branch: Graph, inner: Op, names: dict[str, str], op: Op) -> None:
    """Adds one op of the branch to the graph around it, under names that are free there."""
    outputs: list[str] = []
    for value in inner.outputs:
        names[value] = _free(r, value, outputs) if value else ""
        outputs.append(names[value])
    copied = inner.with_(
        name=_free(r, inner.name, outputs),
        inputs=tuple(names[v] if v else "" for v in inner.inputs),
        outputs=tuple(outputs),
        info=with_marks(inner.info, op.info) if inner.info.scope else op.info,
    )
    types = [branch.type(v) if v else None for v in inner.outputs]
    r.push(r.graph.add_op(copied, types))


def _free(r: Rewriter, stem: str, taken: list[str]) -> str:
    name = r.graph.fresh(stem)
    while name in taken:
        name = r.graph.fresh(f"{name}_inner")
    return name


RULES: RuleTable = {"If": (inline_branch,)}
