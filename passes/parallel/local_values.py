"""What of the whole model's values a rank's graph has, and in which layouts."""

from __future__ import annotations

import math

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Layout, Mesh, Sharding
from gecompiler.ir.parallel.layout import axes_in, factors_of, product_of, without
from gecompiler.ir.types import TensorType
from gecompiler.passes.parallel.local_graph import LocalGraph
from gecompiler.passes.parallel.plan import Plan
from gecompiler.passes.parallel.reshard import reshard

Dims = tuple[Layout, ...]


class LocalValues:
    """The values of ``whole`` that ``local`` has so far.

    ``home`` is the layout in which a value is made. Others are made from it when an op asks for
    them, once each.
    """

    def __init__(self, whole: Graph, local: LocalGraph, plan: Plan) -> None:
        self.whole, self.local, self.plan = whole, local, plan
        self.home: dict[str, Sharding] = {}
        self._at: dict[str, dict[Sharding, str]] = {}

    @property
    def mesh(self) -> Mesh:
        """The mesh of the ranks."""
        return self.local.mesh

    def sizes(self, value: str) -> tuple[int, ...]:
        """The whole value's sizes."""
        type_ = self.whole.tensor(value)
        assert type_ is not None
        return type_.sizes

    def elements(self, value: str) -> int:
        """How many elements the whole value has; 0 where that is not known."""
        type_ = self.whole.tensor(value) if value else None
        return math.prod(type_.sizes) if type_ is not None and type_.is_static else 0

    def is_constant(self, value: str) -> bool:
        """Whether ranks can have any part of the value for nothing."""
        return value in self.whole.constants

    def whole_of(self, value: str) -> Sharding:
        """The sharding of a value that every rank holds whole."""
        return Sharding((None,) * len(self.sizes(value)))

    def cut_of(self, op: str, index: int, value: str) -> Dims:
        """The layouts with which an op's input comes: its home, or the plan's for a constant."""
        if value in self.home:
            return self.scattered(value)
        return self.plan.wishes.get((op, index)) or (None,) * len(self.sizes(value))

    def scattered(self, value: str) -> Dims:
        """The layouts of a value when a sum that is still to be made is: cut as its tokens are."""
        home, wish = self.home[value], self.plan.samples.get(value)
        if not home.partial or wish is None:
            return home.dims
        sums = {a for joined in home.partial for a in joined.split("+")}
        dims = []
        for now, then, size in zip(home.dims, wish, self.sizes(value), strict=True):
            both = _both(now, then, size)
            dims.append(both if self._refines(now, both, size, sums) else now)
        return tuple(dims)

    def _refines(self, now: Layout, then: Layout, size: int, sums: set[str]) -> bool:
        more = [a for a in axes_in(then) if a not in axes_in(now)]
        return (
            bool(more)
            and sums.issuperset(more)
            and without(then, size, "+".join(more), self.mesh) == now
        )

    def made(self, value: str, sharding: Sharding, name: str) -> None:
        """Declares that ``name`` is the value, lying so."""
        self.home.setdefault(value, sharding)
        self._at.setdefault(value, {})[sharding] = name

    def wished(self, value: str, home: Sharding) -> Sharding:
        """The home with the cuts that the plan wishes for and that nothing stands against."""
        wish = self.plan.wishes.get(value)
        if wish is None or home.partial:
            return home
        dims, used = list(home.dims), set(home.axes)
        for n, layout in enumerate(wish):
            axes = set(axes_in(layout))
            if dims[n] is None and axes and not axes & used:
                dims[n] = layout
                used |= axes
        return Sharding(tuple(dims))

    def name(self, value: str, want: Sharding | None) -> str:
        """The local value that lies so (None: whole), made where it is not there yet."""
        if self.is_constant(value):
            return self._constant(value, want or self.whole_of(value))
        if value not in self.home:  # a sequence, or of no known rank: always whole
            return value
        want = want or self.whole_of(value)
        have = self._at[value]
        if want in have:
            return have[want]
        start = home = self.home[value]
        sums = {a for joined in home.partial for a in joined.split("+")}
        if sums and not want.partial and not sums & set(want.axes):
            start = Sharding(self.scattered(value))
            if start not in have:
                have[start] = reshard(self.local, have[home], self.sizes(value), home, start)
        if want not in have:
            have[want] = reshard(self.local, have[start], self.sizes(value), start, want)
        return have[want]

    def _constant(self, value: str, want: Sharding) -> str:
        """The first form of a constant keeps its name."""
        have = self._at.setdefault(value, {})
        if want not in have:
            constant, lies, graph = self.whole.constants[value], want, self.local.graph
            rows = self.plan.rows.get(value)
            if rows is not None:
                constant, lies = rows.table, rows.sharding(want)
            if have:
                have[want] = self.local.share(value, constant, lies)
            elif lies.is_whole:
                have[want] = graph.add_constant(value, constant)
            else:
                sizes = lies.local_shape(constant.type.sizes, self.mesh)
                self.local.constants[value] = (constant, lies)
                local = TensorType(constant.type.dtype, sizes)
                part = Constant(local, computed=constant.computed)
                have[want] = graph.add_constant(value, part)
        return have[want]


def _both(now: Layout, then: Layout, size: int) -> Layout:
    """Cut as ``then`` where that cuts, and else as it is now."""
    have, want = factors_of(now, size), factors_of(then, size)
    if [n for n, _ in have] != [n for n, _ in want]:
        return then
    pairs = zip(have, want, strict=True)
    return product_of((n, sub if cut is None else cut) for (n, sub), (_, cut) in pairs)
