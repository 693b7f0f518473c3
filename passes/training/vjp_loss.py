"""The gradient of the loss."""

from __future__ import annotations

from gecompiler.ir.op import GE_DOMAIN
from gecompiler.ir.training_ops import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from gecompiler.passes.training.site import Gradients, Rule, Site


def _cross_entropy(site: Site) -> Gradients:
    inputs = [site.dy, site.x(0), site.x(1), site.y(1)]
    made = site.tape.own(CROSS_ENTROPY_GRAD, inputs, site.type(0), attrs=site.op.attrs)
    return {0: made[0]}


RULES: dict[str, Rule] = {f"{GE_DOMAIN}.{CROSS_ENTROPY}": _cross_entropy}
