"""Which tensors take the same memory, and the orders that this demands, by hand and by force."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from fakes import FakeTarget, random_graph, random_placement, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.graph import Graph, State
from gecompiler.ir.schedule import BufferKind
from gecompiler.ir.types import tensor
from gecompiler.passes.memory.lifetimes import Block, blocks, from_start, storages
from gecompiler.passes.memory.plan import MemoryPlan, plan_memory
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.task_graph import Dep, TaskGraph, TensorSpec
from gecompiler.passes.streams.evaluation import schedule_of, synchronise
from gecompiler.passes.streams.strategy import Placement, in_topological_order
from gecompiler.passes.streams.sync import Positions, SyncPlan, plan_syncs


def tasks(
    tensors: dict[str, TensorSpec], *steps: tuple[str, str, str], streams: tuple[int, ...] = ()
) -> tuple[Placement, SyncPlan, Positions]:
    """Tasks of (op type, reads, writes), in order, on one stream unless told otherwise."""
    bare = task_graph(len(steps), [])
    made = tuple(
        replace(task, op_type=kind, reads=tuple(reads.split()), writes=tuple(writes.split()))
        for task, (kind, reads, writes) in zip(bare.tasks, steps, strict=True)
    )
    graph = replace(bare, tasks=made, tensors=tensors)
    placement = Placement(graph, streams or (0,) * len(made), tuple(range(len(made))))
    where = Positions.of(placement)
    return placement, plan_syncs(placement, graph.deps, where), where


def spec(size: int, kind: BufferKind = "activation", **more: object) -> TensorSpec:
    return TensorSpec(size, kind, element_bits=32, **more)  # type: ignore[arg-type]


def chains(made: tuple[Placement, SyncPlan, Positions]) -> list[list[str]]:
    placement, plan, where = made
    found = blocks(placement.graph, plan.clock, where)
    return [[s.root for s in block.storages] for block in found]


def planned(made: tuple[Placement, SyncPlan, Positions], **more: bool) -> MemoryPlan:
    return plan_memory(made[0], made[1].clock, made[2], **more)


ACTIVATIONS = {"x": spec(64, "input"), "a": spec(64), "b": spec(64), "c": spec(64)}


def test_a_storage_is_as_large_as_its_largest_view_and_knows_its_users() -> None:
    tensors = {
        "x": spec(64, "input"), "v": spec(96, alias_of="a"), "a": spec(64),
        "w": spec(32, alias_of="v"), "o": spec(8, "output"),
    }  # fmt: skip
    graph = tasks(tensors, ("T", "x x", "a"), ("T", "v a w x", "o"), ("T", "w", ""))[0].graph
    found = storages(graph)
    assert list(found) == ["x", "a", "o"]
    a = found["a"]
    assert (a.bytes, a.writer, a.kind, a.element_bits, a.users) == (
        96,
        0,
        "activation",
        32,
        [0, 1, 2],
    )
    assert (found["x"].writer, found["x"].users) == (None, [0, 1])
    assert (found["o"].writer, found["o"].users) == (1, [1])


def test_the_first_input_that_is_used_up_is_written_over() -> None:
    both = ("Add", "a b", "c")
    assert chains(tasks(ACTIVATIONS, ("T", "x", "a"), ("T", "x", "b"), both)) == [
        ["x"], ["a", "c"], ["b"],
    ]  # fmt: skip
    late = (("T", "x", "a"), ("T", "x", "b"), both, ("T", "a", ""))
    assert chains(tasks(ACTIVATIONS, *late)) == [["x"], ["a"], ["b", "c"]]
    inputs_first = ("Add", "x a", "c")
    assert chains(tasks(ACTIVATIONS, ("T", "x", "a"), inputs_first)) == [["x"], ["a", "c"], ["b"]]


@pytest.mark.parametrize(
    ("tensor_", "what"),
    [
        ("a", spec(60)),  # smaller
        ("a", TensorSpec(64, "activation", element_bits=64)),  # as large, but of fewer elements
        ("a", spec(64, "output")),
        ("a", spec(64, "weight")),
        ("c", spec(64, part_of=("w", 0))),  # made where it is wanted
    ],
)
def test_what_is_not_written_over(tensor_: str, what: TensorSpec) -> None:
    tensors = {**ACTIVATIONS, "w": spec(128), tensor_: what}
    found = chains(tasks(tensors, ("T", "x", "a"), ("T", "x", "b"), ("Add", "a b", "c")))
    assert ["a", "c"] not in found
    assert (["b", "c"] in found) == (tensor_ == "a")  # the next input will do


def test_only_kernels_that_go_element_by_element() -> None:
    steps = (("T", "x", "a"), ("MatMul", "a", "b"), ("Relu", "b", "c"))
    assert chains(tasks(ACTIVATIONS, *steps)) == [["x"], ["a"], ["b", "c"]]
    placement, plan, where = tasks(ACTIVATIONS, *steps)
    copies = tuple(replace(t, kind="copy") for t in placement.graph.tasks)
    graph = replace(placement.graph, tasks=copies)
    assert [len(b.storages) for b in blocks(graph, plan.clock, where)] == [1, 1, 1, 1]
    nothing = {**ACTIVATIONS, "a": spec(0), "b": spec(0)}
    assert ["a", "b"] not in chains(tasks(nothing, ("T", "x", "a"), ("Relu", "a", "b")))
    assert chains(tasks(ACTIVATIONS, ("T", "x", "a"), ("Relu", "a", ""))) == [
        ["x"],
        ["a"],
        ["b"],
        ["c"],
    ]


def with_states(made: tuple[Placement, SyncPlan, Positions], *pairs: tuple[str, str]):  # type: ignore[no-untyped-def]
    placement, plan, where = made
    states = tuple(State(a, b) for a, b in pairs)
    return replace(placement, graph=replace(placement.graph, states=states)), plan, where


CACHE = {
    "p": spec(64, "state"), "q": spec(64, "state"), "n": spec(64, "state"), "m": spec(64, "state"),
    "x": spec(64, "input"),
}  # fmt: skip


def test_every_state_that_can_be_is_written_over() -> None:
    steps = (("T", "p q", "n"), ("T", "p", "m"), ("T", "x", ""))
    made = tasks(CACHE, *steps)
    # p is read again after n is written; q is not
    assert chains(with_states(made, ("p", "n"), ("q", "m"))) == [["p"], ["q", "m"], ["n"], ["x"]]
    # an output that no task writes, an input that one writes, then one as it should be
    assert chains(with_states(made, ("p", "x"), ("m", "n"), ("q", "m"))) == [
        ["p"], ["q", "m"], ["n"], ["x"],
    ]  # fmt: skip
    # one input for two outputs, and two inputs for one output: the first of them
    twice = with_states(made, ("q", "n"), ("q", "m"), ("p", "m"))
    assert chains(twice) == [["p", "m"], ["q", "n"], ["x"]]
    assert chains(with_states(made, ("q", "m"), ("p", "m"))) == [["p"], ["q", "m"], ["n"], ["x"]]


def test_a_state_goes_before_an_input_that_is_used_up() -> None:
    tensors = {**CACHE, "a": spec(64)}
    made = tasks(tensors, ("T", "x", "a"), ("Add", "a p", "n"))
    assert ["p", "n"] in chains(with_states(made, ("p", "n")))
    assert ["a", "n"] in chains(made)


def test_parts_lie_in_the_whole_and_go_when_it_goes() -> None:
    tensors = {
        "x": spec(64, "input"), "a": spec(512, part_of=("w", 0)),
        "b": spec(512, part_of=("w", 512)), "w": spec(1024),
        "o": spec(1024, "output"), "z": spec(1024),
    }  # fmt: skip
    made = tasks(tensors, ("T", "x", "a"), ("T", "x", "b"), ("Concat", "a b", "w"),
                 ("T", "w", "z"), ("T", "z", "o"))  # fmt: skip
    found = {b.storages[0].root: b for b in blocks(made[0].graph, made[1].clock, made[2])}
    whole = found["w"]
    assert [(at, part.root) for at, part in whole.parts] == [(0, "a"), (512, "b")]
    assert (whole.writers, found["z"].writers, found["x"].writers) == ([0, 1], [3], [])
    plan = planned(made)
    at = {b.tensor: b for b in plan.buffers}
    assert (at["a"].offset, at["b"].offset) == (at["w"].offset, at["w"].offset + 512)
    assert (at["a"].alias_of, at["b"].alias_of, at["w"].alias_of) == ("w", "w", None)
    assert at["o"].offset == at["w"].offset  # w is over when o is written
    assert plan.arena_bytes == 512 + 2 * 1024
    assert plan.live_bytes == plan.arena_bytes


def test_a_block_is_aligned_and_knows_when_it_comes_free() -> None:
    placement, plan, where = tasks(
        {"x": spec(1, "input"), "a": spec(513), "o": spec(512, "output")},
        ("T", "x", "a"), ("T", "a", "o"), ("T", "a", ""), streams=(0, 1, 1),
    )  # fmt: skip
    x, a, o = blocks(placement.graph, plan.clock, where)
    assert [b.bytes for b in (x, a, o)] == [512, 1024, 512]
    assert (a.needs(where), o.needs(where)) == ((1, 2), (0, 1))
    assert (x.permanent, a.permanent, o.permanent) == (True, False, True)
    assert (from_start(x), from_start(a), from_start(o)) == (True, False, False)
    assert (x.start, a.start, o.start) == (None, 0, 1)


def test_the_five_largest_at_the_peak_are_named() -> None:
    names = "abcdefg"
    tensors = {n: spec(512 * (i // 2 + 1)) for i, n in enumerate(names)}
    made = tasks(tensors, *[("T", "", n) for n in names], ("T", " ".join(names), ""))
    assert planned(made).peak == (("g", 2048), ("e", 1536), ("f", 1536), ("c", 1024), ("d", 1024))


def demanded(
    found: list[Block], offset: dict[str, int], made: Placement, plan: SyncPlan
) -> set[Dep]:
    """The orders between who used each 512 bytes last and who writes there next, by force."""
    where = Positions.of(made)
    holder: dict[int, Block] = {}
    orders: set[Dep] = set()
    above = [b for b in found if not from_start(b)]
    for block in sorted(above, key=lambda b: min(where.rank[w] for w in b.writers)):
        low = offset[block.storages[0].root] // 512
        for unit in range(low, low + block.bytes // 512):
            last = holder[unit].storages[-1] if unit in holder else None
            for user, start in product(last.users if last else (), block.writers):
                if plan.clock[start][where.lane[user]] <= where.order[user]:
                    orders.add(Dep(user, start, "buffer", last.root if last else ""))
            holder[unit] = block
    return orders


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_hazards_are_the_orders_that_the_memory_demands_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    graph: TaskGraph = lower(random_graph(seed, 14), FakeTarget())
    placement = random_placement(graph, rng, rng.randint(2, 4))
    synced = synchronise(placement, FakeTarget())
    plan = plan_memory(placement, synced.plan.clock, synced.where, ordered=False)
    offset = {b.tensor: b.offset for b in plan.buffers}
    found = blocks(graph, synced.plan.clock, synced.where)
    assert set(plan.hazards) == demanded(found, offset, placement, synced.plan)
    assert len(plan.hazards) == len(set(plan.hazards))
    assert plan_memory(placement, synced.plan.clock, synced.where).hazards == ()


def test_a_weight_and_the_input_lie_below_all_that_takes_turns() -> None:
    graph = Graph("below")
    x = graph.add_input("x", tensor("f32", (16, 16)))
    graph.set_outputs([graph.emit("Transpose", [x], tensor("f32", (16, 16)), stem="t")])
    placement = in_topological_order(lower(graph, FakeTarget()), (0,))
    where = Positions.of(placement)
    plan = plan_memory(placement, plan_syncs(placement, (), where).clock, where)
    assert {b.tensor: b.offset for b in plan.buffers} == {"x": 0, "t_out": 1024}
    assert (plan.weight_bytes, plan.arena_bytes) == (0, 2048)


@pytest.mark.parametrize("ordered", [True, False])
def test_long_plans_are_as_safe_as_short_ones(ordered: bool) -> None:
    reached = 0
    for seed in range(6):
        graph = lower(random_graph(seed, 250), FakeTarget())
        placement = random_placement(graph, random.Random(seed), 3)
        synced = synchronise(placement, FakeTarget().with_limits(max_events=1000))
        plan = plan_memory(placement, synced.plan.clock, synced.where, ordered=ordered)
        target = FakeTarget().with_limits(max_events=1000)
        enforced = synchronise(placement, target, plan.hazards)
        assert schedule_of(enforced, target, "x", plan).findings() == []
        reached += plan.arena_bytes == plan.live_bytes
    assert reached >= (0 if ordered else 3)
