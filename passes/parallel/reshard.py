"""From one layout of a value to another: the moves that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.ir.parallel import Layout, Product, Sharding, Split
from gecompiler.ir.parallel.layout import factors_of, is_exact, product_of
from gecompiler.passes.parallel.local_graph import LocalGraph


def reshard(
    local: LocalGraph, value: str, shape: Sequence[int], have: Sharding, want: Sharding
) -> str:
    """The value of that whole shape, lying as wanted; emits what it takes.

    ``want`` may have a sum left to be made only where ``have`` has.
    """
    axes = [a for a in have.partial if a not in want.partial]
    if axes:
        value = local.reduce(value, local.joined([n for a in axes for n in a.split("+")]))
    dims = list(have.dims)
    for n in range(len(dims)):
        value = _exchange(local, value, shape, dims, want.dims, n)
    for n, (now, then) in enumerate(zip(dims, want.dims, strict=True)):
        if now is None or now == then:
            continue
        keep = _kept(now, then, shape[n])
        value = local.gather(value, n, shape[n], now, keep)
        dims[n] = product_of(keep.factors) if isinstance(keep, Product) else None
    for n, (now, then) in enumerate(zip(dims, want.dims, strict=True)):
        if now == then:
            continue
        if now is not None:
            value = local.gather(value, n, shape[n], now)
        if then is not None:
            value = local.take(value, n, shape[n], then)
    return value


def _kept(now: Layout, then: Layout, size: int) -> Layout:
    """What may stay cut of a dim whose layout changes: factors that both have alike."""
    have, want = factors_of(now, size), factors_of(then, size)
    if len(have) < 2:
        return None
    if [n for n, _ in have] != [n for n, _ in want]:
        want = tuple((n, None) for n, _ in have)
    both = zip(have, want, strict=True)
    return Product(tuple((n, sub if sub == wanted else None) for (n, sub), (_, wanted) in both))


def _exchange(
    local: LocalGraph,
    value: str,
    shape: Sequence[int],
    dims: list[Layout],
    want: Sequence[Layout],
    n: int,
) -> str:
    """One all-to-all where a cut only moves from dim n to another."""
    now = dims[n]
    if not isinstance(now, Split) or want[n] is not None:
        return value
    if not is_exact(now, shape[n], local.mesh):
        return value
    for m, layout in enumerate(want):
        moves = isinstance(layout, Split) and layout.axes == now.axes and dims[m] is None
        if moves and is_exact(layout, shape[m], local.mesh):
            dims[m], dims[n] = layout, None
            return local.all_to_all(value, now.axes, m, n)
    return value
