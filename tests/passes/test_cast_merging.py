"""Casts that cancel or merge, judged by trying every pair of types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from rewriting_help import check, kinds, rewritten

from gecompiler.ir.types import DType
from gecompiler.passes.canonical.cast_merging import is_lossless
from gecompiler.passes.canonical.no_op_removal import NoOpRemoval

NUMERIC = [
    *(DType.BOOL, DType.U8, DType.I8, DType.U16, DType.I16, DType.U32, DType.I32, DType.U64),
    *(DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64),
]


def samples(dtype: DType) -> np.ndarray:
    """Values where conversions lose something if anywhere: ends of the range and odd numbers."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        wanted = [info.min, info.min + 1, -1, 0, 1, 255, 2049, 2**24 + 1, 2**53 + 1, info.max]
        return np.array([v for v in wanted if info.min <= v <= info.max], dtype.numpy)
    raw = np.array([-0.0, 0.0, 1.0, np.inf, -np.inf, 2.0**-14, 1 + 2.0**-7, 3.3], np.float64)
    tops = {DType.F16: 65504.0, DType.BF16: 3e38, DType.F32: 3.4e38, DType.F64: 1.7e308}
    return np.array([*raw, tops[dtype], -tops[dtype], 1 / 3], np.float64).astype(dtype.numpy)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NUMERIC, NUMERIC)))
def test_lossless_means_that_every_value_comes_back(source: DType, target: DType) -> None:
    values = samples(source)
    with np.errstate(all="ignore"):
        back = values.astype(target.numpy).astype(source.numpy)
        there = values.astype(target.numpy)
    survives = bool(np.all(values == back))
    if source.is_float and target.is_float:
        survives &= bool(np.all(np.signbit(values.astype("f8")) == np.signbit(back.astype("f8"))))
    elif source.is_float:
        survives = False  # -0.0, infinities
    if target.is_integer and source.is_integer:
        survives &= all(int(a) == int(b) for a, b in zip(values, there, strict=True))
    elif target is DType.BOOL and source is not DType.BOOL:
        survives = False
    assert is_lossless(source, target) == survives


def chain(first: str, *codes: int) -> str:
    lines = [f"input %v0: {first}[n]"]
    lines += [f"%v{i + 1} = Cast(%v{i}) {{to = {code}}}" for i, code in enumerate(codes)]
    return "graph @g (opset 18) {" + "\n".join([*lines, f"return %v{len(codes)}", "}"])


@pytest.mark.parametrize(
    ("first", "codes", "left"),
    [
        ("f32", (11, 1), {"Identity": 1}),
        ("f16", (1, 10), {"Identity": 1}),
        ("f32", (10, 1), {"Cast": 2}),
        ("i32", (1, 6), {"Cast": 2}),
        ("i32", (11, 6), {"Identity": 1}),
        ("bool", (7, 1, 9), {"Identity": 1}),
        ("f32", (9, 9, 9), {"Cast": 1}),
        ("i64", (9, 7), {"Cast": 2}),
        ("f32", (1, 11, 10), {"Cast": 1}),
    ],
)
def test_chains(first: str, codes: tuple[int, ...], left: dict[str, int]) -> None:
    assert kinds(check(chain(first, *codes), {"n": 40}, NoOpRemoval())) == left


def test_text_of_a_number_depends_on_its_type() -> None:
    assert kinds(rewritten(chain("f16", 1, 8), NoOpRemoval())) == {"Cast": 2}


def test_cast_like_is_a_cast() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[n]
      input %like: i64[]
      %y = CastLike(%x, %like)
      return %y
    }"""
    graph = rewritten(text, NoOpRemoval())
    assert [(op.op_type, dict(op.attrs)) for op in graph.ops] == [("Cast", {"to": 7})]
