"""The samples of a batch: what the first dims of the inputs are tied to."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Layout, Split
from gecompiler.passes.parallel.components import Component, Place, Walker
from gecompiler.passes.parallel.signature import Region, layout_of


@dataclass(frozen=True)
class Samples:
    """How many there are, and all that is cut with them."""

    count: int
    component: Component

    def lying(self, graph: Graph, split: Split) -> dict[str, tuple[Layout, ...]]:
        """How the values lie when the samples are cut so."""
        cuts: dict[str, dict[int, list[tuple[Region, Split]]]] = {}
        for place in self.component.places:
            dims = cuts.setdefault(place.value, {})
            dims.setdefault(place.dim, []).append((place.region, split))
        found: dict[str, tuple[Layout, ...]] = {}
        for value, dims in cuts.items():
            type_ = graph.tensor(value)
            if type_ is not None and type_.is_static:
                found[value] = tuple(
                    layout_of(size, dims[n]) if n in dims else None
                    for n, size in enumerate(type_.sizes)
                )
        return found


def samples_of(graph: Graph, walker: Walker) -> Samples | None:
    """The samples that most of the graph is tied to; None where none stay apart to an output."""
    best: Samples | None = None
    for name in graph.inputs:
        type_ = graph.tensor(name)
        if type_ is None or not type_.shape or not type_.is_static or type_.sizes[0] < 2:
            continue
        count = type_.sizes[0]
        found = walker.walk([Place(name, 0, Region.all_of(count))])
        if found.outputs and (best is None or len(found.places) > len(best.component.places)):
            best = Samples(count, found)
    return best
