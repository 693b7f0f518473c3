"""Arithmetic of the ops that constant folding may evaluate, in numpy.

Only ops whose ONNX meaning numpy gives exactly: IEEE arithmetic rounded once, integers that
wrap, comparisons, and moves of elements. Transcendental functions are computed in float64 and
rounded once, which is at least as close as any runtime. A kernel returns None where the
result is not defined by ONNX (division of an integer by zero, an index out of range).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.canonical import folding_moves

Kernel = Callable[["Call"], "Array | tuple[Array, ...] | None"]


@dataclass(frozen=True, slots=True)
class Call:
    """One evaluation: the op, its inputs (None: left out), the opset, its first output's type.

    ``sizes`` is the shape inferred for the first output; what grows checks itself against it
    before it takes memory.
    """

    op: Op
    inputs: tuple[Array | None, ...]
    opset: int
    dtype: DType
    sizes: tuple[int, ...]

    def input(self, index: int) -> Any:
        """That input, None when it is left out or beyond the end."""
        return self.inputs[index] if index < len(self.inputs) else None

    def broadcasts(self) -> bool:
        """Whether the inputs broadcast to the shape that was inferred."""
        shapes = [x.shape for x in self.inputs if x is not None]
        return np.broadcast_shapes(*shapes) == self.sizes


def _binary(function: Callable[[Any, Any], Any]) -> Kernel:
    def kernel(call: Call) -> Array | None:
        return np.asarray(function(call.input(0), call.input(1))) if call.broadcasts() else None

    return kernel


def _variadic(function: Callable[[Any, Any], Any]) -> Kernel:
    def kernel(call: Call) -> Array | None:
        if not call.broadcasts():
            return None
        result = call.input(0)
        for other in call.inputs[1:]:
            result = function(result, other)
        return np.asarray(result)

    return kernel


def _extreme(function: Callable[[Any, Any], Any]) -> Kernel:
    """Max and Min; of NaN and of zeros of either sign each runtime has its own idea."""
    plain = _variadic(function)

    def kernel(call: Call) -> Array | tuple[Array, ...] | None:
        for x in call.inputs:
            if call.dtype.is_float and x is not None and np.any(np.isnan(x) | (x == 0)):
                return None
        return plain(call)

    return kernel


def _unary(function: Callable[[Any], Any]) -> Kernel:
    return lambda call: np.asarray(function(call.input(0)))


def _rounded(function: Callable[[Any], Any]) -> Kernel:
    """A transcendental function, computed in float64 and rounded once."""

    def kernel(call: Call) -> Array | None:
        if not call.dtype.is_float:
            return None
        found: Array = function(call.input(0).astype(np.float64)).astype(call.dtype.numpy)
        return found

    return kernel


def _divide(call: Call) -> Array | None:
    a, b = call.input(0), call.input(1)
    if not call.broadcasts():
        return None
    if call.dtype.is_float:
        return np.asarray(a / b)
    if not call.dtype.is_integer or np.any(b == 0):
        return None
    quotient = np.asarray(a // b)  # numpy rounds down, ONNX toward zero as C does
    short = ((a < 0) != (b < 0)) & (quotient * b != a)
    return np.asarray((quotient + short).astype(a.dtype))


def _sign(call: Call) -> Array | None:
    """ONNX does not say of what sign a NaN is."""
    x = call.input(0)
    if call.dtype.is_float and np.any(np.isnan(x)):
        return None
    return np.asarray((x > 0).astype(x.dtype) - (x < 0).astype(x.dtype))


def _modulo(call: Call) -> Array | None:
    a, b = call.input(0), call.input(1)
    if not call.dtype.is_integer or np.any(b == 0) or not call.broadcasts():
        return None
    return np.asarray(np.fmod(a, b) if call.op.attr("fmod", 0) else np.mod(a, b))


def _power(call: Call) -> Array | None:
    a, b = call.input(0), call.input(1)
    if not call.broadcasts():
        return None
    if call.dtype.is_float:
        wide = np.power(a.astype(np.float64), b.astype(np.float64))
        return np.asarray(wide.astype(call.dtype.numpy))
    if a.dtype != b.dtype or np.any(b < 0):
        return None
    return np.asarray(np.power(a, b))


def _cast(call: Call) -> Array | None:
    """Casts that every runtime does alike: floats must be in range of an integer target."""
    x, target = call.input(0), call.dtype
    exact = (DType.F16, DType.BF16, DType.F32, DType.F64, DType.BOOL)
    if x.dtype.kind not in "biuf" and DType.from_numpy(x.dtype) is not DType.BF16:
        return None
    if target is DType.BF16 and x.dtype.kind in "iu":
        return None
    if target.is_integer and target.bits >= 8:
        if x.dtype.kind in "biu":
            return np.asarray(x.astype(target.numpy))
        bound = float(2 ** (target.bits - 1))
        wide = np.trunc(x.astype(np.float64))
        low = 0.0 if target.short.startswith("u") else -bound
        if not np.all((wide >= low) & (wide < bound)):
            return None
        return np.asarray(wide.astype(target.numpy))
    if target not in exact or (x.dtype == np.float64 and target.bits < 32 and target.is_float):
        return None
    return np.asarray(x.astype(target.numpy))


def _where(call: Call) -> Array | None:
    if not call.broadcasts():
        return None
    return np.asarray(np.where(call.input(0), call.input(1), call.input(2)))


def _product_of_vectors(call: Call) -> Array | None:
    """MatMul over an inner size of 1: nothing is summed, hence no order of summation."""
    a, b = call.input(0), call.input(1)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != 1 or not call.broadcasts():
        return None
    return np.asarray(a * b)


def _reduce(function: Callable[..., Any]) -> Kernel:
    def kernel(call: Call) -> Array | None:
        x = call.input(0)
        given = call.input(1) if call.input(1) is not None else call.op.attr("axes")
        if x.size == 0 or not call.dtype.is_integer:
            return None
        axes = tuple(int(a) for a in given) if given is not None else ()
        if not axes:
            if call.op.attr("noop_with_empty_axes", 0):
                return np.asarray(x)
            axes = tuple(range(x.ndim))
        keep = bool(call.op.attr("keepdims", 1))
        return np.asarray(function(x, axis=axes, keepdims=keep)).astype(x.dtype)

    return kernel


def _running_sum(call: Call) -> Array | None:
    x, axis = call.input(0), int(call.input(1).reshape(-1)[0])
    if not call.dtype.is_integer or call.op.attr("exclusive", 0) or call.op.attr("reverse", 0):
        return None
    return np.asarray(np.cumsum(x, axis=axis, dtype=x.dtype))


KERNELS: Mapping[str, Kernel] = {
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _divide,
    "Mod": _modulo,
    "Pow": _power,
    "Max": _extreme(np.maximum),
    "Min": _extreme(np.minimum),
    "Sum": _variadic(np.add),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sign": _sign,
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.rint),
    "Sqrt": _rounded(np.sqrt),
    "Reciprocal": _unary(lambda x: (1 / x).astype(x.dtype)),
    "Exp": _rounded(np.exp),
    "Log": _rounded(np.log),
    "Cos": _rounded(np.cos),
    "Sin": _rounded(np.sin),
    "Tanh": _rounded(np.tanh),
    "IsNaN": _unary(np.isnan),
    "Equal": _binary(np.equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Xor": _binary(np.logical_xor),
    "Not": _unary(np.logical_not),
    "BitwiseAnd": _binary(np.bitwise_and),
    "BitwiseOr": _binary(np.bitwise_or),
    "BitwiseXor": _binary(np.bitwise_xor),
    "BitwiseNot": _unary(np.bitwise_not),
    "Where": _where,
    "Cast": _cast,
    "MatMul": _product_of_vectors,
    "ReduceSum": _reduce(np.sum),
    "ReduceProd": _reduce(np.prod),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "CumSum": _running_sum,
    **folding_moves.KERNELS,
}
"""Kernels by op type of ai.onnx."""
