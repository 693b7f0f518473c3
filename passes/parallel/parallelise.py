"""The front of the package: a graph and a mesh to a program for all ranks."""

from __future__ import annotations

from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.passes.parallel.layout_choice import LayoutChoice
from gecompiler.passes.parallel.localise import Localiser
from gecompiler.passes.parallel.plan import ParallelOptions


def parallelise(
    graph: Graph, mesh: Mesh, options: ParallelOptions | None = None
) -> ParallelProgram:
    """What the ranks of the mesh run, so that together they compute what ``graph`` does.

    ``graph`` is bound and optimised: its shapes are numbers. It stays as it is.
    """
    options = options or ParallelOptions()
    plan = LayoutChoice(graph, mesh, options).plan()
    templates: list[Template] = []
    template_of: list[int] = []
    known: dict[tuple[tuple[str, int], ...], int] = {}
    differing: set[str] = set()
    for rank in range(mesh.size):
        place = mesh.coordinates(rank)
        key = tuple((a, n) for a, n in place.items() if a in differing)
        if key not in known:
            localiser = Localiser(graph, mesh, plan, options, place)
            template = localiser.run()
            if not templates:
                differing = localiser.placed
                key = tuple((a, n) for a, n in place.items() if a in differing)
            known[key] = len(templates)
            templates.append(template)
        template_of.append(known[key])
    return ParallelProgram(mesh, tuple(templates), tuple(template_of))
