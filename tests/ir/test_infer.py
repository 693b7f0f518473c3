"""Inference as a whole: what is declared and what is inferred, fresh symbols, forced sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from growth import growth_of_calls, growth_of_time

from gecompiler.ir import Graph, ModelError, Op, infer_types, parse, tensor
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.dims import symbol
from gecompiler.ir.types import DType, TensorType


def graph_of(body: str, opset: int = 20) -> Graph:
    return parse(f"graph (opset {opset}) {{\n{body}\n}}")


def shapes(graph: Graph) -> dict[str, str]:
    return {v: str(graph.type(v)) for op in graph.ops for v in op.outputs if v}


# ---------------------------------------------------------------- declared and inferred


def test_inferred_expressions_replace_declared_symbols() -> None:
    graph = graph_of("""input %x: f32[b, s]
      %y: f32[Relu_y_dim_0, Relu_y_dim_1] = Relu(%x)
      return %y""")
    infer_types(graph)
    assert shapes(graph) == {"y": "f32[b, s]"}


def test_inputs_keep_their_types() -> None:
    graph = graph_of("input %x: f32[b, 2*s]\n%y = Relu(%x)\nreturn %y")
    before = graph.type("x")
    infer_types(graph)
    assert graph.type("x") == before
    assert graph.type("y") == before


def test_a_declared_number_stands_in_for_what_is_unknown() -> None:
    graph = graph_of("input %x: bool[n]\n%y: i64[1, 5] = NonZero(%x)\nreturn %y")
    facts = infer_types(graph)
    assert shapes(graph) == {"y": "i64[1, 5]"}
    assert not facts.fresh


def test_a_declared_symbol_names_what_is_unknown() -> None:
    graph = graph_of("input %x: bool[n]\n%y: i64[1, u0] = NonZero(%x)\n%z = Neg(%y)\nreturn %z")
    facts = infer_types(graph)
    assert shapes(graph) == {"y": "i64[1, u0]", "z": "i64[1, u0]"}
    assert facts.fresh["u0"].bound == symbol("n")


def test_a_declared_number_against_an_expression_of_the_inputs_is_stale() -> None:
    graph = graph_of("input %x: f32[b, s]\n%y: f32[3, s] = Relu(%x)\nreturn %y")
    diagnostics = Diagnostics()
    infer_types(graph, diagnostics=diagnostics)
    assert shapes(graph) == {"y": "f32[b, s]"}
    (warning,) = diagnostics
    assert warning.code == "stale-shape"
    assert "'y'" in warning.message


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("f32[2, 4]", "declares f32[2, 4]"),
        ("f32[6]", "declares f32[6]"),
        ("f16[2, 3]", "declares f16[2, 3]"),
    ],
)
def test_what_contradicts_the_inputs_is_refused(declared: str, reason: str) -> None:
    graph = graph_of(f"input %x: f32[2, 3]\n%y: {declared} = Relu(%x)\nreturn %y")
    with pytest.raises(ModelError) as caught:
        infer_types(graph)
    assert caught.value.where == "node 'y' (Relu)"
    assert "'y'" in caught.value.message
    assert reason in caught.value.message or "declares 4" in caught.value.message


def test_types_of_untyped_values_are_found() -> None:
    graph = graph_of("""input %a: f16[m, k]
      input %b: f16[k, n]
      %c = MatMul(%a, %b)
      %d = Cast(%c) {to = 1}
      %e = Shape(%d)
      return %d, %e""")
    infer_types(graph)
    assert shapes(graph) == {"c": "f16[m, n]", "d": "f32[m, n]", "e": "i64[2]"}


# ---------------------------------------------------------------- the unknown


def test_fresh_symbols_have_names_and_bounds() -> None:
    graph = graph_of("input %x: bool[b, s]\n%y = NonZero(%x)\nreturn %y")
    facts = infer_types(graph)
    assert shapes(graph) == {"y": "i64[2, y_dim1]"}
    (fresh,) = facts.fresh.values()
    assert (fresh.name, fresh.value, fresh.axis, fresh.op) == ("y_dim1", "y", 1, "y")
    assert fresh.bound == symbol("b") * symbol("s")


def test_a_fresh_symbol_never_takes_the_name_of_another() -> None:
    graph = graph_of("input %x: bool[y_dim1]\n%y = NonZero(%x)\nreturn %y")
    facts = infer_types(graph)
    assert list(facts.fresh) == ["y_dim1_1"]


def test_inferring_twice_changes_nothing() -> None:
    graph = graph_of("""input %x: bool[b, s]
      input %t: i64[2]
      %y = NonZero(%x)
      %z = Transpose(%y)
      %r = Reshape(%z, %t)
      return %r""")
    first = infer_types(graph)
    before = shapes(graph)
    second = infer_types(graph)
    assert shapes(graph) == before
    assert list(first.fresh) == list(second.fresh)


def test_unknown_ranks_are_told_or_refused() -> None:
    graph = graph_of("input %x: f32[b]\ninput %t: i64[n]\n%y = Reshape(%x, %t)\nreturn %y")
    diagnostics = Diagnostics()
    facts = infer_types(graph, diagnostics=diagnostics)
    assert facts.unknown == ("y",)
    assert [w.code for w in diagnostics] == ["unknown-rank"]
    with pytest.raises(ModelError, match="rank of 'y'") as caught:
        infer_types(graph, strict=True)
    assert caught.value.where == "node 'y' (Reshape)"


def test_ops_of_unknown_domains_keep_what_is_declared() -> None:
    graph = parse("""graph (opset 20, acme 1) {
      input %x: f32[b]
      %y: f32[b, n] = acme.Spread(%x)
      %z = Relu(%y)
      return %z
    }""")
    facts = infer_types(graph)
    assert shapes(graph) == {"y": "f32[b, n]", "z": "f32[b, n]"}
    assert list(facts.fresh) == ["n"]


def test_ops_without_a_rule_of_ours_go_through_onnx_with_symbols() -> None:
    graph = graph_of("""input %x: f32[s, b, 8]
      input %w: f32[1, 64, 8]
      input %r: f32[1, 64, 16]
      %y, %h, %c = LSTM(%x, %w, %r) {hidden_size = 16}
      return %y, %h, %c""")
    infer_types(graph)
    assert shapes(graph) == {"y": "f32[s, 1, b, 16]", "h": "f32[1, b, 16]", "c": "f32[1, b, 16]"}


def test_a_contradiction_that_onnx_finds_names_the_node() -> None:
    graph = graph_of("input %x: f32[2, 3]\n%y = Det(%x) @bad\nreturn %y")
    with pytest.raises(ModelError) as caught:
        infer_types(graph)
    assert caught.value.where == "node 'bad' (Det)"
    assert "f32[2, 3]" in caught.value.message


# ---------------------------------------------------------------- what a program forces


def test_an_equality_that_forces_a_symbol_is_used_everywhere() -> None:
    """torch.export leaves ``s`` in the input though the code after it needs 1."""
    graph = graph_of("""input %x: f32[b, s, 8]
      input %w: f32[b, 1, 8]
      %y = Concat(%x, %w) {axis = 2}
      %z = Relu(%x)
      return %y, %z""")
    facts = infer_types(graph)
    assert shapes(graph) == {"y": "f32[b, 1, 16]", "z": "f32[b, 1, 8]"}
    assert str(graph.type("x")) == "f32[b, s, 8]"
    (assumption,) = facts.assumptions
    assert {assumption.left, assumption.right} == {symbol("s"), 1}
    assert assumption.op == "y"


def test_two_symbols_that_must_agree_become_the_first() -> None:
    graph = graph_of("""input %x: f32[b, p + s]
      input %w: f32[t, 4]
      %y = MatMul(%x, %w)
      %z = Transpose(%w)
      return %y, %z""")
    infer_types(graph)
    assert shapes(graph) == {"y": "f32[b, 4]", "z": "f32[4, p + s]"}


def test_broadcasting_forces_nothing() -> None:
    graph = graph_of("input %x: f32[b]\ninput %w: f32[c]\n%y = Add(%x, %w)\nreturn %y")
    facts = infer_types(graph)
    assert shapes(graph) == {"y": "f32[bcast(b, c)]"}
    assert facts.assumptions[0].broadcast


# ---------------------------------------------------------------- size


def inferred(count: int) -> Callable[[], object]:
    graph = Graph("chain", {"": 17})
    graph.add_input("x", tensor("f32", (symbol("b"), symbol("s"), 8)))
    graph.constant_of("axis", [1])
    value = "x"
    for i in range(count):
        graph.add_op(Op(f"s{i}", "Shape", (value,), (f"n{i}",)))
        graph.add_op(Op(f"r{i}", "Reshape", (value, f"n{i}"), (f"v{i}",)))
        value = f"v{i}"
    graph.set_outputs([value])
    return lambda: infer_types(graph)


def test_near_linear_work() -> None:
    assert growth_of_calls(inferred, 100, 800) < 8 * 1.2


@pytest.mark.slow
def test_near_linear_time() -> None:
    assert growth_of_time(inferred, 500, 4000, 3) < 8 * 3


def test_an_expression_that_grows_without_end_is_refused_by_name() -> None:
    lines = ["input %x: f32[a, b]", "%v0 = Concat(%x, %x) {axis = 0}"]
    for i in range(40):
        lines.append(f"%f{i} = Flatten(%v{i}) {{axis = 0}}")
        lines.append(f"%t{i} = Transpose(%f{i})")
        lines.append(f"%v{i + 1} = MatMul(%t{i}, %f{i})")
    graph = graph_of("\n".join([*lines, "return %v40"]))
    with pytest.raises(ModelError, match="grew beyond") as caught:
        infer_types(graph)
    assert caught.value.where.startswith("node ")


def test_every_element_type_of_onnx_is_known_to_signatures() -> None:
    graph = Graph("types", {"": 25})
    for dtype in (DType.F32, DType.BF16, DType.F8E4M3FN, DType.I4, DType.STRING, DType.C64):
        name = graph.add_input(f"x_{dtype.short}", TensorType(dtype, (symbol("n"),)))
        graph.add_op(Op(f"op_{name}", "Identity", (name,), (f"y_{name}",)))
    infer_types(graph)
    assert {str(graph.type(v)) for v in graph.values if v.startswith("y_")} == {
        "f32[n]",
        "bf16[n]",
        "f8e4m3fn[n]",
        "i4[n]",
        "string[n]",
        "c64[n]",
    }


def test_a_simplified_norm_has_the_type_of_its_scale() -> None:
    graph = graph_of("""input %x: f32[b, 8]
      input %w: f16[8]
      %y = SimplifiedLayerNormalization(%x, %w)
      return %y""")
    infer_types(graph)
    assert shapes(graph) == {"y": "f16[b, 8]"}
