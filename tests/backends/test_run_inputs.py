from __future__ import annotations

import numpy as np
import pytest

from gecompiler.backends.execution.run_inputs import check_inputs
from gecompiler.ir.dims import symbol
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import OpaqueType, tensor

N = symbol("n")


def graph():
    made = Graph("g")
    made.add_input("mask", tensor("i64", (2, N + 1)))
    made.add_input("ids", tensor("i64", (2, N)))
    made.add_input("scale", tensor("f32", ()))
    made.set_outputs(["ids"])
    return made


def good():
    return {
        "ids": np.zeros((2, 3), np.int64),
        "mask": np.ones((2, 4), np.int64),
        "scale": np.float32(2),
    }


def test_arrays_that_fit_come_back_in_the_order_of_the_model():
    found = check_inputs(graph(), good())
    assert list(found) == ["mask", "ids", "scale"]
    assert found["scale"].shape == ()


def test_a_cast_that_loses_nothing_is_made():
    found = check_inputs(
        graph(), {**good(), "ids": np.ones((2, 3), np.int32), "scale": np.float16(2)}
    )
    assert found["ids"].dtype == np.int64
    assert found["scale"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"idz": np.zeros(1)}, r"'idz': the model has no such input\n.*did you mean 'ids'"),
        ({"ids": None}, r"'ids': missing; expected i64\[2, n\]\n.*takes mask, ids, scale"),
        ({"ids": np.zeros((2, 3), np.float32)}, r"expected element type int64, found float32"),
        ({"ids": np.zeros((2, 3), bool)}, r"expected element type int64, found bool"),
        ({"scale": np.float64(1)}, r"'scale': expected element type float32, found float64"),
        ({"scale": np.int8(1)}, r"expected element type float32, found int8"),
        ({"ids": np.array([["a"]])}, r"expected element type int64, found <U1"),
        ({"ids": np.zeros(3, np.int64)}, r"'ids': expected 2 dims: i64\[2, n\], found \[3\]"),
        ({"ids": np.zeros((1, 3), np.int64)}, r"expected size 2 at axis 0"),
        ({"ids": np.zeros((2, 5), np.int64)}, r"'mask': expected size 6 at axis 1"),
        ({"ids": np.zeros((2, 3), "datetime64[s]")}, r"has no ONNX element type"),
    ],
)
def test_what_does_not_fit_is_named(change, said):
    inputs = {k: v for k, v in {**good(), **change}.items() if v is not None}
    with pytest.raises(UsageError, match=said):
        check_inputs(graph(), inputs)


def test_sequences_pass_through_unseen():
    made = Graph("g")
    made.add_input("q", OpaqueType("sequence(f32)", b""))
    made.set_outputs(["q"])
    items = [np.zeros(2)]
    assert check_inputs(made, {"q": items})["q"] is items
