"""What only training does is taken out: Dropout and stochastic depth left in training mode.

Exporters that trace a model in evaluation mode still write ``training_mode = True`` into
Dropout, and spell stochastic depth (drop path) with a random number. What is compiled here is
inference, where both hand on what they get; a warning says so.
"""

from __future__ import annotations

import math

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.rule_pass import RulePass

_HINT = "export the model in evaluation mode if this is not what you expect"


def drop_dropout(r: Rewriter, op: Op) -> Result | None:
    """Dropout: its data unchanged, and a mask that is True everywhere.

    One whose training mode is computed stays.
    """
    training = r.facts.uniform(op.inputs[2]) if op.input(2) else False
    if training is None:
        return None
    if training:
        r.warn(
            "training-mode",
            "the model has Dropout in training mode; it is compiled for inference, where "
            "Dropout changes nothing",
            _HINT,
        )
    if len(op.outputs) == 1 or not op.outputs[1]:
        return op.inputs[0]
    mask = op.outputs[1]
    known = r.graph.tensor(mask)
    wanted = bool(r.graph.uses(mask)) or r.graph.is_output(mask)
    if not wanted or known is None or known.dtype is not DType.BOOL or not known.is_static:
        return (op.inputs[0], None)
    if not r.budget.allows(math.prod(known.sizes), 8):
        return (op.inputs[0], None)
    return (op.inputs[0], Constant.of(np.ones(known.sizes, dtype=np.bool_)))


def drop_path(r: Rewriter, op: Op) -> Result | None:
    """Stochastic depth: ``x / keep * floor(keep + uniform)`` is x."""
    for scaled, coin in (op.inputs, op.inputs[::-1]):
        keep = _keep_probability(r, coin)
        divided = r.graph.producer(scaled)
        if keep is None or divided is None or not divided.is_("Div"):
            continue
        x = divided.inputs[0]
        same_shape = r.facts.shape(x) == r.facts.shape(op.outputs[0])
        if r.facts.uniform(divided.inputs[1]) == keep and same_shape:
            r.warn(
                "training-mode",
                "the model drops paths at random (stochastic depth); it is compiled for "
                "inference, where every path is kept",
                _HINT,
            )
            return x
    return None


def _keep_probability(r: Rewriter, value: str) -> float | None:
    """P if the value is floor(p + u) with u drawn from [0, 1)."""
    floor = r.graph.producer(value)
    add = r.graph.producer(floor.inputs[0]) if floor is not None and floor.is_("Floor") else None
    if add is None or not add.is_("Add"):
        return None
    for drawn, keep in (add.inputs, add.inputs[::-1]):
        rand = r.graph.producer(drawn)
        probability = r.facts.uniform(keep)
        if rand is None or not rand.is_("RandomUniformLike", "RandomUniform"):
            continue
        plain = (rand.attr("low", 0.0), rand.attr("high", 1.0)) == (0.0, 1.0)
        if plain and probability is not None and 0 < probability <= 1:
            return float(probability)
    return None


RULES: RuleTable = {"Dropout": (drop_dropout,), "Mul": (drop_path,)}


class InferenceMode(RulePass):
    """Takes out Dropout and stochastic depth."""

    name = "inference-mode"
    rules = RULES
