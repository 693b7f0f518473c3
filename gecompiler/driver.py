"""The whole way: model to Graph to Schedule to Timeline. Reports and files come after.

load -> infer -> canonicalize, fuse attention, block   (symbols kept: what is exported)
-> bind sizes -> canonicalize again, lay out      (what is scheduled)
-> place, sync, plan memory -> verify -> simulate
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gecompiler.idle_options import warn_of_idle
from gecompiler.ir.activity import tell
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UnknownSizeError
from gecompiler.request import Request
from gecompiler.schedule_request import (
    chosen_strategy,
    schedule_options,
    schedule_target,
    user_control,
    user_marks,
)
from gecompiler.source import load_source, naming_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gecompiler.backends.device import Device
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.schedule_verify import Finding
    from gecompiler.measured_target import MeasuredShare
    from gecompiler.passes.attention.site import AttentionSite
    from gecompiler.passes.manager import PassStats
    from gecompiler.passes.pipeline import Pipeline
    from gecompiler.passes.scheduling.schedule_builder import ScheduleResult
    from gecompiler.passes.user_marks import Marks
    from gecompiler.training import Trained

SYMBOLIC_PIPELINE = "fuse-attention,canonicalize,fuse-attention,fuse-block,canonicalize"
"""Runs before sizes are bound, since masks are proven on symbols."""

GRADIENT_DOMAIN = "ai.onnx.preview.training"

BOUND_PIPELINE = "canonicalize,attention-layout"
"""Runs after: folds what the sizes made constant, and lays tensors out as kernels take them."""


@dataclass(frozen=True)
class Source:
    """The optimised graph with its symbols, and what is known of the model as it came."""

    graph: Graph
    opset: int
    ops_imported: int
    parameters: int
    passes: tuple[PassStats, ...]
    sites: tuple[AttentionSite, ...]
    diagnostics: Diagnostics
    stopped: bool = False
    marks_left: Marks | None = None
    """The user's marks by names that only the programs of several cards may have."""
    """Whether ``stop_after`` ended the way here."""
    weight_bytes: int = 0
    """What the model's constants hold."""


@dataclass(frozen=True)
class Compilation:
    """All that one compilation found; `report` and `CompiledModel` show it."""

    source: Source
    graph: Graph
    """The bound graph that was scheduled; under ``pipeline`` with its batch in parts."""
    ops_compiled: int
    """Ops of the optimised graph, its batch whole; of a training step those of the whole step.

    Of several cards as of one: before it is cut for them, without what they communicate by.
    """
    binding: dict[str, int]
    device: Device
    result: ScheduleResult
    findings: tuple[Finding, ...]
    passes: tuple[PassStats, ...]
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    measured: MeasuredShare | None = None
    """What goes by measured times, where ``durations`` named a capture."""
    cards: CardsResult | None = None
    """What is known beyond that where there are several cards."""
    trained: Trained | None = None
    """The training step that was compiled in the place of the model."""


def optimise(request: Request) -> Source:
    """Loads the model and runs the passes that keep its symbols."""
    with naming_file(request.source):
        return _optimise(request)


def _optimise(request: Request) -> Source:
    from gecompiler.backends.execution.host_memory import weight_bytes
    from gecompiler.cards.request import several_asked
    from gecompiler.ir.bind import declare_empty, declare_ranks
    from gecompiler.ir.infer import infer_types
    from gecompiler.passes import PassContext, Pipeline
    from gecompiler.passes.training.gradient_ops import expand_gradients
    from gecompiler.passes.user_marks import place_marks, refuse_unmatched

    diagnostics = Diagnostics()
    tell("reading the model")
    graph = load_source(request, diagnostics)
    declare_ranks(graph, request.input_shapes)
    graph = declare_empty(graph, request.arrays or {})
    opset, imported, parameters = graph.opsets.get("", 0), len(graph), _parameters(graph)
    weights = weight_bytes([graph])
    tell("inferring types and shapes")
    infer_types(graph, diagnostics=diagnostics)
    if any(op.is_("Gradient", domain=GRADIENT_DOMAIN) for op in graph.ops):
        expand_gradients(graph)  # while values have the names that these ops call them by
    left = place_marks(graph, user_marks(request.controls), exact=True)
    if request.dump is not None:
        request.dump("import", graph)
    context = PassContext(
        diagnostics,
        custom_seconds=request.options.get("custom_seconds"),
        trains=request.options.get("train"),
    )
    pipeline = _pipeline(Pipeline, SYMBOLIC_PIPELINE, request)
    if request.options.get("check_fusions"):
        pipeline = _checked(pipeline)
    stats = pipeline.run(graph, context)
    left = place_marks(graph, left)
    if left and request.stop_after is None and not several_asked(request.options.as_dict()):
        refuse_unmatched(graph, left)
    return Source(
        graph,
        opset,
        imported,
        parameters,
        tuple(stats),
        tuple(context.sites),
        diagnostics,
        stopped=request.stop_after is not None,
        marks_left=left,
        weight_bytes=weights,
    )


def compile_source(source: Source, request: Request) -> Compilation:
    """Binds the sizes, schedules, verifies and simulates.

    Where a size cannot even be estimated and all inputs are given, the model is run on them to
    see what it is.
    """
    with naming_file(request.source):
        try:
            return _compile_source(source, request)
        except UnknownSizeError:
            if request.observe or not set(source.graph.inputs) <= set(request.arrays or ()):
                raise
            return _compile_source(source, replace(request, observe=True))


def _compile_source(source: Source, request: Request) -> Compilation:
    from gecompiler.backends.device import load_device
    from gecompiler.backends.simulator import Simulator
    from gecompiler.cards.request import cards_request
    from gecompiler.ir.bind import bind, choose_sizes
    from gecompiler.ir.schedule_verify import verify_schedule
    from gecompiler.passes import PassContext, Pipeline
    from gecompiler.passes.scheduling.schedule_builder import build_schedule
    from gecompiler.run_sizes import with_estimates, with_observed
    from gecompiler.training import accumulated_sizes, ops_of, train, training_request

    diagnostics = Diagnostics()
    for warning in source.diagnostics:
        diagnostics.warn(warning.code, warning.message, warning.hint)
    device = load_device(request.options.get("device"))
    launch_mode = request.options.get("launch_mode")
    if launch_mode != "profile":
        device = replace(device, launch_mode=launch_mode)
    binding = choose_sizes(
        source.graph,
        batch=request.batch,
        seq=request.seq,
        input_shapes=dict(request.input_shapes),
        arrays=request.arrays,
        diagnostics=diagnostics,
    )
    values = _values(request, diagnostics)
    cards, sizes, parts = cards_request(values), binding.sizes, 1
    training = training_request(values)
    if training is not None and (cards is None or cards.mesh.size == 1):
        cards = None
        sizes, parts = accumulated_sizes(source.graph, sizes, values["micro_batches"])
    if cards is not None:
        from gecompiler.cards.batch_cut import BatchCut, batch_barred
        from gecompiler.cards.compilation import compile_cards, micro_batch_sizes
        from gecompiler.cards.control import control_of

        sizes, parts = micro_batch_sizes(
            source.graph, sizes, cards, diagnostics, training=training is not None
        )

    def bound(
        sizes: Mapping[str, int], asked: Request, told: Diagnostics
    ) -> tuple[Graph, tuple[PassStats, ...]]:
        graph = bind(source.graph, sizes)
        stats = _pipeline(Pipeline, BOUND_PIPELINE, asked).run(
            graph, PassContext(told, trains=values["train"])
        )
        if request.observe:
            given = (request.arrays or {}, source.weight_bytes, values["host_memory"])
            return with_observed(graph, *given), tuple(stats)
        return with_estimates(graph, binding.estimates), tuple(stats)

    graph, stats = bound(sizes, request, diagnostics)
    if cards is not None:
        control = control_of(source, graph, request, training=training is not None)
        again = replace(request, dump=None)
        cutting = BatchCut(
            source.graph, binding.sizes, lambda sizes: bound(sizes, again, Diagnostics())[0],
            batch_barred(request, training=training is not None),
        )  # fmt: skip
        result, several = compile_cards(
            graph, parts, cards, device, values, diagnostics, training, cutting, control
        )
        findings = tuple(verify_schedule(result.schedule))
        return Compilation(
            source, result.graph, ops_of(graph, training), binding.every, device, result, findings,
            stats, diagnostics, several.measured, several,
        )  # fmt: skip
    trained = None
    if training is not None:
        trained = train(graph, training, parts)
        graph = trained.step.graph
    strategy, custom = chosen_strategy(values["stream_strategy"], request.controls.strategy)
    options = schedule_options(source.graph, values, strategy, training=trained is not None)
    target, measured = schedule_target(device, graph, values, diagnostics)
    tell("scheduling")
    result = build_schedule(
        graph, target, Simulator(device), options, user_control(request, custom), diagnostics
    )
    tell("verifying the schedule")
    findings = tuple(verify_schedule(result.schedule))
    return Compilation(
        source,
        result.graph,
        len(graph),
        binding.every,
        device,
        result,
        findings,
        stats,
        diagnostics,
        measured,
        trained=trained,
    )


def _values(request: Request, diagnostics: Diagnostics) -> dict[str, Any]:
    """The options; a warning for each that changes nothing."""
    values = request.options.as_dict()
    warn_of_idle(values, diagnostics)
    return values


def _pipeline(kind: Any, spec: str, request: Request) -> Any:
    return kind.parse(
        spec,
        disabled=request.options.get("disable_passes"),
        stop_after=request.stop_after,
        dump=request.dump,
    )


def _checked(pipeline: Pipeline) -> Pipeline:
    """The pipeline with a net under the passes that fuse."""
    from gecompiler.backends.execution.executor import run_reference
    from gecompiler.passes.equivalence.checked_pass import with_net

    return replace(pipeline, passes=tuple(with_net(p, run_reference) for p in pipeline.passes))


def _parameters(graph: Graph) -> int:
    return sum(c.size for c in graph.constants.values() if c.type.dtype.is_float)
