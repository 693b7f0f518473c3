"""``gec compile --train``, its report and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import gecompiler as ge
from gecompiler.cli import main
from gecompiler.ir import Constant, Graph, UsageError, save_onnx, symbol, tensor
from gecompiler.report import report_schema
from gecompiler.training import training_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """y = relu(x w) v."""
    graph, rng = Graph("mlp", {"": 17}), np.random.default_rng(0)
    graph.add_input("x", tensor("f32", (symbol("batch"), 8)))
    for name, shape in (("w", (8, 16)), ("v", (16, 4))):
        graph.add_constant(name, Constant.of(rng.standard_normal(shape).astype(np.float32)))
    hidden = graph.emit("MatMul", ["x", "w"], tensor("f32", (symbol("batch"), 16)))
    bent = graph.emit("Relu", [hidden], tensor("f32", (symbol("batch"), 16)))
    out = graph.emit("MatMul", [bent, "v"], tensor("f32", (symbol("batch"), 4)))
    graph.set_outputs([out])
    save_onnx(graph, tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_report_tells_the_phases(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compile", str(path), "--train", "--batch", "4", "--json")
    assert code == 0
    report = json.loads(out)
    jsonschema.validate(report, report_schema())
    found = report["training"]
    assert found["parameters"] == 8 * 16 + 16 * 4
    assert found["optimizer_bytes"] == 2 * 4 * found["parameters"] + 8
    assert set(found["busy_us"]) == {"forward", "backward", "optimizer"}
    code, out, _ = run(capsys, "compile", str(path), "--train", "--optimizer", "sgd")
    assert code == 0
    assert "Training step: 2 tensors, 192 parameters, optimizer sgd" in out


@pytest.mark.parametrize(
    "cards", [("--dp", "2"), ("--tp", "2"), ("--dp", "2", "--zero", "3"), ("--pp", "2")]
)
def test_ops_of_a_step_are_counted_as_on_one_card(
    path: Path, capsys: pytest.CaptureFixture[str], cards: tuple[str, ...]
) -> None:
    args = ("compile", str(path), "--train", "--batch", "4", "--json")
    alone, several = (json.loads(run(capsys, *args, *more)[1]) for more in ((), cards))
    jsonschema.validate(several, report_schema())
    assert several["model"]["ops_compiled"] == alone["model"]["ops_compiled"]
    assert alone["model"]["ops_compiled"] > 2 * alone["model"]["ops_imported"]


def test_buckets_of_which_cards_have_parts_are_called_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("compile", str(path), "--train", "--batch", "4", "--optimizer", "sgd", "--dp", "2")
    found = json.loads(run(capsys, *args, "--zero", "3", "--json")[1])["training"]
    assert (found["tensors"], found["parameter_buckets"], found["parameters"]) == (2, 1, 96)
    _, out, _ = run(capsys, *args, "--zero", "3")
    assert "2 tensors in 1 bucket, 96 parameters a card" in out
    _, out, _ = run(capsys, *args)
    assert "Training step: 2 tensors, 192 parameters" in out


def test_micro_batches_accumulate(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("compile", str(path), "--train", "--batch", "4", "--micro-batches")
    code, out, _ = run(capsys, *args, "2", "--json")
    assert code == 0
    assert json.loads(out)["training"]["micro_batches"] == 2
    code, _, err = run(capsys, *args, "3")
    assert code == 2
    assert "cannot be cut into 3 micro-batches" in err


WRONG: list[dict[str, Any]] = [
    {"optimizer": "lamb"},
    {"recompute": "all"},
    {"train_loss": "l1"},
    {"zero_stage": 4},
    {"bucket_mib": 0},
    {"train": "maybe"},
]


@pytest.mark.parametrize("options", WRONG)
def test_wrong_values_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        ge.Session().configure(**options)


def test_options_of_training_ask_for_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "compile", str(path), "--recompute", "full")
    assert code == 2
    assert "--train" in err


def test_a_compiled_step_runs(path: Path) -> None:
    session = ge.Session()
    model = session.compile(str(path), batch=4, train=True, optimizer="sgd")
    x, labels = np.ones((4, 8), np.float32), np.zeros((4, 4), np.float32)
    found = model.run({"x": x, "labels": labels})
    assert found["loss"] > 0 if "loss" in found else next(iter(found.values())) > 0


@pytest.mark.parametrize("layout", [{"dp": 2}, {"tp": 2}, {"pp": 2}, {"dp": 2, "zero_stage": 3}])
def test_the_report_of_several_cards_tells_of_one(path: Path, layout: dict[str, int]) -> None:
    """The card that computes longest: its weights, the optimiser's state, its time by phase."""
    session = ge.Session()
    one = session.compile(str(path), batch=4, train=True).as_dict()["training"]
    several = session.compile(str(path), batch=4, train=True, **layout)
    report = several.as_dict()
    jsonschema.validate(report, report_schema())
    found = report["training"]
    assert found["rank"] < 2
    assert {"forward", "backward", "optimizer"} <= found["busy_us"].keys()
    shared = "tp" in layout or "pp" in layout or "zero_stage" in layout
    assert (found["weight_bytes"] < one["weight_bytes"]) == shared
    assert found["weight_bytes"] > 0
    assert ("sync" in found["busy_us"]) or "pp" in layout
    assert f"Of rank {found['rank']}" in next(iter(training_lines(report)))


def test_parameters_stay_what_the_model_has(tmp_path: Path) -> None:
    """Not trained: rows looked up at known places, a token for each sample, what sizes make."""
    graph, rng, batch = Graph("tokens", {"": 17}), np.random.default_rng(0), symbol("batch")
    rows = tensor("f32", (batch, 3, 4))
    graph.add_input("x", tensor("f32", (batch, 2, 4)))
    for name, shape in (("token", (1, 1, 4)), ("table", (5, 4)), ("w", (4, 4))):
        graph.add_constant(name, Constant.of(rng.standard_normal(shape).astype(np.float32)))
    for name, numbers in (("at", [0, 2, 4]), ("first", [0])):
        graph.add_constant(name, Constant.of(np.array(numbers, np.int64)))
    sizes = graph.emit("Shape", ["x"], tensor("i64", (3,)))
    count = graph.emit("Gather", [sizes, "first"], tensor("i64", (1,)))
    one = graph.constant_of("ones", np.array([1, 4], np.int64))
    target = graph.emit("Concat", [count, one], tensor("i64", (3,)), attrs={"axis": 0})
    each = graph.emit("Expand", ["token", target], tensor("f32", (batch, 1, 4)))
    joined = graph.emit("Concat", [each, "x"], rows, attrs={"axis": 1})
    places = graph.emit("Gather", ["table", "at"], tensor("f32", (3, 4)))
    placed = graph.emit("Add", [joined, places], rows)
    zeros = graph.emit("ConstantOfShape", [target], tensor("f32", (batch, 1, 4)))
    moved = graph.emit("Add", [placed, zeros], rows)
    graph.set_outputs([graph.emit("MatMul", [moved, "w"], rows)])
    save_onnx(graph, tmp_path / "tokens.onnx")
    step = ge.compile(str(tmp_path / "tokens.onnx"), batch=4, train=True, optimizer="sgd")
    given = {"x": np.ones((4, 2, 4), np.float32), "labels": np.zeros((4, 3, 4), np.float32)}
    found = step.run(given)
    assert set(found) == {"loss", "updated/token", "updated/table", "updated/w"}
    assert found["updated/token"].shape == (1, 1, 4)
    assert found["updated/table"].shape == (5, 4)


def classifier() -> Graph:
    """Scores of 7 classes a position."""
    graph, rng, batch = Graph("classes", {"": 17}), np.random.default_rng(0), symbol("batch")
    graph.add_input("x", tensor("f32", (batch, 6, 8)))
    for name, shape in (("u", (8, 8)), ("w", (8, 7))):
        graph.add_constant(name, Constant.of(rng.standard_normal(shape).astype(np.float32)))
    hidden = graph.emit("MatMul", ["x", "u"], tensor("f32", (batch, 6, 8)))
    bent = graph.emit("Tanh", [hidden], tensor("f32", (batch, 6, 8)))
    graph.emit("MatMul", [bent, "w"], tensor("f32", (batch, 6, 7)), stem="logits")
    graph.set_outputs(graph.ops[-1].outputs)
    return graph


@pytest.mark.parametrize("loss", ["cross-entropy", "next-token"])
@pytest.mark.parametrize(
    "layout",
    [
        {"micro_batches": 4},
        {"dp": 4},
        {"tp": 2},
        {"dp": 2, "tp": 2, "micro_batches": 2, "zero_stage": 2},
        {"sp": 2, "tp": 2},
        {"pp": 2, "micro_batches": 8},
    ],
    ids=str,
)
def test_labels_that_are_left_out_of_some_parts_alone(layout: dict[str, Any], loss: str) -> None:
    """Every label of the whole batch counts alike, in whatever part of it (`LABEL_COUNT`).

    A part may have none at all. The mean of the parts' means would be another loss.
    """
    rng = np.random.default_rng(3)
    x = rng.standard_normal((8, 6, 8)).astype(np.float32)
    labels = rng.integers(0, 7, (8, 6))
    labels[0] = labels[1, 1:] = labels[5, 3:] = -100
    ways: dict[str, Any] = {"train": True, "optimizer": "momentum", "train_loss": loss}
    one = ge.compile(classifier(), batch=8, **ways).run({"x": x, "labels": labels})
    found = ge.compile(classifier(), batch=8, **ways, **layout).run({"x": x, "labels": labels})
    assert set(found) == set(one)
    for name, array in found.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("layout", [{"tp": 2}, {"tp": 2, "pp": 2, "micro_batches": 2}], ids=str)
def test_a_table_whose_rows_are_shared_out_keeps_its_name(layout: dict[str, Any]) -> None:
    graph, rng, batch = Graph("words", {"": 17}), np.random.default_rng(0), symbol("batch")
    graph.add_input("ids", tensor("i64", (batch, 6)))
    for name, shape in (("table", (20, 8)), ("w", (8, 20))):
        graph.add_constant(name, Constant.of(rng.standard_normal(shape).astype(np.float32)))
    rows = graph.emit("Gather", ["table", "ids"], tensor("f32", (batch, 6, 8)))
    bent = graph.emit("Tanh", [rows], tensor("f32", (batch, 6, 8)))
    graph.emit("MatMul", [bent, "w"], tensor("f32", (batch, 6, 20)), stem="logits")
    graph.set_outputs(graph.ops[-1].outputs)
    given = {"ids": rng.integers(0, 20, (4, 6)), "labels": rng.integers(0, 20, (4, 6))}
    ways: dict[str, Any] = {"train": True, "optimizer": "momentum"}
    one = ge.compile(graph.copy(), batch=4, **ways).run(given)
    several = ge.compile(graph, batch=4, **ways, embeddings="split", **layout)
    cards = several.compilation.cards
    assert cards is not None
    held = cards.program.templates[0].graph.tensor("table")
    assert held is not None
    assert held.sizes == (10, 8)
    found = several.run(given)
    assert set(found) == set(one) >= {"updated/table/m"}
    for name, array in found.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_batch_without_any_label_has_no_loss() -> None:
    given = {"x": np.ones((4, 6, 8), np.float32), "labels": np.full((4, 6), -100)}
    ways: dict[str, Any] = {"train": True, "optimizer": "sgd", "train_loss": "cross-entropy"}
    for layout in ({}, {"dp": 2}, {"micro_batches": 2}):
        found = ge.compile(classifier(), batch=4, **ways, **layout).run(given)
        assert found["loss"] == 0
        np.testing.assert_array_equal(found["updated/w"], classifier().constants["w"].array())
