"""Weights in another layout whose data is somewhere else, or nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewriting_help import apply, assert_same_bits, kinds, run

from gecompiler.ir import Constant, Graph, parse, tensor
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.onnx_io.data import ExternalData
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.canonical.constant_folding import ConstantFolding
from gecompiler.passes.canonical.derived_constants import Derived, RestoreDerived
from gecompiler.passes.pass_base import PassContext

TEXT = """graph @g (opset 18) {
  input %x: f32[b, 4]
  const %shape: i64[2] = [3, 4]
  %h = Cast(%w) {to = 10}
  %f = Cast(%h) {to = 1}
  %r = Reshape(%f, %shape)
  %t = Transpose(%r) {perm = [1, 0]}
  %y = MatMul(%x, %t)
  return %y
}"""


def graph_with(constant: Constant) -> Graph:
    text = TEXT.replace("const %shape", "input %w: f32[2, 6]\n  const %shape")
    graph = parse(text)
    twin = Graph(graph.name, graph.opsets)
    twin.add_input("x", graph.type("x"))
    twin.add_constant("w", constant)
    twin.add_constant("shape", graph.constants["shape"])
    for op in graph.topological():
        twin.add_op(op, [graph.type(op.outputs[0])])
    twin.set_outputs(graph.outputs)
    return twin


def weights() -> np.ndarray:
    return np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6)


@pytest.fixture
def in_file(tmp_path: Path) -> Constant:
    (tmp_path / "w.bin").write_bytes(weights().tobytes())
    source = ExternalData("w", tmp_path, "w.bin")
    return Constant(tensor("f32", (2, 6)), source=source)


def test_the_numbers_are_those_of_the_ops(in_file: Constant) -> None:
    feeds = {"x": np.ones((2, 4), np.float32)}
    expected = run(graph_with(Constant.of(weights())), feeds)
    graph = graph_with(in_file)
    assert apply(graph, ConstantFolding()) == 4
    assert kinds(graph) == {"MatMul": 1}
    ((name, constant),) = graph.constants.items()
    assert name == "w_cast_cast_reshape_transpose"
    assert constant.data is None
    assert constant.source is not None
    assert constant.source.describe() == "Transpose(Reshape(Cast(Cast(w))))"
    assert_same_bits(run(graph, feeds), expected)


def test_the_ops_come_back_for_a_model_whose_data_file_stays(in_file: Constant) -> None:
    graph = graph_with(in_file)
    Canonicalize().run(graph, PassContext())
    canonical = str(graph)
    assert RestoreDerived().run(graph, PassContext()) == 1
    assert kinds(graph) == {"Cast": 2, "Reshape": 1, "Transpose": 1, "MatMul": 1}
    assert graph.constants["w"] is in_file
    assert RestoreDerived().run(graph, PassContext()) == 0
    Canonicalize().run(graph, PassContext())
    assert kinds(graph) == {"MatMul": 1}
    assert canonical.count("MatMul") == 1


def test_an_absent_weight_has_a_layout_too() -> None:
    graph = graph_with(Constant.absent(tensor("f32", (2, 6))))
    apply(graph)
    assert kinds(graph) == {"MatMul": 1}
    (constant,) = graph.constants.values()
    assert constant.type == tensor("f32", (4, 3))
    with pytest.raises(MissingDataError):
        constant.array()


def test_a_weight_that_others_read_is_not_doubled(in_file: Constant) -> None:
    graph = graph_with(in_file)
    graph.set_outputs([*graph.outputs, graph.emit("Neg", ["w"], tensor("f32", (2, 6)))])
    assert apply(graph, ConstantFolding()) == 0


def test_casts_to_integers_are_left_to_the_runtime() -> None:
    graph = graph_with(Constant.absent(tensor("f32", (2, 6))))
    graph.replace_op("h", graph.op("h").with_(attrs={"to": 6}))
    graph.set_type("h", tensor("i32", (2, 6)))
    apply(graph, ConstantFolding())
    assert kinds(graph)["Cast"] == 2


def test_the_same_layout_of_the_same_weight_is_one_constant(in_file: Constant) -> None:
    from gecompiler.passes.canonical.derived_constants import Step

    step = Step("Transpose", tensor("f32", (6, 2)), (1, 0))
    first = Derived(in_file, "w", (step,))
    assert first == Derived(in_file, "w", (step,))
    assert hash(first) == hash(Derived(in_file, "w", (step,)))
    assert first != Derived(in_file, "w", ())


def test_a_body_gets_its_ops_back_too() -> None:
    graph = parse(
        "graph (opset 18) { input %v: f32[3, 4] input %k: bool[] %y = If(%k) { "
        "then_branch = graph @t { outer %v: f32[3, 4] const %w: f32[4, 4] = absent "
        "%t = Transpose(%w) %u = MatMul(%v, %t) return %u }, "
        "else_branch = graph @e { outer %v: f32[3, 4] %n = Neg(%v) return %n } } return %y }"
    )
    apply(graph)
    assert [len(body) for op in graph.ops for body in op.bodies] == [1, 1]
    assert RestoreDerived().run(graph, PassContext()) == 1
    graph.verify()
    assert next(kinds(body) for op in graph.ops for body in op.bodies) == {
        "Transpose": 1,
        "MatMul": 1,
    }
