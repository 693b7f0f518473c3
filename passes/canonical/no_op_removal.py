"""Ops that hand on what they get: each is replaced by its input.

Exact in every bit: signed zeros, infinities and NaN come out as they went in, and nothing is
rounded that was not rounded before.
"""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.passes.canonical import cast_merging, neutral_elements, slice_merging
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable, merge_tables
from gecompiler.passes.rule_pass import RulePass

_SELF_INVERSE = ("Not", "Neg")


def drop_identity(_: Rewriter, op: Op) -> Result | None:
    """Identity."""
    return op.inputs[0]


def drop_single(_: Rewriter, op: Op) -> Result | None:
    """Concat, Sum, Max, Min, Mean of a single tensor."""
    return op.inputs[0] if len(op.inputs) == 1 else None


def drop_double(r: Rewriter, op: Op) -> Result | None:
    """Not of Not, Neg of Neg."""
    maker = r.graph.producer(op.inputs[0])
    return maker.inputs[0] if maker is not None and maker.is_(op.op_type) else None


def drop_pad(r: Rewriter, op: Op) -> Result | None:
    """Pad by nothing on every side."""
    given = op.attr("pads") if r.opset < 11 else r.facts.ints(op.input(1))
    return op.inputs[0] if given is not None and not any(given) else None


def drop_expand(r: Rewriter, op: Op) -> Result | None:
    """Expand to the shape that is there."""
    shape = r.facts.shape(op.inputs[0])
    return op.inputs[0] if shape is not None and shape == r.facts.shape(op.outputs[0]) else None


def drop_tile(r: Rewriter, op: Op) -> Result | None:
    """Tile with one repeat along every axis."""
    repeats = r.facts.ints(op.input(1))
    return op.inputs[0] if repeats is not None and set(repeats) <= {1} else None


def drop_split(r: Rewriter, op: Op) -> Result | None:
    """Split into one part."""
    return op.inputs[0] if len(op.outputs) == 1 else None


RULES: RuleTable = merge_tables(
    {
        "Identity": (drop_identity,),
        "Concat": (drop_single,),
        "Sum": (drop_single,),
        "Max": (drop_single,),
        "Min": (drop_single,),
        "Mean": (drop_single,),
        "Pad": (drop_pad,),
        "Expand": (drop_expand,),
        "Tile": (drop_tile,),
        "Split": (drop_split,),
        **dict.fromkeys(_SELF_INVERSE, (drop_double,)),
    },
    neutral_elements.RULES,
    cast_merging.RULES,
    slice_merging.RULES,
)


class NoOpRemoval(RulePass):
    """Removes ops that hand on what they get."""

    name = "no-op-removal"
    rules = RULES
