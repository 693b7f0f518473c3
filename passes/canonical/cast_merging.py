"""Casts that cancel or merge without changing a number."""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_DIGITS = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
"""Binary digits of the significand."""
_EXPONENT = {DType.F64: 1023, DType.F32: 127, DType.F16: 15, DType.BF16: 127}
"""Largest binary exponent."""
_SIGNED = {DType.I8: 7, DType.I16: 15, DType.I32: 31, DType.I64: 63}
_UNSIGNED = {DType.U8: 8, DType.U16: 16, DType.U32: 32, DType.U64: 64}
"""Digits of integers."""


def is_lossless(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` is one of ``target`` (and -0.0, NaN and inf stay)."""
    if source is target:
        return True
    if source is DType.BOOL:
        return target in _DIGITS or target in _SIGNED or target in _UNSIGNED
    if source in _DIGITS and target in _DIGITS:
        return _DIGITS[source] <= _DIGITS[target] and _EXPONENT[source] <= _EXPONENT[target]
    digits = _SIGNED.get(source) or _UNSIGNED.get(source)
    if digits is None:
        return False
    if target in _DIGITS:
        return digits <= _DIGITS[target] and digits <= _EXPONENT[target]
    if source in _SIGNED:
        return target in _SIGNED and digits <= _SIGNED[target]
    return digits <= max(_SIGNED.get(target, 0), _UNSIGNED.get(target, 0))


def target_type(op: Op) -> DType | None:
    """The type that a Cast makes, None when its attribute names none that is known."""
    try:
        return DType.from_code(op.attr("to"))
    except ValueError:
        return None


def drop_cast(r: Rewriter, op: Op) -> Result | None:
    """A Cast to the type that the value has is the value."""
    target = target_type(op)
    return op.inputs[0] if target is not None and r.facts.dtype(op.inputs[0]) is target else None


def merge_casts(r: Rewriter, op: Op) -> Result | None:
    """Cast to a wider type and on is one Cast: the first loses nothing."""
    maker = r.graph.producer(op.inputs[0])
    if maker is None or not maker.is_("Cast"):
        return None
    source, middle = r.facts.dtype(maker.inputs[0]), target_type(maker)
    if source is None or middle is None or not is_lossless(source, middle):
        return None
    if target_type(op) is DType.STRING:
        return None  # how a number is spelt depends on its type
    return op.with_(inputs=maker.inputs)


def cast_like(r: Rewriter, op: Op) -> Result | None:
    """CastLike to a value whose type is known is a Cast."""
    target = r.facts.dtype(op.inputs[1])
    if target is None:
        return None
    attrs = {"to": target.code, **op.attrs}
    return op.with_(op_type="Cast", inputs=op.inputs[:1], attrs=attrs)


RULES: RuleTable = {"Cast": (drop_cast, merge_casts), "CastLike": (cast_like,)}
