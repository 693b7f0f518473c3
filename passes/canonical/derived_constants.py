"""Constants made from others whose data is not in memory: computed when asked for.

A Transpose of a weight that lies in a file (or nowhere) is a weight of another layout. Folding
it needs no data: the new constant remembers what it comes from, and its `load` does the work.
`RestoreDerived` turns such constants back into ops, which is how they leave in an exported
model, whose data file stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr, Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.bodies import rewrite_bodies
from gecompiler.passes.canonical.cast_merging import is_lossless, target_type
from gecompiler.passes.op_params import perm
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import Result, Rewriter

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


@dataclass(frozen=True, slots=True)
class Step:
    """One op on the way: Transpose (its permutation), Reshape or Cast, and the type it makes."""

    op_type: str
    type: TensorType
    perm: tuple[int, ...] = ()

    def apply(self, array: Array) -> Array:
        """The op, in numpy."""
        if self.op_type == "Transpose":
            return np.transpose(array, self.perm)
        if self.op_type == "Reshape":
            return array.reshape(self.type.sizes)
        with np.errstate(all="ignore"):
            return array.astype(self.type.dtype.numpy)


@dataclass(frozen=True, slots=True)
class Derived:
    """The source of a constant that is ``steps`` applied to ``base``, named ``name`` once."""

    base: Constant
    name: str
    steps: tuple[Step, ...]

    def load(self, type_: TensorType) -> Array:
        """The array; MissingDataError when the base's data is not there."""
        array = self.base.array()
        for step in self.steps:
            array = step.apply(array)
        return array.view()

    def describe(self) -> str:
        """What was done to which constant."""
        inner = self.name
        for step in self.steps:
            inner = f"{step.op_type}({inner})"
        return inner


def derive_constant(r: Rewriter, op: Op) -> Result | None:
    """Transpose, Cast or a reshape of a constant that alone uses it and has no data in memory."""
    if op.domain or len(op.outputs) != 1 or not op.inputs:
        return None
    base = r.graph.constant(op.inputs[0])
    if base is None or base.data is not None or not r.graph.single_use(op.inputs[0]):
        return None
    type_ = r.graph.tensor(op.outputs[0])
    step = None if type_ is None or not type_.is_static else _step(r, op, type_)
    if step is None:
        return None
    source = base.source
    if isinstance(source, Derived):
        return Constant(step.type, source=Derived(source.base, source.name, (*source.steps, step)))
    return Constant(step.type, source=Derived(base, op.inputs[0], (step,)))


def _step(r: Rewriter, op: Op, type_: TensorType) -> Step | None:
    if op.op_type in _RESHAPES:
        return Step("Reshape", type_)
    if op.is_("Transpose"):
        order = perm(r, op)
        return None if order is None else Step("Transpose", type_, order)
    source = r.facts.dtype(op.inputs[0])
    target = target_type(op) if op.is_("Cast") else None
    if source is None or target is None:
        return None
    floats = (DType.F16, DType.BF16, DType.F32)
    plain = is_lossless(source, target) or (source in floats and target in floats)
    return Step("Cast", type_) if plain else None


class RestoreDerived(Pass):
    """Puts back the ops that were folded into constants whose data is not in memory."""

    name = "restore-derived"

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of constants put back."""
        return _restore_all(graph)


def _restore_all(graph: Graph) -> int:
    count = rewrite_bodies(graph, _restore_all)
    for name, constant in list(graph.constants.items()):
        if isinstance(constant.source, Derived) and constant.source.base.data is None:
            _restore(graph, name, constant.source)
            count += 1
    return count


def _restore(graph: Graph, name: str, source: Derived) -> None:
    value = source.name
    if graph.constant(value) is not source.base:
        value = graph.add_constant(graph.fresh(value), source.base)
    for step in source.steps:
        inputs, attrs = _operands(graph, value, step)
        value = graph.emit(step.op_type, inputs, step.type, attrs=attrs, stem=name)
    graph.replace_uses(name, value)
    graph.remove_constant(name)


def _operands(graph: Graph, value: str, step: Step) -> tuple[tuple[str, ...], dict[str, Attr]]:
    if step.op_type == "Transpose":
        return (value,), {"perm": step.perm}
    if step.op_type == "Cast":
        return (value,), {"to": step.type.dtype.code}
    shape = graph.constant_of(f"{value}_shape", np.array(step.type.sizes, dtype=np.int64))
    return (value, shape), {}
