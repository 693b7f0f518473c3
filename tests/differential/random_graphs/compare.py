"""When two results are the same.

- Element type and shape are equal.
- What `steadiness` calls steady is equal bit for bit, the signs of zeros included; a NaN is as
  good as another (ONNX says nothing of their payloads). So are integers, booleans and strings.
- ``Where(IsNaN(p), 0, p)`` behind a softmax is read as what exporters mean by it, rows with every
  key masked, which attention has a word for. A NaN that comes in by Q or K is then not made 0
  (``guarded``: the model holds both Softmax and IsNaN).
- onnxruntime's Where adds 0 to what it takes, and so makes 0.0 of -0.0: in a model with Where a
  zero is as good as the other (``signs`` is false).
- An unsteady float may be off by ``TOLERANCE`` of the largest finite number of its tensor, and
  by four times as far as the source itself moves when it is computed in float64, or when each of
  its numbers is off by the last bit. Where these show that the source's NaN or infinity is
  rounding (an overflow at the edge), it may stand elsewhere as well.
- Whether an unsteady sum of numbers that overflow is infinite or NaN depends on its order: the
  one is as good as the other.
- The kernel of fused attention does not read the values of masked keys. Where the source gives
  NaN since it multiplies such a value, infinite or NaN itself, by 0, the kernel may give a number
  (``masked``: the result is a kernel's, and the model holds a Softmax).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-6}
_ROUNDING = 4.0
_WIDE = 0.3  # of narrower types: 8-bit floats and what is like them

Others = Callable[[], "Sequence[np.ndarray]"]


def difference(
    wanted: np.ndarray,
    found: np.ndarray,
    *,
    steady: bool,
    others: Others,
    masked: bool = False,
    guarded: bool = False,
    signs: bool = True,
) -> str:
    """How ``found`` differs, ``""`` if it does not; ``others`` is asked only where it matters."""
    if wanted.shape != found.shape:
        return f"shape {list(found.shape)}, not {list(wanted.shape)}"
    if wanted.dtype != found.dtype and not {wanted.dtype.kind, found.dtype.kind} <= {"O", "U"}:
        return f"type {found.dtype}, not {wanted.dtype}"
    if not _is_float(wanted):
        return _first(wanted, found, wanted == found)
    if masked:
        found = np.where(_is_nan(wanted), wanted, found)
    if guarded:
        found = np.where(_is_nan(found), wanted, found)
    same = _same_bits(wanted, found, signs=signs)
    if steady or same.all():
        return _first(wanted, found, same)
    return _beyond_rounding(wanted, found, others)


def _is_float(array: np.ndarray) -> bool:
    name = array.dtype.name
    return array.dtype.kind == "f" or name.startswith(("bfloat", "float"))


def _is_nan(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.isnan(array.astype(np.float64))


def _same_bits(wanted: np.ndarray, found: np.ndarray, *, signs: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        one, two = wanted.astype(np.float64), found.astype(np.float64)
    alike = (np.signbit(one) == np.signbit(two)) | (not signs)
    return ((one == two) & alike) | (np.isnan(one) & np.isnan(two))


def _beyond_rounding(wanted: np.ndarray, found: np.ndarray, others: Others) -> str:
    with np.errstate(all="ignore"):
        one, two = wanted.astype(np.float64), found.astype(np.float64)
        slack = TOLERANCE.get(wanted.dtype.name, _WIDE) * max(_largest(one), 1e-6)
        right = _close(one, two, slack)
        if right.all():
            return ""
        for other in others():
            true = other.astype(np.float64)
            if true.shape != one.shape:
                continue
            right |= np.isfinite(true) != np.isfinite(one)
            slack = max(slack, _ROUNDING * _largest(one - true))
            right |= _close(one, two, slack) | _close(true, two, slack)
    return _first(wanted, found, right)


def _close(wanted: np.ndarray, found: np.ndarray, slack: float) -> np.ndarray:
    nan, other = np.isnan(wanted), np.isnan(found)
    same = (wanted == found) | (nan & other) | (nan & np.isinf(found)) | (other & np.isinf(wanted))
    return same | (np.abs(wanted - found) <= slack)


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def _first(wanted: np.ndarray, found: np.ndarray, right: np.ndarray) -> str:
    right = np.asarray(right)
    if right.all():
        return ""
    place = tuple(int(n) for n in np.argwhere(~right)[0])
    return (
        f"{int((~right).sum())} of {right.size} differ, the first at {list(place)}: "
        f"{found[place]!r}, not {wanted[place]!r}"
    )
