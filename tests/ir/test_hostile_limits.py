"""What a model may not ask for: each limit has one message, and comes before the cost."""

from __future__ import annotations

import pytest
from growth import calls
from onnx import ModelProto, TensorProto, helper, parser

from gecompiler.ir import ModelError, load_onnx
from gecompiler.ir.bind.apply import bind
from gecompiler.ir.bind.solve import Equation, Solver
from gecompiler.ir.dims import DimTooLargeError, symbol
from gecompiler.ir.errors import nearest
from gecompiler.ir.onnx_io import counts
from gecompiler.ir.onnx_io.text import MAX_NAME

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def chain() -> ModelProto:
    return parser.parse_model(f"{HEAD} g (float[n] x) => (float[n] y) {{ a = Neg(x) y = Neg(a) }}")


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_OPS", 1, "2 ops, more than 1"),
        ("MAX_VALUES", 1, "2 values, more than 1"),
        ("MAX_EDGES", 3, "4 inputs, outputs and attributes of ops, more than 3"),
        ("MAX_OPERANDS", 1, "node '': there are 2 inputs, outputs and attributes"),
    ],
)
def test_counts(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str) -> None:
    load_onnx(chain())
    monkeypatch.setattr(counts, limit, value)
    with pytest.raises(ModelError, match=message):
        load_onnx(chain())


def test_axes() -> None:
    model = chain()
    model.graph.input[0].type.tensor_type.shape.dim.extend(
        model.graph.input[0].type.tensor_type.shape.dim[:1] * 64
    )
    with pytest.raises(ModelError, match="'x': a tensor of 65 axes; at most 64"):
        load_onnx(model)
    model = chain()
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1] * 65, [1.0]))
    with pytest.raises(ModelError, match="'w': a tensor of 65 axes"):
        load_onnx(model)


def test_names() -> None:
    model = chain()
    model.graph.node[0].name = "a" * (MAX_NAME + 1)
    with pytest.raises(ModelError, match=rf"has {MAX_NAME + 1} characters"):
        load_onnx(model)


def test_empty_raw_data_beside_typed_data() -> None:
    model = chain()
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    tensor.raw_data = b""
    model.graph.initializer.append(tensor)
    assert load_onnx(model).constants["w"].array().tolist() == [1.0, 2.0]


def test_tensors_beyond_any_device() -> None:
    graph = load_onnx(chain())
    bind(graph, {"n": 2**40})
    with pytest.raises(ModelError, match="bytes, more than any device holds"):
        bind(graph, {"n": 2**47})


def test_factors_of_sizes() -> None:
    with pytest.raises(DimTooLargeError):
        symbol("n") * 2**129


def test_an_equation_of_many_symbols_takes_no_exponential_time() -> None:
    names = [f"n{i}" for i in range(64)]
    total = sum((symbol(n) for n in names[1:]), symbol(names[0]))
    solver = Solver()
    solver.add(Equation(total, 64, "a test"))

    def fix_all() -> None:
        for name in names[:-1]:
            solver.fix(name, 1, "a test")

    assert calls(fix_all) < 10**6
    assert solver.sizes[names[-1]] == 1


def test_names_in_hints_stay_on_their_line() -> None:
    assert nearest("zzzzzz", ["a\nb", "c" * 300]) == "known: 'a\\nb', " + repr("c" * 200) + "..."
