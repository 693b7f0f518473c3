"""Elements narrower than a byte, as they lie in memory and as numpy holds them.

In memory elements of 2, 4 or 6 bits follow each other without gaps, from the lowest bit of the
first byte on (ONNX, TensorProto.raw_data); ml_dtypes keeps one element per byte.
"""

from __future__ import annotations

import math

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.types import DType


def pack(array: Array, dtype: DType) -> Array:
    """The bytes of ``array`` in memory, as a flat uint8 array (a view where nothing is packed)."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.bits >= 8:
        return flat.view(np.uint8)
    bits = np.unpackbits(flat.view(np.uint8)[:, None], axis=1, bitorder="little")
    packed: Array = np.packbits(bits[:, : dtype.bits], bitorder="little")
    return packed


def unpack(raw: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The array that flat bytes hold: a view of them where nothing is packed and it is aligned."""
    if dtype.bits >= 8:
        aligned = raw if raw.ctypes.data % dtype.numpy.itemsize == 0 else raw.copy()
        return aligned.view(dtype.numpy).reshape(shape)
    count = math.prod(shape)
    bits = np.unpackbits(raw, count=count * dtype.bits, bitorder="little")
    codes = np.packbits(bits.reshape(count, dtype.bits), axis=1, bitorder="little").reshape(-1)
    if dtype in (DType.I4, DType.I2):  # ml_dtypes keeps signed elements sign-extended
        up = np.uint8(8 - dtype.bits)
        codes = ((codes << up).view(np.int8) >> up.view(np.int8)).view(np.uint8)
    return codes.view(dtype.numpy).reshape(shape)


def nbytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """The size in memory of a tensor."""
    return -(-math.prod(shape) * dtype.bits // 8)
