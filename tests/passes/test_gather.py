"""Concatenations in place: which are, that the memory is planned so, and the same numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fakes import FakeEvaluator, FakeTarget, random_placement
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import tensor
from gecompiler.passes.memory.plan import plan_memory
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.evaluation import schedule_of, synchronise

ROW = 8


def joined(*rows: int, axis: int = 0, also: str = "") -> Graph:
    """A Concat of as many ops' results; ``also`` says what else there is to a part."""
    graph = Graph("joined", {"": 18})
    parts = []
    for i, count in enumerate(rows):
        shape = (count, ROW) if axis == 0 else (ROW, count)
        x = graph.add_input(f"x{i}", tensor("f32", shape))
        parts.append(graph.emit("Sigmoid", [x], tensor("f32", shape), stem=f"part{i}"))
    total = (sum(rows), ROW) if axis == 0 else (ROW, sum(rows))
    if also == "twice":
        parts[1] = parts[0]
    whole = graph.emit("Concat", parts, tensor("f32", total), attrs={"axis": axis}, stem="whole")
    outputs = [graph.emit("Exp", [whole], tensor("f32", total), stem="end")]
    if also == "used":
        outputs.append(graph.emit("Neg", [parts[0]], tensor("f32", (rows[0], ROW))))
    if also == "output":
        outputs.append(parts[0])
    graph.set_outputs(outputs)
    return graph


def gathered(graph: Graph) -> bool:
    tasks = lower(graph, FakeTarget())
    return next(t for t in tasks.tasks if t.op_type == "Concat").demand == Demand()


def test_parts_that_lie_in_turn_are_made_in_place() -> None:
    assert gathered(joined(2, 3, 1))
    assert gathered(joined(1, 1, axis=-2))


@pytest.mark.parametrize("also", ["used", "output", "twice"])
def test_a_part_that_others_need_is_moved(also: str) -> None:
    assert not gathered(joined(2, 2, also=also))


def test_parts_that_are_interleaved_or_off_the_grid_are_moved() -> None:
    assert not gathered(joined(2, 2, axis=1))
    graph = Graph("odd", {"": 18})
    parts = [
        graph.emit("Sigmoid", [graph.add_input(f"x{i}", tensor("f32", (3,)))], tensor("f32", (3,)))
        for i in range(2)
    ]
    whole = graph.emit("Concat", parts, tensor("f32", (6,)), attrs={"axis": 0})
    graph.set_outputs([whole])
    assert not gathered(graph)


def plan_and_run(tasks: TaskGraph, graph: Graph, rng: random.Random, ordered: bool) -> None:
    target = FakeTarget()
    placement = random_placement(tasks, rng, rng.randint(1, 3))
    synced = synchronise(placement, target)
    memory = plan_memory(placement, synced.plan.clock, synced.where, ordered=ordered)
    if not ordered:
        synced = synchronise(placement, target, memory.hazards)
    schedule = schedule_of(synced, target, "random", memory)
    assert schedule.findings() == []
    arrays = {
        v: np.random.default_rng(1).standard_normal(t.sizes).astype(np.float32)
        for v in graph.inputs
        if (t := graph.tensor(v)) is not None
    }
    found = execute(graph, schedule, FakeEvaluator(target)(schedule), arrays)
    for name, expected in run_reference(graph, arrays).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_order_gives_the_same_numbers(seed: int, ordered: bool) -> None:
    rng = random.Random(seed)
    graph = joined(*(rng.randint(1, 5) for _ in range(rng.randint(2, 4))))
    plan_and_run(lower(graph, FakeTarget()), graph, rng, ordered)


def test_the_parts_take_no_memory_beside_the_whole() -> None:
    graph = joined(64, 64)
    tasks = lower(graph, FakeTarget())
    placement = random_placement(tasks, random.Random(0), 1)
    synced = synchronise(placement, FakeTarget())
    memory = plan_memory(placement, synced.plan.clock, synced.where)
    at = {b.tensor: b for b in memory.buffers}
    whole = at["whole_out"]
    assert [at[f"part{i}_out"].offset - whole.offset for i in range(2)] == [0, 64 * ROW * 4]
    assert {at[f"part{i}_out"].alias_of for i in range(2)} == {"whole_out"}
    assert memory.arena_bytes == 2 * 128 * ROW * 4  # the inputs, and what is made of them


def test_a_part_that_lies_elsewhere_is_found() -> None:
    from dataclasses import replace

    graph = joined(64, 64)
    tasks = lower(graph, FakeTarget())
    synced = synchronise(random_placement(tasks, random.Random(0), 1), FakeTarget())
    memory = plan_memory(synced.placement, synced.plan.clock, synced.where)
    schedule = schedule_of(synced, FakeTarget(), "single", memory)
    buffers = tuple(
        replace(b, offset=b.offset + 512) if b.tensor == "part1_out" else b
        for b in schedule.buffers
    )
    moved = replace(schedule, buffers=buffers, arena_bytes=schedule.arena_bytes + 512)
    assert [f.code for f in moved.findings()] != []
