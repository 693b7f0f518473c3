"""Names stand for ops by name, type, group, first words of groups, glob, in that order."""

from __future__ import annotations

import pytest

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op, OpInfo
from gecompiler.ir.types import tensor
from gecompiler.passes.streams.naming import resolve_names


@pytest.fixture
def graph() -> Graph:
    graph = Graph("model")
    value = graph.add_input("x", tensor("f32", (4,)))
    for name, kind, group in [
        ("attn", "FlashAttention", "Attention"),
        ("norm", "Mul", "LayerNorm"),
        ("gate", "MatMul", "MLP gate"),
        ("up", "MatMul", "MLP up"),
        ("down", "MatMul", "MLP down"),
        ("Relu", "Tanh", ""),
        ("act", "Relu", ""),
    ]:
        domain = "gecompiler" if kind == "FlashAttention" else ""
        info = OpInfo(group=group, scope=f"/layers.0/{name}")
        graph.add_op(Op(name, kind, (value,), (f"{name}_out",), domain=domain, info=info))
        value = f"{name}_out"
    graph.set_outputs([value])
    return graph


def test_the_article_assignment(graph: Graph) -> None:
    wanted = {"FlashAttention": 0, "LayerNorm": 0, "MLP gate": 1, "MLP up": 1, "MLP down": 0}
    assert resolve_names(graph, wanted) == {"attn": 0, "norm": 0, "gate": 1, "up": 1, "down": 0}


def test_qualified_type_and_first_words_of_a_group(graph: Graph) -> None:
    assert resolve_names(graph, {"gecompiler.FlashAttention": 2}) == {"attn": 2}
    assert resolve_names(graph, {"MLP": 1}) == {"gate": 1, "up": 1, "down": 1}


def test_a_name_wins_over_a_type_and_a_group_over_its_prefix(graph: Graph) -> None:
    assert resolve_names(graph, {"Relu": 1}) == {"Relu": 1}
    assert resolve_names(graph, {"MLP gate": 0, "MLP": 1}) == {"gate": 0, "up": 1, "down": 1}
    assert resolve_names(graph, {"MatMul": 2, "MLP": 1, "up": 3}) == {"gate": 2, "up": 3, "down": 2}


def test_globs_match_names_groups_and_scopes(graph: Graph) -> None:
    assert resolve_names(graph, {"g*e": 1}) == {"gate": 1}
    assert resolve_names(graph, {"MLP *": 1}) == {"gate": 1, "up": 1, "down": 1}
    assert len(resolve_names(graph, {"/layers.0/*": 1})) == 7


@pytest.mark.parametrize(
    ("name", "near"), [("FlashAtention", "FlashAttention"), ("MLP gats", "MLP gate")]
)
def test_a_name_that_stands_for_nothing(graph: Graph, name: str, near: str) -> None:
    with pytest.raises(UsageError, match=name) as error:
        resolve_names(graph, {name: 0})
    assert near in error.value.hint


@pytest.mark.parametrize("name", ["inner", "Tanh", "was_inner"])
def test_an_op_in_a_body_names_the_op_that_has_the_body(name: str) -> None:
    size = tensor("f32", (4,))
    loops: list[Graph] = []
    for depth in range(2):
        body = Graph(f"body{depth}")
        value = body.add_input(f"v{depth}", size)
        if loops:
            body.add_op(Op("within", "Loop", (value,), ("w",), {"body": loops[0]}))
        else:
            info = OpInfo(sources=("was_inner",))
            body.add_op(Op("inner", "Tanh", (value,), ("t",), info=info))
        body.set_outputs(["w" if loops else "t"])
        loops.insert(0, body)
    graph = Graph("model")
    value = graph.add_input("x", size)
    graph.add_op(Op("outer", "Loop", (value,), ("y",), {"body": loops[0]}))
    graph.set_outputs(["y"])
    with pytest.raises(UsageError, match="in a body of 'outer'") as error:
        resolve_names(graph, {name: 1})
    assert error.value.hint == "name 'outer' instead"
