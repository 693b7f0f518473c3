"""Running both sides of a region and judging what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gecompiler.ir.bind import bind
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import GecError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.facts import Assumption
from gecompiler.ir.types import DType
from gecompiler.passes.equivalence.region import Region
from gecompiler.passes.equivalence.samples import LARGE, arrays, kinds, sizes_of
from gecompiler.passes.equivalence.sizes import bindings
from gecompiler.passes.equivalence.widening import widened

Evaluate = Callable[[Graph, Mapping[str, Any]], Mapping[str, Any]]
"""Computes a graph's outputs by name from its inputs by name; GecError when it cannot."""

TOLERANCE = {DType.F16: 4e-3, DType.BF16: 3e-2, DType.F32: 1e-4, DType.F64: 1e-8}
"""How far results may be apart, in units of the largest number among them."""

_COARSE = 50
"""How much more it may be with large values: a softmax multiplies what scores of 1e4 lose."""

_ROUNDING = 4.0
"""How many times farther from the exact result than the source the fused op may be."""

_MAX_ROUNDING = {DType.F32: 2e-2, DType.F64: 1e-6}
"""What counts as rounding at most, where the source's own is larger still."""

MAX_ELEMENTS = 1 << 24
"""Regions with larger tensors are not run."""


MAX_MORE_ELEMENTS = 1 << 19
"""Sizes beyond the first are passed over where the inputs would be larger together."""


def _elements(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What running a region came to: how many times it ran, and the first difference if any."""

    runs: int
    difference: str = ""
    unchecked: str = ""
    """Why it never ran."""


def judge(region: Region, assumptions: Iterable[Assumption], evaluate: Evaluate) -> Verdict:
    """Runs both sides with sizes and numbers of all kinds, until they differ."""
    runs, reason = 0, "no sizes were found that go together"
    wide = widened(region.before)
    for position, (sizes, binding) in enumerate(bindings(region.inputs.values(), assumptions)):
        shapes = sizes_of(region.inputs, binding)
        if shapes is None or (runs and _elements(shapes) > MAX_MORE_ELEMENTS):
            continue
        try:
            before = _bound(region.before, binding)
        except GecError as error:
            reason = error.message
            continue
        after = _bound_or_why(region.after, binding)
        exact = None if wide is None else _bound_or_why(wide, binding)
        for kind in kinds(region, all_of_them=position == 0):
            given = arrays(region, shapes, kind)
            wanted = _result(evaluate, before, given)
            if isinstance(wanted, str):
                reason = wanted
                continue
            found = after if isinstance(after, str) else _result(evaluate, after, given)
            better = _result(evaluate, exact, _widened(given)) if isinstance(exact, Graph) else None
            runs += 1
            told = (
                found
                if isinstance(found, str)
                else _compare(wanted, found, better, coarse=kind == LARGE)
            )
            if told:
                return Verdict(runs, f"with {kind}, {sizes}: {told}")
    return Verdict(runs, unchecked="" if runs else reason)


def _bound_or_why(graph: Graph, binding: Mapping[str, int]) -> Graph | str:
    try:
        return _bound(graph, binding)
    except GecError as error:
        return f"the sizes do not go together: {error.message}"


def _bound(graph: Graph, binding: Mapping[str, int]) -> Graph:
    made = bind(graph, binding) if binding else graph
    for value in made.values:
        type_ = made.tensor(value)
        if (
            type_ is not None
            and type_.is_static
            and np.prod(type_.sizes, dtype=float) > MAX_ELEMENTS
        ):
            raise GecError(f"{value!r} is too large to be computed for a check: {type_}")
    return made


def _result(evaluate: Evaluate, graph: Graph, given: Mapping[str, Array]) -> Array | str:
    """The graph's output, or what went wrong."""
    try:
        found = evaluate(graph, {name: given[name] for name in graph.inputs})
    except GecError as error:
        return f"cannot be computed: {error.message}"
    return np.asarray(found[graph.outputs[0]])


def _widened(given: Mapping[str, Array]) -> dict[str, Array]:
    return {n: a.astype(np.float64) if _is_float(a) else a for n, a in given.items()}


def _is_float(array: Array) -> bool:
    return DType.from_numpy(array.dtype).is_float


def _compare(wanted: Array, found: Array, exact: Array | str | None, *, coarse: bool) -> str:
    """How the results differ beyond rounding; ``""`` if they do not."""
    if wanted.shape != found.shape:
        return f"its result is {list(found.shape)}, not {list(wanted.shape)}"
    if wanted.dtype != found.dtype:
        return f"its result is {found.dtype}, not {wanted.dtype}"
    if not _is_float(wanted):
        return "" if np.array_equal(wanted, found) else "its result differs"
    dtype = DType.from_numpy(wanted.dtype)
    one, two = wanted.astype(np.float64), found.astype(np.float64)
    three = exact if isinstance(exact, np.ndarray) and exact.shape == one.shape else one
    with np.errstate(all="ignore"):
        scale = _largest(three, _largest(one, 0.0)) or 1.0
        slack = TOLERANCE.get(dtype, 1e-4) * scale * (_COARSE if coarse else 1)
        rounding = _ROUNDING * _largest(one - three, 0.0)
        slack += min(rounding, _MAX_ROUNDING.get(dtype, np.inf) * scale)
        right = _close(two, one, slack) | _close(two, three, slack)
        if right.all():
            return ""
        apart = np.fmin(np.abs(two - one), np.abs(two - three))[~right]
    place = tuple(int(n) for n in np.argwhere(~right)[0])
    worst = _largest(apart, np.inf)
    return (
        f"{int((~right).sum())} of {right.size} numbers differ, by up to {worst:.3g}; "
        f"at {list(place)} it gives {two[place]:.6g}, the source {one[place]:.6g}"
    )


def _close(found: Array, wanted: Array, slack: float) -> Array:
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    return np.asarray(same | (np.abs(found - wanted) <= slack))


def _largest(array: Array, default: float) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else default
