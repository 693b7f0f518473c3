"""What a request asks of the passes, in their words: options, the user's placement, costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gecompiler.request import Controls, Request

if TYPE_CHECKING:
    from gecompiler.backends.device import Device
    from gecompiler.ir.diagnostics import Diagnostics
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.target import Target
    from gecompiler.measured_target import MeasuredShare
    from gecompiler.passes.scheduling.schedule_builder import ScheduleOptions, UserControl
    from gecompiler.passes.user_marks import Marks


def schedule_options(
    graph: Graph, values: Mapping[str, Any], strategy: str, *, training: bool
) -> ScheduleOptions:
    """What the options say of the schedule; ``graph`` is the model with its symbols."""
    from gecompiler.passes.scheduling.schedule_builder import ScheduleOptions

    return ScheduleOptions(
        num_streams=values["num_streams"],
        strategy=strategy,
        auto_min_gain=values["auto_min_gain"],
        overlap_ratio=values["overlap_ratio"],
        pipeline_depth=values["pipeline_depth"],
        solver_seconds=values["solver_seconds"],
        seed=values["seed"],
        search_tasks=values["search_tasks"],
        engine_streams=values["engine_streams"],
        memory_priority=values["memory_priority"],
        enable_parallel=values["enable_stream_parallel"],
        strict_memory=values["strict_memory"],
        sync_primitive=values["sync_primitive"],
        merge_waits=values["merge_waits"],
        auto_micro_batches=not training,
        samples=() if training else _samples(graph),
    )


def _samples(graph: Graph) -> tuple[str, ...]:
    """The inputs whose first dim is the batch, by its symbol."""
    from gecompiler.ir.bind.roles import batch_symbols, lone_symbol, shaped_inputs

    leading = list(batch_symbols(graph))
    shapes = {name: type_.shape for name, type_ in shaped_inputs(graph).items()}
    return tuple(v for v, s in shapes.items() if s and lone_symbol(s[0]) in leading[:1])


def schedule_target(
    device: Device, graph: Graph, values: Mapping[str, Any], diagnostics: Diagnostics
) -> tuple[Target, MeasuredShare | None]:
    """What passes ask for costs: the device, with block sizes and measured times if given."""
    found: Any = device
    queries, keys = values["attention_block_q"], values["attention_block_k"]
    if queries or keys:
        from gecompiler.attention_blocks import Blocks, blocked_target

        blocks = Blocks(queries or keys, keys or queries)
        found = blocked_target(device, graph, blocks, diagnostics)
    if values["durations"] is None:
        return found, None
    from gecompiler.measured_target import measured_target

    return measured_target(found, graph, values["durations"], diagnostics)


def chosen_strategy(name: str, own: Any) -> tuple[str, Any]:
    """The strategy's name and the user's own, which an installed package may add by name."""
    from gecompiler.passes.streams.custom_sources import custom_strategies, load_custom
    from gecompiler.passes.streams.registry import STRATEGIES

    if name in STRATEGIES or name not in custom_strategies():
        return name, own
    return "auto", load_custom(name) if own is None else own


def user_control(request: Request, strategy: Any) -> UserControl:
    """Streams by name, sync points, and a strategy of the user's own."""
    from gecompiler.passes.scheduling.schedule_builder import SyncPoint, UserControl

    controls = request.controls
    points = [SyncPoint(p.producer, p.consumer, p.sync_type) for p in controls.sync_points]
    seconds = request.options.get("custom_seconds")
    return UserControl(dict(controls.assignment), points, strategy, seconds)


def user_marks(controls: Controls) -> Marks:
    """Labels, priorities and core limits."""
    from gecompiler.passes.user_marks import Marks

    return Marks(controls.labels, controls.priorities, controls.core_limits)
