"""From ops to tasks: views, copies, host ops, controls, sizes."""

from __future__ import annotations

import pytest
from fakes import FakeTarget

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op, OpInfo
from gecompiler.ir.types import OpaqueType, tensor
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.task_graph import TaskGraph

SQUARE = tensor("f32", (8, 8))
FLAT = tensor("f32", (64,))


@pytest.fixture
def graph() -> Graph:
    graph = Graph("model")
    graph.add_input("x", SQUARE)
    graph.constant_of("flat", [64])
    return graph


def tasks(graph: Graph) -> TaskGraph:
    return lower(graph, FakeTarget())


def names(lowered: TaskGraph) -> list[str]:
    return [t.name for t in lowered.tasks]


def test_a_view_rides_with_the_task_that_makes_its_input(graph: Graph) -> None:
    a = graph.emit("Relu", ["x"], SQUARE, stem="a")
    v = graph.emit("Reshape", [a, "flat"], FLAT, stem="v")
    w = graph.emit(
        "Unsqueeze", [v, graph.constant_of("axes", [0])], tensor("f32", (1, 64)), stem="w"
    )
    graph.set_outputs([graph.emit("Tanh", [w], tensor("f32", (1, 64)), stem="b")])
    found = tasks(graph)
    assert names(found) == ["a", "b"]
    assert found.tasks[0].ops == ("a", "v", "w")
    assert found.tasks[0].writes == ("a_out", "v_out", "w_out")
    assert found.tasks[1].reads == ("w_out",)
    assert found.preds == ((), (0,))
    assert {v: found.tensors[v].alias_of for v in ("a_out", "v_out", "w_out")} == {
        "a_out": None,
        "v_out": "a_out",
        "w_out": "a_out",
    }
    assert "flat" not in found.tensors  # nobody reads the shape


def test_a_view_of_an_input_rides_with_its_first_reader(graph: Graph) -> None:
    v = graph.emit("Reshape", ["x", "flat"], FLAT, stem="v")
    graph.emit("Relu", [v], FLAT, stem="a")
    graph.emit("Tanh", [v], FLAT, stem="b")
    graph.set_outputs(["a_out", "b_out"])
    found = tasks(graph)
    assert [t.ops for t in found.tasks] == [("v", "a"), ("b",)]
    assert found.tensors["v_out"].alias_of == "x"
    assert found.preds == ((), ())  # they do not wait for each other
    assert found.riders == {"a": 0, "b": 1}


def test_a_shape_computed_in_the_run_is_read_where_the_view_rides(graph: Graph) -> None:
    graph.add_input("n", tensor("i64", (1,)))
    a = graph.emit("Relu", ["x"], SQUARE, stem="a")
    s = graph.emit("Abs", ["n"], tensor("i64", (1,)), stem="s")
    v = graph.emit("Reshape", [a, s], FLAT, stem="v")
    graph.set_outputs([graph.emit("Tanh", [v], FLAT, stem="b")])
    found = tasks(graph)
    last = found.tasks[-1]
    assert last.ops == ("v", "b")
    assert set(last.reads) == {"v_out", "a_out", "s_out"}
    assert len(found.preds[last.id]) == 2


def test_a_view_nobody_reads_still_belongs_to_a_task(graph: Graph) -> None:
    graph.emit("Reshape", ["x", "flat"], FLAT, stem="v")
    graph.set_outputs([graph.emit("Relu", ["x"], SQUARE, stem="a")])
    assert [t.ops for t in tasks(graph).tasks] == [("a", "v")]


def test_a_graph_of_nothing_but_a_dead_view(graph: Graph) -> None:
    graph.emit("Reshape", ["x", "flat"], FLAT, stem="v")
    graph.set_outputs(["x"])
    assert [(t.name, t.kind) for t in tasks(graph).tasks] == [("v", "copy")]


def test_outputs_that_would_share_memory_are_copied(graph: Graph) -> None:
    a = graph.emit("Relu", ["x"], SQUARE, stem="a")
    graph.add_constant("w", Constant.absent(SQUARE))
    for name, source in (("of_input", "x"), ("of_weight", "w"), ("one", a), ("two", a)):
        graph.emit("Identity", [source], SQUARE, stem=name)
    graph.set_outputs([a, "of_input_out", "of_weight_out", "one_out", "two_out"])
    found = tasks(graph)
    assert [(t.name, t.kind) for t in found.tasks] == [
        ("a", "kernel"),
        ("of_input", "copy"),
        ("of_weight", "copy"),
        ("one", "copy"),
        ("two", "copy"),
    ]
    assert all(found.tensors[v].alias_of is None for v in graph.outputs)
    copy = found.tasks[1].demand
    assert (copy.load_bytes, copy.store_bytes) == (256, 256)


def test_a_view_may_be_the_output_when_its_source_is_none(graph: Graph) -> None:
    a = graph.emit("Relu", ["x"], SQUARE, stem="a")
    v = graph.emit("Reshape", [a, "flat"], FLAT, stem="v")
    graph.set_outputs([v])
    found = tasks(graph)
    assert names(found) == ["a"]
    assert (found.tensors["v_out"].kind, found.tensors["a_out"].kind) == ("output", "output")


def test_shape_arithmetic_is_the_hosts(graph: Graph) -> None:
    s = graph.emit("Shape", ["x"], tensor("i64", (2,)), stem="shape")
    zero = graph.constant_of("zero", 0)
    n = graph.emit("Gather", [s, zero], tensor("i64", ()), stem="dim")
    m = graph.emit("Mul", [n, n], tensor("i64", ()), stem="square")
    y = graph.emit("Expand", ["x", m], SQUARE, stem="expand")
    graph.set_outputs([y])
    found = tasks(graph)
    assert [t.kind for t in found.tasks] == ["host", "host", "host", "kernel"]
    assert found.tasks[0].reads == ()  # only its size, which is known
    assert found.alone_us[:3] == (0.0, 0.0, 0.0)
    assert found.preds[3] == (2,)


def test_small_integers_from_the_device_are_not_the_hosts(graph: Graph) -> None:
    ids = graph.add_input("ids", tensor("i64", (4,)))
    y = graph.emit("Add", [ids, ids], tensor("i64", (4,)), stem="add")
    graph.set_outputs([y])
    assert [t.kind for t in tasks(graph).tasks] == ["kernel"]


def test_controls_on_views_hold_for_their_tasks(graph: Graph) -> None:
    a = graph.emit("Relu", ["x"], SQUARE, stem="a")
    graph.emit("Reshape", [a, "flat"], FLAT, stem="v")
    graph.emit("Tanh", ["v_out"], FLAT, stem="b")
    graph.emit("Neg", ["x"], SQUARE, stem="c")
    early = graph.emit("Reshape", ["x", "flat"], FLAT, stem="early")
    graph.emit("Abs", [early], FLAT, stem="d")
    graph.set_outputs(["b_out", "c_out", "d_out"])
    graph.add_control("v", "c")
    graph.add_control("c", "early")
    found = tasks(graph)
    pairs = {(names(found)[c.producer], names(found)[c.consumer]) for c in found.controls}
    assert pairs == {("a", "c"), ("c", "d")}


def test_a_control_after_a_view_of_an_input_orders_nothing(graph: Graph) -> None:
    early = graph.emit("Reshape", ["x", "flat"], FLAT, stem="early")
    graph.emit("Abs", [early], FLAT, stem="d")
    graph.emit("Neg", ["x"], SQUARE, stem="c")
    graph.set_outputs(["d_out", "c_out"])
    graph.add_control("early", "c")
    assert tasks(graph).controls == ()


def test_tasks_carry_group_label_and_engine(graph: Graph) -> None:
    info = OpInfo(group="MLP gate", label="fast")
    graph.set_outputs([graph.emit("MatMul", ["x", "x"], SQUARE, stem="mm", info=info)])
    found = tasks(graph)
    assert found.tasks[0].group == "MLP gate"
    assert found.labels == ("fast",)
    assert found.engines == ("AIcoreEngine",)


def test_sequences_live_outside_the_arena(graph: Graph) -> None:
    opaque = OpaqueType("seq(tensor)", b"")
    graph.add_op(Op("make", "SequenceConstruct", ("x", "x"), ("s",)), [opaque])
    graph.add_op(Op("at", "SequenceAt", ("s", graph.constant_of("i", 0)), ("y",)), [SQUARE])
    graph.set_outputs(["y"])
    found = tasks(graph)
    assert found.tensors["s"].bytes == 0
    assert found.preds == ((), (0,))


def test_unknown_sizes_name_the_value_and_its_op(graph: Graph) -> None:
    graph.add_op(Op("mystery", "NonZero", ("x",), ("y",)), [None])
    graph.set_outputs(["y"])
    with pytest.raises(ModelError, match=r"op 'mystery' \(NonZero\): the size of 'y' is not known"):
        tasks(graph)
