"""Numbers to try a region with: those where fusions are known to go wrong.

Rows without any key, rows with one, scores beyond what halves hold (whole numbers times a power
of two, so that products are exact and rounding explains nothing), zeros, numbers as small as an
epsilon, and masks by infinity, by the lowest number and by -10,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.dims import DimError, substitute
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.equivalence.region import Region

Arrays = dict[str, Array]

LARGE = "large values"
KINDS = ("plain", LARGE, "zeros", "small values")
MASKED = ("fully masked rows", "a single key", "masks of 0 and 1")
ADDED = ("rows masked by -inf", "rows masked by the lowest number", "rows masked by -10000")


def kinds(region: Region, *, all_of_them: bool) -> Iterator[str]:
    """The kinds of numbers that make a difference to this region."""
    types = region.inputs
    masks = [n for n in types if n not in region.data]
    yield KINDS[0]
    if masks:
        yield MASKED[0]
    if not all_of_them:
        return
    yield from KINDS[1:]
    if masks:
        yield from MASKED[1:]
    if any(types[n].dtype.is_float for n in region.masks):
        yield from ADDED


def sizes_of(
    types: Mapping[str, TensorType], binding: Mapping[str, int]
) -> dict[str, tuple[int, ...]] | None:
    """The shapes as numbers; None where the sizes do not go together."""
    found: dict[str, tuple[int, ...]] = {}
    try:
        for name, type_ in types.items():
            dims = [substitute(d, binding) for d in type_.shape or ()]
            if not all(isinstance(d, int) and d >= 0 for d in dims):
                return None
            found[name] = tuple(d for d in dims if isinstance(d, int))
    except DimError:
        return None
    return found


def arrays(region: Region, shapes: Mapping[str, tuple[int, ...]], kind: str) -> Arrays:
    """An array for each input; the same for the same arguments."""
    draw = np.random.default_rng(len(kind) * 7919 + sum(map(ord, kind)))
    found: Arrays = {}
    for name, type_ in region.inputs.items():
        role = "data" if name in region.data else "mask" if name in region.masks else "other"
        found[name] = _array(draw, type_.dtype, shapes[name], kind, role)
    return found


def _array(
    draw: np.random.Generator, dtype: DType, shape: tuple[int, ...], kind: str, role: str
) -> Array:
    if not dtype.is_float:
        return _flags(draw, shape, kind).astype(dtype.numpy)
    if role == "data" or kind == "plain":
        made = _numbers(draw, shape, kind)
    elif role == "mask" and kind in ADDED:
        low = {ADDED[0]: -np.inf, ADDED[1]: _lowest(dtype), ADDED[2]: -1e4}[kind]
        made = np.where(_flags(draw, shape, MASKED[0]), 0.0, low)
    elif kind in (*MASKED, *ADDED):
        made = _flags(draw, shape, kind).astype(np.float64)
    else:
        made = draw.standard_normal(shape)
    return made.astype(dtype.numpy)


def _numbers(draw: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    if kind == LARGE:
        return draw.integers(-3, 4, shape) * 32.0
    if kind == "zeros":
        return np.zeros(shape)
    return draw.standard_normal(shape) * (1e-3 if kind == "small values" else 1.0)


def _flags(draw: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """Which keys are allowed (along the last axis), as booleans."""
    if kind == "a single key" and shape and shape[-1]:
        made = np.zeros(shape, np.bool_)
        made[..., draw.integers(shape[-1])] = True
        return made
    made = draw.random(shape) < (0.8 if kind in KINDS else 0.5)
    if kind == "fully masked rows" and shape:
        made.reshape(-1, shape[-1] or 1)[:1] = False
        made[-1] = False
    return made


def _lowest(dtype: DType) -> float:
    if dtype is DType.F64:
        return float(np.finfo(np.float64).min)
    return -65504.0 if dtype is DType.F16 else float(np.finfo(np.float32).min)
