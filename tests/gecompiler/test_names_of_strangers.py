"""A name with a line break begins no line of what a command says, whatever it is the name of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecompiler.cli import main

EVIL = "n\nINJECTED: line"


def hostile() -> onnx.ModelProto:
    """A product and a sum; its graph, values, nodes and sizes are all named so."""

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    names = {n: f"{EVIL} {n}" for n in ("x", "w", "h", "y", "mul", "add", "rows", "batch", "doc")}
    nodes = [
        helper.make_node("MatMul", [names["x"], names["w"]], [names["h"]], names["mul"]),
        helper.make_node("Add", [names["h"], names["x"]], [names["y"]], names["add"]),
    ]
    weight = numpy_helper.from_array(np.ones((8, 8), np.float32), names["w"])
    x = value(names["x"], names["batch"], names["rows"], 8)
    y = value(names["y"], names["batch"], names["rows"], 8)
    graph = helper.make_graph(nodes, f"{EVIL} graph", [x], [y], [weight], names["doc"])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(hostile(), tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", **{f"{EVIL} x": np.ones((2, 4, 8), np.float32)})
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "compile model.onnx --batch 2 --seq 4",
        "compile model.onnx --batch 2",
        "compile model.onnx --batch 2 --seq 4 --streams 2 -v -o out",
        "compile model.onnx --batch 2 --seq 4 --tp 2",
        "compile model.onnx --batch 2 --seq 4 --train",
        "run model.onnx --inputs in.npz --expect in.npz",
        "run model.onnx --inputs in.npz",
        "profile model.onnx --batch 2 --seq 4 -o out",
        "explain model.onnx MatMul --batch 2 --seq 4",
        "explain model.onnx Nothing --batch 2 --seq 4",
        "sweep model.onnx --batch 1,2 --seq 4",
        "plan model.onnx --cards 2 --batch 2 --seq 4",
    ],
)
def test_no_name_begins_a_line(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        main(command.split())
    said = capsys.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if "INJECTED" in line]
    assert [line for line in lines if line.lstrip().startswith("INJECTED")] == []
    assert "internal error" not in said.err
