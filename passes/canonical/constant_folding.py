"""Ops on constants become constants.

Bounded: no constant of more than ``max-elements`` is made unless it is no larger than the
constants it replaces, and all together stay within a budget. Random ops and ops outside the
vetted table (`folding_kernels`) are left alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.canonical.derived_constants import derive_constant
from gecompiler.passes.canonical.folding_kernels import KERNELS, Call
from gecompiler.passes.canonical.no_op_removal import drop_identity
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import FoldingBudget, Result, Rewriter, RuleTable

_VIEWS = frozenset({"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"})
"""Ops whose result shares the memory of its input."""


def fold_constant_op(_: Rewriter, op: Op) -> Result | None:
    """A Constant op is the constant it holds."""
    for key, dtype in (
        ("value", None),
        ("value_int", DType.I64),
        ("value_ints", DType.I64),
        ("value_float", DType.F32),
        ("value_floats", DType.F32),
        ("value_string", DType.STRING),
        ("value_strings", DType.STRING),
    ):
        if key in op.attrs:
            value = op.attrs[key]
            return value if isinstance(value, Constant) else Constant.of(value, dtype)
    return None


def fold(r: Rewriter, op: Op) -> Result | None:
    """An op of the table whose inputs are constants in memory."""
    kernel = KERNELS.get(op.op_type)
    if kernel is None or op.domain or not op.inputs:
        return None
    inputs: list[Array | None] = []
    for value in op.inputs:
        constant = r.graph.constant(value) if value else None
        if value and (constant is None or constant.data is None):
            return None
        inputs.append(constant.data if constant else None)
    types = [r.graph.tensor(value) for value in op.outputs]
    if not _may_fold(r, op, types):
        return None
    first = types[0]
    assert first is not None
    try:
        with np.errstate(all="ignore"):
            found = kernel(Call(op, tuple(inputs), r.opset, first.dtype, first.sizes))
    except (ValueError, IndexError, TypeError, OverflowError):
        return None  # the op is wrong; running it says so, with its name
    if found is None:
        return None
    arrays = found if isinstance(found, tuple) else (found,)
    return _results(r, op, arrays, types)


def _may_fold(r: Rewriter, op: Op, types: list[TensorType | None]) -> bool:
    """Whether every output's type is known and small enough to be made."""
    for known in types:
        if known is None or not known.is_static or known.dtype is DType.STRING:
            return False
    if (op.op_type in _VIEWS or op.op_type == "Cast") and r.graph.single_use(op.inputs[0]):
        return True  # it takes the place of its input, which no one else uses
    sizes = [(math.prod(t.sizes), t.dtype.bits) for t in types if t is not None]
    return all(r.budget.allows(count, bits) for count, bits in sizes)


def _results(
    r: Rewriter, op: Op, arrays: tuple[Array, ...], types: list[TensorType | None]
) -> Result | None:
    found: list[Constant | None] = []
    for value, array, known in zip(op.outputs, arrays, types, strict=False):
        if known is None or array.shape != known.sizes or array.dtype != known.dtype.numpy:
            return None  # the type that was inferred and the kernel disagree: leave it alone
        if op.op_type not in _VIEWS:
            r.budget.spend(array.nbytes)
        found.append(Constant.of(array, known.dtype) if value else None)
    return tuple(found)


RULES: RuleTable = {
    "Constant": (fold_constant_op,),
    "Identity": (drop_identity,),
    "*": (fold, derive_constant),
}


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Evaluates ops whose inputs are constants.

    ``max_elements`` bounds each constant made, ``max_bytes`` all of them together.
    """

    name = "constant-folding"
    max_elements: int = 1 << 20
    max_bytes: int = 1 << 28

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of ops folded."""
        facts = infer_types(graph)
        budget = FoldingBudget(self.max_elements, self.max_bytes)
        rewriter = Rewriter(graph, ValueFacts(graph, facts.values), budget)
        changes = rewriter.run(RULES)
        if changes:
            rewriter.drop_unused_constants()
        return changes
