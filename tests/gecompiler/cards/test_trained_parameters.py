"""What is trained on several cards is what is trained on one, whatever is called or cut how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gecompiler as ge
from gecompiler.ir import Constant, Graph, symbol, tensor

BATCH, WIDTH = symbol("batch"), 8


def model() -> Graph:
    """Two products and a norm, whose biases an exporter merged, and a head of two classes."""
    rng = np.random.default_rng(2)
    graph = Graph("merged", {"": 17})
    x = graph.add_input("x", tensor("f32", (BATCH, 6, WIDTH)))
    for name, shape in (("up", (WIDTH, WIDTH)), ("down", (WIDTH, WIDTH)), ("head", (WIDTH, 2))):
        graph.add_constant(name, Constant.of(rng.standard_normal(shape).astype(np.float32)))
    graph.add_constant("zeros", Constant.of(np.zeros(WIDTH, np.float32)))
    graph.add_constant("two", Constant.of(np.zeros(2, np.float32)))
    graph.add_constant("scale", Constant.of(np.ones(WIDTH, np.float32)))
    rows = tensor("f32", (BATCH, 6, WIDTH))
    made = graph.emit("Add", [graph.emit("MatMul", [x, "up"], rows), "zeros"], rows)
    x = graph.emit("MatMul", [graph.emit("Softplus", [made], rows), "down"], rows)
    x = graph.emit("LayerNormalization", [x, "scale", "zeros"], rows)
    scores = tensor("f32", (BATCH, 6, 2))
    graph.emit("Add", [graph.emit("MatMul", [x, "head"], scores), "two"], scores, stem="logits")
    graph.set_outputs(graph.ops[-1].outputs)
    return graph


@pytest.mark.parametrize("layout", [{"tp": 2}, {"tp": 2, "dp": 2, "zero_stage": 3}], ids=str)
def test_parameters_are_the_same_whatever_they_are_called(layout: dict[str, Any]) -> None:
    """``zeros/1`` is no moment of ``zeros``, and lies on ranks as its own use wants it.

    A bias of two classes is a number on each of two ranks, and trained.
    """
    rng = np.random.default_rng(3)
    given = {
        "x": rng.standard_normal((4, 6, WIDTH)).astype(np.float32),
        "labels": rng.integers(0, 2, (4, 6)),
    }
    ways: dict[str, Any] = {"train": True, "optimizer": "momentum", "train_loss": "cross-entropy"}
    one = ge.compile(model(), batch=4, **ways).run(given)
    several = ge.compile(model(), batch=4, **ways, **layout)
    assert several.compilation.findings == ()
    cards = several.compilation.cards
    assert cards is not None
    assert cards.training is not None
    lies = cards.training.forward.templates[0].constants
    assert {"zeros", "two"} <= set(lies)
    assert "zeros/1" not in lies
    found = several.run(given)
    assert set(found) == set(one) >= {"updated/zeros/1/m", "updated/two"}
    for name, array in found.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)


def looked_up(form: str) -> Graph:
    """Rows of a table of positions are added, taken in one of the ways of exporters."""
    graph, seq, one = Graph("places", {"": 17}), symbol("seq"), np.array([1], np.int64)
    x = graph.add_input("x", tensor("f32", (BATCH, seq, WIDTH)))
    rng = np.random.default_rng(0)
    for name, shape in (("table", (32, WIDTH)), ("w", (WIDTH, WIDTH))):
        graph.add_constant(name, Constant.of(rng.standard_normal(shape).astype(np.float32)))
    graph.add_constant("first", Constant.of(0 * one))
    graph.add_constant("axis", Constant.of(0 * one))
    graph.constant_of("one", one)
    shape = graph.emit("Shape", [x], tensor("i64", (3,)))
    count = graph.emit("Gather", [shape, "one"], tensor("i64", (1,)))
    rows, kind = tensor("f32", (seq, WIDTH)), tensor("f32", (BATCH, seq, WIDTH))
    if form == "Slice":
        made = graph.emit("Slice", ["table", "first", count, "axis"], rows)
    else:
        ends = [graph.emit("Squeeze", [v], tensor("i64", ())) for v in ("first", count, "one")]
        at = graph.emit("Range", ends, tensor("i64", (seq,)))
        if form == "GatherND":
            at = graph.emit("Unsqueeze", [at, "one"], tensor("i64", (seq, 1)))
        made = graph.emit(form, ["table", at], rows)
    x = graph.emit("Add", [x, made], kind)
    graph.set_outputs([graph.emit("MatMul", [x, "w"], kind)])
    return graph


@pytest.mark.parametrize("layout", [{}, {"dp": 2}, {"tp": 2}, {"sp": 2}, {"pp": 2}], ids=str)
@pytest.mark.parametrize("form", ["Gather", "GatherND", "Slice"])
def test_a_table_of_positions_is_one_parameter(form: str, layout: dict[str, Any]) -> None:
    """However its rows are taken, and not the rows of so many tokens."""
    rng = np.random.default_rng(1)
    x, labels = (rng.standard_normal((4, 6, WIDTH)).astype(np.float32) for _ in range(2))
    ways: dict[str, Any] = {"train": True, "optimizer": "sgd"}
    compiled = ge.compile(looked_up(form), batch=4, seq=6, **ways, **layout)
    found = compiled.run({"x": x, "labels": labels})
    one = ge.compile(looked_up("Gather"), batch=4, seq=6, **ways).run({"x": x, "labels": labels})
    assert set(found) == {"loss", "updated/table", "updated/w"}
    assert found["updated/table"].shape == (32, WIDTH)
    for name, array in found.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)


def frozen(layers: int = 4) -> Graph:
    """A chain of layers w0, w1, ..., the third behind a step without slope beside a bypass."""
    rng = np.random.default_rng(4)
    graph, rows = Graph("chain", {"": 17}), tensor("f32", (BATCH, 6, WIDTH))
    x = graph.add_input("x", rows)
    for layer in range(layers):
        weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
        graph.add_constant(f"w{layer}", Constant.of(weight))
        x = graph.emit("Tanh", [graph.emit("MatMul", [x, f"w{layer}"], rows)], rows)
        if layer == 1:
            x = graph.emit("Round", [x], rows)
    graph.set_outputs([x])
    return graph


@pytest.mark.parametrize("trained", ["w0,w1", "w0,w3", "w3", "w2,w3", "w*"])
@pytest.mark.parametrize("layout", [{"pp": 2}, {"pp": 4}, {"pp": 2, "tp": 2, "micro_batches": 2}],
                         ids=str)  # fmt: skip
def test_stages_without_parameters_or_gradients(layout: dict[str, Any], trained: str) -> None:
    """A stage below all parameters gets no gradient; one whose gradients vanish gets zeros."""
    rng = np.random.default_rng(1)
    given = {n: rng.standard_normal((4, 6, WIDTH)).astype(np.float32) for n in ("x", "labels")}
    names = trained.split(",")
    ways: dict[str, Any] = {"train": True, "optimizer": "sgd", "train_parameters": names}
    one = ge.compile(frozen(), batch=4, **ways).run(given)
    several = ge.compile(frozen(), batch=4, **ways, **layout)
    assert several.compilation.findings == ()
    found = several.run(given)
    assert set(found) >= set(one)
    for name, array in one.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    made = several.compilation.cards
    assert made is not None
    transfers = {op.op_type for t in made.program.templates for op in t.graph.ops
                 if op.info.phase == "backward" and op.op_type in ("Send", "Recv")}  # fmt: skip
    if trained == "w3":
        assert not transfers


def test_a_decode_step_is_trained_over_sp(corpus: Path) -> None:
    """Every rank has the whole cache, so that there is a gradient, and it is one card's."""
    path = corpus / "models" / "llama-decode-eager-ts.onnx"
    given = dict(np.load(path.with_suffix(".inputs.npz")))
    shapes = {name: array.shape for name, array in given.items()}
    ways: dict[str, Any] = {"train": True, "optimizer": "sgd", "input_shapes": shapes}
    given["labels"] = np.full(given["input_ids"].shape, 3, np.int64)
    one, ranks = ge.compile(path, **ways).run(given), ge.compile(path, **ways, sp=2).run(given)
    assert set(one) == set(ranks)
    for name, array in ranks.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)
