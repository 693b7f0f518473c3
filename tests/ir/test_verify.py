"""The verifier accepts what is right, and names op, value, expected and found of what is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from growth import calls, growth_of_calls, growth_of_time

from gecompiler.ir import Constant, DType, Graph, GraphError, Op, State, TensorType, parse, tensor
from gecompiler.ir.dims import symbol
from gecompiler.ir.graph import Use

GOOD = """
graph @good (opset 17, com.microsoft 1) {
  input %x: f32[batch, 4]
  input %cond: bool[]
  input %past: f32[batch, 2, n, 8]
  input %new: f32[batch, 2, 1, 8]
  input %ids: i64[batch]
  const %w: f32[4, 4] = absent
  %mm: f32[batch, 4] = MatMul(%x, %w)
  %clip: f32[batch, 4] = Clip(%mm, _, %one)
  const %one: f32[] = 1.0
  %a, %b = Split(%clip) {axis = 0}
  %gelu = com.microsoft.Gelu(%a) {anything = "goes"}
  %odd = elsewhere.Op(%a)
  %cast: f16[batch] = Cast(%ids) {to = 10}
  %if: f32[*] = If(%cond) {then_branch = graph @then {
    outer %mm: f32[batch, 4]
    %n: f32[batch, 4] = Neg(%mm)
    return %n
  }, else_branch = graph @else {
    outer %mm: f32[batch, 4]
    return %mm
  }}
  %trip: i64[] = Size(%x)
  %last: f32[batch, 4], %all: f32[steps, batch, 4] = Loop(%trip, %cond, %x) {body = graph @body {
    input %i: i64[]
    input %go: bool[]
    input %v: f32[batch, 4]
    %same: bool[] = Identity(%go)
    %next: f32[batch, 4] = Relu(%v)
    %copy: f32[batch, 4] = Identity(%next)
    return %same, %next, %copy
  }}
  %sum: f32[4], %each: f32[batch, 4] = Scan(%start, %x) {num_scan_inputs = 1, body = graph @scan {
    input %s: f32[4]
    input %e: f32[4]
    %t: f32[4] = Add(%s, %e)
    %u: f32[4] = Identity(%t)
    return %t, %u
  }}
  const %start: f32[4] = [0, 0, 0, 0]
  %present: f32[batch, 2, n + 1, 8] = Concat(%past, %new) {axis = 2}
  %flash: f32[batch, 4, 1, 8] = gecompiler.FlashAttention(%q, %present, %present) {
    scale = 0.5, q_heads = 4, kv_heads = 2}
  input %q: f32[batch, 4, 1, 8]
  control @clip -> @gelu
  state %past -> %present axis 2
  return %present, %flash, %if, %last, %all, %sum, %each
}
"""


def test_a_good_graph_passes() -> None:
    graph = parse(GOOD)
    graph.verify()
    graph.copy().verify()
    Graph().verify()


def refuses(text: str, *parts: str) -> GraphError:
    """Checks that the graph is refused with a message that has all the parts."""
    with pytest.raises(GraphError) as caught:
        parse(text).verify()
    for part in parts:
        assert part in str(caught.value), str(caught.value)
    return caught.value


def change(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


CHANGES = [
    # cycles
    ("MatMul(%x, %w)", "MatMul(%clip, %w)", ["cycle through", "mm", "clip"]),
    ("control @clip -> @gelu", "control @gelu -> @clip", ["cycle through", "gelu", "clip"]),
    # arity
    ("MatMul(%x, %w)", "MatMul(%x)", ["'mm' (MatMul) has 1 input, expected 2"]),
    ("MatMul(%x, %w)", "MatMul(%x, _)", ["'mm' (MatMul) leaves out its input 'B'"]),
    ("Clip(%mm, _, %one)", "Clip(%mm, _, _, %one)", ["has 4 inputs, expected 1 to 3"]),
    ("Concat(%past, %new)", "Concat()", ["has 0 inputs, expected at least 1"]),
    ("%cast: f16[batch] =", "%cast: f16[batch], _ =", ["has 2 outputs, expected 1"]),
    # op types and versions
    ("MatMul(%x, %w)", "MatMull(%x, %w)", ["MatMull is no op of ai.onnx 17", "'MatMul'"]),
    ("MatMul(%x, %w)", "Gelu(%x)", ["'mm': Gelu is no op of ai.onnx 17", "new in version 20"]),
    ("MatMul(%x, %w)", "Upsample(%x, %w)", ["Upsample is no op", "withdrawn in version 10"]),
    ("MatMul(%x, %w)", "ai.onnx.ml.Scaler(%x)", ["'ai.onnx.ml', whose version the graph"]),
    # attributes
    ("{axis = 2}", "{axes = 2}", ["'present' (Concat) has no attribute 'axes'", "'axis'"]),
    ("{axis = 2}", "", ["'present' (Concat) lacks its attribute 'axis'"]),
    ("{axis = 2}", "{axis = 2.0}", ["attribute 'axis' is FLOAT, expected INT"]),
    ("{axis = 2}", '{axis = "2"}', ["attribute 'axis' is STRING, expected INT"]),
    ("{axis = 2}", "{axis = [2]}", ["attribute 'axis' is INTS, expected INT"]),
    ("{axis = 2}", "{axis = f32[] 2}", ["attribute 'axis' is TENSOR, expected INT"]),
    ("{axis = 2}", "{axis = []}", ["attribute 'axis' is an empty list, expected INT"]),
    # element types
    ("input %x: f32", "input %x: bool", ["input 'x' is bool[batch, 4], expected"]),
    ("const %w: f32", "const %w: f16", ["'mm' (MatMul): input 'w' is f16[4, 4], expected f32"]),
    ("%mm: f32[batch, 4] =", "%mm: f16[batch, 4] =", ["output 'mm' is f16", "expected f32 as 'x'"]),
    ("input %x: f32[batch, 4]", 'input %x: opaque "seq(f32)" b""', ["'x' is seq(f32), expected a"]),
    (
        "%same: bool[] = Identity(%go)",
        "%same: i64[] = Identity(%go)",
        ["'same' is i64"],
    ),
    # sizes
    ("%mm: f32[batch, 4] =", "%mm: f32[batch, -4] =", ["'mm' has the type f32[batch, -4]"]),
    # bodies
    ("outer %mm: f32[batch, 4]\n    %n", "outer %mm: f16[1]\n    %n", ["'mm' is f16[1] here"]),
    ("graph @then {", "graph @then (opset 16) {", ["opsets {'': 16}", "op 'if', body then"]),
    ("return %n\n", "return %n, %mm\n", ["outputs of branch 'then': expected 1, found 2"]),
    ("%n: f32[batch, 4] = Neg(%mm)", "%n: f16[2] = Cast(%mm) {to = 10}", ["'n' in the body f16"]),
    ("    input %go: bool[]\n", "", ["%go is not defined"]),
    ("Loop(%trip, %cond, %x)", "Loop(%trip, %cond)", ["inputs of its body: expected 2, found 3"]),
    ("return %same, %next, %copy", "return %same, %next", ["outputs of its body: expected 3, fou"]),
    ("input %v: f32", "input %v: f64", ["'x' is f32[batch, 4], and its counterpart 'v'"]),
    ("Scan(%start, %x)", "Scan(%start, %x, %x)", ["inputs of its body: expected 3, found 2"]),
    (
        "input %e: f32[4]",
        "input %e: i64[4]",
        ["'sum' (Scan): 'x' is f32", "'e' in the body"],
    ),
    ("return %t, %u", "return %t", ["outputs of its body: expected 2, found 1"]),
    (
        "then_branch = graph @then",
        "then_branch = 1, b = graph @then",
        ["'then_branch' is INT"],
    ),
    # states
    ("%present axis 2", "%present", ["changes along axis 2"]),
    ("%present axis 2", "%present axis 4", ["has no axis 4"]),
]


@pytest.mark.parametrize(("old", "new", "parts"), CHANGES)
def test_each_mistake_is_named(old: str, new: str, parts: list[str]) -> None:
    refuses(change(old, new), *parts)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("f32[n]", "changes its rank"),
        ("f16[n, 2]", "changes its element type"),
        ("f32[n, 3]", "changes along axis 1"),
        ("f32[n + 1, 2]", "changes along axis 0"),
        ("f32[m, 2]", ""),
        ("f32[*]", ""),
    ],
)
def test_a_state_keeps_its_type(after: str, message: str) -> None:
    text = f"graph {{ input %a: f32[n, 2] %b: {after} = custom.Op(%a) state %a -> %b return %b }}"
    if message:
        refuses(text, "state 'a' (f32[n, 2]) -> 'b'", message)
    else:
        parse(text).verify()


FLASH = [
    ("(%q, %present, %present)", "(%q, %present)", ["has the inputs"]),
    ("(%q, %present, %present)", "(%q, %present, _)", ["has the inputs"]),
    ("scale = 0.5", "scale = inf", ["has scale = inf, expected a finite number"]),
    ("scale = 0.5, ", "", ["scale"]),
    ("scale = 0.5", "scale = 0.5, scael = 1", ["scael"]),
    ("q_heads = 4", "q_heads = 4.0", ["has q_heads = 4.0, expected an integer"]),
    ("q_heads = 4", "q_heads = 3", ["3 query heads are no multiple of 2"]),
    ("q_heads = 4", "q_heads = 0", ["q_heads = 0, expected at least 1"]),
    ("q_heads = 4", "q_heads = 8", ["query's axis 1 against q_heads: 4 is not 8"]),
    ("kv_heads = 2", "kv_heads = 1", ["key's axis 1 against kv_heads: 2 is not 1"]),
    ("kv_heads = 2", "kv_heads = 2, window_left = -2", ["window bound -2, expected -1 or more"]),
    ("kv_heads = 2", "kv_heads = 2, softcap = -1.0", ["softcap = -1.0, expected 0 or more"]),
    ("kv_heads = 2", 'kv_heads = 2, align = "left"', ["align = 'left', expected one of"]),
    ("kv_heads = 2", 'kv_heads = 2, masked_row = "one"', ["masked_row = 'one'"]),
    ("%flash: f32[batch, 4, 1, 8]", "%flash: f16[batch, 4, 1, 8]", ["'flash' of type f16"]),
    ("%flash: f32[batch, 4, 1, 8]", "%flash: f32[batch, 4, 2, 8]", ["has output of shape"]),
    ("%flash: f32[batch, 4, 1, 8]", "%flash, %two, %three", ["has 3 outputs"]),
    ("input %q: f32[batch, 4, 1, 8]", "input %q: f32[batch, 4, 8]", ["a query of 3 axes"]),
    ("input %q: f32[batch, 4, 1, 8]", "input %q: i64[batch, 4, 1, 8]", ["expected floats"]),
    ("input %q: f32[batch, 4, 1, 8]", "input %q: f32[batch, 4, 1, 9]", ["key's head size"]),
    ("input %q: f32[batch, 4, 1, 8]", "input %q: f32[batch + 1, 4, 1, 8]", ["key's batch"]),
    ("FlashAttention(%q, %present, %present)", "FlashAttention(%q, %present, %past)", ["length"]),
    ("%present, %present)", "%present, %present, %ids)", ["mask of type i64[batch]"]),
    ("%present, %present)", "%present, %present, %new)", ["mask of shape [batch, 2, 1, 8]"]),
    ("%present, %present)", "%present, %present, _, %start2)", ["sinks of shape [5]"]),
    ("%present, %present)", "%present, %present, _, %ids)", ["sinks of type i64"]),
]


@pytest.mark.parametrize(("old", "new", "parts"), FLASH)
def test_flash_attention_keeps_its_rules(old: str, new: str, parts: list[str]) -> None:
    text = change(old, new).replace(
        "  const %start:", "  const %start2: f32[5] = absent\n  const %start:"
    )
    refuses(text, "'flash'", *parts)


@pytest.mark.parametrize(
    "mask", ["bool[1, n + 1]", "f32[batch, 1, 1, n + 1]", "bool[n + 1]", "f16[]", "bool[*]"]
)
def test_flash_attention_takes_masks_that_broadcast(mask: str) -> None:
    text = GOOD.replace("%present, %present)", "%present, %present, %mask, %sinks)")
    text = text.replace(
        "  input %x:", f"  input %mask: {mask}\n  input %sinks: f32[4]\n  input %x:"
    )
    parse(text).verify()


def test_what_is_unknown_is_not_judged() -> None:
    text = re.sub(r": (f32|f16|i64|bool)\[[^\]]*\](?! =)", "", GOOD)
    text = re.sub(r"(%\w+): (f32|f16|i64|bool)\[[^\]]*\] = (?=[A-Z])", r"\1 = ", text)
    parse(text).verify()


def test_old_forms_of_ops_pass_at_their_version() -> None:
    parse("graph (opset 9) { input %x: f32[2] %y = Clip(%x) {min = 0.0, max = 1} }").verify()
    parse("graph (opset 8) { input %x: f32[2] %y = Dropout(%x) {ratio = 0.5} }").verify()
    refuses("graph (opset 17) { input %x: f32[2] %y = Clip(%x) {min = 0.0} }", "no attribute 'min'")


def test_private_attributes_are_left_alone() -> None:
    parse("graph (opset 17) { input %x %y = Relu(%x) {__note = 1} }").verify()


def test_empty_lists_fit_any_list() -> None:
    parse("graph (opset 12) { input %x %y = Squeeze(%x) {axes = []} }").verify()


def test_attributes_are_plain_values() -> None:
    for value, kind in (
        (np.int64(1), "int64"),
        ([1], "list"),
        (2**63, "64 bits"),
        ((1, "a"), "a list"),
    ):
        graph = Graph()
        graph.emit("Op", [], domain="custom", attrs={"v": value})  # type: ignore[dict-item]
        with pytest.raises(GraphError, match=f"attribute 'v' .*{kind}"):
            graph.verify()


def test_a_graph_that_is_no_body_takes_nothing_from_outside() -> None:
    refuses("graph { outer %x: f32[2] return %x }", "'x' is taken from a graph around this one")


def test_a_body_in_a_body_is_named_with_its_way() -> None:
    error = refuses(
        """graph @top { input %c: bool[]
        %y = If(%c) {then_branch = graph @a { outer %c: bool[]
          %z = If(%c) {then_branch = graph @b { outer %c: bool[] %w = Negg(%c) return %w },
                       else_branch = graph @e { outer %c: bool[] return %c }}
          return %z }, else_branch = graph @d { outer %c: bool[] return %c }}
        }""",
        "'w': Negg is no op",
        "'Neg'",
    )
    assert error.where == "top, op 'y', body a, op 'z', body b"


def test_captures_must_exist() -> None:
    body = Graph("body")
    body.add_outer("x", None)
    body.set_outputs(["x"])
    graph = Graph()
    graph.add_input("cond")
    graph.add_input("x")
    branches = {"then_branch": body, "else_branch": body}
    graph.emit("If", ["cond"], attrs=branches)
    graph.verify()
    body.add_outer("late", None)  # in place: exactly what the documentation forbids
    with pytest.raises(GraphError, match=r"index is wrong|reads 'late'"):
        graph.verify()


# ---------------------------------------------------------------- a damaged index


def sample() -> Graph:
    graph = Graph("sample")
    graph.add_input("x", tensor("f32", (2,)))
    graph.add_constant("w", Constant.of(np.ones(2, np.float32)))
    graph.add_op(Op("mul", "Mul", ("x", "w"), ("a",)), [tensor("f32", (2,))])
    graph.add_op(Op("relu", "Relu", ("a",), ("y",)), [tensor("f32", (2,))])
    graph.add_control("mul", "relu")
    graph.set_outputs(["y"])
    graph.verify()
    return graph


DAMAGE = {
    "a use is missing": lambda g: g._uses["a"].clear(),
    "a use is made up": lambda g: g._uses["a"].update({Use("mul", 0): None}),
    "an edge is missing": lambda g: g._net.remove_edge("mul", "relu", key=("a", 0)),
    "an edge is made up": lambda g: g._net.add_edge("relu", "mul", key=("y", 0)),
    "a node is missing": lambda g: g._net.remove_node("relu"),
    "a node is made up": lambda g: g._net.add_node("ghost"),
    "a producer is missing": lambda g: g._producer.pop("a"),
    "a producer is wrong": lambda g: g._producer.update(a="relu"),
    "a producer is made up": lambda g: g._producer.update(x="relu"),
    "an output is made up": lambda g: g._outputs.append("ghost"),
    "an output is doubled": lambda g: g._outputs.append("y"),
    "a type is left over": lambda g: g._types.update(ghost=None),
    "a type is missing": lambda g: g._types.pop("a"),
    "a control is made up": lambda g: g._controls.update({("relu", "mul"): None}),
    "a control is missing": lambda g: g._controls.clear(),
    "an op is misfiled": lambda g: g._ops.update(relu=g._ops["mul"]),
    "an op reads nothing": lambda g: g._ops.update(relu=g._ops["relu"].with_(inputs=("ghost",))),
    "a state is made up": lambda g: setattr(g, "_states", (State("x", "a"),)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_noticed(damage: str) -> None:
    graph = sample()
    DAMAGE[damage](graph)
    with pytest.raises(GraphError, match=r"index is wrong|reads 'ghost'"):
        graph.verify()


def test_constants_are_what_they_say() -> None:
    ones = np.ones(2, np.float32)
    for constant, message in (
        (Constant(tensor("f32", (3,)), ones), r"is a f32\[3\], and its data float32\[2\]"),
        (Constant(tensor("f64", (2,)), ones), r"is a f64\[2\], and its data float32\[2\]"),
        (Constant(TensorType(DType.F32, (symbol("n"),))), "must be numbers"),
        (Constant(TensorType(DType.F32, None)), "must be numbers"),
    ):
        graph = Graph()
        graph.add_constant("c", constant)
        with pytest.raises(GraphError, match=message):
            graph.verify()


def test_the_models_of_the_corpus_pass(corpus: Path) -> None:
    from gecompiler.ir import load_onnx

    graph = load_onnx(corpus / "models" / "bert-eager-ts.onnx")
    graph.verify()
    assert str(parse(str(graph))) == str(graph)


def verified(layers: int) -> Callable[[], object]:
    graph = Graph()
    type_ = tensor("f32", (symbol("batch"), 4, 8))
    value = graph.add_input("x", type_)
    weight = graph.add_constant("w", Constant.absent(tensor("f32", (8, 8))))
    for i in range(layers):
        value = graph.emit("MatMul", [value, weight], type_)
        value = graph.emit("Softmax", [value], type_, attrs={"axis": i % 3})
    graph.set_outputs([value])
    return graph.verify


def test_work_grows_with_the_ops() -> None:
    assert growth_of_calls(verified, 250, 2000) < 8 * 1.2
    assert calls(verified(2000)) < 250 * 4000


@pytest.mark.slow
def test_time_grows_with_the_ops() -> None:
    assert growth_of_time(verified, 1000, 8000) < 8 * 3
