"""The dependency analysis as the article and interfaces.md use it."""

from __future__ import annotations

import random

import networkx as nx
import pytest
from fakes import random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import Op
from gecompiler.ir.types import tensor
from gecompiler.passes import DependencyAnalyzer
from gecompiler.passes import reachability as reach_module
from gecompiler.passes.reachability import Reachability

SIZE = tensor("f32", (4, 4))


@pytest.fixture
def graph() -> Graph:
    """x -> a -> (b, c) -> d, and e beside them all."""
    graph = Graph("model")
    graph.add_input("x", SIZE)
    for name, inputs in (("a", ["x"]), ("b", ["a_out"]), ("c", ["a_out"])):
        graph.add_op(Op(name, "Relu", tuple(inputs), (f"{name}_out",)), [SIZE])
    graph.add_op(Op("d", "Add", ("b_out", "c_out"), ("d_out",)), [SIZE])
    graph.add_op(Op("e", "Tanh", ("x",), ("e_out",)), [SIZE])
    graph.set_outputs(["d_out", "e_out", "c_out"])
    return graph


def test_the_loop_of_the_article(graph: Graph) -> None:
    analyzer = DependencyAnalyzer(graph)
    for edge in analyzer.edges:
        if edge.is_single_consumer and not analyzer.has_side_effects(edge.producer):
            analyzer.mark_parallelizable(edge.producer, edge.consumer)
    assert analyzer.parallelizable == (("b", "d"),)  # a has two users, c is an output as well


def test_edges_in_topological_order(graph: Graph) -> None:
    edges = DependencyAnalyzer(graph).edges
    assert [(e.producer.name, e.consumer.name, e.tensor) for e in edges] == [
        ("a", "b", "a_out"),
        ("a", "c", "a_out"),
        ("b", "d", "b_out"),
        ("c", "d", "c_out"),
    ]


def test_side_effects(graph: Graph) -> None:
    graph.add_op(Op("r", "RandomNormalLike", ("x",), ("r_out",)), [SIZE])
    graph.add_op(Op("u", "Thing", ("x",), ("u_out",), domain="com.nobody"), [SIZE])
    graph.add_op(Op("s", "AllReduce", ("x",), ("s_out",), domain="gecompiler"), [SIZE])
    graph.set_outputs([*graph.outputs, "r_out"])
    analyzer = DependencyAnalyzer(graph)
    assert [n for n in "abcderus" if analyzer.has_side_effects(n)] == ["r", "u", "s"]
    graph.set_states([State("x", "d_out")])
    assert DependencyAnalyzer(graph).has_side_effects("d")
    with pytest.raises(UsageError, match=r"'r' .* has side effects"):
        analyzer.mark_parallelizable("r", "a")


def test_marking_against_the_order_is_refused(graph: Graph) -> None:
    analyzer = DependencyAnalyzer(graph)
    with pytest.raises(UsageError, match="'d' runs after 'a': a -> b -> d"):
        analyzer.mark_parallelizable("d", "a")
    with pytest.raises(UsageError, match="beside itself"):
        analyzer.mark_parallelizable("a", "a")


def test_window_says_what_may_run_beside_and_why_not_the_rest(graph: Graph) -> None:
    window = DependencyAnalyzer(graph).window("b")
    assert [op.name for op in window.beside] == ["c", "e"]
    assert [op.name for op in window.before] == ["a"]
    assert [op.name for op in window.after] == ["d"]
    assert window.why_not("c") is None
    assert str(window.why_not("d")) == "d runs after: b -> d"
    assert str(window.why_not("a")) == "a runs before: a -> b"
    assert str(window.why_not("b")) == "b runs before: b"


def test_control_edges_count(graph: Graph) -> None:
    graph.add_control("e", "a")
    analyzer = DependencyAnalyzer(graph)
    assert not analyzer.independent("e", "d")
    assert analyzer.window("e").beside == ()


def test_an_unknown_op_has_its_nearest_names(graph: Graph) -> None:
    graph.add_op(Op("attention", "Relu", ("x",), ("o",)), [SIZE])
    with pytest.raises(UsageError, match="no op 'atention'") as error:
        DependencyAnalyzer(graph).independent("atention", "a")
    assert "'attention'" in error.value.hint


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_independence_is_unreachability(seed: int) -> None:
    graph = random_graph(seed, 15, controls=True)
    net = nx.DiGraph(graph.view())
    analyzer = DependencyAnalyzer(graph)
    for a in graph.ops:
        down = nx.descendants(net, a.name)
        for b in graph.ops:
            linked = a is b or b.name in down or a.name in nx.descendants(net, b.name)
            assert analyzer.independent(a, b) == (not linked)
            assert (analyzer.obstacle(a, b) is None) == (not linked)


def test_large_graphs_answer_without_bitsets(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    preds = [[j for j in range(i) if rng.random() < 0.2] for i in range(30)]
    small, large = Reachability(preds), Reachability(preds)
    expected = [[small.reaches(a, b) for b in range(30)] for a in range(30)]
    top, bottom = small.maximal(range(5, 20)), small.minimal(range(5, 20))
    assert all(not expected[a][b] for a in top for b in range(5, 20))
    assert all(not expected[a][b] for b in bottom for a in range(5, 20))
    monkeypatch.setattr(reach_module, "BITSET_NODES", 10)
    assert [[large.reaches(a, b) for b in range(30)] for a in range(30)] == expected
