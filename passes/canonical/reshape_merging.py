"""Chains of Reshape, Squeeze, Unsqueeze and Flatten become one op in canonical form, or none."""

from __future__ import annotations

from collections.abc import Iterator

from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.passes.canonical.reshape_forms import reshaped
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.rule_pass import RulePass

RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_MAX_CHAIN = 8


def merge_reshapes(r: Rewriter, op: Op) -> Result | None:
    """The op applied to the earliest value of its chain from which one op reaches the result."""
    target = r.facts.shape(op.outputs[0])
    return None if target is None else reshape_of_chain(r, op, op.inputs[0], target)


def reshape_of_chain(r: Rewriter, op: Op, value: str, target: Shape) -> Result | None:
    """``value`` reshaped to ``target`` in the place of ``op``, from as far up as one op reaches.

    None when no canonical reshape does it, or when ``op`` is that already.
    """
    chain = list(_upstream(r, value))
    for source in reversed(chain):
        if r.facts.shape(source) == target:
            return source
    for source in reversed(chain):
        new = reshaped(r, op, source, target)
        if new is not None:
            return new
    return None


def _upstream(r: Rewriter, value: str) -> Iterator[str]:
    """The value, the input of the reshape that makes it, and so on."""
    for _ in range(_MAX_CHAIN):
        yield value
        maker = r.graph.producer(value)
        if maker is None or not maker.is_(*RESHAPES):
            return
        value = maker.inputs[0]


RULES: RuleTable = dict.fromkeys(RESHAPES, (merge_reshapes,))


class ReshapeMerging(RulePass):
    """Merges chains of Reshape, Squeeze, Unsqueeze and Flatten."""

    name = "reshape-merging"
    rules = RULES
