"""Event ids are used again only when every wait on them is over."""

from __future__ import annotations

import itertools
import random

import networkx as nx
import pytest
from fakes import random_dag, random_placement, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.errors import ScheduleError
from gecompiler.passes.streams.event_ids import allocate_event_ids, require_event_ids
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
        require_event_ids(65, 64, 4, "model")
    assert "--streams" in e.value.hint
