"""Local search on the simulator: never slower, the user's streams kept, the same every time."""

from __future__ import annotations

import random

from fakes import FakeEvaluator, FakeTarget, random_dag, random_placement, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.passes.streams.evaluation import evaluate
from gecompiler.passes.streams.local_search import Effort, improve, waiting_chain
from gecompiler.passes.streams.roles import roles_of
from gecompiler.passes.streams.user_priority import by_priority

seeds = st.integers(0, 10**9)


def start(seed: int, count: int = 12):  # type: ignore[no-untyped-def]
    rng = random.Random(seed)
    times = [float(rng.randint(1, 9)) for _ in range(count)]
    graph = task_graph(count, random_dag(rng, count, 0.25), times)
    target = FakeTarget()
    evaluator = FakeEvaluator(target)
    placement = random_placement(graph, rng, 3)
    return evaluate("random", placement, target, evaluator), target, evaluator


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_never_slower_valid_and_the_users_streams_kept(seed: int) -> None:
    first, target, evaluator = start(seed)
    fixed = {0, 5}
    found = improve(first, target, evaluator, 3, fixed, Effort(60, seed=seed))
    assert found.makespan_ns <= first.makespan_ns
    placement = found.placement
    assert all(placement.stream[t] == first.placement.stream[t] for t in fixed)
    assert set(placement.stream) <= set(range(3))
    place = {t: i for i, t in enumerate(placement.sequence)}
    assert all(
        place[p] < place[t] for t, before in enumerate(placement.graph.preds) for p in before
    )
    again = evaluate("again", placement, target, evaluator)
    assert again.makespan_ns == found.makespan_ns


def test_random_placements_become_much_shorter() -> None:
    gains = []
    for seed in range(8):
        first, target, evaluator = start(seed)
        found = improve(first, target, evaluator, 3, (), Effort(300, seed=1))
        gains.append(found.makespan_ns / first.makespan_ns)
    assert sum(gains) / len(gains) < 0.8


def test_the_same_every_time_and_within_its_runs() -> None:
    first, target, evaluator = start(4)
    before = evaluator.runs
    one = improve(first, target, evaluator, 3, (), Effort(50, seed=2))
    assert evaluator.runs - before <= 50
    two = improve(first, target, evaluator, 3, (), Effort(50, seed=2))
    assert (one.placement.stream, one.placement.sequence) == (
        two.placement.stream,
        two.placement.sequence,
    )


def test_it_stops_at_the_bound_and_where_everything_is_fixed() -> None:
    first, target, evaluator = start(4)
    before = evaluator.runs
    assert improve(first, target, evaluator, 3, (), Effort(50, first.makespan_ns / 1000)) is first
    assert improve(first, target, evaluator, 3, set(range(12)), Effort(50)) is first
    assert evaluator.runs == before


def test_waiting_chain_leads_from_the_end_to_the_start() -> None:
    from gecompiler.ir.timeline import Span, Timeline

    spans = (
        Span(0, "a", "Relu", 0, 0, 0, 10, 10),
        Span(1, "b", "Relu", 0, 1, 12, 20, 8, 0, 0, "event"),
        Span(2, "c", "Relu", 0, 1, 21, 30, 9, 0, 1, "stream"),
    )
    assert waiting_chain(Timeline(spans)) == [(2, 1, False), (1, 0, True)]
    assert waiting_chain(Timeline(())) == []


def test_layers_have_the_same_roles() -> None:
    edges = [(i, i + 1) for i in range(11)]
    graph = task_graph(12, edges, [1.0, 2.0, 3.0] * 4)
    groups = roles_of(graph)
    inner = [g for g in groups if len(g) > 1]
    assert {t for g in inner for t in g} >= set(range(3, 9))
    assert all(len({t % 3 for t in g}) == 1 for g in groups)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_the_order_keeps_to_priorities(seed: int) -> None:
    first, target, evaluator = start(seed)
    rng = random.Random(seed)
    wish = {t.name: rng.choice((-1, 0, 5)) for t in first.placement.graph.tasks}
    ordered = by_priority(first.placement, wish)
    begun = evaluate("random", ordered, target, evaluator)
    found = improve(begun, target, evaluator, 3, (), Effort(60, seed=seed), wish)
    assert found.makespan_ns <= begun.makespan_ns
    assert by_priority(found.placement, wish).sequence == found.placement.sequence
