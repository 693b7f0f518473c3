"""Every rule against central differences."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gradient_help import built, check
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import Graph, ModelError, tensor
from gecompiler.ir.block_ops import FUNCTIONS, GATES, STYLES, Activation, Norm, Rotary
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.types import DType
from gecompiler.passes.training import gradients
from gecompiler.passes.training.rules import RULES

F64 = DType.F64
_rng = np.random.default_rng(1)
TRIED: set[str] = set()
"""Kinds of op whose rule some test here asked for."""


def a(*shape: int) -> np.ndarray:
    """Random numbers of a shape, none near 0, where many functions have a corner."""
    x = np.asarray(_rng.standard_normal(shape))
    return np.where(np.abs(x) < 0.05, 0.1, x)


def positive(*shape: int) -> np.ndarray:
    return np.abs(a(*shape)) + 0.1


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


def one(op_type: str, arrays: Mapping[str, np.ndarray], **more: Any) -> None:
    """Checks the gradients of one op by all its float inputs, or by ``wrt``."""
    options = {n: more.pop(n) for n in ("step", "tolerance") if n in more}
    outputs = more.pop("at", (0,))
    wrt = more.pop("wrt", [n for n, x in arrays.items() if x.dtype.kind == "f"])
    graph = built(op_type, arrays, **more)
    TRIED.add(graph.ops[-1].kind)
    check(graph, arrays, wrt, outputs=outputs, **options)


UNARY = [
    *("Abs", "Neg", "Exp", "Reciprocal", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh"),
    *("Cosh", "Asinh", "Atanh", "Softplus", "Softsign", "LeakyRelu", "Elu", "Selu", "Mish"),
    *("ThresholdedRelu", "HardSigmoid", "HardSwish", "Relu", "Sigmoid", "Tanh"),
]


@pytest.mark.parametrize("op_type", UNARY)
def test_functions_of_one_element(op_type: str) -> None:
    x = np.clip(a(3, 4), -0.9, 0.9) if op_type in ("Asin", "Acos", "Atanh") else a(3, 4)
    one(op_type, {"x": x})


def test_functions_with_a_domain() -> None:
    for op_type in ("Log", "Sqrt"):
        one(op_type, {"x": positive(3, 4)})
    one("Acosh", {"x": positive(3, 4) + 1})


def test_functions_that_run_in_single_precision() -> None:
    one("Erf", {"x": a(3, 4)}, step=1e-2, tolerance=1e-4)
    one("Gelu", {"x": a(3, 4)}, step=1e-2, tolerance=1e-4)
    one("Gelu", {"x": a(3, 4)}, attrs={"approximate": "tanh"}, step=1e-2, tolerance=1e-4)
    single = {"x": a(3, 4).astype(np.float32)}
    one("Celu", single, attrs={"alpha": 0.7}, step=1e-2, tolerance=1e-3)
    one("Mean", {n: a(2, 3).astype(np.float32) for n in "xy"}, step=1e-2, tolerance=1e-3)
    one("Swish", {"x": a(3, 4)}, opset=24)


@pytest.mark.parametrize("op_type", ["Floor", "Ceil", "Round", "Sign"])
def test_steps_have_no_slope(op_type: str) -> None:
    graph = built(op_type, {"x": a(3)})
    TRIED.add(op_type)
    graph.add_input("d", tensor("f64", (3,)))
    assert gradients(graph, {graph.outputs[0]: "d"}, ["x"]) == {}


@st.composite
def broadcast_pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = draw(st.lists(st.integers(1, 4), min_size=0, max_size=3))
    shapes = []
    for _ in range(2):
        dims = [d if draw(st.booleans()) else 1 for d in full]
        cut = draw(st.integers(0, len(full)))
        while cut and dims and dims[0] == 1:
            dims, cut = dims[1:], cut - 1
        shapes.append(tuple(dims))
    return shapes[0], shapes[1]


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Pow"])
@settings(max_examples=8, deadline=None)
@given(shapes=broadcast_pairs())
def test_broadcast_operands(shapes: tuple[tuple[int, ...], tuple[int, ...]], op_type: str) -> None:
    left = positive(*shapes[0]) if op_type == "Pow" else a(*shapes[0])
    right = positive(*shapes[1]) if op_type == "Div" else a(*shapes[1])
    one(op_type, {"x": left, "y": right})


def test_powers_with_known_exponents_and_choices() -> None:
    for exponent in (2.0, 3.0):
        one("Pow", {"x": a(3, 4)}, constants={"p": np.array(exponent)})
    one("Clip", {"x": a(3, 4)}, constants={"lo": np.array(-0.5), "hi": np.array(0.5)})
    one("Clip", {"x": a(3, 4)}, attrs={"min": -0.5, "max": 0.6}, opset=7)
    one("Where", {"c": a(3, 4) > 0, "x": a(3, 1), "y": a(4)})
    one("PRelu", {"x": a(3, 4), "s": a(4)})
    one("Cast", {"x": a(3)}, attrs={"to": DType.F64.code})


MATRICES = [
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (4,)),
    ((4,), (4, 5)),
]


@pytest.mark.parametrize(("left", "right"), MATRICES)
def test_matrix_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    one("MatMul", {"x": a(*left), "w": a(*right)})


def test_gemm_turned_and_scaled() -> None:
    for ta, tb, opset in itertools.product((0, 1), (0, 1), (7, 20)):
        x, w = a(*((4, 3) if ta else (3, 4))), a(*((5, 4) if tb else (4, 5)))
        attrs = {"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0}
        one("Gemm", {"x": x, "w": w, "c": a(5)}, attrs=attrs, opset=opset)


@pytest.mark.parametrize("equation", ["bij,jk->bik", "bij,jk->bk", "bij,bjk", "bhid,bhjd->bhij"])
def test_einsum(equation: str) -> None:
    sizes = dict(zip("bhijkd", (2, 2, 3, 4, 5, 3), strict=True))
    terms = equation.partition("->")[0].split(",")
    arrays = {f"x{i}": a(*(sizes[c] for c in t)) for i, t in enumerate(terms)}
    one("Einsum", arrays, attrs={"equation": equation})
    one("Einsum", {"x": a(2, 3, 4)}, attrs={"equation": "bij->ij"})


REDUCTIONS = [
    *("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceProd"),
]


@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_reductions(op_type: str) -> None:
    make = positive if op_type == "ReduceLogSum" else a
    for keep in (0, 1):
        one(op_type, {"x": make(2, 3, 4)}, constants={"n": ints(1, -1)}, attrs={"keepdims": keep})
    one(op_type, {"x": make(2, 3)})
    one(op_type, {"x": make(2, 3)}, attrs={"keepdims": 0, "axes": (1,)}, opset=11)


def test_softmax_by_axis_and_as_it_was() -> None:
    for op_type in ("Softmax", "LogSoftmax"):
        one(op_type, {"x": a(2, 3, 4)}, attrs={"axis": 1})
        one(op_type, {"x": a(2, 3, 4)}, opset=11)
    one("GlobalAveragePool", {"x": a(2, 3, 4, 5)})


def test_views_and_moves() -> None:
    one("Reshape", {"x": a(2, 6)}, constants={"s": ints(3, 4)})
    one("Flatten", {"x": a(2, 3, 4)})
    one("Identity", {"x": a(2)})
    one("Dropout", {"x": a(2)})
    one("Squeeze", {"x": a(2, 1, 3)}, constants={"n": ints(1)})
    one("Unsqueeze", {"x": a(2, 3)}, constants={"n": ints(1)})
    one("Transpose", {"x": a(2, 3, 4)}, attrs={"perm": (2, 0, 1)})
    one("Transpose", {"x": a(2, 3, 4)})
    one("Expand", {"x": a(3, 1)}, constants={"s": ints(2, 3, 4)})
    one("Tile", {"x": a(2, 3)}, constants={"s": ints(2, 3)})
    one("Trilu", {"x": a(3, 3)}, attrs={"upper": 0})
    one("CumSum", {"x": a(3, 4)}, constants={"n": np.array(1)}, attrs={"exclusive": 1})


def test_joins_and_cuts() -> None:
    parts = {"x": a(2, 3), "y": a(2, 2), "z": a(2, 1)}
    one("Concat", parts, attrs={"axis": 1})
    one("Concat", parts, attrs={"axis": -1}, wrt=["y"])
    split = {"attrs": {"axis": 1}, "outputs": 3, "at": (0, 2)}
    one("Split", {"x": a(2, 6)}, constants={"s": ints(1, 2, 3)}, **split)
    old = {"axis": 1, "split": (1, 2, 3)}
    one("Split", {"x": a(2, 6)}, attrs=old, outputs=3, opset=11, at=(1, 2))
    where = {"s": ints(1, -1), "e": ints(3, -(2**63)), "n": ints(0, 1), "t": ints(1, -2)}
    one("Slice", {"x": a(4, 6)}, constants=where)
    one("Slice", {"x": a(4, 6)}, attrs={"starts": (1,), "ends": (3,), "axes": (1,)}, opset=9)
    one("Pad", {"x": a(2, 3)}, constants={"p": ints(1, 0, 2, 3)})


def test_picks_by_index() -> None:
    twice = np.array([[0, 2], [2, -1]])
    one("Gather", {"x": a(5, 3), "i": twice})
    one("Gather", {"x": a(3, 5), "i": twice}, attrs={"axis": 1})
    rows = np.array([[0, 1], [2, 0], [1, 1]])
    one("GatherElements", {"x": a(3, 4), "i": rows}, attrs={"axis": 1})
    one("GatherND", {"x": a(3, 4, 2), "i": np.array([[0, 1], [2, 0], [0, 1]])})
    one("GatherND", {"x": a(3, 4, 2), "i": np.array([[0], [2], [1]])}, attrs={"batch_dims": 1})
    apart = np.random.default_rng(0).permutation(15).reshape(3, 5) / 10
    one("TopK", {"x": apart}, constants={"k": ints(2)}, outputs=2)
    distinct = {"x": a(3, 4), "i": np.array([[0, 1], [2, 0], [1, 3]]), "u": a(3, 2)}
    one("ScatterElements", distinct, attrs={"axis": 1})
    one("Scatter", distinct, attrs={"axis": 1}, opset=10, wrt=["x"])
    added = {"x": a(3, 4), "i": rows, "u": a(3, 2)}
    one("ScatterElements", added, attrs={"axis": 1, "reduction": "add"})
    one("ScatterND", {"x": a(3, 4), "i": np.array([[0], [2]]), "u": a(2, 4)})
    both = {"x": a(3, 4), "i": np.array([[0], [0]]), "u": a(2, 4)}
    one("ScatterND", both, attrs={"reduction": "add"})


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"strides": (2, 1), "pads": (1, 0, 2, 1)},
    {"dilations": (2, 1), "auto_pad": "SAME_UPPER"},
    {"strides": (2, 2), "auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID", "group": 2},
    {"group": 4},
]


@pytest.mark.parametrize("attrs", CONVOLUTIONS)
def test_convolutions(attrs: dict[str, Any]) -> None:
    group = attrs.get("group", 1)
    one("Conv", {"x": a(2, 4, 7, 6), "w": a(8, 4 // group, 3, 2), "b": a(8)}, attrs=attrs)


def test_convolution_of_sequences() -> None:
    one("Conv", {"x": a(2, 4, 7), "w": a(6, 4, 3)})


def test_norms_of_onnx() -> None:
    one("LayerNormalization", {"x": a(2, 3, 4), "s": a(4), "b": a(4)})
    one("LayerNormalization", {"x": a(2, 3, 4), "s": a(3, 4)}, attrs={"axis": 1})
    one("RMSNormalization", {"x": a(2, 3, 4), "s": a(4)}, opset=23)
    moments = {"m": a(3), "v": positive(3)}
    one("BatchNormalization", {"x": a(2, 3, 4), "s": a(3), "b": a(3)}, constants=moments)


def test_norms_of_channels() -> None:
    given = {"x": a(2, 6, 3, 4), "s": a(6), "b": a(6)}
    one("InstanceNormalization", given)
    one("InstanceNormalization", {"x": a(2, 3, 7), "s": a(3), "b": a(3)})
    single: dict[str, Any] = {"step": 1e-2, "tolerance": 2e-3}  # what runs it has no other
    one("GroupNormalization", given, attrs={"num_groups": 2}, opset=21, **single)
    one("GroupNormalization", given, attrs={"num_groups": 6}, opset=21, **single)


POOLS = [
    {"kernel_shape": (2, 3)},
    {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)},
    {"kernel_shape": (3, 3), "strides": (2, 3), "auto_pad": "SAME_UPPER"},
    {"kernel_shape": (2, 2), "dilations": (2, 1)},
    {"kernel_shape": (2, 3), "strides": (2, 2), "ceil_mode": 1},
    {"kernel_shape": (3, 3), "strides": (3, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1},
]


@pytest.mark.parametrize("attrs", POOLS)
def test_pools(attrs: dict[str, Any]) -> None:
    apart = np.random.default_rng(0).permutation(2 * 3 * 7 * 6).reshape(2, 3, 7, 6) / 10
    one("MaxPool", {"x": apart}, attrs=attrs, opset=20, step=1e-2, tolerance=2e-3)
    for counted in (0, 1):
        more = {**attrs, "count_include_pad": counted}
        one("AveragePool", {"x": a(2, 3, 7, 6)}, attrs=more, opset=20)


@pytest.mark.parametrize(("centred", "adds", "axis"), [*itertools.product((0, 1), (0, 1), (-1, 1))])
def test_fused_norms(centred: int, adds: int, axis: int) -> None:
    offset = 0.0 if centred else 1.0
    norm = Norm(bool(centred), axis, 1e-5, F64, F64, F64, offset, bool(adds))
    rows = (4,) if axis == -1 else (3, 4)
    arrays = {"x": a(2, 3, 4), **({"r": a(2, 3, 4)} if adds else {})}
    arrays |= {"s": a(*rows), "b": a(*rows), **({"bias": a(4)} if adds else {})}
    more = {"attrs": norm.attrs(), "outputs": 1 + adds, "domain": "gecompiler"}
    one(norm.op_type, arrays, at=(0, 1)[: 1 + adds], **more)
    if adds:
        one(norm.op_type, arrays, at=(1,), wrt=["x", "r", "bias"], **more)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_fused_activations(function: str) -> None:
    for tanh in ("none", "tanh") if function == "Gelu" else ("none",):
        plain = Activation(function, False, tanh, 1.702).attrs()  # type: ignore[arg-type]
        one(function, {"x": a(3, 4), "b": a(4)}, attrs=plain, domain="gecompiler")
        for limit, shift in ((0.0, 0.0), (0.7, 1.0)):
            gated = Activation(function, True, tanh, 1.1, "first", limit, shift)  # type: ignore[arg-type]
            arrays = {"x": a(3, 4), "u": a(3, 4), "b": a(4)}
            one(f"{function}Mul", arrays, attrs=gated.attrs(), domain="gecompiler")
        for gate in GATES:
            halves = Activation(function, True, tanh, 1.1, gate)  # type: ignore[arg-type]
            more = {"attrs": halves.attrs(), "domain": "gecompiler", "inputs": ["x", "", "b"]}
            one(f"{function}Mul", {"x": a(3, 8), "b": a(8)}, **more)


@pytest.mark.parametrize(("style", "width"), [*itertools.product(STYLES, (6, 3))])
def test_rotation(style: str, width: int) -> None:
    arrays = {"x": a(2, 3, 8), "c": a(3, width), "s": a(3, width)}
    attrs = Rotary(6, 1, style).attrs()
    one("RotaryEmbedding", arrays, wrt=["x"], attrs=attrs, domain="gecompiler")


MASKED = np.ones((2, 1, 5, 7), bool)
MASKED[0, 0, 2] = False
ATTENTIONS: list[dict[str, Any]] = [
    {},
    {"softcap": 2.0},
    {"window_right": 0, "align": "bottom_right"},
    {"window_left": 2, "window_right": 1},
    {"layout": "BSND"},
    {"layout": "BNSD_BSND", "sinks": True},
    {"mask": MASKED, "masked_row": "zero"},
    {"mask": MASKED, "masked_row": "mean"},
    {"mask": MASKED, "masked_row": "mean", "kv_batch": 1},
    {"mask": a(4, 5, 7), "softcap": 3.0, "sinks": True, "groups": 4},
    {"mask": a(1, 1, 1, 7)},
]


@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case: dict[str, Any]) -> None:
    spec = dict(case)
    mask, sinks = spec.pop("mask", None), spec.pop("sinks", False)
    batch, groups = spec.pop("kv_batch", 2), spec.pop("groups", 2)
    attrs = FlashAttention(0.5, 4, groups, **spec)
    arrays = {
        "q": a(*attrs.operand((2, 4, 5, 4))),
        "k": a(*attrs.operand((batch, groups, 7, 4))),
        "v": a(*attrs.operand((batch, groups, 7, 3))),
    }
    inputs = list(arrays)
    if mask is not None:
        arrays["m"] = mask
    if sinks:
        arrays["s"] = a(4)
    inputs += ["m" if mask is not None else "", *(["s"] if sinks else [])]
    while not inputs[-1]:
        inputs.pop()
    more = {"attrs": attrs.attrs(), "inputs": inputs, "outputs": 2, "domain": "gecompiler"}
    one("FlashAttention", arrays, **more)


@pytest.mark.parametrize("shift", [0, 1])
def test_cross_entropy(shift: int) -> None:
    labels = np.array([[1, 0, 2, -100], [3, 3, 1, 0]])
    more: dict[str, Any] = {"attrs": {"ignore_index": -100, "shift": shift}, "outputs": 2}
    one("CrossEntropy", {"l": a(2, 4, 5), "t": labels}, domain="gecompiler", **more)


def test_an_op_without_a_rule_is_named() -> None:
    graph = Graph("g", {"": 20})
    graph.add_input("x", tensor("f32", (2, 3)))
    y = graph.emit("Det", ["x"], tensor("f32", ()), stem="determinant")
    graph.add_input("d", tensor("f32", ()))
    with pytest.raises(ModelError, match="node 'determinant': Det has no gradient"):
        gradients(graph, {y: "d"}, ["x"])


def test_what_a_rule_cannot_do_is_said() -> None:
    graph = built("Pad", {"x": a(3, 4)}, constants={"p": ints(1, 1, 1, 1)}, attrs={"mode": "edge"})
    graph.add_input("d", tensor("f64", (5, 6)))
    with pytest.raises(ModelError, match="mode 'edge'"):
        gradients(graph, {graph.outputs[0]: "d"}, ["x"])


def test_every_rule_was_tried(request: pytest.FixtureRequest) -> None:
    """Holds when one process runs the whole file; those of collectives are tried over ranks."""
    here = [item for item in request.session.items if item.fspath == request.node.fspath]
    if len(here) < 100 or "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("only some of the tests are run here")
    ranks = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast", "Send", "Recv")
    apart = {f"gecompiler.{name}" for name in ranks}
    assert set(RULES) - TRIED - apart == set()
