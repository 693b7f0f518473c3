"""The ops of block fusion: attributes, shapes, and what the verifier refuses of them."""

from __future__ import annotations

import pytest

from gecompiler.ir import Graph, parse
from gecompiler.ir.block_ops import (
    ACTIVATIONS,
    BLOCK_OPS,
    Activation,
    Norm,
    NormInputs,
    Rotary,
    is_block_op,
)
from gecompiler.ir.errors import GraphError, ModelError
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType

INPUTS = """
  input %x: f32[b, s, 8]
  input %r: f32[b, s, 8]
  input %h: f16[b, s, 8]
  input %i: i64[b, s, 8]
  input %w: f32[8]
  input %w4: f32[4]
  input %rows: f32[b, s, 1]
  input %wide: f32[b, s, 6]
"""


def graph(op: str, out: str = "%y") -> Graph:
    found = parse(f"graph (opset 17) {{ {INPUTS} {out} = gecompiler.{op} return {out} }}")
    infer_types(found)
    return found


@pytest.mark.parametrize(
    "spec",
    [
        Norm(True, -1, 1e-5, DType.F32, DType.F16, DType.F16),
        Norm(False, -2, 0.0, DType.F16, DType.F16, DType.BF16, offset=1.0, adds=True),
    ],
)
def test_norms_read_back_what_they_write(spec: Norm) -> None:
    op = Op("n", spec.op_type, ("x",), ("y",), spec.attrs(), GE_DOMAIN)
    assert Norm.of(op) == spec
    assert is_block_op(op)


def test_rotary_and_activations_read_back_what_they_write() -> None:
    rotary = Rotary(4, 2, "interleaved")
    assert Rotary.of(Op("r", "RotaryEmbedding", (), (), rotary.attrs(), GE_DOMAIN)) == rotary
    for spec in (
        Activation("Gelu", approximate="tanh"),
        Activation("Silu", alpha=1.702),
        Activation("Relu", gated=True, gate="last"),
        Activation("Silu", gated=True, gate="even", alpha=1.702, limit=7.0, shift=1.0),
    ):
        assert Activation.of(Op("a", spec.op_type, (), (), spec.attrs(), GE_DOMAIN)) == spec


def test_inputs_of_norms_by_name() -> None:
    for adds, names in ((False, ("x", "", "b")), (True, ("x", "r", "", "b", "c"))):
        op_type = "AddRMSNorm" if adds else "RMSNorm"
        found = NormInputs.of(Op("n", op_type, names, ("y",), {}, GE_DOMAIN))
        assert found.listed(adds) == names
        assert (found.scale, found.shift) == ("", "b")


def test_the_same_type_in_another_domain_is_none_of_them() -> None:
    assert not any(is_block_op(Op("o", kind, ("x",), ("y",))) for kind in BLOCK_OPS)


# ------------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("RMSNorm(%x, %w)", "f32[b, s, 8]"),
        ("LayerNorm(%h, _, %w) {output_type = 10}", "f16[b, s, 8]"),
        ("RMSNorm(%x, %w) {output_type = 10}", "f16[b, s, 8]"),
        ("AddRMSNorm(%x, %r)", "f32[b, s, 8]"),
        ("RotaryEmbedding(%x, %w, %w4) {dim = 8}", "f32[b, s, 8]"),
        ("Gelu(%x, %w)", "f32[b, s, 8]"),
        ("SiluMul(%x, %r)", "f32[b, s, 8]"),
        ("SiluMul(%x)", "f32[b, s, 4]"),
    ],
)
def test_shapes(op: str, shape: str) -> None:
    found = graph(op)
    found.verify()
    assert str(found.type("y")) == shape


def test_the_sum_has_the_shape_of_x() -> None:
    found = graph("AddLayerNorm(%x, %r, %w, %w, %w)", "%y, %z")
    found.verify()
    assert str(found.type("z")) == str(found.type("x"))


def test_an_odd_number_of_columns_has_no_halves() -> None:
    with pytest.raises(ModelError, match="halved"):
        infer_types(parse("graph { input %x: f32[2, 5] %y = gecompiler.GeluMul(%x) return %y }"))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("RMSNorm(%x, %w) {axes = 1}", "no attribute 'axes'"),
        ("RMSNorm(%x, %w) {axis = 1.0}", "expected an integer"),
        ("RMSNorm(%x, %w) {axis = 3}", "axis = 3 for rank 3"),
        ("RMSNorm(%x, %w) {epsilon = -1.0}", "epsilon"),
        ("RMSNorm(%x, %w) {stash_type = 7}", "float type"),
        ("RMSNorm(%x, %w) {output_type = 0}", "float type"),
        ("RMSNorm(%x, %w4)", "scale or shift"),
        ("RMSNorm(%x, %rows)", "scale or shift"),
        ("RMSNorm(%i, %w)", "expected floats"),
        ("AddRMSNorm(%x)", "inputs"),
        ("AddRMSNorm(%x, %h)", "expected that of its input"),
        ("AddRMSNorm(%x, %r, _, _, %w4)", "bias"),
        ("RotaryEmbedding(%x, %w) {dim = 8}", "inputs"),
        ("RotaryEmbedding(%x, %w, %w) {dim = 7}", "even number"),
        ("RotaryEmbedding(%x, %w, %w) {dim = 8, start = 4}", "of 8"),
        ("RotaryEmbedding(%x, %w, %w) {dim = 6}", "columns"),
        ('RotaryEmbedding(%x, %w, %w) {dim = 8, style = "thirds"}', "expected one of"),
        ("Gelu(%x, %w4)", "bias"),
        ("Gelu(%x) {gate = 1}", "no attribute"),
        ('GeluMul(%x, %r) {gate = "middle"}', "expected one of"),
        ("Silu(%x) {alpha = inf}", "finite"),
        ("SiluMul(%x, %h)", "expected that of its input"),
    ],
)
def test_the_verifier_names_what_is_wrong(op: str, message: str) -> None:
    found = parse(f"graph (opset 17) {{ {INPUTS} %y = gecompiler.{op} return %y }}")
    with pytest.raises(GraphError, match=message):
        found.verify()


@pytest.mark.parametrize("op", ["AddRMSNorm(%x, %wide)", "SiluMul(%x, %wide)"])
def test_operands_of_two_shapes_are_refused(op: str) -> None:
    found = parse(f"graph (opset 17) {{ {INPUTS} %y = gecompiler.{op} return %y }}")
    with pytest.raises(GraphError, match="shape"):
        found.verify()
    with pytest.raises(ModelError, match="must agree"):
        infer_types(found)


def test_gated_names_are_those_of_the_functions() -> None:
    assert {name.removesuffix("Mul") for name in ACTIVATIONS} == {
        *("Gelu", "Silu", "Relu", "SquaredRelu", "Sigmoid", "Tanh"),
    }
