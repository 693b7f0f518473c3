"""Ops on constants become constants.

Bounded: no constant of more than ``max-elements`` is made unless it is no larger than the
constants it replaces, and all together stay within a budget. Random ops and ops outside the
vetted table (`folding_kernels`) are left alone; of a model that is to be trained also lookups in
its tables and other forms of matrices that are shared: what is trained is these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.bodies import rewrite_all
from gecompiler.passes.canonical.derived_constants import derive_constant
from gecompiler.passes.canonical.folding_kernels import KERNELS, Call
from gecompiler.passes.canonical.no_op_removal import drop_identity
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewrite_edits import Target
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


def _is_trained(r: Rewriter, op: Op) -> bool:
    """Whether the op looks rows up in a table that training changes, or takes one of several forms.

    A matrix that several ops read is one parameter, and stays so.
    """
    if r.budget.weights or not op.inputs:
        return False
    constant = r.graph.constant(op.inputs[0])
    if constant is None or not constant.type.dtype.is_float or constant.computed:
        return False
    if op.is_("Expand", "Tile"):  # a row for each sample; what else is made so are angles
        users = r.graph.users(op.outputs[0])
        return constant.size > 1 and any(user.is_("Concat", "Add") for user in users)
    if constant.type.rank != 2:
        return False
    forms = op.is_("Cast") or op.op_type in _VIEWS
    return (
        op.is_("Gather", "GatherND")
        or _takes_rows(r, op)
        or (forms and not r.graph.single_use(op.inputs[0]))
    )


def _takes_rows(r: Rewriter, op: Op) -> bool:
    """Whether the op takes the first rows of a table, as of positions, or others in a row."""
    axes = r.graph.constant(op.input(3)) if op.is_("Slice") and op.input(3) else None
    found = None if axes is None else axes.small_array()
    return found is not None and found.tolist() in ([0], [-2])


def fold_or_derive(r: Rewriter, op: Op) -> Result | None:
    """An op on constants, computed now where they are in memory, else when it is asked for."""
    if _is_trained(r, op):
        return None
    found = fold(r, op)
    if found is None:
        found = derive_constant(r, op)
    return found if found is None or _has_weight(r, op) else _computed(found)


def _has_weight(r: Rewriter, op: Op) -> bool:
    """Whether the op reads floats that are not computed themselves."""
    constants = [r.graph.constant(value) for value in op.inputs if value]
    return any(
        c is not None and c.type.dtype.is_float and c.size > 1 and not c.computed for c in constants
    )


def _computed(found: Result) -> Result:
    if isinstance(found, tuple):
        return tuple(_marked(part) for part in found)
    return replace(found, computed=True) if isinstance(found, Constant) else found


def _marked(part: Target) -> Target:
    return replace(part, computed=True) if isinstance(part, Constant) else part


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
    "*": (fold_or_derive,),
}


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Evaluates ops whose inputs are constants, bodies of ops included.

    ``max_elements`` bounds each constant made, ``max_bytes`` all of them together.
    """

    name = "constant-folding"
    max_elements: int = 1 << 20
    max_bytes: int = 1 << 28

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of ops folded."""
        budget = FoldingBudget(self.max_elements, self.max_bytes, weights=not context.trains)

        def rewrite(part: Graph) -> int:
            facts = ValueFacts(part, infer_types(part).values)
            rewriter = Rewriter(part, facts, budget)
            changes = rewriter.run(RULES)
            if changes:
                rewriter.drop_unused_constants()
            return changes

        return rewrite_all(graph, rewrite)
