"""Choosing numbers for symbols from the user's options, and putting them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gecompiler.ir import Graph, ModelError, UsageError, infer_types, parse
from gecompiler.ir.bind import bind, choose_binding, declare_ranks, parse_input_shape
from gecompiler.ir.bind.solve import Contradiction, Equation, Solver
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.dims import floordiv, symbol


def graph_of(body: str, opset: int = 20) -> Graph:
    graph = parse(f"graph (opset {opset}) {{\n{body}\n}}")
    infer_types(graph)
    return graph


def chosen(graph: Graph, **options: Any) -> dict[str, int]:
    return choose_binding(graph, diagnostics=Diagnostics(), **options)


def refused(graph: Graph, **options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        chosen(graph, **options)
    return caught.value


ENCODER = """
  input %input_ids: i64[batch, seq]
  input %attention_mask: i64[mask_batch, seq]
  input %position_ids: i64[seq]
  const %w: f32[50, 8] = absent
  %e = Gather(%w, %input_ids)
  %m = Cast(%attention_mask) {to = 1}
  %p = Cast(%position_ids) {to = 1}
  %s = ReduceSum(%e)
  %y = Add(%m, %p)
  return %e, %y, %s
"""


# ---------------------------------------------------------------- spelling


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:1,128", ("x", (1, 128))),
        ("x:1x128", ("x", (1, 128))),
        ("x:1X128", ("x", (1, 128))),
        ("x:?,128", ("x", (None, 128))),
        ("x:?x8", ("x", (None, 8))),
        ("x:7", ("x", (7,))),
        ("serving:x:0:1,128", ("serving:x:0", (1, 128))),
        ("xx3:4x5", ("xx3", (4, 5))),
        (" x : 1, 2 ", ("x", (1, 2))),
    ],
)
def test_input_shapes_are_read(text: str, expected: tuple[str, tuple[int | None, ...]]) -> None:
    assert parse_input_shape(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "x:", ":1,2", "x:1,2x3", "x:1,,2", "x:a,b", "x:-1", "x:1,2,", "x=1,2", "x:0", "x:?0"],
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_input_shape(text)
    assert caught.value.where == "--input-shape"
    assert repr(text) in caught.value.message
    assert caught.value.exit_code == 2


# ---------------------------------------------------------------- options


def test_batch_binds_leading_symbols_and_seq_second_ones() -> None:
    binding = chosen(graph_of(ENCODER), batch=8, seq=64)
    assert binding == {"batch": 8, "mask_batch": 8, "seq": 64}


def test_seq_binds_that_symbol_everywhere() -> None:
    graph = graph_of("""input %tokens: i32[b, s]
      input %bias: f32[s, s]
      %y = Relu(%bias)
      return %y""")
    assert chosen(graph, batch=2, seq=16) == {"b": 2, "s": 16}


def test_every_token_input_has_a_sequence() -> None:
    graph = graph_of("""input %input_ids: i64[b, s]
      input %decoder_input_ids: i64[b, t]
      %y = Neg(%input_ids)
      %z = Neg(%decoder_input_ids)
      return %y, %z""")
    assert chosen(graph, batch=1, seq=9) == {"b": 1, "s": 9, "t": 9}


def test_embeddings_have_a_sequence_where_there_are_no_tokens() -> None:
    graph = graph_of("input %x: f32[b, s, 64]\n%y = Relu(%x)\nreturn %y")
    assert chosen(graph, batch=3, seq=5) == {"b": 3, "s": 5}


def test_input_shape_wins_over_batch_and_seq() -> None:
    graph = graph_of(ENCODER)
    binding = chosen(graph, batch=8, seq=64, input_shapes={"attention_mask": (1, None)})
    assert binding == {"mask_batch": 1, "batch": 8, "seq": 64}
    binding = chosen(graph, batch=8, seq=64, input_shapes={"input_ids": (2, 16)})
    assert binding["batch"] == 2
    assert binding["seq"] == 16


def test_the_order_of_the_result_does_not_depend_on_the_options() -> None:
    graph = graph_of(ENCODER)
    a = chosen(graph, input_shapes={"attention_mask": (1, 7), "input_ids": (2, 7)})
    b = chosen(graph, input_shapes={"input_ids": (2, 7), "attention_mask": (1, 7)})
    assert list(a.items()) == list(b.items()) == [("batch", 2), ("seq", 7), ("mask_batch", 1)]


def test_arrays_bind_what_they_measure() -> None:
    graph = graph_of(ENCODER)
    arrays = {"input_ids": np.zeros((3, 7), np.int64), "attention_mask": np.zeros((1, 7))}
    assert chosen(graph, arrays=arrays) == {"batch": 3, "seq": 7, "mask_batch": 1}


CACHED = """
  input %input_ids: i64[batch, seq]
  input %attention_mask: i64[batch, total]
  input %past_key: f32[batch, 2, past, 8]
  const %w: f32[50, 2, 8] = absent
  %e = Gather(%w, %input_ids)
  %k = Transpose(%e) {perm = [0, 2, 1, 3]}
  %keys = Concat(%past_key, %k) {axis = 2}
  %m = Cast(%attention_mask) {to = 1}
  const %axes: i64[2] = [1, 3]
  %mask = Unsqueeze(%m, %axes)
  %y = Mul(%keys, %mask)
  return %y
"""


def test_seq_is_not_the_length_of_a_mask_that_covers_a_cache() -> None:
    """The mask's own length follows from what it is multiplied with."""
    binding = chosen(graph_of(CACHED), batch=2, seq=4, input_shapes={"past_key": (2, 2, 12, 8)})
    assert binding == {"batch": 2, "seq": 4, "past": 12, "total": 16}


def test_expressions_are_solved_and_checked() -> None:
    text = CACHED.replace("i64[batch, total]", "i64[batch, past + seq]")
    graph = graph_of(text)
    binding = chosen(graph, batch=1, seq=1, input_shapes={"attention_mask": (None, 13)})
    assert binding == {"batch": 1, "seq": 1, "past": 12}
    error = refused(
        graph,
        input_shapes={"attention_mask": (1, 13), "past_key": (1, 2, 9, 8), "input_ids": (1, 1)},
    )
    assert "seq = 4 and 1 must agree" in error.message
    assert "--input-shape attention_mask:1,13" in error.where
    assert "--input-shape input_ids:1,1" in error.where


def test_an_expression_without_a_whole_solution_is_refused() -> None:
    graph = graph_of("input %x: f32[2*n]\n%y = Relu(%x)\nreturn %y")
    assert chosen(graph, input_shapes={"x": (8,)}) == {"n": 4}
    error = refused(graph, input_shapes={"x": (7,)})
    assert error.where == "--input-shape x:7"


def test_a_size_below_one_is_refused_wherever_it_comes_from() -> None:
    graph = graph_of(CACHED.replace("i64[batch, total]", "i64[batch, past + seq]"))
    assert "--batch" in refused(graph, batch=0).where
    assert "--seq" in refused(graph, seq=-3).where
    assert "axis 1" in refused(graph, input_shapes={"input_ids": (1, 0)}).message
    assert "'past_key'" in refused(graph, arrays={"past_key": np.zeros((1, 2, 0, 8))}).message
    shapes = {"attention_mask": (1, 4), "input_ids": (1, 9)}
    assert "at least 1" in refused(graph, input_shapes=shapes).message


# ---------------------------------------------------------------- refusals


def test_an_unknown_input_is_refused_with_the_nearest_names() -> None:
    error = refused(graph_of(ENCODER), input_shapes={"input_id": (1, 2)})
    assert "'input_id'" in error.message
    assert "'input_ids'" in error.hint
    assert error.where == "--input-shape"


def test_a_wrong_rank_is_refused() -> None:
    error = refused(graph_of(ENCODER), input_shapes={"input_ids": (1, 2, 3)})
    assert "rank 2" in error.message
    assert error.where == "--input-shape input_ids:1,2,3"


def test_a_wrong_number_is_refused() -> None:
    graph = graph_of("input %x: f32[b, 64]\n%y = Relu(%x)\nreturn %y")
    error = refused(graph, input_shapes={"x": (1, 32)})
    assert "axis 1 of input 'x' is 64" in error.message
    error = refused(graph, arrays={"x": np.zeros((2, 65), np.float32)})
    assert "64 and 65" in error.message


def test_shapes_that_contradict_each_other_name_both_options() -> None:
    shapes = {"input_ids": (2, 16), "attention_mask": (2, 17)}
    error = refused(graph_of(ENCODER), input_shapes=shapes)
    assert "--input-shape input_ids:2,16" in error.where
    assert "--input-shape attention_mask:2,17" in error.where
    assert "seq = 16 and 17" in error.message


@pytest.mark.parametrize(("option", "what"), [("batch", "leading"), ("seq", "second")])
def test_options_for_fixed_sizes_are_refused(option: str, what: str) -> None:
    graph = graph_of("input %ids: i64[3, 10]\n%y = Neg(%ids)\nreturn %y")
    assert chosen(graph, batch=3, seq=10) == {}
    error = refused(graph, **{option: 4})
    assert f"the {what} size" in error.message
    assert "'ids'" in error.message
    assert error.where == f"--{option} 4"


def test_seq_without_anything_to_bind_is_refused() -> None:
    graph = graph_of("input %pixels: f32[b, 3, 32, 32]\n%y = Relu(%pixels)\nreturn %y")
    assert "no token input" in refused(graph, seq=4).message


def test_sizes_the_program_cannot_run_with_name_the_node() -> None:
    graph = graph_of("""input %ids: i64[b, s]
      const %table: f32[48, 8] = absent
      const %w: f32[50, 8] = absent
      const %zero: i64[1] = [0]
      const %one: i64[1] = [1]
      %n = Shape(%ids) {start = 1}
      %p = Slice(%table, %zero, %n, %zero)
      %e = Gather(%w, %ids)
      %y = Add(%e, %p) @embed
      return %y""")
    assert str(graph.type("y")) == "f32[b, s, 8]"
    assert chosen(graph, batch=1, seq=48) == {"b": 1, "s": 48}
    error = refused(graph, batch=1, seq=49)
    assert "'embed'" in error.where
    assert "--seq 49" in error.where


# ---------------------------------------------------------------- defaults


def test_unbound_sizes_get_defaults_with_one_warning() -> None:
    diagnostics = Diagnostics()
    binding = choose_binding(graph_of(ENCODER), diagnostics=diagnostics)
    assert binding == {"batch": 1, "mask_batch": 1, "seq": 128}
    (warning,) = diagnostics
    assert warning.code == "unbound-sizes"
    for symbol_, size in binding.items():
        assert f"{symbol_} = {size}" in warning.message
    assert "--batch" in warning.hint
    assert "--seq" in warning.hint


def test_only_what_is_open_is_warned_of() -> None:
    diagnostics = Diagnostics()
    graph = graph_of("input %x: f32[b, c, n, 4]\n%y = Relu(%x)\nreturn %y")
    binding = choose_binding(graph, batch=2, diagnostics=diagnostics)
    assert binding == {"b": 2, "c": 128, "n": 128}
    (warning,) = diagnostics
    assert "b =" not in warning.message
    assert "c: --input-shape x:?,N,?,?" in warning.hint


def test_no_warning_when_all_is_given() -> None:
    diagnostics = Diagnostics()
    choose_binding(graph_of(ENCODER), batch=2, seq=5, diagnostics=diagnostics)
    assert list(diagnostics) == []
    static = graph_of("input %x: f32[2]\n%y = Relu(%x)\nreturn %y")
    assert choose_binding(static, diagnostics=diagnostics) == {}
    assert list(diagnostics) == []


def test_defaults_are_sizes_that_the_model_runs_with() -> None:
    """A table of 48 positions: 128 would not do."""
    graph = graph_of("""input %ids: i64[b, s]
      const %table: f32[48] = absent
      const %zero: i64[1] = [0]
      %n = Shape(%ids) {start = 1}
      %p = Slice(%table, %zero, %n)
      %f = Cast(%ids) {to = 1}
      %y = Add(%f, %p)
      return %y""")
    diagnostics = Diagnostics()
    assert choose_binding(graph, diagnostics=diagnostics) == {"b": 1, "s": 48}
    assert "does not run with 128" in next(iter(diagnostics)).message


def test_defaults_follow_what_is_given() -> None:
    binding = chosen(graph_of(CACHED), seq=4)
    assert binding == {"batch": 1, "seq": 4, "total": 128, "past": 124}


def test_a_forced_size_is_no_default() -> None:
    graph = graph_of("""input %x: f32[b, s, 8]
      input %w: f32[b, 1, 8]
      %y = Concat(%x, %w) {axis = 2}
      return %y""")
    diagnostics = Diagnostics()
    assert choose_binding(graph, batch=2, diagnostics=diagnostics) == {"b": 2, "s": 1}
    assert list(diagnostics) == []
    assert "'y'" in refused(graph, seq=4).where


# ---------------------------------------------------------------- sizes that depend on data


def test_data_dependent_sizes_are_bound_to_their_most() -> None:
    graph = graph_of("input %x: bool[b, n]\n%y = NonZero(%x)\n%z = Neg(%y)\nreturn %z")
    diagnostics = Diagnostics()
    binding = choose_binding(graph, input_shapes={"x": (3, 10)}, diagnostics=diagnostics)
    assert binding == {"b": 3, "n": 10, "y_dim1": 30}
    (warning,) = diagnostics
    assert warning.code == "data-dependent-size"
    assert "y_dim1 = 30 (its most)" in warning.message


def test_sizes_without_a_bound_are_taken_to_be_128() -> None:
    graph = graph_of("input %n: i64[]\nconst %k: i64[] = 0\nconst %d: i64[] = 1\n"
                     "%y = Range(%k, %n, %d)\nreturn %y")  # fmt: skip
    diagnostics = Diagnostics()
    assert choose_binding(graph, diagnostics=diagnostics) == {"y_dim0": 128}
    assert "y_dim0 = 128" in next(iter(diagnostics)).message


def test_data_dependent_sizes_that_the_program_fixes() -> None:
    graph = graph_of("""input %x: bool[n]
      input %w: f32[7]
      %i = NonZero(%x)
      %f = Cast(%i) {to = 1}
      %y = Mul(%f, %w)
      return %y""")
    assert chosen(graph, input_shapes={"x": (20,)}) == {"n": 20, "i_dim1": 7}
    bind(graph, {"n": 20, "i_dim1": 7})


def test_no_number_is_read_off_a_size_that_depends_on_data() -> None:
    """30 is the most that NonZero gives; what its Shape holds is known only at run time."""
    graph = graph_of(
        "input %x: bool[b, n]\n%y = NonZero(%x)\n%z = Neg(%y)\n%s = Shape(%z)\nreturn %s"
    )
    static = bind(graph, {"b": 3, "n": 10, "y_dim1": 30})
    assert str(static.type("z")) == "i64[2, 30]"
    assert "s" not in infer_types(static).values


def test_sizes_that_must_agree_are_bound_alike() -> None:
    graph = graph_of("""input %x: bool[n]
      input %z: bool[m]
      %i = NonZero(%x)
      %j = NonZero(%z)
      %y = Add(%i, %j)
      return %y""")
    binding = chosen(graph, input_shapes={"x": (20,), "z": (30,)})
    assert binding == {"n": 20, "m": 30, "i_dim1": 20, "j_dim1": 20}
    assert str(bind(graph, binding).type("y")) == "i64[1, 20]"


def test_an_upper_bound_that_does_not_fit_is_no_fault_of_the_model() -> None:
    """At run time the number of hits can be divided by 4; the most there can be cannot."""
    graph = graph_of("""input %x: bool[n]
      const %t: i64[2] = [4, -1]
      %i = NonZero(%x)
      %y = Reshape(%i, %t)
      return %y""")
    binding = chosen(graph, input_shapes={"x": (30,)})
    assert binding == {"n": 30, "i_dim1": 30}
    assert str(bind(graph, binding).type("y")) == "i64[4, 7]"


# ---------------------------------------------------------------- binding


def test_bind_gives_a_copy_with_numbers() -> None:
    graph = graph_of(CACHED)
    before = str(graph)
    binding = chosen(graph, batch=2, seq=1, input_shapes={"past_key": (2, 2, 12, 8)})
    static = bind(graph, binding)
    assert str(graph) == before
    assert all(static.tensor(v) is not None and static.tensor(v).is_static for v in static.values)  # type: ignore[union-attr]
    assert str(static.type("keys")) == "f32[2, 2, 13, 8]"
    assert static.constants["w"] is graph.constants["w"]


def test_bind_goes_into_bodies() -> None:
    graph = graph_of("""input %x: f32[b, 8]
      input %c: bool[]
      %y = If(%c) {then_branch = graph @then {
        outer %x
        %t = Relu(%x)
        return %t
      }, else_branch = graph @else {
        outer %x
        %e = Neg(%x)
        return %e
      }}
      return %y""")
    static = bind(graph, {"b": 4})
    for body in static.op("y").bodies:
        assert {str(body.type(v)) for v in body.values} == {"f32[4, 8]"}
    for body in graph.op("y").bodies:
        assert {str(body.type(v)) for v in body.values} == {"f32[b, 8]"}


def test_bind_may_leave_symbols() -> None:
    static = bind(graph_of("input %x: f32[b, s]\n%y = Relu(%x)\nreturn %y"), {"b": 2})
    assert str(static.type("y")) == "f32[2, s]"


def test_sizes_that_do_not_go_together_name_the_node() -> None:
    graph = graph_of("input %x: f32[b]\ninput %w: f32[c]\n%y = Add(%x, %w)\nreturn %y")
    assert str(bind(graph, {"b": 4, "c": 1}).type("y")) == "f32[4]"
    with pytest.raises(ModelError) as caught:
        bind(graph, {"b": 4, "c": 3})
    assert caught.value.where == "node 'y' (Add)"
    assert "b = 4, c = 3" in caught.value.message


def test_inputs_of_undeclared_rank_take_the_rank_that_is_given() -> None:
    graph = parse("graph (opset 20) {\ninput %x: f32[*]\n%y = Relu(%x)\nreturn %y\n}")
    assert "no sizes to bind" in refused(graph, input_shapes={"x": (2, 3)}).message
    declare_ranks(graph, {"x": (2, 3)})
    infer_types(graph)
    binding = chosen(graph, input_shapes={"x": (2, 3)})
    assert str(bind(graph, binding).type("y")) == "f32[2, 3]"


# ---------------------------------------------------------------- solving


def test_equations_are_solved_in_any_order() -> None:
    a, b, c = symbol("a"), symbol("b"), symbol("c")
    equations = [
        Equation(a + b, 10, "first"),
        Equation(3 * c, b, "second"),
        Equation(a, 4, "third"),
        Equation(floordiv(c, 2), 1, "fourth"),
    ]
    for turn in range(len(equations)):
        solver = Solver()
        for equation in equations[turn:] + equations[:turn]:
            solver.add(equation)
        assert solver.sizes == {"a": 4, "b": 6, "c": 2}


def test_a_contradiction_names_all_that_demanded_it() -> None:
    a, b = symbol("a"), symbol("b")
    solver = Solver()
    solver.fix("a", 4, "--batch 4")
    solver.fix("b", 5, "--seq 5")
    with pytest.raises(Contradiction) as caught:
        solver.add(Equation(a, b, "node 'x'"))
    assert caught.value.demands == ("--batch 4", "--seq 5", "node 'x'")
    assert caught.value.reason == "a = 4 and b = 5 must agree"
    solver.add(Equation(a - 3, b, "node 'y'", broadcast=True))


def test_seq_of_a_decode_step_is_the_length_of_the_cache() -> None:
    graph = graph_of("""
      input %input_ids: i64[batch, 1]
      input %past_key_values.0.key: f16[batch, 4, past, 8]
      return %input_ids, %past_key_values.0.key
    """)
    assert chosen(graph, batch=2, seq=100) == {"batch": 2, "past": 100}
