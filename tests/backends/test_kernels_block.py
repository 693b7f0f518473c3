"""Kernels of norms, rotary embedding and activations against their formulas in float64."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.kernels.activations import activation, erf, sigmoid
from gecompiler.backends.kernels.norms import norm
from gecompiler.backends.kernels.rotary import rotary_embedding
from gecompiler.ir.block_ops import FUNCTIONS, STYLES, Activation, Norm, Rotary
from gecompiler.ir.types import DType

PRECISION = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
TYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)


def array(seed: int, *shape: int, dtype: Any = np.float32, spread: float = 1.0) -> Any:
    draw = np.random.default_rng(seed)
    return (0.2 + spread * draw.standard_normal(shape)).astype(dtype)


def close(found: Any, wanted: Any, dtype: Any) -> None:
    assert found.dtype == dtype
    bound = PRECISION[np.dtype(dtype).name]
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=bound, atol=bound * (1 + abs(wanted).max())
    )


# ------------------------------------------------------------------ norms


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 4),
    width=st.integers(1, 40),
    centred=st.booleans(),
    axis=st.sampled_from([-1, -2, 1]),
    scaled=st.booleans(),
    offset=st.sampled_from([0.0, 1.0]),
    kind=st.sampled_from(TYPES),
)
def test_norms(
    seed: int,
    rows: int,
    width: int,
    centred: bool,
    axis: int,
    scaled: bool,
    offset: float,
    kind: Any,
) -> None:
    x = array(seed, 2, rows, width, dtype=kind)
    scale, shift = (array(seed + n, width, dtype=kind) for n in (1, 2))
    wide = DType.F64 if kind is np.float64 else DType.F32
    own = DType.from_numpy(np.dtype(kind))
    spec = Norm(centred, axis, 1e-3, wide, wide, own, offset if scaled else 0.0)
    found, total = norm(x, None, scale if scaled else None, shift if scaled else None, None, spec)
    assert total is x
    exact = x.astype(np.float64)
    axes = tuple(range(axis % 3, 3))
    exact = exact - exact.mean(axis=axes, keepdims=True) if centred else exact
    exact = exact / np.sqrt((exact * exact).mean(axis=axes, keepdims=True) + 1e-3)
    if scaled:
        exact = exact * (offset + scale.astype(np.float64)) + shift.astype(np.float64)
    close(found, exact, kind)


@pytest.mark.parametrize("kind", TYPES)
def test_a_residual_is_added_first_and_handed_out_rounded(kind: Any) -> None:
    x, residual, bias = (array(n, *s, dtype=kind) for n, s in enumerate([(3, 8), (3, 8), (8,)]))
    wide = DType.F64 if kind is np.float64 else DType.F32
    own = DType.from_numpy(np.dtype(kind))
    spec = Norm(False, -1, 1e-5, wide, own, own, adds=True)
    found, total = norm(x, residual, None, None, bias, spec)
    exact = x.astype(np.float64) + bias.astype(np.float64) + residual.astype(np.float64)
    close(total, exact, kind)
    again, _ = norm(total, None, None, None, None, spec)
    np.testing.assert_array_equal(found, again)


def half_norm(stash: DType, scale_type: DType) -> Norm:
    return Norm(False, -1, 1e-5, stash, scale_type, DType.F16)


def test_where_the_rounding_happens() -> None:
    x, scale = array(1, 4, 64, dtype=np.float16), array(2, 64, dtype=np.float16, spread=0.3)
    wide = x.astype(np.float32)
    normal = wide * (1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-5)))
    early, _ = norm(x, None, scale, None, None, half_norm(DType.F32, DType.F16))
    np.testing.assert_array_equal(early, normal.astype(np.float16) * scale)
    late, _ = norm(x, None, scale, None, None, half_norm(DType.F32, DType.F32))
    np.testing.assert_array_equal(late, (normal * scale).astype(np.float16))
    assert (early != late).any()


def test_a_sum_of_infinities_is_nan_without_a_word() -> None:
    x = np.array([[np.inf, 1.0, 2.0]], np.float32)
    out, total = norm(
        x, -x, None, None, None, Norm(False, -1, 1e-5, DType.F32, DType.F32, DType.F32, adds=True)
    )
    np.testing.assert_array_equal(total, [[np.nan, 0.0, 0.0]])
    assert np.isnan(out).all()


def test_a_stash_in_half_precision_overflows_as_the_model_did() -> None:
    x = np.full((1, 8), 300.0, np.float16)
    found, _ = norm(x, None, None, None, None, half_norm(DType.F16, DType.F16))
    assert (found == 0).all()
    found, _ = norm(x, None, None, None, None, half_norm(DType.F32, DType.F16))
    assert (found == 1).all()


# ------------------------------------------------------------------ rotary embedding


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1000),
    half=st.integers(1, 6),
    start=st.integers(0, 3),
    rest=st.integers(0, 3),
    style=st.sampled_from(STYLES),
    narrow=st.booleans(),
    kind=st.sampled_from(TYPES),
)
def test_rotary(
    seed: int, half: int, start: int, rest: int, style: str, narrow: bool, kind: Any
) -> None:
    dim = 2 * half
    x = array(seed, 2, 3, 4, start + dim + rest, dtype=kind)
    tables = [array(seed + n, 4, half if narrow else dim, dtype=kind) for n in (1, 2)]
    found = rotary_embedding(x, *tables, Rotary(dim, start, style))
    wanted = x.astype(np.float64).copy()
    cos, sin = (t.astype(np.float64) for t in tables)
    for pair in range(half):
        i, j = (2 * pair, 2 * pair + 1) if style != "half" else (pair, pair + half)
        u, v = (2 * pair, 2 * pair + 1) if style == "interleaved" else (pair, pair + half)
        a, b = (x[..., start + n].astype(np.float64) for n in (i, j))
        p, q = (pair, pair) if narrow else (u, v)
        wanted[..., start + u] = a * cos[:, p] - b * sin[:, p]
        wanted[..., start + v] = b * cos[:, q] + a * sin[:, q]
    close(found, wanted, kind)


def test_a_rotation_keeps_lengths_and_leaves_x_alone() -> None:
    x = array(3, 2, 5, 8)
    before = x.copy()
    angle = np.linspace(0, 3, 5 * 4, dtype=np.float32).reshape(5, 4)
    found = rotary_embedding(x, np.cos(angle), np.sin(angle), Rotary(8))
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(
        np.linalg.norm(found, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
    )


def test_tables_may_be_wider_than_x() -> None:
    x = array(3, 2, 8, dtype=np.float16)
    cos, sin = array(4, 8), array(5, 8)
    found = rotary_embedding(x, cos, sin, Rotary(8))
    assert found.dtype == np.float16
    exact = rotary_embedding(x.astype(np.float32), cos, sin, Rotary(8))
    np.testing.assert_array_equal(found, exact.astype(np.float16))


# ------------------------------------------------------------------ activations

EXACT = {
    "Gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "Silu": lambda x: x / (1 + math.exp(-x)),
    "Relu": lambda x: max(x, 0.0),
    "SquaredRelu": lambda x: max(x, 0.0) ** 2,
    "Sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "Tanh": math.tanh,
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gate", ["", "up", "first", "last"])
def test_activations(function: str, kind: Any, bias: bool, gate: str) -> None:
    x, up, row = array(1, 3, 8, dtype=kind), array(2, 3, 8, dtype=kind), array(3, 8, dtype=kind)
    spec = Activation(function, gated=bool(gate), gate="last" if gate == "last" else "first")
    found = activation(x, up if gate == "up" else None, row if bias else None, spec)
    exact = x.astype(np.float64) + (row.astype(np.float64) if bias else 0)
    factor: Any = up.astype(np.float64) if gate == "up" else 1.0
    if gate in ("first", "last"):
        halves = (exact[:, :4], exact[:, 4:])
        exact, factor = halves if gate == "first" else halves[::-1]
    close(found, np.vectorize(EXACT[function])(exact) * factor, kind)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_single_number_is_an_array_of_rank_0(function: str) -> None:
    found = activation(np.array(0.5, np.float32), None, None, Activation(function))
    assert isinstance(found, np.ndarray)
    close(found, np.array(EXACT[function](0.5)), np.float32)


@pytest.mark.parametrize("gate", ["even", "odd"])
def test_gates_between_what_they_gate(gate: Any) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 8)).astype(np.float32)
    sides = x[..., 0::2], x[..., 1::2]
    value, up = sides if gate == "even" else sides[::-1]
    found = activation(x, None, None, Activation("Relu", gated=True, gate=gate))
    np.testing.assert_array_equal(found, np.maximum(value, 0) * up)


def test_clamps_and_shift_of_a_gated_activation() -> None:
    x, up = (np.array(v, np.float32) for v in ([-9.0, 2.0, 9.0, np.nan], [9.0, -9.0, 0.5, 1.0]))
    spec = Activation("Relu", gated=True, limit=4.0, shift=1.0)
    np.testing.assert_array_equal(activation(x, up, None, spec), [0.0, -6.0, 6.0, np.nan])


def test_gelu_by_tanh_and_silu_with_another_slope() -> None:
    x = array(1, 100, dtype=np.float64, spread=3.0)
    tanh = activation(x, None, None, Activation("Gelu", approximate="tanh"))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    np.testing.assert_allclose(tanh, 0.5 * x * (1 + np.tanh(inner)), rtol=1e-12)
    quick = activation(x, None, None, Activation("Silu", alpha=1.702))
    np.testing.assert_allclose(quick, x / (1 + np.exp(-1.702 * x)), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_far_ends(kind: Any) -> None:
    x = np.array([-1e4, -100, 0, 100, 1e4, np.inf, np.nan], kind)
    np.testing.assert_array_equal(sigmoid(x)[[0, 2, 3, 4, 5]], [0, 0.5, 1, 1, 1])
    np.testing.assert_array_equal(erf(x)[[0, 1, 2, 3, 5]], [-1, -1, 0, 1, 1])
    assert np.isnan(sigmoid(x)[-1])
    assert np.isnan(erf(x)[-1])
