"""Shape rules, each on small graphs with symbols: what is proven, and what is refused."""

from __future__ import annotations

import pytest

from gecompiler.ir import ModelError, infer_types, parse


def inferred(text: str, opset: int = 20) -> list[str]:
    """The types of the outputs, as text."""
    lines = text.strip().splitlines()
    graph = parse("\n".join([f"graph (opset {opset}, gecompiler 1) {{", *lines, "}"]))
    infer_types(graph)
    return [str(graph.type(v)) for v in graph.outputs]


def one(inputs: str, op: str, outputs: int = 1, opset: int = 20) -> list[str]:
    """The types of one op's outputs; inputs are ``%x: f32[2]`` or ``const %k: ... = ...``."""
    head = [i if i.startswith("const") else f"input {i}" for i in inputs.split("; ")]
    names = ", ".join(f"%out{i}" for i in range(outputs))
    return inferred("\n".join([*head, f"{names} = {op}", f"return {names}"]), opset)


X = "%x: f32[b, s, 32]"

REARRANGING = [
    # Reshape: 0 copies, -1 is solved exactly
    (X, "Reshape(%x, %t)", "const %t: i64[4] = [0, 0, 4, 8]", "f32[b, s, 4, 8]"),
    (X, "Reshape(%x, %t)", "const %t: i64[4] = [0, -1, 4, 8]", "f32[b, s, 4, 8]"),
    (X, "Reshape(%x, %t)", "const %t: i64[2] = [-1, 32]", "f32[b*s, 32]"),
    (X, "Reshape(%x, %t)", "const %t: i64[1] = [-1]", "f32[32*b*s]"),
    (X, "Reshape(%x, %t)", "const %t: i64[2] = [-1, 24]", "f32[b*s + floordiv(b*s, 3), 24]"),
    ("%x: f32[0, 3]", "Reshape(%x, %t) {allowzero = 1}", "const %t: i64[2] = [3, 0]", "f32[3, 0]"),
    ("%x: f32[0, 4, 1]", "Reshape(%x, %t) {allowzero = 1}", "const %t: i64[2] = [0, 1]",
     "f32[0, 1]"),
    ("%x: f32[4, b, 0]", "Reshape(%x, %t) {allowzero = 1}", "const %t: i64[2] = [5, 0]",
     "f32[5, 0]"),
    ("%x: f32[b, p + s, 8]", "Reshape(%x, %t)", "const %t: i64[2] = [0, -1]", "f32[b, 8*p + 8*s]"),
    (X, "Reshape(%x, %t)", "%t: i64[2]", "f32[out0_dim0, out0_dim1]"),
    (X, "Reshape(%x, %t)", "%t: i64[n]", "f32[*]"),
    # Squeeze and Unsqueeze with axes as input
    ("%x: f32[1, s, 1]", "Squeeze(%x, %t)", "const %t: i64[1] = [0]", "f32[s, 1]"),
    ("%x: f32[1, s, 1]", "Squeeze(%x, %t)", "const %t: i64[2] = [-1, 0]", "f32[s]"),
    ("%x: f32[b, s]", "Unsqueeze(%x, %t)", "const %t: i64[2] = [1, -1]", "f32[b, 1, s, 1]"),
    ("%x: f32[b, s]", "Unsqueeze(%x, %t)", "%t: i64[1]", "f32[out0_dim0, out0_dim1, out0_dim2]"),
    # Expand and Tile
    ("%x: f32[b, 1, s]", "Expand(%x, %t)", "const %t: i64[3] = [1, 4, 1]", "f32[b, 4, s]"),
    ("%x: f32[s]", "Expand(%x, %t)", "const %t: i64[3] = [2, 3, 1]", "f32[2, 3, s]"),
    ("%x: f32[5, 1]", "Expand(%x, %t)", "%t: i64[2]", "f32[5, out0_dim1]"),
    ("%x: f32[b, 3]", "Tile(%x, %t)", "const %t: i64[2] = [2, 5]", "f32[2*b, 15]"),
    # Slice: clamped, from the end, backwards
    (X, "Slice(%x, %t, %e, %a)", "const %t: i64[1] = [0]; const %e: i64[1] = [16]; "
     "const %a: i64[1] = [2]", "f32[b, s, 16]"),
    (X, "Slice(%x, %t, %e, %a)", "const %t: i64[1] = [16]; const %e: i64[1] = "
     "[9223372036854775807]; const %a: i64[1] = [-1]", "f32[b, s, 16]"),
    (X, "Slice(%x, %t, %e, %a)", "const %t: i64[1] = [1]; const %e: i64[1] = "
     "[2147483647]; const %a: i64[1] = [1]", "f32[b, s - 1, 32]"),
    (X, "Slice(%x, %t, %e, %a)", "const %t: i64[1] = [-1]; const %e: i64[1] = "
     "[9223372036854775807]; const %a: i64[1] = [1]", "f32[b, 1, 32]"),
    (X, "Slice(%x, %t, %e, %a)", "const %t: i64[1] = [0]; const %e: i64[1] = [-1]; "
     "const %a: i64[1] = [1]", "f32[b, s - 1, 32]"),
    (X, "Slice(%x, %t, %e, %a)", "const %t: i64[1] = [0]; const %e: i64[1] = [100]; "
     "const %a: i64[1] = [1]", "f32[b, min(s, 100), 32]"),
    (X, "Slice(%x, %t, %e, %a, %k)", "const %t: i64[1] = [0]; const %e: i64[1] = "
     "[9223372036854775807]; const %a: i64[1] = [1]; const %k: i64[1] = [2]",
     "f32[b, floordiv(s + 1, 2), 32]"),
    (X, "Slice(%x, %t, %e, %a, %k)", "const %t: i64[1] = [-1]; const %e: i64[1] = "
     "[-9223372036854775808]; const %a: i64[1] = [1]; const %k: i64[1] = [-1]", "f32[b, s, 32]"),
    (X, "Slice(%x, %t, %e)", "%t: i64[1]; %e: i64[1]", "f32[out0_dim0, s, 32]"),
    # Pad
    ("%x: f32[b, s]", "Pad(%x, %t)", "const %t: i64[4] = [0, 1, 0, 2]", "f32[b, s + 3]"),
    ("%x: f32[b, s]", "Pad(%x, %t, _, %a)", "const %t: i64[2] = [1, 1]; const %a: i64[1] = [-1]",
     "f32[b, s + 2]"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "op", "extra", "expected"), REARRANGING)
def test_rearranging(x: str, op: str, extra: str, expected: str) -> None:
    assert one(f"{x}; {extra}", op) == [expected]


OPS = [
    ("%x: f32[b, s]; %y: f32[s]", "Add(%x, %y)", "f32[b, s]"),
    ("%x: f32[b, 1, s]; %y: f32[h, 1]", "Mul(%x, %y)", "f32[b, h, s]"),
    ("%x: f32[b]; %y: f32[c]", "Sub(%x, %y)", "f32[bcast(b, c)]"),
    ("%x: f32[b]; %y: f32[7]", "Sub(%x, %y)", "f32[7]"),
    ("%x: f32[min(s, 48)]; %y: f32[s]", "Add(%x, %y)", "f32[s]"),
    ("%c: bool[b, 1]; %x: f16[s]; %y: f16[]", "Where(%c, %x, %y)", "f16[b, s]"),
    ("%x: f32[b]; %y: f32[b]; %z: f32[1]", "Max(%x, %y, %z)", "f32[b]"),
    ("%x: f32[b]; %y: f32[b]", "LessOrEqual(%x, %y)", "bool[b]"),
    ("%x: f32[b, s]", "IsNaN(%x)", "bool[b, s]"),
    ("%x: f32[b, s]", "Cast(%x) {to = 10}", "f16[b, s]"),
    ("%x: f32[b, s]; %y: i32[]", "CastLike(%x, %y)", "i32[b, s]"),
    ("%x: f32[b, h, s, 8]; %y: f32[b, h, 8, t]", "MatMul(%x, %y)", "f32[b, h, s, t]"),
    ("%x: f32[b, s, 8]; %y: f32[8]", "MatMul(%x, %y)", "f32[b, s]"),
    ("%x: f32[8]; %y: f32[b, 8, s]", "MatMul(%x, %y)", "f32[b, s]"),
    ("%x: f32[8]; %y: f32[8]", "MatMul(%x, %y)", "f32[]"),
    ("%x: f32[8, b]; %y: f32[5, 8]", "Gemm(%x, %y) {transA = 1, transB = 1}", "f32[b, 5]"),
    ("%x: f32[b, s, h, d]; %y: f32[b, t, h, d]",
     'Einsum(%x, %y) {equation = "bshd,bthd->bhst"}', "f32[b, h, s, t]"),
    ("%x: f32[b, s, d]; %y: f32[d, e]", 'Einsum(%x, %y) {equation = "...d,de"}', "f32[b, s, e]"),
    ("%x: f32[b, s]", 'Einsum(%x) {equation = "ij->ji"}', "f32[s, b]"),
    ("%x: f32[b, s, 4, 8]", "Transpose(%x) {perm = [0, 2, 1, 3]}", "f32[b, 4, s, 8]"),
    ("%x: f32[b, s]", "Transpose(%x)", "f32[s, b]"),
    ("%x: f32[b, s, 8]", "Flatten(%x) {axis = 2}", "f32[b*s, 8]"),
    ("%x: f32[b, s, 8]", "Flatten(%x) {axis = 0}", "f32[1, 8*b*s]"),
    ("%x: f32[b, 8]; %y: f32[c, 8]", "Concat(%x, %y) {axis = 0}", "f32[b + c, 8]"),
    ("%x: f32[b, p, 8]; %y: f32[b, s, 8]", "Concat(%x, %y) {axis = -2}", "f32[b, p + s, 8]"),
    ("%w: f32[50, 8]; %i: i64[b, s]", "Gather(%w, %i)", "f32[b, s, 8]"),
    ("%w: f32[b, s, 8]; %i: i64[]", "Gather(%w, %i) {axis = 1}", "f32[b, 8]"),
    ("%x: f32[b, s, 8]; %i: i64[n, 2]", "GatherND(%x, %i)", "f32[n, 8]"),
    ("%x: f32[b, s, 8]; %i: i64[b, n, 1]", "GatherND(%x, %i) {batch_dims = 1}", "f32[b, n, 8]"),
    ("%x: f32[b, s]; %i: i64[b, n]", "GatherElements(%x, %i) {axis = 1}", "f32[b, n]"),
    ("%x: f32[b, s]; %i: i64[n, 1]; %u: f32[n, s]", "ScatterND(%x, %i, %u)", "f32[b, s]"),
    ("%x: f32[b, s, 8]", "ReduceMax(%x)", "f32[1, 1, 1]"),
    ("%x: f32[b, s, 8]; const %a: i64[1] = [-1]", "ReduceMean(%x, %a)", "f32[b, s, 1]"),
    ("%x: f32[b, s]; const %a: i64[1] = [0]", "ReduceSum(%x, %a) {keepdims = 0}", "f32[s]"),
    ("%x: f32[b, s]", "ReduceSum(%x) {noop_with_empty_axes = 1}", "f32[b, s]"),
    ("%x: f32[b, s, 8]", "ArgMax(%x) {axis = -1, keepdims = 0}", "i64[b, s]"),
    ("%x: f32[b, s, 8]", "Softmax(%x) {axis = 1}", "f32[b, s, 8]"),
    ("%x: f32[b, c, h, w]; %w: f32[16, c, 3, 3]",
     "Conv(%x, %w) {pads = [1, 1, 1, 1], strides = [2, 2]}",
     "f32[b, 16, floordiv(h + 1, 2), floordiv(w + 1, 2)]"),
    ("%x: f32[b, c, h]; %w: f32[16, c, 3]", 'Conv(%x, %w) {auto_pad = "SAME_UPPER"}',
     "f32[b, 16, h]"),
    ("%x: f32[b, 8, h, w]; %w: f32[8, 4, 2, 2]", "ConvTranspose(%x, %w) {strides = [2, 2]}",
     "f32[b, 4, 2*h, 2*w]"),
    ("%x: f32[b, 8, h, h]", "MaxPool(%x) {kernel_shape = [2, 2], strides = [2, 2]}",
     "f32[b, 8, floordiv(h, 2), floordiv(h, 2)]"),
    ("%x: f32[b, 8, h, w]", "GlobalAveragePool(%x)", "f32[b, 8, 1, 1]"),
    ("%x: f32[b, 8, h, w]; const %k: f32[4] = [1.0, 1.0, 2.0, 0.5]", "Resize(%x, _, %k)",
     "f32[b, 8, 2*h, floordiv(w, 2)]"),
    ("%x: f32[b, 8, 5, w]; const %k: i64[4] = [1, 8, 10, 20]", "Resize(%x, _, _, %k)",
     "f32[1, 8, 10, 20]"),
    ("%x: f32[b, 16, h, w]", "DepthToSpace(%x) {blocksize = 2}", "f32[b, 4, 2*h, 2*w]"),
    ("%x: f32[b, 4, 6, w]", "SpaceToDepth(%x) {blocksize = 2}", "f32[b, 16, 3, floordiv(w, 2)]"),
    ("%x: i64[b]; %d: i64[]; %v: f32[2]", "OneHot(%x, %d, %v)", "f32[b, out0_dim1]"),
    ("const %k: i64[2] = [2, 3]", "ConstantOfShape(%k)", "f32[2, 3]"),
    ("const %k: i64[2] = [2, 3]", "ConstantOfShape(%k) {value = i32[1] [7]}", "i32[2, 3]"),
    ("const %a: i64[] = 2; const %e: i64[] = 9; const %d: i64[] = 3", "Range(%a, %e, %d)",
     "i64[3]"),
    ("const %a: f32[] = 1.0; const %e: f32[] = 2.0; const %d: f32[] = 0.25", "Range(%a, %e, %d)",
     "f32[4]"),
    ("%x: f32[b, s]", "Shape(%x)", "i64[2]"),
    ("%x: f32[b, s]", "Shape(%x) {start = -1}", "i64[1]"),
    ("%x: f32[b, s]", "Size(%x)", "i64[]"),
    ("%x: bool[b, s]", "NonZero(%x)", "i64[2, out0_dim1]"),
    ("%x: f32[b, s]", "Trilu(%x)", "f32[b, s]"),
    ("%x: f32[b, s]; %a: i64[]", "CumSum(%x, %a)", "f32[b, s]"),
    ("%x: f32[n, n]", "EyeLike(%x) {dtype = 7}", "i64[n, n]"),
    ("%x: f32[b, s]; %k: f32[]; %z: i8[]", "QuantizeLinear(%x, %k, %z)", "i8[b, s]"),
    ("%x: f32[b, s]; %k: f32[]", "QuantizeLinear(%x, %k)", "u8[b, s]"),
    ("%x: i8[b, s]; %k: f16[]", "DequantizeLinear(%x, %k)", "f16[b, s]"),
    ("%x: u8[b, 8]; %y: i8[8, n]", "MatMulInteger(%x, %y)", "i32[b, n]"),
    ("%q: f32[b, 8, s, 4]; %k: f32[b, 2, t, 4]; %v: f32[b, 2, t, 6]",
     "gecompiler.FlashAttention(%q, %k, %v) {scale = 0.5, q_heads = 8, kv_heads = 2}",
     "f32[b, 8, s, 6]"),
    ("%q: f16[b, 8, s, 4]; %k: f16[1, 2, t, 4]; %v: f16[1, 2, t, 6]; %m: bool[s, t]",
     "gecompiler.FlashAttention(%q, %k, %v, %m) {scale = 0.5, q_heads = 8, kv_heads = 2}",
     "f16[b, 8, s, 6]"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "op", "expected"), OPS)
def test_ops(inputs: str, op: str, expected: str) -> None:
    assert one(inputs, op) == [expected]


SEVERAL = [
    ("%x: f32[b, 9]", "Split(%x) {axis = 1, num_outputs = 2}", ["f32[b, 5]", "f32[b, 4]"], 20),
    ("%x: f32[b, 9]; const %p: i64[2] = [2, 7]", "Split(%x, %p) {axis = -1}",
     ["f32[b, 2]", "f32[b, 7]"], 20),
    ("%x: f32[2*n, 3]", "Split(%x)", ["f32[n, 3]", "f32[n, 3]"], 13),
    ("%x: f32[b, s]; const %k: i64[1] = [3]", "TopK(%x, %k)", ["f32[b, 3]", "i64[b, 3]"], 20),
    ("%x: f32[b, s]; %k: i64[1]", "TopK(%x, %k)",
     ["f32[b, out0_dim1]", "i64[b, out0_dim1]"], 20),
    ("%x: f16[b, s, 8]; %w: f16[8]", "LayerNormalization(%x, %w)",
     ["f16[b, s, 8]", "f32[b, s, 1]"], 20),
    ("%x: f32[b, s]; %r: f32[]", "Dropout(%x, %r)", ["f32[b, s]", "bool[b, s]"], 20),
    ("%x: f32[b, 8, h]", "MaxPool(%x) {kernel_shape = [3]}",
     ["f32[b, 8, h - 2]", "i64[b, 8, h - 2]"], 20),
    ("%q: f32[b, 4, s, 8]; %k: f32[b, 2, t, 8]; %v: f32[b, 2, t, 6]; %p: f32[b, 2, p, 8]; "
     "%r: f32[b, 2, p, 6]", "Attention(%q, %k, %v, _, %p, %r)",
     ["f32[b, 4, s, 6]", "f32[b, 2, p + t, 8]", "f32[b, 2, p + t, 6]", "f32[b, 4, s, p + t]"], 23),
    ("%q: f32[b, s, 32]; %k: f32[b, t, 16]; %v: f32[b, t, 12]",
     "Attention(%q, %k, %v) {q_num_heads = 4, kv_num_heads = 2}",
     ["f32[b, s, 24]", "f32[b, 2, t, 8]", "f32[b, 2, t, 6]", "f32[b, 4, s, t]"], 24),
    ("%x: f32[b, s]", "DynamicQuantizeLinear(%x)", ["u8[b, s]", "f32[]", "u8[]"], 20),
    ("%x: f32[b, s]", "Unique(%x) {axis = 0}",
     ["f32[out0_dim0, s]", "i64[out0_dim0]", "i64[b]", "i64[out0_dim0]"], 20),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "op", "expected", "opset"), SEVERAL)
def test_ops_with_several_outputs(inputs: str, op: str, expected: list[str], opset: int) -> None:
    assert one(inputs, op, len(expected), opset) == expected


OLD = [
    ("%x: f32[1, s]", "Squeeze(%x) {axes = [0]}", "f32[s]", 11),
    ("%x: f32[s]", "Unsqueeze(%x) {axes = [0, 2]}", "f32[1, s, 1]", 11),
    ("%x: f32[b, s]", "Slice(%x) {starts = [1], ends = [3], axes = [1]}",
     "f32[b, min(s, 3) - 1]", 9),
    ("%x: f32[b, 9]", "Slice(%x) {starts = [0, 2], ends = [9999, -1]}", "f32[min(b, 9999), 6]", 9),
    ("%x: f32[b, s]", "Pad(%x) {pads = [0, 1, 0, 1]}", "f32[b, s + 2]", 8),
    ("%x: f32[b, s]", "ReduceSum(%x) {axes = [1]}", "f32[b, 1]", 11),
    ("%x: f32[b, s]", "ReduceMean(%x) {axes = [1], keepdims = 0}", "f32[b]", 17),
    ("%x: f32[b, 8, h, w]", "Upsample(%x) {scales = [1.0, 1.0, 2.0, 2.0]}",
     "f32[b, 8, 2*h, 2*w]", 7),
    ("%x: f32[b, s]", "TopK(%x) {k = 2}", "f32[b, 2]", 9),
    ("%x: i8[b]; %k: f32[]", "DequantizeLinear(%x, %k)", "f32[b]", 10),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "op", "expected", "opset"), OLD)
def test_older_opsets(inputs: str, op: str, expected: str, opset: int) -> None:
    assert one(inputs, op, 2 if "TopK" in op else 1, opset)[0] == expected


def test_split_by_attribute() -> None:
    assert one("%x: f32[b, 9]", "Split(%x) {axis = 1, split = [4, 5]}", 2, 11) == [
        "f32[b, 4]",
        "f32[b, 5]",
    ]


def test_ceil_mode_leaves_out_a_window_that_starts_in_the_padding() -> None:
    attrs = "kernel_shape = [1], strides = [2], ceil_mode = 1"
    assert one("%x: f32[1, 1, 2]", f"MaxPool(%x) {{{attrs}}}") == ["f32[1, 1, 1]"]


WRONG = [
    ("const %k: i64[2] = [2, -3]", "ConstantOfShape(%k)", "negative size", "i64[2]"),
    ("%x: f32[2, 3]; const %r: i64[2] = [1, -1]", "Tile(%x, %r)", "negative size", "out0"),
    ("%x: f32[2, 3]; %y: f32[4, 5]", "MatMul(%x, %y)", "inner sizes", "f32[2, 3], f32[4, 5]"),
    ("%x: f32[2, 3]; %y: f32[2, 4]", "Add(%x, %y)", "do not broadcast", "f32[2, 4]"),
    ("%x: f32[b]; %y: bool[b]", "Add(%x, %y)", "may not be bool", "f32[b], bool[b]"),
    ("%x: f32[b]; %y: f16[b]", "Mul(%x, %y)", "is f16, but f32 is needed", "f16[b]"),
    ("%x: f32[2, 3]; const %t: i64[2] = [4, -1]", "Reshape(%x, %t)", "cannot be divided", "i64[2]"),
    ("%x: f32[2, 3]; const %t: i64[2] = [4, 2]", "Reshape(%x, %t)", "number of elements", "f32"),
    ("%x: f32[2, 3]; const %t: i64[2] = [-1, -1]", "Reshape(%x, %t)", "more than one -1", "f32"),
    ("%x: f32[2, 3]; %y: f32[3]", "Concat(%x, %y) {axis = 0}", "one rank", "f32[3]"),
    ("%x: f32[2, 3]; %y: f32[2, 4]", "Concat(%x, %y) {axis = 0}", "axis 1", "found 3 and 4"),
    ("%x: f32[2, 3]", "Transpose(%x) {perm = [0, 0]}", "no permutation", "f32[2, 3]"),
    ("%x: f32[2, 3]", "Flatten(%x) {axis = 4}", "out of range", "f32[2, 3]"),
    ("%x: f32[2, 3]; const %a: i64[1] = [2]", "ReduceSum(%x, %a)", "out of range", "f32[2, 3]"),
    ("%x: f32[2, 3]; const %a: i64[1] = [0]", "Squeeze(%x, %a)", "squeezed", "found 2 and 1"),
    ("%x: f32[1, 3, 8, 8]; %w: f32[4, 5, 3, 3]", "Conv(%x, %w)", "channels", "found 3 and 5"),
    ("%x: f32[1, 3, 2, 2]; %w: f32[4, 3, 3, 3]", "Conv(%x, %w)", "larger than", "f32[4, 3, 3, 3]"),
    ("%x: f32[2]; %y: f32[2]", "Relu(%x, %y)", "takes 1 to 1 inputs, found 2", "f32[2]"),
    ("%q: f32[1, 6, 3, 4]; %k: f32[1, 4, 3, 4]", "Attention(%q, %k, %k)", "no multiple", "f32"),
    ("const %x: i64[3] = [1, 2, 3]; const %i: i64[] = 5", "Gather(%x, %i)", "out of range", "i64"),
    ("%x: f32[4]; %i: i64[2, 2]", "GatherND(%x, %i)", "reach 2 axes of rank 1", "f32[4]"),
]


@pytest.mark.parametrize(("inputs", "op", "reason", "shown"), WRONG)
def test_contradictions_name_the_node_and_the_types(
    inputs: str, op: str, reason: str, shown: str
) -> None:
    opset = 23 if op.startswith("Attention") else 20
    with pytest.raises(ModelError) as caught:
        one(inputs, op, opset=opset)
    assert reason in caught.value.message
    assert shown in str(caught.value)
    assert caught.value.where.startswith("node 'out0' (")
    assert caught.value.hint
