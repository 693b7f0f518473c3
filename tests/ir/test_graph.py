"""Edits of graphs: the index stays true, refused edits change nothing, meaning is kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from growth import Make, growth_of_calls, growth_of_time
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import Constant, Graph, GraphError, Op, State, parse, tensor
from gecompiler.ir.graph import Use

F2 = tensor("f32", (2,))


def small() -> Graph:
    graph = Graph("small")
    graph.add_input("x", F2)
    graph.add_constant("w", Constant.of(np.ones(2, np.float32)))
    graph.add_op(Op("mul", "Mul", ("x", "w"), ("a",)), [F2])
    graph.add_op(Op("relu", "Relu", ("a",), ("y",)), [F2])
    graph.set_outputs(["y"])
    return graph


# ---------------------------------------------------------------- oracles


def snapshot(graph: Graph) -> object:
    """Everything a graph holds, orders included."""
    return (
        graph.name,
        graph.inputs,
        graph.outputs,
        graph.outer,
        tuple(graph.constants.items()),
        graph.states,
        graph.controls,
        tuple((op.name, id(op)) for op in graph.ops),
        tuple((v, graph.type(v), graph.uses(v), graph.producer(v)) for v in graph.values),
        tuple(graph.view().edges(keys=True, data="tensor")),
    )


def check_index(graph: Graph) -> None:
    """Compares every query with what the ops alone say."""
    made = {v: op for op in graph.ops for v in op.outputs if v}
    sources = [*graph.inputs, *graph.outer, *graph.constants]
    assert sorted(graph.values) == sorted([*sources, *made]) == sorted(graph.types)
    uses: dict[str, set[Use]] = {v: set() for v in graph.values}
    edges = {(a, b, ("", -1)) for a, b in graph.controls}
    for op in graph.ops:
        slots = [(v, i) for i, v in enumerate(op.inputs) if v]
        slots += [(v, -1) for body in op.bodies for v in body.outer]
        for value, slot in slots:
            uses[value].add(Use(op.name, slot))
            if value in made:
                edges.add((made[value].name, op.name, (value, slot)))
        for body in op.bodies:
            check_index(body)
    for value in graph.values:
        assert set(graph.uses(value)) == uses[value], value
        assert graph.producer(value) is made.get(value)
    assert set(graph.view().edges(keys=True)) == edges
    assert sorted(graph.view()) == sorted(op.name for op in graph.ops)
    assert all(graph.op(op.name) is op for op in graph.ops)


Term = tuple[object, ...]


class Meaning:
    """What a graph computes, as nested tuples; ``replaced`` stand for reads of values."""

    def __init__(
        self,
        graph: Graph,
        around: dict[str, Term] | None = None,
        replaced: dict[str, Term] | None = None,
    ) -> None:
        self.graph = graph
        self.around = around or {}
        self.replaced = replaced or {}
        self.known: dict[str, Term] = {}

    def of(self, value: str) -> Term:
        if value in self.replaced:
            return self.replaced[value]
        if value not in self.known:
            self.known[value] = self._compute(value)
        return self.known[value]

    def _compute(self, value: str) -> Term:
        if value in self.around:
            return self.around[value]
        if value in self.graph.inputs:
            return ("input", self.graph.inputs.index(value))
        if value in self.graph.constants:
            return ("constant", id(self.graph.constants[value]))
        op = self.graph.producer(value)
        assert op is not None
        if op.op_type == "Identity":
            return self.of(op.inputs[0])
        bodies = tuple(
            Meaning(body, {v: self.of(v) for v in body.outer}).outputs for body in op.bodies
        )
        operands = tuple(self.of(v) if v else () for v in op.inputs)
        return (op.op_type, op.outputs.index(value), operands, bodies)

    @property
    def outputs(self) -> Term:
        return tuple(self.of(v) for v in self.graph.outputs)


# ---------------------------------------------------------------- random graphs and edits


def random_graph(rng: random.Random, around: tuple[str, ...] = (), depth: int = 0) -> Graph:
    graph = Graph(f"g{depth}")
    for value in rng.sample(around, min(len(around), rng.randrange(3))):
        graph.add_outer(value, F2)
    for i in range(rng.randrange(1, 3) if not depth else 0):
        graph.add_input(f"v{i}", F2)
    local = "v" if rng.random() < 0.5 else f"l{depth}_"  # bodies reuse names of the graph around
    free = [n for n in (f"{local}{i}" for i in range(20, 40)) if n not in graph.values]
    graph.add_constant(free.pop(), Constant.of(np.zeros(2, np.float32)))
    for _ in range(rng.randrange(1, 7)):
        values = graph.values
        inputs = tuple(rng.choice([*values, ""]) for _ in range(rng.randrange(1, 4)))
        attrs = {}
        if depth < 2 and rng.random() < 0.3:
            attrs = {"then": random_graph(rng, values, depth + 1)}
            if rng.random() < 0.5:
                attrs["many"] = (random_graph(rng, values, depth + 1),)
        outputs = tuple(free.pop() for _ in range(rng.randrange(1, 3)))
        graph.add_op(Op(f"op{len(graph)}", rng.choice("AB"), inputs, outputs, attrs), [F2])
    values = graph.values
    graph.set_outputs(rng.sample(values, min(len(values), rng.randrange(1, 4))))
    return graph


def add(g: Graph, rng: random.Random) -> None:
    kind = rng.choice(["C", "D"])
    g.emit(kind, [rng.choice([*g.values, ""]) for _ in range(2)], F2, outputs=rng.randrange(1, 3))


def remove(g: Graph, rng: random.Random) -> None:
    g.remove_op(rng.choice(g.ops).name)


def swap_op(g: Graph, rng: random.Random) -> None:
    old = rng.choice(g.ops)
    name = rng.choice([old.name, g.fresh("renamed"), rng.choice(g.ops).name])
    inputs = tuple(rng.choice([*g.values, "nowhere"]) for _ in range(2))
    g.replace_op(old.name, old.with_(name=name, inputs=inputs, op_type="E"))


def set_input(g: Graph, rng: random.Random) -> None:
    g.set_input(rng.choice(g.ops).name, rng.randrange(3), rng.choice([*g.values, "", "nowhere"]))


def replace(g: Graph, rng: random.Random) -> None:
    g.replace_uses(rng.choice(g.values), rng.choice(g.values), outputs=rng.random() < 0.7)


def move_output(g: Graph, rng: random.Random) -> None:
    g.rename_output(rng.choice(g.values), rng.choice(g.values))


def outputs(g: Graph, rng: random.Random) -> None:
    g.set_outputs(rng.sample(g.values, min(3, len(g.values))))


def controls(g: Graph, rng: random.Random) -> None:
    if g.controls and rng.random() < 0.3:
        g.remove_control(*rng.choice(g.controls))
        return
    g.add_control(rng.choice(g.ops).name, rng.choice(g.ops).name)


def sources(g: Graph, rng: random.Random) -> None:
    rng.choice([g.remove_constant, g.remove_input, g.remove_outer])(rng.choice(g.values))


def states(g: Graph, rng: random.Random) -> None:
    g.set_states([State(rng.choice(g.values), rng.choice(g.values))])


EDITS: list[Callable[[Graph, random.Random], None]] = [
    add,
    remove,
    swap_op,
    set_input,
    replace,
    replace,
    move_output,
    outputs,
    controls,
    sources,
    states,
]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_the_index_stays_true_and_a_refused_edit_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng)
    for _ in range(12):
        if not len(graph):
            return
        edit = rng.choice(EDITS)
        before, twin = snapshot(graph), graph.copy()
        try:
            edit(graph, rng)
        except GraphError:
            assert snapshot(graph) == before, edit.__name__
        check_index(graph)
        assert snapshot(twin) == before, "a copy lives its own life"
        graph = rng.choice([graph, graph.copy()])


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_replace_uses_means_what_it_says(seed: int, with_outputs: bool) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng)
    old, new = rng.choice(graph.values), rng.choice(graph.values)
    before = graph.copy()
    plain = Meaning(before)
    if _depends(before, new, old):
        return
    replaced = Meaning(before, replaced={old: plain.of(new)})
    expected = tuple(
        plain.of(v) if v == old and not with_outputs else replaced.of(v) for v in before.outputs
    )
    try:
        count = graph.replace_uses(old, new, outputs=with_outputs)
    except GraphError:
        assert with_outputs
        assert old in before.inputs
        return
    assert Meaning(graph).outputs == expected
    assert graph.outputs == before.outputs, "output names are an interface"
    assert graph.inputs == before.inputs
    if old != new:
        assert count == len(before.uses(old)) + (with_outputs and old in before.outputs)
    check_index(graph)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_rename_output_moves_one_output_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng)
    old, new = rng.choice(graph.outputs), rng.choice(graph.values)
    before = Meaning(graph.copy())
    expected = tuple(before.of(new if v == old else v) for v in graph.outputs)
    if old in graph.inputs:
        with pytest.raises(GraphError, match="input as well"):
            graph.rename_output(old, new)
        return
    graph.rename_output(old, new)
    assert Meaning(graph).outputs == expected
    assert graph.outputs == before.graph.outputs
    check_index(graph)


def _depends(graph: Graph, value: str, on: str) -> bool:
    """Whether ``value`` is computed from ``on``; then replacing the latter makes a cycle."""
    maker = graph.producer(value)
    if maker is None or value == on:
        return False
    reached = {maker.name, *nx.ancestors(graph.view(), maker.name)}
    return any(use.op in reached for use in graph.uses(on))


# ---------------------------------------------------------------- cases by hand


def test_emit_names_ops_and_values_apart() -> None:
    graph = small()
    first = graph.emit("Split", ["x"], outputs=2, types=[F2, F2])
    second = graph.emit("Split", ["x"], outputs=2, types=[F2, F2])
    assert (first, second) == ("Split_out", "Split_out_1")
    assert [op.name for op in graph.ops][2:] == ["Split", "Split_1"]
    assert graph.producer("Split_out1") is graph.op("Split")


def test_an_op_may_not_read_what_is_not_there() -> None:
    graph = small()
    with pytest.raises(GraphError, match="reads 'nowhere', which nothing here makes"):
        graph.add_op(Op("late", "Relu", ("nowhere",), ("z",)))
    with pytest.raises(GraphError, match="reads 'z'"):
        graph.add_op(Op("loop", "Relu", ("z",), ("z",)))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Op("mul", "Relu", ("x",), ("z",)), "taken"),
        (Op("", "Relu", ("x",), ("z",)), "empty"),
        (Op("new", "Relu", ("x",), ("y",)), "exists already"),
        (Op("new", "Split", ("x",), ("z", "z")), "twice"),
    ],
)
def test_add_op_refuses_bad_names(op: Op, message: str) -> None:
    graph = small()
    before = snapshot(graph)
    with pytest.raises(GraphError, match=message):
        graph.add_op(op)
    with pytest.raises(GraphError):
        graph.add_ops([(Op("good", "Relu", ("x",), ("fine",)), []), (op, [])])
    assert snapshot(graph) == before


def test_add_ops_takes_any_order() -> None:
    graph = small()
    graph.add_ops(
        [(Op("b", "Relu", ("p",), ("q",)), [F2]), (Op("a", "Relu", ("x",), ("p",)), [F2])]
    )
    check_index(graph)
    assert [op.name for op in graph.topological()] == ["mul", "relu", "a", "b"]
    with pytest.raises(GraphError, match="twice"):
        graph.add_ops(
            [(Op("c", "Relu", ("x",), ("r",)), []), (Op("c", "Relu", ("x",), ("s",)), [])]
        )


def test_remove_op_refuses_while_something_uses_it() -> None:
    graph = small()
    with pytest.raises(GraphError, match="'a' is still used"):
        graph.remove_op("mul")
    with pytest.raises(GraphError, match="'y' is still used"):
        graph.remove_op("relu")
    graph.add_control("mul", "relu")
    graph.set_outputs(["a"])
    graph.remove_op("relu")
    assert graph.controls == ()
    assert not graph.has_value("y")
    check_index(graph)


def test_replace_op_under_a_new_name_keeps_controls_and_readers() -> None:
    graph = small()
    graph.emit("Relu", ["x"], F2, stem="other")
    graph.add_control("other", "mul")
    graph.replace_op("mul", Op("fused", "FusedMul", ("x",), ("a",)))
    assert graph.controls == (("other", "fused"),)
    assert [op.name for op in graph.predecessors(graph.op("relu"))] == ["fused"]
    check_index(graph)


def test_replace_op_must_keep_the_outputs() -> None:
    graph = small()
    with pytest.raises(GraphError, match="must have its outputs"):
        graph.replace_op("mul", Op("mul", "Mul", ("x", "w"), ("other",)))


def test_an_output_takes_its_new_value_under_its_old_name() -> None:
    graph = small()
    graph.emit("Gelu", ["x"], F2, stem="gelu")
    assert graph.replace_uses("y", "gelu_out") == 1
    assert graph.outputs == ("y",)
    assert graph.producer("y") is graph.op("gelu")
    assert graph.op("relu").outputs == ("y_before",)


def test_an_output_that_takes_an_input_needs_an_identity() -> None:
    graph = small()
    graph.replace_uses("y", "x")
    maker = graph.producer("y")
    assert maker is not None
    assert (maker.op_type, maker.inputs) == ("Identity", ("x",))
    assert graph.type("y") == F2


def test_inputs_and_state_never_change_names() -> None:
    graph = small()
    graph.set_outputs(["y", "x"])
    before = snapshot(graph)
    with pytest.raises(GraphError, match="is an input as well"):
        graph.replace_uses("x", "y")
    assert snapshot(graph) == before
    assert graph.replace_uses("x", "w", outputs=False) == 1
    assert graph.outputs == ("y", "x")


def test_state_holds_its_input_and_output() -> None:
    graph = small()
    graph.set_states([State("x", "y", 0)])
    with pytest.raises(GraphError, match="hands on the declared state"):
        graph.set_outputs(["a"])
    graph.replace_uses("x", "w")
    with pytest.raises(GraphError, match="holds a declared state"):
        graph.remove_input("x")
    with pytest.raises(GraphError, match="share an input"):
        graph.set_states([State("x", "y"), State("x", "y")])
    with pytest.raises(GraphError, match="must pair an input with an output"):
        graph.set_states([State("w", "y")])


def test_a_body_that_returns_what_it_captures_follows_the_capture() -> None:
    body = Graph("body")
    body.add_outer("a", F2)
    body.add_outer("x", F2)
    body.set_outputs(["a", "x"])
    graph = small()
    graph.add_op(Op("if", "If", ("w",), ("p", "q"), {"then_branch": body}), [F2, F2])
    graph.replace_uses("a", "x")
    (changed,) = graph.op("if").bodies
    assert changed.outer == ("x",)
    assert Meaning(changed, {"x": ("X",)}).outputs == (("X",), ("X",))
    assert body.outer == ("a", "x"), "the body that was given is not changed"
    check_index(graph)


def test_a_local_name_of_a_body_gives_way_to_a_captured_one() -> None:
    inner = Graph("inner")
    inner.add_outer("a", F2)
    inner.add_op(Op("n", "Neg", ("a",), ("b",)), [F2])
    inner.set_outputs(["b"])
    graph = small()
    graph.emit("Abs", ["x"], F2, stem="abs")
    graph.rename_output("y", "abs_out")
    graph.add_op(Op("take", "Relu", ("x",), ("b",)), [F2])
    graph.add_op(Op("if", "If", ("w",), ("p",), {"then_branch": inner}), [F2])
    graph.replace_uses("a", "b")
    (changed,) = graph.op("if").bodies
    assert changed.outer == ("b",)
    assert Meaning(changed, {"b": ("B",)}).outputs == (("Neg", 0, (("B",),), ()),)


def test_topological_names_the_cycle() -> None:
    graph = small()
    graph.set_input("mul", 0, "y")
    with pytest.raises(GraphError, match=r"cycle through mul -> relu -> mul|relu -> mul -> relu"):
        graph.topological()


def test_topological_prefers_the_earliest_inserted_and_respects_controls() -> None:
    graph = Graph()
    graph.add_input("x", F2)
    for name in "abcd":
        graph.add_op(Op(name, "Relu", ("x",), (f"{name}_out",)), [F2])
    assert [op.name for op in graph.topological()] == list("abcd")
    graph.add_control("d", "a")
    assert [op.name for op in graph.topological()] == list("bcda")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_topological_puts_producers_first(seed: int) -> None:
    graph = random_graph(random.Random(seed))
    order = [op.name for op in graph.topological()]
    place = {name: i for i, name in enumerate(order)}
    assert sorted(order) == sorted(op.name for op in graph.ops)
    assert all(place[a] < place[b] for a, b in graph.view().edges())


def test_the_view_cannot_be_changed_and_shows_later_edits() -> None:
    graph = small()
    view = graph.view()
    with pytest.raises(nx.NetworkXError):
        view.add_node("z")
    graph.emit("Relu", ["y"], F2, stem="more")
    assert "more" in view


def test_set_type_guards_constants() -> None:
    graph = small()
    graph.set_type("a", tensor("f32", (2,)))
    with pytest.raises(GraphError, match="type of its own"):
        graph.set_type("w", tensor("f32", (3,)))
    with pytest.raises(GraphError, match="no value 'zz'"):
        graph.set_type("zz", F2)


def test_fresh_avoids_ops_and_values() -> None:
    graph = small()
    assert graph.fresh("relu") == "relu_1"
    assert graph.fresh("y") == "y_1"
    assert graph.fresh("") == "v_1"
    assert graph.fresh("free") == "free"


def chain(length: int) -> Graph:
    graph = Graph("chain")
    value = graph.add_input("x", F2)
    graph.add_constant("w", Constant.of(np.ones(2, np.float32)))
    graph.add_constant("w2", Constant.of(np.ones(2, np.float32)))
    for _ in range(length):
        value = graph.emit("Add", [value, "w"], F2)
    graph.set_outputs([value])
    return graph


def _replaced(length: int) -> Callable[[], object]:
    graph = chain(length)
    there_and_back = (("w", "w2"), ("w2", "w"))
    return lambda: [graph.replace_uses(old, new) for old, new in there_and_back]


def _chain_cut_short(length: int) -> Callable[[], object]:
    graph = chain(length)
    values = [op.outputs[0] for op in graph.topological()]
    middle = list(pairwise(values[length // 10 : length // 5]))
    return lambda: [graph.replace_uses(b, a) for a, b in middle]


LARGE_EDITS: dict[str, Make] = {
    "order": lambda length: chain(length).topological,
    "copy": lambda length: chain(length).copy,
    "one value everywhere": _replaced,
    "many values": _chain_cut_short,
}


@pytest.mark.parametrize("edit", LARGE_EDITS.values(), ids=LARGE_EDITS)
def test_edits_take_work_that_grows_with_the_ops(edit: Make) -> None:
    assert growth_of_calls(edit, 250, 2000) < 8 * 1.2


@pytest.mark.slow
@pytest.mark.parametrize("edit", LARGE_EDITS.values(), ids=LARGE_EDITS)
def test_edits_take_time_that_grows_with_the_ops(edit: Make) -> None:
    assert growth_of_time(edit, 2_500, 20_000) < 8 * 3


def test_the_newest_ops_are_those_inserted_last() -> None:
    graph = parse(
        """
        graph @g (opset 20) {
          input %x: f32[2]
          %a: f32[2] = Neg(%x) @one
          %b: f32[2] = Neg(%a) @two
          %c: f32[2] = Neg(%b) @three
          return %c
        }
        """
    )
    assert [op.name for op in graph.newest(2)] == ["two", "three"]
    assert graph.newest(0) == ()
