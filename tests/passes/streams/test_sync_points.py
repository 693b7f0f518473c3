"""The user's sync points: which tasks they order, what is redundant, what is a mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeEvaluator, FakeTarget

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ScheduleError, UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import OpInfo
from gecompiler.ir.types import tensor
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    SyncPoint,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams import sync_points
from gecompiler.passes.streams.sync_points import apply_sync_points


@pytest.fixture
def graph() -> Graph:
    """Two layers; in each, attention and two branches of an MLP beside it, then their sum."""
    graph = Graph("model")
    size = tensor("f32", (16, 16))
    x = graph.add_input("x", size)
    for i in range(2):
        a = graph.emit("Tanh", [x], size, stem=f"attn{i}", info=OpInfo(group="Attention"))
        g = graph.emit("Relu", [x], size, stem=f"gate{i}", info=OpInfo(group="MLP gate"))
        u = graph.emit("Neg", [x], size, stem=f"up{i}", info=OpInfo(group="MLP up"))
        s = graph.emit("Sum", [a, g, u], size, stem=f"sum{i}")
        x = graph.emit("Relu", [s], size, stem=f"out{i}", info=OpInfo(group="Out"))
    graph.set_outputs([x])
    return graph


def orders(graph: Graph, *points: SyncPoint):
    diagnostics = Diagnostics()
    found = apply_sync_points(lower(graph, FakeTarget()), graph, points, diagnostics)
    names = found.graph.tasks
    pairs = [(names[c.producer].name, names[c.consumer].name) for c in found.graph.controls]
    return pairs, found, diagnostics


def test_each_consumer_waits_for_the_producers_just_before_it(graph: Graph) -> None:
    pairs, found, _ = orders(graph, SyncPoint("Attention", "MLP"))
    assert pairs == [("attn0", "gate0"), ("attn0", "up0"), ("attn1", "gate1"), ("attn1", "up1")]
    assert found.kept == (SyncPoint("Attention", "MLP"),)
    assert all(c.origin == "user" and c.sync_type == "data_ready" for c in found.graph.controls)


@pytest.mark.parametrize(("before", "after"), [("MLP", "Tanh"), ("MLP up", "MLP gate")])
def test_within_a_layer_in_whichever_order_the_graph_has_it(
    graph: Graph, before: str, after: str
) -> None:
    """Each layer's producers come after its consumers; the next layer's wait anyway."""
    pairs, found, diagnostics = orders(graph, SyncPoint(before, after))
    wanted = {
        "Tanh": [("gate0", "attn0"), ("up0", "attn0"), ("gate1", "attn1"), ("up1", "attn1")],
        "MLP gate": [("up0", "gate0"), ("up1", "gate1")],
    }
    assert pairs == wanted[after]
    assert (len(found.kept), list(diagnostics)) == (1, [])


def test_what_data_implies_layer_by_layer_is_not_turned_round() -> None:
    """Two chains: the second's first producer follows the first's last consumer by chance."""
    graph = Graph("two")
    size = tensor("f32", (16, 16))
    for chain in range(2):
        x = graph.add_input(f"x{chain}", size)
        for i in range(2):
            x = graph.emit("Tanh", [x], size, stem=f"a{chain}{i}")
            x = graph.emit("Relu", [x], size, stem=f"m{chain}{i}")
        graph.set_outputs([*graph.outputs, x])
    pairs, found, _ = orders(graph, SyncPoint("Tanh", "Relu"))
    assert (pairs, len(found.redundant)) == ([], 1)


def test_against_the_order_of_the_graph_where_data_allows_it(graph: Graph) -> None:
    pairs, found, _ = orders(graph, SyncPoint("up0", "attn0"))
    assert pairs == [("up0", "attn0")]
    names = [t.name for t in found.graph.tasks]
    assert names.index("up0") < names.index("attn0")


def test_what_data_implies_is_redundant(graph: Graph) -> None:
    pairs, found, diagnostics = orders(graph, SyncPoint("Attention", "Out"))
    assert pairs == []
    assert found.redundant == (SyncPoint("Attention", "Out"),)
    (warning,) = diagnostics
    assert warning.code == "redundant-sync-point"
    assert warning.message == (
        'add_sync_point("Attention", "Out", "data_ready") is implied by the data flow '
        "and adds nothing"
    )
    assert warning.hint


def test_the_same_point_twice_is_redundant_once(graph: Graph) -> None:
    point = SyncPoint("attn0", "gate0")
    _, found, _ = orders(graph, point, point)
    assert (found.kept, found.redundant) == ((point,), (point,))


def test_a_point_against_the_data_is_refused(graph: Graph) -> None:
    with pytest.raises(UsageError, match=r"would make a cycle: .*'attn0' -> 'sum0' -> 'out0'") as e:
        orders(graph, SyncPoint("Out", "attn0"))
    assert e.value.where == 'add_sync_point("Out", "attn0", "data_ready")'
    assert "exchange the two names" in e.value.hint


def test_points_that_contradict_each_other_are_refused(graph: Graph) -> None:
    with pytest.raises(ScheduleError, match=r"form a cycle: .*gate0"):
        orders(graph, SyncPoint("attn0", "gate0"), SyncPoint("gate0", "attn0"))


def test_an_unknown_name(graph: Graph) -> None:
    with pytest.raises(UsageError, match="Atention") as error:
        orders(graph, SyncPoint("Atention", "MLP"))
    assert "Attention" in error.value.hint
    assert "'Atention'" in error.value.where


def test_a_task_cannot_wait_for_itself(graph: Graph) -> None:
    with pytest.raises(UsageError, match="same task") as e:
        orders(graph, SyncPoint("attn0", "attn0", "control"))
    assert e.value.where == 'add_sync_point("attn0", "attn0", "control")'


def test_points_hold_in_the_schedule_and_cost_events(graph: Graph) -> None:
    target = FakeTarget()
    user = UserControl({"Attention": 0, "MLP": 1}, [SyncPoint("Attention", "MLP")])
    result = build_schedule(
        graph, target, FakeEvaluator(target), ScheduleOptions(num_streams=2), user, Diagnostics()
    )
    assert result.user_points == 1
    assert result.schedule.findings() == []
    end = {s.name: s.end_ns for s in result.timeline.spans}
    start = {s.name: s.start_ns for s in result.timeline.spans}
    for i in range(2):
        assert start[f"gate{i}"] >= end[f"attn{i}"]
        assert start[f"up{i}"] >= end[f"attn{i}"]
    assert any(e.kind == "user" for e in result.schedule.events)


def fused(*sources: str, other: str = "") -> Graph:
    """x, an op that others became part of, and one more after it."""
    graph = Graph("fused")
    size = tensor("f32", (16, 16))
    x = graph.add_input("x", size)
    y = graph.emit("Relu", [x], size, stem="whole", info=OpInfo(sources=sources))
    graph.set_outputs([graph.emit("Neg", [y], size, stem="end", info=OpInfo(sources=(other,)))])
    return graph


def test_a_point_within_a_fused_op_is_kept_by_it() -> None:
    pairs, found, diagnostics = orders(fused("a", "b"), SyncPoint("a", "b"))
    assert (pairs, found.kept, len(found.redundant)) == ([], (), 1)
    (warning,) = diagnostics
    assert "is within one fused op and adds nothing" in warning.message
    one_gone = orders(fused("a", "b"), SyncPoint("a", "whole"))
    assert len(one_gone[1].redundant) == 1


def test_a_fused_op_cannot_wait_for_itself_nor_run_backwards() -> None:
    with pytest.raises(UsageError, match="same task"):
        orders(fused("a", "b"), SyncPoint("a", "a"))
    with pytest.raises(UsageError, match="would make a cycle"):
        orders(fused("a", other="b"), SyncPoint("b", "a"))


def test_a_point_holds_within_each_micro_batch(graph: Graph) -> None:
    tasks = lower(graph, FakeTarget())
    parts = {"attn0": ("attn0", "attn1"), "gate0": ("gate0", "gate1")}
    found = apply_sync_points(
        tasks, graph, [SyncPoint("attn0", "gate0")], Diagnostics(), parts
    ).graph
    names = [t.name for t in found.tasks]
    pairs = [(names[c.producer], names[c.consumer]) for c in found.controls]
    assert pairs == [("attn0", "gate0"), ("attn1", "gate1")]
    # what is not split belongs to every part
    found = apply_sync_points(tasks, graph, [SyncPoint("attn0", "up1")], Diagnostics(), parts).graph
    names = [t.name for t in found.tasks]
    assert {(names[c.producer], names[c.consumer]) for c in found.controls} == {("attn1", "up1")}


def test_ops_that_become_no_task() -> None:
    graph = Graph("views")
    size = tensor("f32", (4, 4))
    x = graph.add_input("x", size)
    shape = graph.constant_of("shape", [16])
    flat = graph.emit("Reshape", [x, shape], tensor("f32", (16,)), stem="view")
    graph.set_outputs([graph.emit("Relu", [flat], tensor("f32", (16,)), stem="relu")])
    tasks = lower(graph, FakeTarget())
    bare = replace(tasks, riders={k: v for k, v in tasks.riders.items() if k != "view"})
    with pytest.raises(UsageError, match="no op of 'view' becomes a task of its own") as e:
        apply_sync_points(bare, graph, [SyncPoint("relu", "view")], Diagnostics())
    assert e.value.where == 'add_sync_point("relu", "view", "data_ready")'


def test_a_point_of_too_many_orders_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("wide")
    size = tensor("f32", (4, 4))
    x = graph.add_input("x", size)
    ends = [
        graph.emit(kind, [x], size, stem=f"{kind}{i}") for kind in ("Relu", "Neg") for i in range(3)
    ]
    graph.set_outputs(ends)
    point = SyncPoint("Relu", "Neg")
    monkeypatch.setattr(sync_points, "MOST_ORDERS", 9)
    assert len(orders(graph, point)[0]) == 9
    monkeypatch.setattr(sync_points, "MOST_ORDERS", 8)
    with pytest.raises(UsageError, match="more than 8 orders") as e:
        orders(graph, point)
    assert (e.value.where, bool(e.value.hint)) == ("add_sync_point", True)


def test_no_points_and_one_that_fails_after_one_that_holds(graph: Graph) -> None:
    tasks = lower(graph, FakeTarget())
    found = apply_sync_points(tasks, graph, [], Diagnostics())
    assert (found.graph, found.kept, found.redundant) == (tasks, (), ())
    points = (SyncPoint("Attention", "Out"), SyncPoint("attn0", "gate0", "control"))
    pairs, found, _ = orders(graph, *points)
    assert (pairs, found.redundant, found.kept) == ([("attn0", "gate0")], points[:1], points[1:])
    assert [c.sync_type for c in found.graph.controls] == ["control"]
