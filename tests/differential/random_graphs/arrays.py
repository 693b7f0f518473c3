"""Numbers of every element type, the awkward ones included."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto as T

FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
FLOAT8 = (T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ)
INTS = (T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64)
INT4 = (T.INT4, T.UINT4)
LEAST_OPSET = {**dict.fromkeys(FLOAT8, 19), **dict.fromkeys(INT4, 21), T.BFLOAT16: 13}
"""The first opset in which the moves and casts take an element type."""

_WORDS = ("", "a", "zebra", "Straße", "名", "a b", "0")


def numpy_type(dtype: int) -> np.dtype:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype))


def make(rng: random.Random, dtype: int, shape: tuple[int, ...], *, odd: bool) -> np.ndarray:
    """An array of small numbers; with ``odd`` also NaN, infinities, denormals and extremes."""
    count = int(np.prod(shape, dtype=np.int64))
    flat = [_number(rng, dtype, odd and rng.random() < 0.25) for _ in range(count)]
    if dtype == T.STRING:
        return np.array(flat, dtype=object).reshape(shape)
    with np.errstate(all="ignore"):
        wide = np.array(flat, dtype=np.float64 if _is_float(dtype) else None)
        return wide.astype(numpy_type(dtype)).reshape(shape)


def _is_float(dtype: int) -> bool:
    return dtype in FLOATS or dtype in FLOAT8


def _number(rng: random.Random, dtype: int, odd: bool) -> object:
    if dtype == T.STRING:
        return rng.choice(_WORDS)
    if dtype == T.BOOL:
        return rng.random() < 0.5
    if _is_float(dtype):
        return rng.choice(_odd_floats(dtype)) if odd else _plain(rng)
    return _integer(rng, dtype, odd)


def _plain(rng: random.Random) -> float:
    if rng.random() < 0.3:
        return float(rng.choice((0, 1, -1, 2, 0.5)))
    return round(rng.uniform(-3, 3), 3)


def _odd_floats(dtype: int) -> tuple[float, ...]:
    if dtype in FLOAT8:
        return (0.0, -0.0, float("nan"), 2.0**-9, 240.0)
    limits = onnx_limits(dtype)
    high, least = float(limits.max), float(limits.smallest_subnormal)
    return (float("nan"), float("inf"), -float("inf"), -0.0, high, -high, least, -3 * least, 0.0)


def onnx_limits(dtype: int) -> np.finfo:
    import ml_dtypes

    return ml_dtypes.finfo(numpy_type(dtype))


def _integer(rng: random.Random, dtype: int, odd: bool) -> int:
    import ml_dtypes

    info = ml_dtypes.iinfo(numpy_type(dtype))
    if odd:
        return rng.choice((int(info.min), int(info.max), int(info.max) - 1))
    return rng.randint(max(int(info.min), -5), min(int(info.max), 6))
