"""Memory plans: aligned, no larger than needed, safe; state and in-place sharing."""

from __future__ import annotations

import random

import pytest
from fakes import FakeTarget, random_graph, random_placement
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.types import tensor
from gecompiler.passes.memory.advice import report_memory
from gecompiler.passes.memory.fit import Request, best_layout, by_size, by_start, live_bytes
from gecompiler.passes.memory.lifetimes import ALIGNMENT
from gecompiler.passes.memory.plan import plan_memory
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.streams.evaluation import schedule_of, synchronise
from gecompiler.passes.streams.strategy import in_topological_order
from gecompiler.passes.streams.sync import Positions, plan_syncs


def plan(graph: Graph, streams: tuple[int, ...] | None = None):
    tasks = lower(graph, FakeTarget())
    placement = in_topological_order(tasks, streams or (0,) * len(tasks))
    where = Positions.of(placement)
    found = plan_memory(placement, plan_syncs(placement, tasks.deps, where).clock, where)
    return found, {b.tensor: b for b in found.buffers}


def chain(*kinds: str, size: int = 64) -> Graph:
    graph = Graph("chain")
    type_ = tensor("f32", (size, size))
    x = graph.add_input("x", type_)
    for i, kind in enumerate(kinds):
        x = graph.emit(kind, [x], type_, stem=f"{kind}{i}")
    graph.set_outputs([x])
    return graph


LARGE = 64 * 64 * 4


def test_a_chain_takes_turns_in_two_places() -> None:
    found, _ = plan(chain(*["Transpose"] * 6))
    assert found.arena_bytes == found.live_bytes == 3 * LARGE  # the input, and two that alternate


def test_elementwise_ops_write_over_their_input() -> None:
    found, at = plan(chain("Transpose", "Relu", "Tanh", "Neg"))
    assert found.arena_bytes == 2 * LARGE
    assert at["Relu1_out"].alias_of == "Transpose0_out"
    assert len({at[n].offset for n in at if n != "x"}) == 1


def test_an_input_of_the_model_is_never_overwritten() -> None:
    _, at = plan(chain("Relu"))
    assert at["Relu0_out"].alias_of is None
    assert at["Relu0_out"].offset != at["x"].offset


def test_no_writing_over_what_another_stream_may_still_read() -> None:
    graph = Graph("fork")
    type_ = tensor("f32", (64, 64))
    x = graph.add_input("x", type_)
    y = graph.emit("Transpose", [x], type_, stem="t")
    a = graph.emit("Relu", [y], type_, stem="a")
    b = graph.emit("ReduceSum", [y], tensor("f32", (1, 1)), stem="b")
    graph.set_outputs([a, b])
    _, apart = plan(graph, (0, 0, 1))
    assert apart["a_out"].alias_of is None
    _, together = plan(graph, (0, 0, 0))  # in this order a still runs before b
    assert together["a_out"].alias_of is None


def test_an_input_as_large_but_of_fewer_elements_is_not_written_over() -> None:
    graph = Graph("power")
    x = graph.add_input("x", tensor("f32", (4, 2)))
    k = graph.add_input("k", tensor("i64", (4, 1)))
    k = graph.emit("Neg", [graph.emit("Abs", [k], tensor("i64", (4, 1)))], tensor("i64", (4, 1)))
    graph.set_outputs([graph.emit("Pow", [x, k], tensor("f32", (4, 2)), stem="pow")])
    _, at = plan(graph)
    assert at["pow_out"].bytes == at[k].bytes
    assert at["pow_out"].alias_of is None


def test_a_broadcast_input_is_not_written_over() -> None:
    graph = Graph("broadcast")
    x = graph.add_input("x", tensor("f32", (8, 1)))
    row = graph.add_input("row", tensor("f32", (1, 8)))
    y = graph.emit("Transpose", [x], tensor("f32", (8, 1)), stem="t")
    z = graph.emit("Add", [y, row], tensor("f32", (8, 8)), stem="sum")
    graph.set_outputs([z])
    _, at = plan(graph)
    assert at["sum_out"].alias_of is None


def test_views_share_memory_and_outputs_have_their_own() -> None:
    graph = Graph("views")
    x = graph.add_input("x", tensor("f32", (64, 64)))
    shape = graph.constant_of("shape", [4096])
    flat = tensor("f32", (4096,))
    y = graph.emit("Transpose", [x], tensor("f32", (64, 64)), stem="t")
    first = graph.emit("Reshape", [y, shape], flat, stem="first")
    second = graph.emit("Reshape", [y, shape], flat, stem="second")
    third = graph.emit("Identity", [x], tensor("f32", (64, 64)), stem="third")
    graph.set_outputs([first, second, third])
    _, at = plan(graph)
    assert at["first_out"].alias_of == "t_out"
    assert at["first_out"].offset == at["t_out"].offset
    assert at["second_out"].alias_of is None
    assert at["third_out"].alias_of is None
    outputs = [at[v].offset for v in graph.outputs]
    assert len(set(outputs)) == 3
    assert at["x"].offset not in outputs


def cache(readers_before: bool) -> Graph:
    graph = Graph("cache")
    past = graph.add_input("past", tensor("f32", (1, 63, 64)))
    new = graph.add_input("new", tensor("f32", (1, 1, 64)))
    whole = tensor("f32", (1, 64, 64))
    present = graph.emit("Concat", [past, new], whole, attrs={"axis": 1}, stem="present")
    outputs = [present]
    if not readers_before:
        outputs.append(graph.emit("Transpose", [past], tensor("f32", (1, 64, 63)), stem="late"))
    outputs.append(graph.emit("Relu", [present], whole, stem="use"))
    graph.set_outputs(outputs)
    graph.set_states([State(past, present, 1)])
    return graph


def test_a_cache_grows_in_place() -> None:
    found, at = plan(cache(readers_before=True))
    assert at["present_out"].offset == at["past"].offset
    assert at["present_out"].alias_of == "past"
    assert {at["past"].kind, at["present_out"].kind} == {"state"}
    assert at["use_out"].alias_of is None
    assert found.arena_bytes == 2 * LARGE + ALIGNMENT  # cache, use, new


def test_a_cache_that_is_read_later_moves() -> None:
    _, at = plan(cache(readers_before=False))
    assert at["present_out"].alias_of is None
    past, present = at["past"], at["present_out"]
    assert (
        present.offset >= past.offset + past.bytes or present.offset + present.bytes <= past.offset
    )


def test_weights_are_counted_and_only_those_that_are_read() -> None:
    graph = Graph("weights")
    x = graph.add_input("x", tensor("f32", (8, 64)))
    w = graph.add_constant("w", Constant.absent(tensor("f32", (64, 64))))
    graph.add_constant("unused", Constant.absent(tensor("f32", (64, 64))))
    graph.set_outputs([graph.emit("MatMul", [x, w], tensor("f32", (8, 64)))])
    found, at = plan(graph)
    assert found.weight_bytes == LARGE
    assert "unused" not in at


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9), streams=st.integers(1, 4), ordered=st.booleans())
def test_plans_are_safe_aligned_and_not_below_the_live_bytes(
    seed: int, streams: int, ordered: bool
) -> None:
    rng = random.Random(seed)
    target = FakeTarget()
    placement = random_placement(lower(random_graph(seed, 14), target), rng, streams)
    synced = synchronise(placement, target)
    found = plan_memory(placement, synced.plan.clock, synced.where, ordered=ordered)
    if found.hazards:
        synced = synchronise(placement, target, found.hazards)
    schedule = schedule_of(synced, target, "x", found)
    assert schedule.findings() == []
    assert all(b.offset % ALIGNMENT == 0 for b in found.buffers)
    assert found.live_bytes <= found.arena_bytes


def drawn(rng: random.Random, lanes: int) -> tuple[list[Request], list[tuple[int, ...]]]:
    """Requests of tasks on random lanes, each of which knows what went before on its lane."""
    count = rng.randint(1, 40)
    lane = [rng.randrange(lanes) for _ in range(count)]
    clocks: list[tuple[int, ...]] = []
    latest = [[0] * lanes for _ in range(lanes)]
    done = [0] * lanes
    for i in range(count):
        now = latest[lane[i]]
        now[lane[i]] = done[lane[i]]
        if rng.random() < 0.4:
            other = rng.randrange(lanes)
            now[:] = map(max, now, latest[other])
            now[other] = done[other]
        clocks.append(tuple(now))
        done[lane[i]] += 1
    requests = []
    for i in range(count):
        users = [i, *(j for j in range(i + 1, count) if rng.random() < 0.1)]
        needs = [0] * lanes
        for u in users:
            needs[lane[u]] = max(needs[lane[u]], clocks[u][lane[u]] + 1)
        keep = rng.random() < 0.1
        size = rng.choice((0, 512, 1024, 4096, 512 * rng.randint(1, 40)))
        requests.append(Request(size, i, max(users), clocks[i], None if keep else tuple(needs)))
    floor = [tuple(min(c[x] for c in clocks[i:]) for x in range(lanes)) for i in range(count)]
    return requests, floor


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9), lanes=st.integers(1, 4))
def test_layouts_never_overlap_what_lives_side_by_side(seed: int, lanes: int) -> None:
    requests, floor = drawn(random.Random(seed), lanes)
    layouts = [
        by_start(requests, floor, tightest=True),
        by_start(requests, floor, tightest=False),
        by_size(requests),
    ]
    for layout in layouts:
        assert layout.bytes >= live_bytes(requests)
        for i, a in enumerate(requests):
            assert layout.offsets[i] + a.bytes <= layout.bytes
            for j, b in enumerate(requests[:i]):
                apart = (
                    layout.offsets[i] >= layout.offsets[j] + b.bytes
                    or layout.offsets[j] >= layout.offsets[i] + a.bytes
                )
                assert apart or not a.bytes or not b.bytes or _over(b, a) or _over(a, b)
    assert best_layout(requests, floor).bytes == min(
        [x.bytes for x in layouts[:2]]
        if min(x.bytes for x in layouts[:2]) == live_bytes(requests)
        else [x.bytes for x in layouts]
    )


def _over(first: Request, then: Request) -> bool:
    return first.needs is not None and all(
        n <= k for n, k in zip(first.needs, then.knows, strict=True)
    )


def test_the_tensors_that_fill_the_memory_are_those_of_the_peak() -> None:
    graph = Graph("peak")
    small, large = tensor("f32", (64, 64)), tensor("f32", (128, 128))
    x = graph.add_input("x", small)
    w = graph.add_constant("w", Constant.absent(large))
    early = graph.emit("Transpose", [x], small, stem="early")
    wide = graph.emit("Expand", [early, graph.constant_of("s", [128, 128])], large, stem="wide")
    other = graph.emit("Transpose", [wide], large, stem="other")
    product = graph.emit("MatMul", [wide, other], large, stem="product")
    product = graph.emit("MatMul", [product, w], large, stem="again")
    late = graph.emit("ReduceSum", [product], tensor("f32", (1, 1)), stem="late")
    graph.set_outputs([late])
    found, _ = plan(graph)
    names = [name for name, _ in found.peak]
    assert {"w", "wide_out", "other_out", "product_out"} <= set(names)
    assert "again_out" not in names
    sizes = [size for _, size in found.peak]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) <= found.live_bytes
    diagnostics = Diagnostics()
    target = FakeTarget().with_limits(memory_bytes=1000)
    report_memory(found, target, "m", diagnostics, strict=False)
    (warning,) = diagnostics
    assert "largest at the peak: " in warning.message
    assert "'product_out' 0.06 MiB" in warning.message
    with pytest.raises(ScheduleError, match="'product_out'"):
        report_memory(found, target, "m", diagnostics, strict=True)
