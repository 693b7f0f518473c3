"""The fewest events: equal to the transitive reduction, and none can go."""

from __future__ import annotations

import itertools
import random

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
