"""One layout, looked at closely: the model cut, scheduled and simulated in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import Device, load_device
from gecompiler.backends.topology import Topology
from gecompiler.cards.binding import Bound, binding, bound_of
from gecompiler.cards.compilation import cut, cut_training, micro_batch_sizes
from gecompiler.cards.report import busiest_links, most_sent
from gecompiler.cards.request import CardsRequest
from gecompiler.cards.schedule import CardsResult, schedule_cards
from gecompiler.cards.side_by_side import Way, WaySearch
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.parallel import Mesh
from gecompiler.passes.parallel import ParallelOptions, parallelise
from gecompiler.planning.estimate import estimated_us
from gecompiler.planning.layouts import Layout
from gecompiler.planning.memory import Memory, pipeline_memory, rank_memory
from gecompiler.planning.outline import Outline, outline

if TYPE_CHECKING:
    from gecompiler.driver import Source
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.parallel import ParallelProgram
    from gecompiler.passes.pipeline_parallel import PipelineShape
    from gecompiler.passes.rank_schedules import RankFigures
    from gecompiler.passes.training import TrainingOptions
    from gecompiler.planning.facts import ModelFacts
    from gecompiler.request import Request

MOST_COMPARED = 2_000
"""Of more ops on a card, micro-batches side by side are simulated on two streams alone."""


@dataclass(frozen=True)
class Assessment:
    """What a layout comes to. Times in us, sizes in bytes, of the card with most of each."""

    layout: Layout
    time_us: float
    """One run of the whole batch."""
    tokens_per_s: float
    samples_per_s: float
    sent_bytes: Mapping[str, float]
    """By axes of the mesh."""
    communication_us: float
    exposed_us: float
    bubble: float
    """The mean share of the time in which cards wait for each other."""
    memory: Memory
    bound: Bound
    link: str
    """The busiest link, and its mean use."""
    link_use: float
    notes: tuple[str, ...] = field(default=())


@dataclass
class Assessor:
    """Looks at layouts of one model on one kind of cards."""

    source: Source
    request: Request
    device: Device
    topology: Topology
    binding: Mapping[str, int]
    diagnostics: Diagnostics
    training: bool = False
    facts: ModelFacts | None = None
    """Set once the model is known; throughput is counted by them."""
    _graphs: dict[int, Graph] = field(default_factory=dict)

    @staticmethod
    def of(request: Request, cards: int, *, training: bool = False) -> Assessor:
        """Loads and optimises the model, and binds its sizes. GecError as in compiling."""
        from gecompiler.driver import optimise
        from gecompiler.ir.bind import choose_sizes
        from gecompiler.ir.bind.roles import batch_symbols

        if training:  # passes leave parameters as they are
            request = replace(request, options=request.options.copy())
            request.options.set("train", True)
        source = optimise(request)
        if request.batch is None and not request.input_shapes and batch_symbols(source.graph):
            request = replace(request, batch=cards)
        diagnostics = Diagnostics()
        for warning in source.diagnostics:
            diagnostics.warn(warning.code, warning.message, warning.hint)
        device = load_device(request.options.get("device"))
        found = choose_sizes(
            source.graph,
            batch=request.batch,
            seq=request.seq,
            input_shapes=dict(request.input_shapes),
            diagnostics=diagnostics,
        )
        cluster = Cluster.of(device, Mesh.of(tp=cards), request.options.get("topology"))
        return Assessor(
            source, request, device, cluster.topology, found.every, diagnostics, training
        )

    @cached_property
    def whole(self) -> Graph:
        """The bound graph of the whole batch."""
        return self._bound(1)

    def _bound(self, parts: int) -> Graph:
        """The bound graph of one of so many micro-batches."""
        if parts not in self._graphs:
            from gecompiler.driver import BOUND_PIPELINE
            from gecompiler.ir.bind import bind
            from gecompiler.passes import PassContext, Pipeline

            asked = CardsRequest(Mesh(), micro_batches=parts)
            sizes, _ = micro_batch_sizes(
                self.source.graph, self.binding, asked, training=self.training
            )
            graph = bind(self.source.graph, sizes)
            Pipeline.parse(BOUND_PIPELINE).run(
                graph, PassContext(self.diagnostics, trains=self.training)
            )
            self._graphs[parts] = graph
        return self._graphs[parts]

    def program(self, layout: Layout) -> ParallelProgram:
        """The model cut for the layout, of one micro-batch; a training step if that is planned."""
        graph = self._bound(layout.micro_batches)
        pieces, training = _asked(layout).pieces, self._training
        if training is None:
            return cut(graph, pieces, self.device, _asked(layout).cutting)
        options = self.request.options
        stage = options.get("zero_stage") if layout.dp > 1 else 0
        bucket_bytes = options.get("bucket_mib") * 2**20
        cutting = _asked(layout).cutting
        step = cut_training(graph, pieces, self.device, training, stage, bucket_bytes, cutting)
        return step.program

    def layers(self, layout: Layout) -> ParallelProgram:
        """The forward pass cut for the layout, outputs left where they are made."""
        return parallelise(self.whole, _asked(layout).pieces, ParallelOptions(gather_outputs=()))

    @cached_property
    def _training(self) -> TrainingOptions | None:
        from gecompiler.training import training_request

        return training_request(self.request.options.as_dict())

    def estimate(self, layout: Layout) -> float:
        """A first guess of its time in us, with the slowest links that it needs."""
        assert self.facts is not None
        inner = layout.tp * layout.sp
        tiers = [t for t in self.topology.tiers if not t.through]
        used = next((t for t in tiers if t.span >= inner), tiers[-1])
        links = max(1, inner - 1) if used.wiring == "mesh" else 1
        rate = used.link_bytes_per_us * links
        return estimated_us(self.facts, layout, self.device, rate, self.training)

    def assess(self, layout: Layout, *, whole: bool = False) -> Assessment:
        """Simulates one rank of each kind. GecError for a layout that cannot be made.

        Of a pipeline each piece is simulated for one micro-batch (`outline`), unless the
        ``whole`` is asked for.
        """
        asked = _asked(layout)
        program = self.program(layout)
        cluster = Cluster(self.device, self.topology, asked.mesh)
        if layout.micro_batches == 1 and layout.pp == 1:
            return self._of_result(layout, schedule_cards(program, cluster, fold=True))
        shape = asked.shape(layout.micro_batches, training=self.training)
        if layout.abreast > 1:
            return self._of_result(layout, self._abreast(program, cluster, shape, layout.abreast))
        if whole:
            return self._of_result(layout, schedule_cards(program, cluster, shape, fold=True))
        return self._of_outline(layout, outline(program, shape, cluster), shape)

    def _abreast(
        self, program: ParallelProgram, cluster: Cluster, shape: PipelineShape, abreast: int
    ) -> CardsResult:
        """Side by side on one stream or two, whichever is faster, as compiling decides it.

        Where that takes long to find out, on two: then one is faster by a hundredth if at all.
        """
        search = WaySearch(lambda _: program, cluster, CardsRequest(cluster.mesh), self.training)
        count = shape.micro_batches
        ways = [Way(count, abreast, lanes) for lanes in search.lanes(count)]
        size = count * max(len(template.graph) for template in program.templates)
        if size > MOST_COMPARED:
            return search.schedule(ways[-1] if ways else Way(count), fold=True)
        tried = [found for way in ways if (found := search.attempt(way)) is not None]
        best = min(tried, key=lambda t: (t.makespan_us, t.way), default=None)
        return search.schedule(Way(count) if best is None else best.way, fold=True)

    def _of_result(self, layout: Layout, found: CardsResult) -> Assessment:
        memories = [
            rank_memory(part.memory.buffers, part.memory.arena_bytes, training=self.training)
            for part in found.parts
            if part.memory is not None
        ]
        memory = max(memories, key=lambda memory: memory.total)
        time_us = found.timeline.makespan_ns / 1000
        sent = most_sent(found)
        return self._made(layout, time_us, found.figures, sent, memory, binding(found), found)

    def _of_outline(self, layout: Layout, found: Outline, shape: PipelineShape) -> Assessment:
        stages, busiest = shape.stages, found.pieces[found.busiest]
        memories, sent = [], []
        for stage in range(stages):
            own = found.pieces[stage::stages]
            plans = [
                (part.graph, part.memory)
                for piece in own
                for part in [piece.result.parts[piece.template]]
                if part.memory is not None
            ]
            memories.append(pipeline_memory(plans, shape, stage, training=self.training))
            sent.append(_summed([piece.sent_bytes(shape.micro_batches) for piece in own]))
        bound = bound_of(busiest.result, found.figures[found.busiest], found.time_us)
        most = max(sent, key=lambda volume: sum(volume.values()))
        memory = max(memories, key=lambda memory: memory.total)
        return self._made(layout, found.time_us, found.figures, most, memory, bound, busiest.result)

    def _made(
        self,
        layout: Layout,
        time_us: float,
        figures: Sequence[RankFigures],
        sent: Mapping[str, float],
        memory: Memory,
        bound: Bound,
        result: CardsResult,
    ) -> Assessment:
        seconds = max(time_us, 1e-3) / 1e6
        idle = [f.idle_us for f in figures]
        links = busiest_links(result)
        facts = self.facts
        return Assessment(
            layout=layout,
            time_us=time_us,
            tokens_per_s=facts.tokens / seconds if facts else 0.0,
            samples_per_s=facts.batch / seconds if facts else 0.0,
            sent_bytes=sent,
            communication_us=max(f.communication_us for f in figures),
            exposed_us=max(f.exposed_us for f in figures),
            bubble=sum(idle) / len(idle) / time_us if time_us else 0.0,
            memory=memory,
            bound=bound,
            link=links[0][0] if links else "",
            link_use=links[0][1] if links else 0.0,
            notes=tuple(dict.fromkeys(str(note) for note in result.program.notes)),
        )


def _summed(volumes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for volume in volumes:
        for axes, amount in volume.items():
            found[axes] = found.get(axes, 0.0) + amount
    return dict(sorted(found.items()))


def _asked(layout: Layout) -> CardsRequest:
    values: dict[str, Any] = layout.options()
    mesh = Mesh.of(**{axis: values[axis] for axis in ("pp", "dp", "ep", "sp", "tp")})
    asked = CardsRequest(mesh, micro_batches=layout.micro_batches, chunks=layout.chunks)
    cutting = replace(asked.cutting, sequence=layout.exchange, kv_heads=layout.kv_heads)
    return replace(asked, pipeline_schedule=values["pipeline_schedule"], cutting=cutting)
