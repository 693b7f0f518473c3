"""All vector-Jacobian rules by kind of op."""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.ir.op import Op
from gecompiler.passes.training import (
    vjp_channels,
    vjp_collectives,
    vjp_conv,
    vjp_elementwise,
    vjp_fused,
    vjp_loss,
    vjp_matmul,
    vjp_pool,
    vjp_reduce,
    vjp_shapes,
)
from gecompiler.passes.training.site import Rule, no_gradient


def _merged(*tables: Mapping[str, Rule]) -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        if twice:
            raise RuntimeError(f"two rules for {sorted(twice)}")
        found.update(table)
    return found


RULES = _merged(
    vjp_elementwise.RULES,
    vjp_shapes.RULES,
    vjp_reduce.RULES,
    vjp_matmul.RULES,
    vjp_fused.RULES,
    vjp_conv.RULES,
    vjp_channels.RULES,
    vjp_pool.RULES,
    vjp_loss.RULES,
    vjp_collectives.RULES,
)
"""Rules by `Op.kind`."""


def rule_of(op: Op) -> Rule:
    """The rule of an op; ModelError names one that has none, and says what to do."""
    if op.bodies:
        raise no_gradient(op, "runs a body, through which no gradient goes here")
    found = RULES.get(op.kind)
    if found is None:
        raise no_gradient(op, f"has no gradient; {len(RULES)} kinds of op have one")
    return found
