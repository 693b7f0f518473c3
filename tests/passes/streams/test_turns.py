"""Micro-batches that take turns: the orders are those that were meant, and never slower."""

from __future__ import annotations

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.models import build_spec
from gecompiler.passes import PassContext
from gecompiler.passes import Pipeline as Passes
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.scheduling.schedule_variant import Variant, Variants
from gecompiler.passes.streams.evaluation import Evaluated, evaluate, schedule_of
from gecompiler.passes.streams.pipeline import Pipeline
from gecompiler.passes.streams.strategy import StrategyContext
from gecompiler.passes.streams.turns import SYNC_TYPE, Turn, kinds, take_turns, turns_of

DEVICE = load_device("ascend910")
SIMULATOR = Simulator(DEVICE)
SPEC = {
    "name": "small",
    "family": "bert",
    "description": "a few layers of some size",
    "source": "made up",
    "hidden": 512,
    "layers": 3,
    "heads": 8,
    "intermediate": 1024,
    "vocabulary": 512,
    "max_positions": 512,
    "dtype": "f16",
}


def model() -> Graph:
    graph = build_spec(SPEC, batch=8, seq=256)
    Passes.parse("canonicalize,fuse-attention,canonicalize").run(graph, PassContext(Diagnostics()))
    return graph


def pipelined(parts: int) -> tuple[Evaluated, Variant]:
    graph = model()
    variant = Variants(graph, DEVICE, {}, [], Diagnostics()).in_parts(parts)
    context = StrategyContext(DEVICE, parts, pipeline_depth=parts, parts=variant.part_of)
    placement = Pipeline().assign(variant.tasks, context)
    return evaluate("pipeline", placement, DEVICE, SIMULATOR), variant


def test_a_turn_orders_each_row_and_closes_the_circle() -> None:
    rows = ((0, 1, 2), (5, 6, 7))
    plain = [(c.producer, c.consumer) for c in Turn(rows, 1).controls()]
    assert plain == [(0, 1), (1, 2), (5, 6), (6, 7)]
    assert [(c.producer, c.consumer) for c in Turn(rows, 2).controls()] == [(0, 2), (5, 7)]
    closed = [(c.producer, c.consumer) for c in Turn(rows, 1, closed=True).controls()]
    assert closed == [*plain, (2, 5)]


def test_kinds_hold_one_task_of_every_micro_batch() -> None:
    start, variant = pipelined(3)
    graph = start.placement.graph
    found = kinds(graph, variant.parts)
    assert found
    for rows in found:
        for row in rows:
            names = [graph.tasks[t].name.rpartition("#mb")[0] for t in row]
            assert len(row) == 3
            assert len(set(names)) == 1
            assert len({graph.tasks[t].op_type for t in row}) == 1
    assert {t.ahead for t in turns_of(graph, variant.parts)} == {1, 2}


def test_it_finds_a_faster_order_within_its_runs_and_the_schedule_is_sound() -> None:
    start, variant = pipelined(4)
    best, used = take_turns(start, variant.parts, DEVICE, SIMULATOR, 30)
    assert 0 < used <= 30
    assert best.makespan_ns < start.makespan_ns
    turns = [c for c in best.placement.graph.controls if c.sync_type == SYNC_TYPE]
    assert turns
    again, _ = take_turns(start, variant.parts, DEVICE, SIMULATOR, 30)
    assert again.placement == best.placement
    assert take_turns(start, variant.parts, DEVICE, SIMULATOR, 0) == (start, 0)
    assert schedule_of(best.synced, DEVICE, "pipeline").events


def test_a_schedule_with_turns_passes_the_verifier() -> None:
    graph = model()
    options = ScheduleOptions(strategy="pipeline", pipeline_depth=4)
    result = build_schedule(graph, DEVICE, SIMULATOR, options, UserControl(), Diagnostics())
    assert any(c.sync_type == SYNC_TYPE for c in result.schedule.controls)
    assert result.schedule.findings() == []
    assert result.lower_bound_us <= result.best_found_us <= result.makespan_us
    none = ScheduleOptions(strategy="pipeline", pipeline_depth=4, search_tasks=0)
    plain = build_schedule(graph, DEVICE, SIMULATOR, none, UserControl(), Diagnostics())
    assert result.makespan_us < plain.makespan_us
