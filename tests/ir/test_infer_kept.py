"""Facts are inferred once for a graph that stays as it is, and anew after any change."""

from __future__ import annotations

import numpy as np
import pytest

from gecompiler.ir import Graph
from gecompiler.ir import infer as inference
from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import symbol
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.types import tensor


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that are walked through."""
    found: list[Graph] = []
    real = inference._infer_with_forced

    def counted(graph):
        found.append(graph)
        return real(graph)

    monkeypatch.setattr(inference, "_infer_with_forced", counted)
    return found


def graph_of() -> Graph:
    graph = Graph("g", {"": 17})
    graph.add_input("x", tensor("f32", (symbol("n"), 4)))
    graph.add_constant("w", Constant.of(np.arange(8, dtype=np.float32).reshape(4, 2)))
    graph.add_op(Op("shape", "Shape", ("x",), ("s",)))
    graph.add_op(Op("product", "MatMul", ("x", "w"), ("y",)))
    graph.add_op(Op("relu", "Relu", ("y",), ("z",)))
    graph.set_outputs(["z", "s"])
    return graph


def test_the_same_graph_is_walked_once(walks):
    graph = graph_of()
    first, second = infer_types(graph), infer_types(graph)
    assert len(walks) == 1
    assert first == second
    assert str(graph.type("z")) == "f32[n, 2]"


def test_what_a_caller_adds_stays_with_the_caller(walks):
    graph = graph_of()
    first = infer_types(graph)
    first.values.clear()
    assert "s" in infer_types(graph).values


def change_op(graph: Graph) -> None:
    graph.replace_op(graph.producer("z").name, graph.producer("z").with_(op_type="Neg"))


def change_constant(graph: Graph) -> None:
    graph.set_constant("w", Constant.of(np.ones((4, 2), np.float32)))


CHANGES = {
    "an op": change_op,
    "a new op": lambda g: g.emit("Neg", ["z"], stem="more"),
    "a removed op": lambda g: (g.set_outputs(["y"]), g.remove_op(g.producer("z").name)),
    "a constant": change_constant,
    "an input's type": lambda g: g.set_type("x", tensor("f32", (3, 4))),
    "a forgotten type": lambda g: g.set_type("z", None),
    "outputs": lambda g: g.set_outputs(["y"]),
    "the opset": lambda g: g.opsets.update({"": 18}),
    "an input": lambda g: g.add_input("more", tensor("f32", (1,))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_graph_is_walked_again(walks, name):
    graph = graph_of()
    infer_types(graph)
    CHANGES[name](graph)
    found = infer_types(graph)
    assert len(walks) == 2
    fresh = graph.copy()
    assert found == infer_types(fresh)
    assert dict(graph.types) == dict(fresh.types)


def test_a_type_that_was_forgotten_is_there_again(walks):
    graph = graph_of()
    infer_types(graph)
    graph.set_type("z", None)
    infer_types(graph)
    assert str(graph.type("z")) == "f32[n, 2]"


def test_copies_have_nothing_kept(walks):
    graph = graph_of()
    infer_types(graph)
    infer_types(graph.copy())
    assert len(walks) == 2


def test_warnings_and_refusals_are_not_left_out(walks):
    from gecompiler.ir.diagnostics import Diagnostics

    graph = graph_of()
    infer_types(graph)
    infer_types(graph, diagnostics=Diagnostics())
    infer_types(graph, strict=True)
    assert len(walks) == 3


def test_graphs_with_bodies_are_walked_every_time(walks):
    graph = Graph("g", {"": 17})
    graph.add_input("c", tensor("bool", ()))
    body = Graph("b", {"": 17})
    body.add_outer("c", tensor("bool", ()))
    body.emit("Not", ["c"], stem="o")
    body.set_outputs([body.ops[0].outputs[0]])
    graph.emit("If", ["c"], attrs={"then_branch": body, "else_branch": body.copy()}, stem="y")
    graph.set_outputs([graph.ops[0].outputs[0]])
    infer_types(graph)
    infer_types(graph)
    assert len(walks) == 2
