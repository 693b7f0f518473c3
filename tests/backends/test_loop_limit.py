"""Loops that come to no end are ended; short ones run as long as they need."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from gecompiler.backends.execution import loop_limit
from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import ModelError, load_onnx

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def looping(trips: int, collected: str = "") -> bytes:
    output, value = (", all", ", float[1000] o") if collected else ("", "")
    text = f"""{HEAD} g (float[2] x) => (float[2] y) <int64 n = {{{trips}}}, bool go = {{1}}> {{
        y{output} = Loop<body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w{value}) {{
        d = Identity(c)  w = Neg(v) {collected} }}>(n, go, x) }}"""
    return bytes(parser.parse_model(text).SerializeToString())


def run(model: bytes) -> np.ndarray:
    return np.asarray(run_reference(load_onnx(model), {"x": np.ones(2, np.float32)})["y"])


def test_a_loop_of_2_to_62_rounds_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_limit, "SECONDS", 0.3)
    with pytest.raises(ModelError, match=r"node .Loop_0. .Loop.: the loop did not end"):
        run(looping(2**62))


def test_a_loop_that_takes_all_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_limit, "BYTES", 2**26)
    rows = "k = Constant<value_ints = [1000]>()  s = Constant<value_float = 1.0>()"
    with pytest.raises(ModelError, match="did not end"):
        run(looping(2**40, f"{rows}  o = Expand(s, k)"))


def test_a_short_loop_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_limit, "SECONDS", 0.0)
    assert run(looping(20_000)).tolist() == [1.0, 1.0]


def test_a_long_loop_that_ends_in_time_is_right() -> None:
    assert run(looping(loop_limit.SHORT_ROUNDS + 1)).tolist() == [-1.0, -1.0]
