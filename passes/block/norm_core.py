"""Norms written out: ``x / sqrt(mean(x * x) + epsilon)``, ``x`` maybe minus its mean.

The rule looks at the op that ends one: a division by the root, or a product with its inverse,
into which a scale may have been multiplied first. What comes after is `norm_tail`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gecompiler.ir.block_ops import RMS_NORM, Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType
from gecompiler.passes.block.norm_op import norm_in_place, read_norm
from gecompiler.passes.block.norm_parts import (
    centring,
    inverse_root,
    mean_of_square,
    plus_epsilon,
    root,
    variance,
)
from gecompiler.passes.block.norm_turned import turned_norm
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
            for found, ops in _moments(r, quotient.value, radicand):
                members = (*quotient.ops, *added, *ops)
                fused = _fused(r, op, quotient, found, epsilon, members)
                if fused is not None:
                    return fused
    return None


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is normalised (``centred``: less its mean), over which axes, named after which op."""

    x: str
    centred: bool
    axis: int
    end: int
    named_after: Op


def _moments(r: Rewriter, value: str, radicand: str) -> Iterator[tuple[_Moment, tuple[Op, ...]]]:
    """The ways to read a radicand as the mean of the square of ``value``, and the ops that make it.

    The mean of X may be computed twice, and the variance from the means of X and its square.
    """
    found, centre = mean_of_square(r, radicand), centring(r, value)
    if centre is not None and found is not None:
        other = centring(r, found.value)
        same = other is not None and (other.value, other.axes) == (centre.value, centre.axes)
        if other is not None and same and found.axes == centre.axes:
            ops = (*centre.ops, *other.ops, *found.ops)
            yield _Moment(centre.value, True, *centre.axes, found.ops[-1]), ops
    direct = variance(r, radicand)
    if centre is not None and direct is not None:
        exact = r.facts.dtype(value) in (DType.F32, DType.F64)
        if exact and (direct.value, direct.axes) == (centre.value, centre.axes):
            ops = (*centre.ops, *direct.ops)
            yield _Moment(centre.value, True, *centre.axes, direct.ops[-1]), ops
    if found is not None and found.value == value:
        yield _Moment(value, False, *found.axes, found.ops[-1]), found.ops


def _fused(
    r: Rewriter,
    op: Op,
    quotient: _Quotient,
    found: _Moment,
    epsilon: float,
    members: tuple[Op, ...],
) -> Op | None:
    stash = same_type(r, found.x, quotient.value, op.outputs[0])
    shape = r.facts.shape(found.x)
    if stash is None or shape is None or shape != r.facts.shape(op.outputs[0]):
        return None
    if found.end:
        # A norm across the batch would tie its entries together: it is left written out.
        spec = Norm(found.centred, found.axis - found.end, epsilon, stash, stash, stash)
        whole = quotient.scale or len(shape) + found.axis == 0
        return None if whole else turned_norm(r, op, members, spec, found.x, found.end)
    if quotient.scale and not covers(r, quotient.scale, shape[found.axis :]):
        return None
    spec = Norm(found.centred, found.axis, epsilon, stash, stash, stash)
    inputs = NormInputs(found.x, scale=quotient.scale)
    return norm_in_place(r, op, members, spec, inputs, found.named_after)


def centre_norm(r: Rewriter, op: Op) -> Result | None:
    """An RMSNorm of X minus its mean is a LayerNorm; exporters make one of Cohere's."""
    found = read_norm(r, op)
    if found is None or found[0].centred or found[0].adds:
        return None
    spec, inputs = found
    centre = centring(r, inputs.x)
    if centre is None or centre.axes != (spec.axis, 0):
        return None
    if r.facts.dtype(inputs.x) is not spec.stash:
        return None
    spec, inputs = replace(spec, centred=True), replace(inputs, x=centre.value)
    return norm_in_place(r, op, centre.ops, spec, inputs, op)


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
