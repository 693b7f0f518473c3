"""Event ids are used again only when every wait on them is over."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import pytest
from fakes import (
    FakeEvaluator,
    FakeTarget,
    random_dag,
    random_graph,
    random_placement,
    task_graph,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Event, Schedule
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams.evaluation import schedule_of, synchronise
from gecompiler.passes.streams.event_ids import (
    EventIds,
    allocate_event_ids,
    fewest_event_ids,
    require_event_ids,
)
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.sync import Positions, plan_syncs


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_reuse_is_ordered(seed: int) -> None:
    rng = random.Random(seed)
    graph = task_graph(24, random_dag(rng, 24, rng.choice((0.05, 0.15, 0.4))))
    placement = random_placement(graph, rng, rng.randint(2, 5))
    where = Positions.of(placement)
    plan = plan_syncs(placement, graph.deps, where)
    ids = allocate_event_ids(plan.events, plan.clock, where)
    net = nx.DiGraph((e.producer, e.consumer) for e in ids.events)
    net.add_nodes_from(range(24))
    lanes: dict[int, list[int]] = {}
    for task in placement.sequence:
        lanes.setdefault(placement.stream[task], []).append(task)
    for lane in lanes.values():
        net.add_edges_from(itertools.pairwise(lane))
    by_record: dict[int, set[int]] = {}
    for event in ids.events:
        by_record.setdefault(event.producer, set()).add(event.event_id)
    assert all(len(found) == 1 for found in by_record.values())
    for a in ids.events:
        for b in ids.events:
            if a.event_id != b.event_id or where.rank[a.producer] >= where.rank[b.producer]:
                continue
            assert a.consumer == b.producer or nx.has_path(net, a.consumer, b.producer)
    assert {e.event_id for e in ids.events} == set(range(ids.count))


def test_ping_pong_needs_one_id() -> None:
    count = 40
    graph = task_graph(count, [(i, i + 1) for i in range(count - 1)])
    placement = Placement(graph, tuple(i % 2 for i in range(count)), tuple(range(count)))
    where = Positions.of(placement)
    plan = plan_syncs(placement, graph.deps, where)
    assert len(plan.events) == count - 1
    # task 1 waits on the record of 0 and records itself: its wait is over by then
    assert allocate_event_ids(plan.events, plan.clock, where).count == 1


def test_records_that_are_all_pending_need_an_id_each() -> None:
    graph = task_graph(10, [(i, i + 5) for i in range(5)])
    placement = Placement(graph, (0,) * 5 + (1,) * 5, tuple(range(10)))
    where = Positions.of(placement)
    plan = plan_syncs(placement, graph.deps, where)
    assert allocate_event_ids(plan.events, plan.clock, where).count == 5


def test_exhaustion_says_how_many_are_needed_and_what_to_change() -> None:
    with pytest.raises(
        ScheduleError, match="65 event ids are needed at once, the device has 64"
    ) as e:
        require_event_ids(65, replace(FakeTarget().limits, max_events=64), 4, "model")
    assert "--streams" in e.value.hint
    assert "sync_primitive: notify" in e.value.hint  # of which there are more


def test_where_there_are_fewer_of_the_others_too_these_are_not_advised() -> None:
    few = replace(FakeTarget().limits, max_events=1, max_notifies=1)
    for primitive in ("event", "notify"):
        with pytest.raises(ScheduleError, match=r"2 .* are needed at once, the device has 1") as e:
            require_event_ids(2, few, 4, "model", primitive)
        assert "remove sync points" in e.value.hint


@pytest.mark.parametrize("primitive", ["event", "notify"])
def test_a_search_with_one_kind_does_not_ask_for_the_other(primitive: str) -> None:
    most = {"event": "max_notifies", "notify": "max_events"}[primitive]
    target = FakeTarget().with_limits(**{most: 1})
    options = ScheduleOptions(num_streams=3, strategy="critical_path", sync_primitive=primitive)
    ids = []
    for seed in range(12):
        graph = random_graph(seed, 14)
        result = build_schedule(
            graph, target, FakeEvaluator(target), options, UserControl(), Diagnostics()
        )
        assert result.schedule.findings() == []
        ids.append(result.event_ids)
    assert max(ids) > 1


def drawn(seed: int, count: int = 14):  # type: ignore[no-untyped-def]
    rng = random.Random(seed)
    graph = task_graph(count, random_dag(rng, count, rng.choice((0.1, 0.2, 0.4))))
    placement = random_placement(graph, rng, rng.randint(2, 4))
    where = Positions.of(placement)
    return placement, where, plan_syncs(placement, graph.deps, where)


def unordered_records(events: tuple[Event, ...], placement: Placement) -> int:
    """The most records of which none has its waits over before another's: they need ids apart."""
    net = nx.DiGraph((e.producer, e.consumer) for e in events)
    net.add_nodes_from(range(len(placement.graph)))
    lanes: dict[int, list[int]] = {}
    for task in placement.sequence:
        lanes.setdefault(placement.stream[task], []).append(task)
    for lane in lanes.values():
        net.add_edges_from(itertools.pairwise(lane))
    waits: dict[int, set[int]] = {}
    for e in events:
        waits.setdefault(e.producer, set()).add(e.consumer)
    order = nx.DiGraph()
    order.add_nodes_from(waits)
    ahead = {t: nx.descendants(net, t) | {t} for t in net}
    order.add_edges_from(
        (a, b) for a in waits for b in waits if a != b and all(b in ahead[w] for w in waits[a])
    )
    return max((len(group) for group in nx.antichains(order)), default=0)


@pytest.mark.parametrize("primitive", ["event", "notify"])
def test_fewest_ids_are_as_many_as_must_be_apart(primitive: str) -> None:
    saved = 0
    for seed in range(150):
        placement, where, plan = drawn(seed)
        fewest = fewest_event_ids(plan.events, plan.clock, where, primitive)
        greedy = allocate_event_ids(plan.events, plan.clock, where, primitive)
        assert fewest.count <= greedy.count
        if primitive == "event":
            assert fewest.count == unordered_records(plan.events, placement), seed
        saved += greedy.count - fewest.count
        for ids in (fewest, greedy):
            schedule = Schedule(
                "m",
                "d",
                "s",
                tuple(
                    replace(t, stream=s, order=o)
                    for t, s, o in zip(
                        placement.graph.tasks, placement.stream, where.order, strict=True
                    )
                ),
                ids.events,
                (),
                FakeTarget().limits,
                sync_primitive=primitive,  # type: ignore[arg-type]
            )
            assert schedule.findings() == []


def test_notifies_are_used_up_by_their_one_wait() -> None:
    graph = task_graph(4, [(0, 1), (0, 2), (0, 3)])
    placement = Placement(graph, (0, 1, 2, 3), (0, 1, 2, 3))
    target = FakeTarget()
    events = synchronise(placement, target)
    notifies = synchronise(placement, target, primitive="notify")
    assert (events.ids.count, notifies.ids.count) == (1, 3)
    good = schedule_of(notifies, target, "s")
    assert good.findings() == []
    shared = replace(good, events=events.ids.events)
    assert [f.code for f in shared.findings()] == ["event_reuse", "event_reuse"]
    with pytest.raises(ScheduleError, match="3 notifies are needed at once, the device has 2") as e:
        synchronise(placement, target.with_limits(max_notifies=2), primitive="notify")
    assert "use events" in e.value.hint


def test_ids_are_told_out_only_when_the_fewest_are_too_many() -> None:
    for seed in range(300):
        placement, where, plan = drawn(seed, 24)
        greedy = allocate_event_ids(plan.events, plan.clock, where).count
        fewest = fewest_event_ids(plan.events, plan.clock, where).count
        if fewest < greedy:
            found = synchronise(placement, FakeTarget().with_limits(max_events=fewest))
            assert found.ids.count == fewest
            with pytest.raises(ScheduleError, match=f"{fewest} event ids are needed"):
                synchronise(placement, FakeTarget().with_limits(max_events=fewest - 1))
            return
    pytest.skip("the greedy way was never worse")


def test_each_event_knows_the_ops_at_its_ends() -> None:
    placement, _, plan = drawn(5)
    names = [t.name for t in placement.graph.tasks]
    assert plan.events
    for event in plan.events:
        assert (event.producer_op, event.consumer_op) == (
            names[event.producer],
            names[event.consumer],
        )


@pytest.mark.parametrize("allocate", [allocate_event_ids, fewest_event_ids])
@pytest.mark.parametrize("primitive", ["event", "notify"])
def test_ids_go_round_in_the_sequence_and_not_by_the_names_of_tasks(
    allocate: Callable[..., EventIds], primitive: str
) -> None:
    graph = task_graph(4, [(2, 3), (3, 0), (0, 1)])
    placement = Placement(graph, (0, 1, 0, 1), (2, 3, 0, 1))
    where = Positions.of(placement)
    plan = plan_syncs(placement, graph.deps, where)
    found = allocate(plan.events, plan.clock, where, primitive)
    assert (len(found.events), found.count) == (3, 1)
    assert [e.event_id for e in found.events] == [0, 0, 0]
