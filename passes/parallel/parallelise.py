"""The front of the package: a graph and a mesh to a program for all ranks."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.passes.parallel.attention_cut import moved_rows
from gecompiler.passes.parallel.layout_choice import LayoutChoice
from gecompiler.passes.parallel.localise import Localiser
from gecompiler.passes.parallel.plan import SEQUENCE_WAYS, ParallelOptions, Plan
from gecompiler.passes.parallel.stage_graphs import AXIS, stage_templates
from gecompiler.passes.parallel.stages import stage_of_ops


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
        self._stage_of = stage_of_ops(graph, self._stages, options.cost) if self._stages > 1 else {}
        self.notes = list(plan.notes)
        localiser = Localiser(graph, mesh, plan, options)
        whole = localiser.run()
        self.notes += localiser.notes
        self._row_steps = localiser.row_steps
        axes = {a for joined, _ in self._row_steps.values() for a in joined.split("+")}
        self._differing = tuple(name for name, _ in mesh.axes if name in axes)
        self._first = [whole]
        if self._stages > 1:
            stages = {n: self._stage_of.get(of, 0) for n, of in localiser.made_for.items()}
            self._first = stage_templates(whole, stages, self._stages)
        self._known: dict[tuple[int, ...], int] = {}
        self.templates: list[Template] = []

    def template_of(self, rank: int) -> int:
        """The number of the rank's template."""
        place = self._mesh.coordinates(rank)
        stage = place.get(AXIS, 0)
        key = (stage, *(place[axis] for axis in self._differing))
        if key not in self._known:
            self._known[key] = len(self.templates)
            self.templates.append(self._placed(self._first[stage], rank))
        return self._known[key]

    def _placed(self, template: Template, rank: int) -> Template:
        """The template for the rows that ranks at this place have."""
        steps = {
            name: self._mesh.place(axes, rank) * count
            for name, (axes, count) in self._row_steps.items()
        }
        if not any(steps.values()):
            return template
        return replace(template, graph=moved_rows(template.graph, steps))
