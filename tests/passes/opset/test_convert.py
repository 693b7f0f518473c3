"""The same numbers in another version of ai.onnx, or an error that names the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gecompiler.ir import Graph, parse
from gecompiler.ir.errors import GecError, ModelError
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.passes.attention.expand import ExpandFused
from gecompiler.passes.opset.convert import ConvertOpset
from gecompiler.passes.pass_base import PassContext

ort.set_default_logger_severity(4)
DRAW = np.random.default_rng(3)
X = DRAW.standard_normal((2, 3, 4, 8)).astype(np.float32)


def graph_of(body: str, opset: int, more: str = "") -> Graph:
    text = f"graph (opset {opset}) {{ input %x: f32[2, 3, 4, 8] {more} {body} return %y }}"
    graph = parse(text)
    infer_types(graph)
    return graph


def numbers(graph: Graph, given: dict[str, Any]) -> Any:
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: given[name] for name in graph.inputs})[0]


def converted(graph: Graph, target: int) -> Graph:
    twin = graph.copy()
    changes = ConvertOpset(target).run(twin, PassContext())
    assert changes >= 1
    ExpandFused().run(twin, PassContext())
    twin.verify()
    assert twin.opsets[""] == target
    assert not any(op.domain for op in twin.ops)
    return twin


TABLES = "input %c: f32[2, 4, 4] input %s: f32[2, 4, 4]"
FORMS = {
    "gelu": (20, "%y = Gelu(%x)", ""),
    "gelu by tanh": (20, '%y = Gelu(%x) {approximate = "tanh"}', ""),
    "layer norm": (17, "%y = LayerNormalization(%x, %g) {epsilon = 0.01f}", "input %g: f32[8]"),
    "norm of axis 2": (17, "%y = LayerNormalization(%x, %g) {axis = 2}", "input %g: f32[4, 8]"),
    "rms norm": (23, "%y = RMSNormalization(%x, %g) {axis = -1}", "input %g: f32[8]"),
    "rotary": (23, "%y = RotaryEmbedding(%x, %c, %s)", TABLES),
    "rotary by pairs": (23, "%y = RotaryEmbedding(%x, %c, %s) {interleaved = 1}", TABLES),
    "rotary at positions": (
        23,
        "%y = RotaryEmbedding(%x, %c, %s, %p)",
        "input %c: f32[9, 4] input %s: f32[9, 4] input %p: i64[2, 4]",
    ),
    "swish": (24, "%y = Swish(%x) {alpha = 1.5f}", ""),
    "mean": (18, "%y = ReduceMean(%x, %a) {keepdims = 1}", "const %a: i64[2] = [1, 3]"),
    "mean of all": (18, "%y = ReduceMean(%x)", ""),
    "maximum": (13, "%y = ReduceMax(%x) {axes = [-1], keepdims = 0}", ""),
    "sum": (13, "%y = ReduceSum(%x, %a) {keepdims = 0}", "const %a: i64[1] = [2]"),
    "sum of old": (11, "%y = ReduceSum(%x) {axes = [0, 2], keepdims = 1}", ""),
    "mean over no axis": (
        18, "%y = ReduceMean(%x, %a) {noop_with_empty_axes = 1}", "const %a: i64[0] = []"
    ),
    "squares over no axis": (18, "%y = ReduceSumSquare(%x) {noop_with_empty_axes = 1}", ""),
    "norm over no axis": (
        18, "%y = ReduceL2(%x, %a) {noop_with_empty_axes = 1}", "const %a: i64[0] = []"
    ),
    "sum of what is empty": (13, "%y = ReduceSum(%x, %a)", "const %a: i64[0] = []"),
    "split": (18, "%y, %z = Split(%x) {axis = 3, num_outputs = 2}", ""),
    "split of old": (13, "%y, %z = Split(%x) {axis = 3}", ""),
    "split in sizes": (13, "%y, %z = Split(%x, %n) {axis = 3}", "const %n: i64[2] = [3, 5]"),
    "squeeze": (13, "%a = Slice(%x, %o, %p, %o) %y = Squeeze(%a, %o)",
                "const %o: i64[1] = [1] const %p: i64[1] = [2]"),
    "unsqueeze": (11, "%y = Unsqueeze(%x) {axes = [0, 3]}", ""),
    "softmax": (13, "%y = Softmax(%x) {axis = 3}", ""),
    "softmax by default": (13, "%y = Softmax(%x)", ""),
    "softmax of old": (11, "%y = Softmax(%x) {axis = 3}", ""),
    "shape": (15, "%a = Shape(%x) {start = 1, end = 3} %f = Cast(%a) {to = 1} %y = Neg(%f)", ""),
    "clip": (11, "%y = Clip(%x, %l, %h)", "const %l: f32[] = -0.5 const %h: f32[] = 0.5"),
    "clip from above": (11, "%y = Clip(%x, _, %h)", "const %h: f32[] = 0.5"),
    "pad": (11, "%y = Pad(%x, %n)", "const %n: i64[8] = [0, 1, 0, 0, 0, 0, 2, 0]"),
    "largest": (11, "%y, %i = TopK(%x, %k) {axis = 2}", "const %k: i64[1] = [2]"),
    "flags": (18, "%a = Greater(%x, %t) %b = Cast(%a) {to = 7} %d = BitwiseAnd(%b, %b) "
                  "%y = Cast(%d) {to = 1}", "const %t: f32[] = 0.0"),
    "branches": (
        18,
        "%y = If(%k) {then_branch = graph @t { outer %x: f32[2, 3, 4, 8] const %a: i64[1] = [1] "
        "%r = ReduceMean(%x, %a) return %r }, else_branch = graph @e { "
        "outer %x: f32[2, 3, 4, 8] const %a: i64[1] = [1] %r = ReduceMax(%x, %a) return %r }}",
        "input %k: bool[]",
    ),
}  # fmt: skip
OLDEST = {"clip": 9, "clip from above": 9, "flags": 13}


@pytest.mark.parametrize("form", FORMS)
def test_the_numbers_stay(form: str) -> None:
    source, body, more = FORMS[form]
    graph = graph_of(body, source, more)
    given: dict[str, Any] = {"x": X, "k": np.array(True), "p": np.array([[0, 8, 3, 1]] * 2)}
    for name in graph.inputs:
        type_ = graph.tensor(name)
        assert type_ is not None
        if name not in given:
            given[name] = DRAW.standard_normal(type_.sizes).astype(np.float32)
    expected = numbers(graph, given)
    tried = 0
    for target in (9, 11, 13, 15, 17, 18, 20, 21, 23, 24):
        if target == source or target < OLDEST.get(form, 9):
            continue
        tried += 1
        found = numbers(converted(graph, target), given)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=f"{target}")
    assert tried >= 7


REFUSED = {
    "the mask of a dropout": (
        13, 11, "%d, %m = Dropout(%x) %y = Where(%m, %d, %x)", "", "its mask is read"
    ),
    "no such type": (21, 20, "%i = Cast(%x) {to = 22} %u = Squeeze(%i) %y = Cast(%u) {to = 1}", "",
                     "i4"),
    "no such op": (18, 17, "%i = Cast(%x) {to = 7} %b = BitwiseNot(%i) %y = Cast(%b) {to = 1}", "",
                   "BitwiseNot"),
    "no flags": (18, 17, "%i = Cast(%x) {to = 7} %b = BitwiseAnd(%i, %i) %y = Cast(%b) {to = 1}",
                 "", "its operands are no flags"),
    "an axis": (13, 11, "%y = Softmax(%x) {axis = 1}", "", "over axis 1 of 4"),
    "uneven": (18, 17, "%y, %z, %w = Split(%x) {axis = 3, num_outputs = 3}", "", "unevenly"),
    "computed": (13, 11, "%y = ReduceSum(%x, %a)", "input %a: i64[1]", "must be constant"),
    "a type": (13, 11, "%b = Cast(%x) {to = 16} %c = Add(%b, %b) %y = Cast(%c) {to = 1}", "",
               "bf16"),
    "a triangle": (14, 13, "%y = Trilu(%x)", "", "Trilu is not in opset 13"),
    "a mode": (16, 20, "%y = GridSample(%x, %g)", "input %g: f32[2, 5, 5, 2]", "something else"),
    "steps": (11, 9, "%y = Slice(%x, %o, %p, %o, %t)", "const %o: i64[1] = [1] "
              "const %p: i64[1] = [3] const %t: i64[1] = [2]", "no steps"),
    "statistics": (17, 15, "%y, %m = LayerNormalization(%x, %g)", "input %g: f32[8]",
                   "statistics"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_form_is_named(case: str) -> None:
    source, target, body, more, words = REFUSED[case]
    graph = graph_of(body, source, more)
    with pytest.raises(ModelError, match=f"cannot be written in opset {target}") as caught:
        ConvertOpset(target).run(graph, PassContext())
    assert words in str(caught.value)
    assert "node '" in str(caught.value)


def test_the_same_opset_changes_nothing() -> None:
    graph = graph_of("%y = Relu(%x)", 17)
    before = str(graph)
    assert ConvertOpset(17).run(graph, PassContext()) == 0
    assert ConvertOpset().run(graph, PassContext()) == 0
    assert str(graph) == before


@pytest.mark.parametrize("target", [-1, 6, 999])
def test_an_opset_that_is_none_is_told(target: int) -> None:
    with pytest.raises(GecError, match="expected an opset from 7"):
        ConvertOpset(target).run(graph_of("%y = Relu(%x)", 17), PassContext())
