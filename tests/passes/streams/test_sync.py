"""The fewest events: equal to the transitive reduction, and none can go."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import networkx as nx
import pytest
from fakes import FakeTarget, random_dag, random_graph, random_placement, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

import gecompiler as ge
from gecompiler.passes.memory.plan import plan_memory
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.task_graph import Dep
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.sync import Positions, ge_rule_count, plan_syncs


def drawn(seed: int, most: int = 24) -> tuple[Placement, Positions]:
    rng = random.Random(seed)
    count = rng.randint(1, most)
    graph = task_graph(count, random_dag(rng, count, rng.choice((0.05, 0.2, 0.5))))
    placement = random_placement(graph, rng, rng.randint(1, 5))
    return placement, Positions.of(placement)


def with_hazards(seed: int) -> tuple[Placement, Positions, list[Dep]]:
    """A placement of a real graph whose memory takes turns along the sequence, and all orders."""
    rng = random.Random(seed)
    tasks = lower(random_graph(seed, rng.randint(2, 14)), FakeTarget())
    placement = random_placement(tasks, rng, rng.randint(2, 4))
    where = Positions.of(placement)
    clock = plan_syncs(placement, tasks.deps, where).clock
    memory = plan_memory(placement, clock, where, ordered=False)
    return placement, where, [*tasks.deps, *memory.hazards]


def fifo_edges(placement: Placement) -> list[tuple[int, int]]:
    last: dict[int, int] = {}
    edges = []
    for task in placement.sequence:
        stream = placement.stream[task]
        if stream in last:
            edges.append((last[stream], task))
        last[stream] = task
    return edges


def dag(placement: Placement, edges: list[tuple[int, int]]) -> nx.DiGraph:
    net = nx.DiGraph([*edges, *fifo_edges(placement)])
    net.add_nodes_from(range(len(placement.graph)))
    return net


def fewest(placement: Placement, deps: list[tuple[int, int]]) -> int:
    """The least number of events between streams that enforce ``deps`` and no other order."""
    count = len(placement.graph)

    def closure(edges: list[tuple[int, int]]) -> list[int]:
        after = [0] * count
        heads: dict[int, list[int]] = {}
        for a, b in (*fifo_edges(placement), *edges):
            heads.setdefault(a, []).append(b)
        for a in reversed(placement.sequence):
            for b in heads.get(a, ()):
                after[a] |= after[b] | 1 << b
        return after

    whole = closure(deps)
    pairs = [
        (a, b)
        for a in range(count)
        for b in range(count)
        if whole[a] >> b & 1 and placement.stream[a] != placement.stream[b]
    ]
    for size in range(len(pairs) + 1):
        if any(closure(list(some)) == whole for some in itertools.combinations(pairs, size)):
            return size
    raise AssertionError("no set of events enforces the orders")


def test_as_few_as_trying_every_set_of_events_finds() -> None:
    counts = []
    for seed in range(1000):
        placement, where = drawn(seed, most=6)
        deps = placement.graph.deps
        counts.append(len(plan_syncs(placement, deps, where).events))
        assert counts[-1] == fewest(placement, [(d.producer, d.consumer) for d in deps]), seed
    assert max(counts) >= 4


def test_hazards_of_memory_are_among_the_orders_kept() -> None:
    hazards = 0
    for seed in range(1000):
        placement, where, deps = with_hazards(seed)
        hazards += sum(d.kind == "buffer" for d in deps)
        pairs = [(d.producer, d.consumer) for d in deps]
        reduced = set(nx.transitive_reduction(dag(placement, pairs)).edges)
        plan = plan_syncs(placement, deps, where)
        kept = {(e.producer, e.consumer) for e in plan.events}
        assert kept == reduced - set(fifo_edges(placement)), seed
        assert len(kept) <= plan.ge_rule_events <= plan.cross_stream_dependencies
    assert hazards > 300


@settings(max_examples=1000, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_events_are_the_transitive_reduction_less_the_streams(seed: int) -> None:
    placement, where = drawn(seed)
    deps = [(d.producer, d.consumer) for d in placement.graph.deps]
    reduced = set(nx.transitive_reduction(dag(placement, deps)).edges)
    kept = {
        (e.producer, e.consumer) for e in plan_syncs(placement, placement.graph.deps, where).events
    }
    assert kept == reduced - set(fifo_edges(placement))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_removing_any_event_breaks_an_order(seed: int) -> None:
    placement, where = drawn(seed)
    deps = [(d.producer, d.consumer) for d in placement.graph.deps]
    events = [
        (e.producer, e.consumer) for e in plan_syncs(placement, placement.graph.deps, where).events
    ]
    assert all(nx.has_path(dag(placement, events), *d) for d in deps)
    for event in events:
        less = dag(placement, [e for e in events if e != event])
        assert not all(nx.has_path(less, *d) for d in deps)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["default", "critical_path", "load_balance:4"])
def test_no_model_has_more_events_than_the_rules_of_the_graph_engine_keep(
    corpus, strategy: str
) -> None:
    compiled = crossing = 0
    for path in sorted((corpus / "models").glob("*.onnx")):
        try:
            result = ge.Session().compile(path, stream_strategy=strategy).compilation.result
        except ge.ModelError:  # a few exports are no valid ONNX
            continue
        compiled += 1
        crossing += result.cross_stream_dependencies
        assert result.events <= result.ge_rule_events <= result.cross_stream_dependencies, path
    assert compiled > 50
    assert crossing


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_never_more_than_the_rules_of_the_graph_engine_keep(seed: int) -> None:
    placement, where = drawn(seed)
    plan = plan_syncs(placement, placement.graph.deps, where)
    assert len(plan.events) <= plan.ge_rule_events <= plan.cross_stream_dependencies


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_clock_counts_what_is_done_before_each_task(seed: int) -> None:
    placement, where = drawn(seed)
    plan = plan_syncs(placement, placement.graph.deps, where)
    net = dag(placement, [(e.producer, e.consumer) for e in plan.events])
    for task in placement.sequence:
        done = nx.ancestors(net, task)
        counts = tuple(sum(where.lane[t] == lane for t in done) for lane in range(where.lanes))
        assert plan.clock[task] == counts


def two_streams() -> tuple[Placement, Positions]:
    """S0: n0 n1 n2 (tasks 0 1 2), S1: m1 m2 (tasks 3 4)."""
    placement = Placement(task_graph(5, []), (0, 0, 0, 1, 1), (0, 1, 2, 3, 4))
    return placement, Positions.of(placement)


def test_rules_of_the_graph_engine_on_its_own_cases() -> None:
    _, where = two_streams()
    assert ge_rule_count([(0, 3), (0, 4)], where) == 1  # R1: the first receiver
    assert ge_rule_count([(0, 3), (1, 3)], where) == 1  # R2: the last sender
    assert ge_rule_count([(0, 3), (1, 3), (2, 3)], where) == 1
    assert ge_rule_count([(0, 4), (1, 3)], where) == 2  # a crossed pair stays


def test_crossed_pair_and_triangle_go() -> None:
    placement, where = two_streams()
    deps = [Dep(0, 4, "data", "a"), Dep(1, 3, "data", "b")]
    plan = plan_syncs(placement, deps, where)
    assert [(e.producer, e.consumer) for e in plan.events] == [(1, 3)]
    assert plan.ge_rule_events == 2
    three = Placement(task_graph(3, []), (0, 1, 2), (0, 1, 2))
    deps = [Dep(0, 1, "data", "a"), Dep(1, 2, "data", "b"), Dep(0, 2, "data", "a")]
    assert len(plan_syncs(three, deps, Positions.of(three)).events) == 2


def test_event_says_why_it_is_there() -> None:
    placement, where = two_streams()
    deps = [
        Dep(0, 3, "user"),
        Dep(0, 3, "data", "a"),
        Dep(0, 3, "buffer", "b"),
        Dep(1, 4, "control"),
    ]
    first, second = plan_syncs(placement, deps, where).events
    assert (first.kind, first.tensors) == ("data", ("a", "b"))
    assert (second.kind, second.tensors) == ("control", ())


def test_positions_of_a_placement() -> None:
    placement = Placement(task_graph(5, []), (7, 2, 7, 5, 2), (3, 1, 0, 4, 2))
    assert Positions.of(placement) == Positions(
        lane=(2, 0, 2, 1, 0), order=(0, 0, 1, 0, 1), rank=(2, 1, 4, 0, 3), lanes=3
    )


@pytest.mark.parametrize(
    ("kinds", "strongest"),
    [
        (("user", "control"), "control"),
        (("user", "control", "buffer"), "buffer"),
        (("user", "buffer", "data"), "data"),
        (("user",), "user"),
    ],
)
def test_an_event_is_of_the_kind_that_is_hardest_to_do_without(
    kinds: tuple[str, ...], strongest: str
) -> None:
    placement, where = two_streams()
    for some in (kinds, kinds[::-1]):
        (event,) = plan_syncs(placement, [Dep(0, 3, kind) for kind in some], where).events
        assert event.kind == strongest


def test_tensors_of_an_event_are_told_once_and_in_order() -> None:
    placement, where = two_streams()
    deps = [Dep(0, 3, "data", name) for name in ("b", "a", "", "b")]
    (event,) = plan_syncs(
        placement, [*deps, Dep(0, 4, "data", "c"), Dep(1, 2, "data")], where
    ).events
    assert event.tensors == ("b", "a")


def test_an_event_names_the_ops_that_its_tasks_are_there_for() -> None:
    tasks = task_graph(2, [(0, 1)])
    fused = (
        replace(tasks.tasks[0], name="fused", ops=("first", "second")),
        replace(tasks.tasks[1], name="own", ops=("other", "own")),
    )
    placement = Placement(replace(tasks, tasks=fused), (0, 1), (0, 1))
    (event,) = plan_syncs(placement, tasks.deps, Positions.of(placement)).events
    assert (event.producer_op, event.consumer_op) == ("first", "own")
    bare = tuple(replace(t, ops=()) for t in fused)
    placement = Placement(replace(tasks, tasks=bare), (0, 1), (0, 1))
    (event,) = plan_syncs(placement, tasks.deps, Positions.of(placement)).events
    assert (event.producer_op, event.consumer_op) == ("fused", "own")


def kept_by_the_rules(crossing: list[tuple[int, int]], where: Positions) -> int:
    """What GE's clean-up leaves, event by event."""
    events = list(crossing)
    for p, c in crossing:
        rivals = [x for a, x in events if a == p and where.lane[x] == where.lane[c]]
        if where.order[c] > min(where.order[x] for x in rivals):
            events.remove((p, c))
    for p, c in list(events):
        rivals = [a for a, x in events if x == c and where.lane[a] == where.lane[p]]
        if where.order[p] < max(where.order[a] for a in rivals):
            events.remove((p, c))
    return len(events)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_rules_of_the_graph_engine_event_by_event(seed: int) -> None:
    placement, where = drawn(seed)
    crossing = [
        (d.producer, d.consumer)
        for d in placement.graph.deps
        if placement.stream[d.producer] != placement.stream[d.consumer]
    ]
    random.Random(seed).shuffle(crossing)
    assert ge_rule_count(crossing, where) == kept_by_the_rules(crossing, where)
    plan = plan_syncs(placement, placement.graph.deps, where)
    assert plan.ge_rule_events == kept_by_the_rules(crossing, where)
    assert plan.cross_stream_dependencies == len(crossing)
