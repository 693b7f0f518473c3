"""Arithmetic on shapes goes: contents that are known become constants, targets become short.

A Reshape or Expand whose target is computed by Shape, Gather, Concat and so on gets a constant
target where the sizes are proven on symbols; the chain then dies. What must still be computed
is computed once, from the graph's inputs (`shape_recipes`).
"""

from __future__ import annotations

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.canonical import expand_sinking
from gecompiler.passes.canonical.reshape_forms import inserted_ones, needed_expand, reshaped
from gecompiler.passes.canonical.reshape_merging import merge_reshapes
from gecompiler.passes.canonical.shape_recipes import RULES as RECIPES
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable, merge_tables
from gecompiler.passes.rule_pass import RulePass


def fold_contents(r: Rewriter, op: Op) -> Result | None:
    """A small integer tensor whose every element is known is a constant."""
    if len(op.outputs) != 1:
        return None
    known = r.facts.symbolic(op.outputs[0])
    if known is None or known.numbers is None:
        return None
    dtype = r.facts.dtype(op.outputs[0])
    if dtype is None or not (dtype.is_integer or dtype is DType.BOOL):
        return None  # a float tensor's zeros have signs that contents do not tell
    array = np.array(known.numbers, dtype=dtype.numpy).reshape(known.shape)
    return Constant.of(array, dtype)


def expand_target(r: Rewriter, op: Op) -> Result | None:
    """Expand with the shortest constant target: 1 where the size is there already."""
    shape, target = r.facts.shape(op.inputs[0]), r.facts.shape(op.outputs[0])
    if shape is None or target is None:
        return None
    if inserted_ones(shape, target) is not None:
        return reshaped(r, op, op.inputs[0], target)
    wanted = needed_expand(shape, target)
    numbers = [d for d in wanted if isinstance(d, int)]
    if len(numbers) < len(wanted):
        return None
    if r.facts.ints(op.inputs[1]) == tuple(numbers) and op.inputs[1] in r.graph.constants:
        return None
    return op.with_(inputs=(op.inputs[0], r.ints(numbers, f"{op.name}_shape")))


RULES: RuleTable = {
    "*": (fold_contents,),
    "Expand": (expand_target,),
    "Reshape": (merge_reshapes,),
}


class ShapeFolding(RulePass):
    """Makes shape arithmetic constant, or shares what is left of it."""

    name = "shape-folding"
    rules = merge_tables(RULES, expand_sinking.RULES, RECIPES)
