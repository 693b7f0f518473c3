"""The front of the package: a graph and a mesh to a program for all ranks."""

from __future__ import annotations

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.passes.parallel.layout_choice import LayoutChoice
from gecompiler.passes.parallel.localise import Localiser
from gecompiler.passes.parallel.plan import SEQUENCE_WAYS, ParallelOptions, Plan
from gecompiler.passes.parallel.stage_graphs import AXIS, stage_templates
from gecompiler.passes.parallel.stages import stage_of_ops

Key = tuple[tuple[str, int], ...]


def parallelise(
    graph: Graph, mesh: Mesh, options: ParallelOptions | None = None
) -> ParallelProgram:
    """What the ranks of the mesh run, so that together they compute what ``graph`` does.

    ``graph`` is bound and optimised: its shapes are numbers. It stays as it is. Costs are near
    linear in its ops, whatever the number of ranks: those that run the same share a template.
    UsageError for more stages than ops, or an unknown option.
    """
    options = options or ParallelOptions()
    if options.sequence not in SEQUENCE_WAYS:
        raise UsageError(f"sequence is {options.sequence!r}, expected one of {SEQUENCE_WAYS}")
    maker = _Maker(graph, mesh, options, LayoutChoice(graph, mesh, options).plan())
    template_of = tuple(maker.template_of(rank) for rank in range(mesh.size))
    return ParallelProgram(mesh, tuple(maker.templates), template_of, tuple(maker.notes))


class _Maker:
    """Templates, each made for the first rank that runs it."""

    def __init__(self, graph: Graph, mesh: Mesh, options: ParallelOptions, plan: Plan) -> None:
        self._graph, self._mesh, self._options, self._plan = graph, mesh, options, plan
        self._stages = mesh.axis_size(AXIS)
        if self._stages > max(len(graph), 1):
            raise UsageError(
                f"{self._stages} stages for a model of {len(graph)} ops",
                where="pp",
                hint="use fewer stages",
            )
        self._stage_of = (
            stage_of_ops(graph, self._stages, options.cost) if self._stages > 1 else {}
        )
        self._known: dict[Key, list[int]] = {}
        self._differing: set[str] = set()
        self.templates: list[Template] = []
        self.notes = list(plan.notes)

    def template_of(self, rank: int) -> int:
        """The number of the rank's template."""
        place = self._mesh.coordinates(rank)
        key = self._key(place)
        if key not in self._known:
            found = self._make(place)
            self._known[self._key(place)] = found
        return self._known[self._key(place)][place.get(AXIS, 0)]

    def _key(self, place: dict[str, int]) -> Key:
        return tuple((a, n) for a, n in place.items() if a in self._differing)

    def _make(self, place: dict[str, int]) -> list[int]:
        """The templates of the stages of ranks at that place along the axes that differ."""
        localiser = Localiser(self._graph, self._mesh, self._plan, self._options, place)
        whole = localiser.run()
        if not self.templates:
            self._differing = localiser.placed
            self.notes += localiser.notes
        made = [whole]
        if self._stages > 1:
            stages = {n: self._stage_of.get(of, 0) for n, of in localiser.made_for.items()}
            made = stage_templates(whole, stages, self._stages)
        first = len(self.templates)
        self.templates += made
        return list(range(first, first + len(made)))
