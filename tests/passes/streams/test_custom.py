"""Users' own strategies: what they see, and what happens when they fail."""

from __future__ import annotations

import pytest
from fakes import FakeEvaluator, FakeTarget

from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import OpInfo
from gecompiler.ir.types import tensor
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams.custom import StreamAssignStrategy, assign_to_stream, run_custom
from gecompiler.passes.streams.op_graph import OpGraph


@pytest.fixture
def graph() -> Graph:
    graph = Graph("model")
    x = graph.add_input("x", tensor("f32", (64, 64)))
    w = graph.add_constant("w", Constant.absent(tensor("f32", (64, 64))))
    info = OpInfo(group="MLP gate")
    y = graph.emit("MatMul", [x, w], tensor("f32", (64, 64)), stem="mm", info=info)
    shape = graph.constant_of("shape", [64, 64])
    y = graph.emit("Reshape", [y, shape], tensor("f32", (64, 64)), stem="view")
    y = graph.emit("Relu", [y], tensor("f32", (64, 64)), stem="relu")
    graph.set_outputs([y])
    return graph


class ByIntensity(StreamAssignStrategy):
    """As the article prints it."""

    def assign(self, op_graph: OpGraph) -> None:
        for op in op_graph.ops:
            if op.is_compute_intensive():
                assign_to_stream(op, 0)
            elif op.is_memory_intensive():
                assign_to_stream(op, 1)


def test_the_strategy_of_the_article(graph: Graph) -> None:
    target = FakeTarget()
    assert run_custom(ByIntensity(), graph, target) == {"mm": 1, "relu": 1}
    target.hbm = 1e9
    assert run_custom(ByIntensity(), graph, target) == {"mm": 0, "relu": 0}


def test_what_a_strategy_sees(graph: Graph) -> None:
    ops = OpGraph(graph, FakeTarget())
    mm, view, relu = ops.ops
    assert (mm.name, mm.op_type, mm.group) == ("mm", "MatMul", "MLP gate")
    assert mm.inputs == ("x", "w")
    assert mm.flops == 2 * 64**3
    assert mm.bytes == 3 * 64 * 64 * 4
    assert mm.successors == (view,)
    assert relu.predecessors == (view,)
    assert not view.is_compute_intensive()
    assert not view.is_memory_intensive()
    assert view.flops == 0
    assert relu.flops == 64 * 64


class Failing(StreamAssignStrategy):
    def __init__(self, what: object) -> None:
        self.what = what

    def assign(self, op_graph: OpGraph) -> None:
        assign_to_stream(op_graph.ops[0], 0)
        if isinstance(self.what, BaseException):
            raise self.what
        op, stream = self.what  # type: ignore[misc]
        assign_to_stream(op, stream)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (KeyError("oops"), r"assign\(\) raised KeyError: 'oops'"),
        (("mm", -1), "there is no stream -1: fake has 4"),
        (("mm", 99), "there is no stream 99"),
        (("mn", 0), "unknown op 'mn'"),
        ((None, 0), "expected an op, found None"),
        (("mm", "1"), "expected the number of a stream for 'mm', found '1'"),
        (("mm", True), "expected the number of a stream"),
        (SystemExit(0), r"assign\(\) raised SystemExit: 0"),
    ],
)
def test_nonsense_is_contained(graph: Graph, what: object, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        run_custom(Failing(what), graph, FakeTarget())
    assert "Failing" in str(error.value)


class Editing(StreamAssignStrategy):
    """Takes an op out of the graph it is shown."""

    def assign(self, op_graph: OpGraph) -> None:
        op_graph.graph.set_outputs([op_graph.ops[-1].inputs[0]])
        op_graph.graph.remove_op(op_graph.ops[-1].name)


class Returning(StreamAssignStrategy):
    def assign(self, op_graph: OpGraph) -> None:
        return {op.name: 0 for op in op_graph.ops}  # type: ignore[return-value]


def test_a_strategy_that_edits_the_graph_reaches_nobody(graph: Graph) -> None:
    before = str(graph)
    with pytest.raises(UsageError, match="it changed the graph"):
        run_custom(Editing(), graph, FakeTarget())
    assert str(graph) == before


def test_what_assign_returns_is_not_lost_in_silence(graph: Graph) -> None:
    with pytest.raises(UsageError, match=r"assign\(\) returned dict"):
        run_custom(Returning(), graph, FakeTarget())


def test_assign_outside_of_a_strategy() -> None:
    with pytest.raises(UsageError, match="outside of StreamAssignStrategy"):
        assign_to_stream("mm", 0)


def test_something_else_than_a_strategy(graph: Graph) -> None:
    with pytest.raises(UsageError, match="expected an instance"):
        run_custom(object(), graph, FakeTarget())


def test_names_win_over_a_strategy_and_both_are_obeyed(graph: Graph) -> None:
    target = FakeTarget()
    result = build_schedule(
        graph,
        target,
        FakeEvaluator(target),
        ScheduleOptions(),
        UserControl({"relu": 2}, (), ByIntensity()),
        Diagnostics(),
    )
    assert {t.name: t.stream for t in result.schedule.tasks} == {"mm": 1, "relu": 2}
