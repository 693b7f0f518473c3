"""From one layout of a value to another: the moves that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.ir.parallel import Layout, Product, Sharding, Split
from gecompiler.ir.parallel.layout import axes_in, factors_of, is_exact, product_of, without
from gecompiler.passes.parallel.local_graph import LocalGraph


def reshard(
    local: LocalGraph, value: str, shape: Sequence[int], have: Sharding, want: Sharding
) -> str:
    """The value of that whole shape, lying as wanted; emits what it takes.

    ``want`` may have a sum left to be made only where ``have`` has.
    """
    dims = list(have.dims)
    sums = {n for a in have.partial if a not in want.partial for n in a.split("+")}
    value = _summed(local, value, shape, dims, want.dims, sums)
    for n in range(len(dims)):
        value = _exchange(local, value, shape, dims, want.dims, n)
    for n, then in enumerate(want.dims):
        value = _gathered(local, value, shape, dims, then, n)
    for n, (now, then) in enumerate(zip(dims, want.dims, strict=True)):
        if now == then:
            continue
        finer = _finer(local, now, then, shape[n])
        if now is not None and finer:
            value = local.take(value, n, local.shape(value)[n], Split(finer))
            continue
        if now is not None:
            value = local.gather(value, n, shape[n], now)
        if then is not None:
            value = local.take(value, n, shape[n], then)
    return value


def _summed(
    local: LocalGraph,
    value: str,
    shape: Sequence[int],
    dims: list[Layout],
    want: Sequence[Layout],
    sums: set[str],
) -> str:
    """Makes the sums over those axes: scattered where a dim is wanted cut over them, else whole."""
    left = set(sums)
    for n, then in enumerate(want):
        inner = local.joined([a for a in axes_in(then) if a in left])
        mid = without(then, shape[n], inner, local.mesh) if inner and dims[n] is None else None
        if mid is not None and _finer(local, mid, then, shape[n]) == inner:
            value = local.take(value, n, shape[n], mid)
            dims[n] = mid
        finer = _finer(local, dims[n], then, shape[n])
        if finer and set(finer.split("+")) <= left:
            value = local.reduce_scatter(value, finer, n)
            dims[n] = then
            left -= set(finer.split("+"))
    return local.reduce(value, local.joined(sorted(left))) if left else value


def _gathered(
    local: LocalGraph,
    value: str,
    shape: Sequence[int],
    dims: list[Layout],
    then: Layout,
    n: int,
) -> str:
    """Puts together what of dim n is not wanted cut."""
    now = dims[n]
    if now is None or now == then:
        return value
    finer = _finer(local, then, now, shape[n])
    if finer:
        dims[n] = then
        return local.all_gather(value, finer, n)
    keep = _kept(now, then, shape[n])
    dims[n] = product_of(keep.factors) if isinstance(keep, Product) else None
    return local.gather(value, n, shape[n], now, keep)


def _finer(local: LocalGraph, now: Layout, then: Layout, size: int) -> str:
    """The axes over which ``then`` cuts further what ``now`` has in runs; ``""`` for no such.

    The cut is of the outermost factor, so that ranks hold runs that follow each other.
    """
    if then is None or (isinstance(then, Product) and then.factors[0][1] is None):
        return ""
    count, outer = factors_of(then, size)[0]
    if not isinstance(outer, Split) or not is_exact(outer, count, local.mesh):
        return ""
    own = set(axes_in(now))
    more = local.joined([name for name in outer.axes.split("+") if name not in own])
    if not more or without(then, size, more, local.mesh) != now:
        return ""
    return more if outer.axes.endswith(more) else ""


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
