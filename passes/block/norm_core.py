"""Norms written out: ``x / sqrt(mean(x * x) + epsilon)``, ``x`` maybe minus its mean.

The rule looks at the op that ends one: a division by the root, or a product with its inverse,
into which a scale may have been multiplied first. What comes after is `norm_tail`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gecompiler.ir.block_ops import RMS_NORM, Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.block.norm_op import norm_in_place, read_norm
from gecompiler.passes.block.norm_parts import (
    Mean,
    inverse_root,
    mean,
    mean_of_square,
    plus_epsilon,
    root,
)
from gecompiler.passes.block.patterns import covers, maker, same_type
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


@dataclass(frozen=True, slots=True)
class _Quotient:
    """``value`` times ``scale`` (``""``: 1) over the root of ``radicand``; ``ops`` lie between."""

    value: str
    radicand: str
    scale: str
    ops: tuple[Op, ...]


def fuse_norm(r: Rewriter, op: Op) -> Result | None:
    """The quotient of something and the root of the mean of its square."""
    for quotient in _quotients(r, op):
        for radicand, epsilon, added in plus_epsilon(r, quotient.radicand):
            found = mean_of_square(r, radicand)
            if found is None or found.value != quotient.value:
                continue
            members = (*quotient.ops, *added, *found.ops)
            fused = _fused(r, op, quotient, found, epsilon, members)
            if fused is not None:
                return fused
    return None


def _fused(
    r: Rewriter, op: Op, quotient: _Quotient, found: Mean, epsilon: float, members: tuple[Op, ...]
) -> Op | None:
    stash = same_type(r, quotient.value, op.outputs[0])
    shape = r.facts.shape(quotient.value)
    if stash is None or shape is None or shape != r.facts.shape(op.outputs[0]):
        return None
    if quotient.scale and not covers(r, quotient.scale, shape[found.axis :]):
        return None
    named_after = found.ops[-1]
    centring = _centring(r, found.value, found.axis)
    if centring is not None:
        x, ops = centring
        spec = Norm(True, found.axis, epsilon, stash, stash, stash)
        inputs = NormInputs(x, scale=quotient.scale)
        made = norm_in_place(r, op, (*ops, *members), spec, inputs, named_after)
        if made is not None:
            return made
    spec = Norm(False, found.axis, epsilon, stash, stash, stash)
    inputs = NormInputs(quotient.value, scale=quotient.scale)
    return norm_in_place(r, op, members, spec, inputs, named_after)


def _centring(r: Rewriter, value: str, axis: int) -> tuple[str, tuple[Op, ...]] | None:
    """X and the ops, if the value is X minus its mean over the axes from ``axis`` on."""
    minus = maker(r, value, "Sub")
    middle = None if minus is None else mean(r, minus.inputs[1])
    if minus is None or middle is None:
        return None
    if middle.value != minus.inputs[0] or middle.axis != axis:
        return None
    return middle.value, (*middle.ops, minus)


def centre_norm(r: Rewriter, op: Op) -> Result | None:
    """An RMSNorm of X minus its mean is a LayerNorm; exporters make one of Cohere's."""
    found = read_norm(r, op)
    if found is None or found[0].centred or found[0].adds:
        return None
    spec, inputs = found
    centring = _centring(r, inputs.x, spec.axis)
    if centring is None or r.facts.dtype(inputs.x) is not spec.stash:
        return None
    x, ops = centring
    return norm_in_place(r, op, ops, replace(spec, centred=True), replace(inputs, x=x), op)


def _quotients(r: Rewriter, op: Op) -> Iterator[_Quotient]:
    if op.op_type == "Div":
        part = root(r, op.inputs[1])
        if part is not None:
            yield _Quotient(op.inputs[0], part.value, "", part.ops)
        return
    for value, other in (op.inputs, op.inputs[::-1]):
        part = inverse_root(r, other)
        if part is not None:
            yield _Quotient(value, part.value, "", part.ops)
            yield from _scaled_before(r, value, part.value, part.ops)
        yield from _scaled_inverse(r, value, other)


def _scaled_inverse(r: Rewriter, value: str, other: str) -> Iterator[_Quotient]:
    """``x * (inverse root * scale)``, or ``x * (scale / root)``."""
    product = maker(r, other, "Mul")
    for inverse, scale in (product.inputs, product.inputs[::-1]) if product is not None else ():
        part = inverse_root(r, inverse)
        if part is not None and product is not None:
            yield _Quotient(value, part.value, scale, (*part.ops, product))
    quotient = maker(r, other, "Div")
    part = None if quotient is None else root(r, quotient.inputs[1])
    if quotient is not None and part is not None:
        yield _Quotient(value, part.value, quotient.inputs[0], (*part.ops, quotient))


def _scaled_before(
    r: Rewriter, value: str, radicand: str, ops: tuple[Op, ...]
) -> Iterator[_Quotient]:
    """``(x * scale) * inverse root``."""
    product = maker(r, value, "Mul")
    for x, scale in (product.inputs, product.inputs[::-1]) if product is not None else ():
        if product is not None:
            yield _Quotient(x, radicand, scale, (*ops, product))


RULES: RuleTable = {
    "Div": (fuse_norm,),
    "Mul": (fuse_norm,),
    "RMSNormalization": (centre_norm,),
    f"{GE_DOMAIN}.{RMS_NORM}": (centre_norm,),
}
