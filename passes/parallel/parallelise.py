"""The front of the package: a graph and a mesh to a program for all ranks."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.passes.parallel.attention_cut import with_row_offsets
from gecompiler.passes.parallel.joined_terms import number_pieces, take_sums_apart
from gecompiler.passes.parallel.layout_choice import LayoutChoice
from gecompiler.passes.parallel.localise import Localiser
from gecompiler.passes.parallel.looked_up import share_embeddings, share_looked_up_experts
from gecompiler.passes.parallel.plan import (
    EMBEDDINGS,
    EXPERT_TOKENS,
    KV_HEADS,
    SEQUENCE_WAYS,
    ParallelOptions,
)
from gecompiler.passes.parallel.rank_rows import RankGraph
from gecompiler.passes.parallel.stage_graphs import AXIS, stage_templates
from gecompiler.passes.parallel.stage_norms import split_norms_on_borders
from gecompiler.passes.parallel.stages import stage_of_ops
from gecompiler.passes.parallel.unrolled import share_unrolled_experts


def parallelise(
    graph: Graph, mesh: Mesh, options: ParallelOptions | None = None
) -> ParallelProgram:
    """What the ranks of the mesh run, so that together they compute what ``graph`` does.

    ``graph`` is bound and optimised: its shapes are numbers. It stays as it is. Costs are near
    linear in its ops, whatever the number of ranks: those that run the same share a template.
    UsageError for more stages than ops, or an unknown option.
    """
    options = options or ParallelOptions()
    every = {
        "sequence": SEQUENCE_WAYS,
        "kv_heads": KV_HEADS,
        "embeddings": EMBEDDINGS,
        "expert_tokens": EXPERT_TOKENS,
    }
    for name, known in every.items():
        value = getattr(options, name)
        if value not in known:
            raise UsageError(
                f"{name} is {value!r}, expected one of {', '.join(known)}",
                where="parallelise",
                hint=nearest(value, known),
            )
    maker = _Maker(graph, mesh, options)
    template_of = tuple(maker.template_of(rank) for rank in range(mesh.size))
    return ParallelProgram(
        mesh,
        tuple(maker.templates),
        template_of,
        tuple(maker.notes),
        graph.outputs,
        maker.made_for,
    )


class _Maker:
    """Templates, each made for the first rank that runs it."""

    def __init__(self, graph: Graph, mesh: Mesh, options: ParallelOptions) -> None:
        self._mesh, stages = mesh, mesh.axis_size(AXIS)
        shared = self._shared(graph, options)
        graph = shared.graph
        stage_of: dict[str, int] = {}
        if stages > 1:
            stage_of = stage_of_ops(graph, stages, options.cost)
            graph = split_norms_on_borders(graph, stage_of)
        plan = LayoutChoice(graph, mesh, options, shared_experts=self._has_experts).plan()
        plan.rows, plan.sums, plan.barred = shared.rows, shared.sums, shared.varying()
        self.notes = [*shared.notes, *plan.notes]
        localiser = Localiser(graph, mesh, plan, options)
        whole = localiser.run()
        self.notes += localiser.notes
        self._row_offsets = localiser.row_offsets
        self.made_for = {own: of for own, of in localiser.made_for.items() if own != of}
        axes = {a for joined, _ in self._row_offsets.values() for a in joined.split("+")}
        self._differing = tuple(name for name, _ in mesh.axes if name in axes)
        self._first = [whole]
        if stages > 1:
            local = {n: stage_of.get(of, 0) for n, of in localiser.made_for.items()}
            self._first = stage_templates(whole, local, stages)
        self._known: dict[tuple[int, ...], int] = {}
        self.templates: list[Template] = []

    def _shared(self, graph: Graph, options: ParallelOptions) -> RankGraph:
        """The graph with what is shared out but by cuts of dims."""
        sizes, self._has_experts = dict(self._mesh.axes), False
        split = options.embeddings == "split" and "tp" in sizes
        found = RankGraph(graph)
        if "ep" in sizes:
            found, self._has_experts = _experts_shared(graph, sizes["ep"])
        if split:
            found = found if found.graph is not graph else RankGraph(graph.copy())
            share_embeddings(found, "tp", sizes["tp"])
        return found

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
        offsets = {
            name: by_place[self._mesh.place(axes, rank)]
            for name, (axes, by_place) in self._row_offsets.items()
        }
        graph = with_row_offsets(template.graph, offsets)
        return template if graph is template.graph else replace(template, graph=graph)


def _experts_shared(graph: Graph, ranks: int) -> tuple[RankGraph, bool]:
    """The graph with experts shared out that are no stack; whether there are any."""
    found = RankGraph(graph.copy())
    if number_pieces(found.graph, ranks) and share_unrolled_experts(found, "ep", ranks):
        share_looked_up_experts(found, "ep", ranks)
        return found, True
    found = RankGraph(graph.copy())
    looked_up = share_looked_up_experts(found, "ep", ranks)
    take_sums_apart(found.graph, ranks)
    unrolled = share_unrolled_experts(found, "ep", ranks)
    return found, looked_up or unrolled
