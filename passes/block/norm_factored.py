"""LayerNorm with the scale multiplied into the inverse root first, as TensorFlow writes it.

``x * g + (shift - mean(x) * g)`` with ``g = scale / sqrt(mean((x - mean(x)) ** 2) + epsilon)``.
"""

from __future__ import annotations

from collections.abc import Iterator

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import Op
from gecompiler.passes.block.norm_op import norm_in_place
from gecompiler.passes.block.norm_parts import inverse_root, mean, mean_of_square, plus_epsilon
from gecompiler.passes.block.patterns import covers, maker, same_type
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def fuse_factored(r: Rewriter, op: Op) -> Result | None:
    """The sum that ends one, or the difference where there is no shift."""
    for product, rest, shift, shifting in _terms(r, op):
        for x, factor in _orders(product):
            for centre in _others(rest, factor):
                middle = mean(r, centre)
                if middle is None or middle.value != x or middle.end:
                    continue
                members = (product, rest, *shifting, *middle.ops)
                made = _fused(r, op, x, centre, factor, shift, middle.axis, members)
                if made is not None:
                    return made
    return None


def _terms(r: Rewriter, op: Op) -> Iterator[tuple[Op, Op, str, tuple[Op, ...]]]:
    """The product with x, that with its mean, the shift, and the op that subtracts from it."""
    if op.op_type == "Sub":
        product, rest = (maker(r, v, "Mul") for v in op.inputs)
        if product is not None and rest is not None:
            yield product, rest, "", ()
        return
    for a, b in (op.inputs, op.inputs[::-1]):
        product, minus = maker(r, a, "Mul"), maker(r, b, "Sub")
        rest = None if minus is None else maker(r, minus.inputs[1], "Mul")
        if product is not None and minus is not None and rest is not None:
            yield product, rest, minus.inputs[0], (minus,)


def _orders(op: Op) -> tuple[tuple[str, str], ...]:
    return ((op.inputs[0], op.inputs[1]), (op.inputs[1], op.inputs[0]))


def _others(op: Op, value: str) -> list[str]:
    """What a product multiplies ``value`` by, if it does."""
    return [a for a, b in _orders(op) if b == value]


def _fused(
    r: Rewriter,
    op: Op,
    x: str,
    centre: str,
    factor: str,
    shift: str,
    axis: int,
    members: tuple[Op, ...],
) -> Op | None:
    kind, shape = same_type(r, x, op.outputs[0]), r.facts.shape(x)
    if kind is None or not shape or shape != r.facts.shape(op.outputs[0]):
        return None
    if shift and not covers(r, shift, shape[axis:]):
        return None
    for inverse, scale, scaling in _factors(r, factor):
        part = inverse_root(r, inverse)
        if part is None or (scale and not covers(r, scale, shape[axis:])):
            continue
        for radicand, epsilon, added in plus_epsilon(r, part.value):
            variance = mean_of_square(r, radicand)
            minus = None if variance is None else maker(r, variance.value, "Sub")
            if variance is None or minus is None or variance.axes != (axis, 0):
                continue
            if minus.inputs != (x, centre):
                continue
            ops = (*members, *scaling, *part.ops, *added, *variance.ops, minus)
            spec = Norm(True, axis, epsilon, kind, kind, kind)
            inputs = NormInputs(x, scale=scale, shift=shift)
            return norm_in_place(r, op, ops, spec, inputs, variance.ops[-1])
    return None


def _factors(r: Rewriter, factor: str) -> Iterator[tuple[str, str, tuple[Op, ...]]]:
    """The inverse root and the scale that the factor is the product of, and that product."""
    yield factor, "", ()
    product = maker(r, factor, "Mul")
    for inverse, scale in _orders(product) if product is not None else ():
        if product is not None:
            yield inverse, scale, (product,)


RULES: RuleTable = {"Add": (fuse_factored,), "Sub": (fuse_factored,)}
