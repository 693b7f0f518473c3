"""Weights that several stages of a pipeline hold are trained as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gecompiler as ge
from gecompiler.ir import Constant, Graph, symbol, tensor


def tied(layers: int = 4, width: int = 8) -> Graph:
    """A chain of layers whose first and last weight is one table; a gain is in two of them."""
    rng = np.random.default_rng(5)
    graph = Graph("tied", {"": 17})
    batch = symbol("batch")
    graph.add_input("ids", tensor("i64", (batch, 6)))
    table = rng.standard_normal((20, 8)).astype(np.float32)
    graph.add_constant("table", Constant.of(table))
    graph.add_constant("mixing", Constant.of(0.3 * rng.standard_normal((8, 8)).astype("f4")))
    rows = tensor("f32", (batch, 6, 8))
    x = graph.emit("Gather", ["table", "ids"], rows)
    for layer in range(layers):
        own = "mixing"
        if layer % 2:
            weight = 0.3 * rng.standard_normal((8, 8)).astype(np.float32)
            own = graph.add_constant(f"w{layer}", Constant.of(weight))
        made = graph.emit("Tanh", [graph.emit("MatMul", [x, own], rows)], rows)
        x = graph.emit("Add", [x, made], rows)
    turned = graph.emit("Transpose", ["table"], tensor("f32", (8, 20)), attrs={"perm": (1, 0)})
    graph.emit("MatMul", [x, turned], tensor("f32", (batch, 6, 20)), stem="logits")
    logits = graph.ops[-1].outputs[0]
    graph.set_outputs([logits])
    return graph


TIED: tuple[dict[str, Any], ...] = (
    {"tp": 2},
    {"dp": 2, "tp": 2, "embeddings": "split"},
    {"sp": 2},
    {"pp": 2},
    {"pp": 4, "micro_batches": 2},
    {"pp": 2, "pipeline_schedule": "interleaved"},
    {"pp": 2, "dp": 2, "pipeline_schedule": "interleaved", "zero_stage": 2},
    {"pp": 2, "dp": 2, "pipeline_schedule": "interleaved", "zero_stage": 3, "micro_batches": 2},
    {"tp": 2, "pp": 2, "pipeline_schedule": "interleaved"},
)


@pytest.mark.parametrize("layout", TIED, ids=str)
def test_weights_that_stages_share_are_trained_as_one(layout: dict[str, Any]) -> None:
    """Also where a stage has several pieces, of which some share weights and some do not."""
    rng = np.random.default_rng(3)
    given = {"ids": rng.integers(0, 20, (8, 6)), "labels": rng.integers(0, 20, (8, 6))}
    ways: dict[str, Any] = {"train": True, "optimizer": "momentum", "train_loss": "cross-entropy"}
    one = ge.compile(tied(), batch=8, **ways).run(given)
    compiled = ge.compile(tied(), batch=8, **ways, **layout)
    assert compiled.compilation.findings == ()
    found = compiled.run(given)
    assert set(found) == set(one) >= {"updated/table/m", "updated/mixing/m"}
    for name, array in found.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)
