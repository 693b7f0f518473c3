"""The gradient of the loss."""

from __future__ import annotations

from gecompiler.ir.op import GE_DOMAIN
from gecompiler.ir.training_ops import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from gecompiler.passes.training.site import Gradients, Rule, Site


def _cross_entropy(site: Site) -> Gradients:
    """Of logits by words directly: what ranks sum for the loss is no part of the way back."""
    t, op, dy = site.tape, site.op, site.dy
    if op.input(2):
        ranks = int(op.attr("ranks", 1))
        inputs = [t.scaled(dy, ranks), site.x(0), site.x(1), site.x(3), site.x(2)]
    else:
        inputs = [dy, site.x(0), site.x(1), site.y(1), ""]
    inputs = [*inputs, site.x(5)] if op.input(5) else inputs[: 5 if op.input(2) else 4]
    attrs = {name: value for name, value in op.attrs.items() if name != "ranks"}
    return {0: t.own(CROSS_ENTROPY_GRAD, inputs, site.type(0), attrs=attrs)[0]}


RULES: dict[str, Rule] = {f"{GE_DOMAIN}.{CROSS_ENTROPY}": _cross_entropy}
