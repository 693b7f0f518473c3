"""``--host-memory``: what a run may take, said by the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from gecompiler.cli import main

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[8] x) => (float[600000008] y) {
    p = Constant<value_ints = [0, 600000000]>()  y = Pad(x, p) }"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(TEXT).SerializeToString())
    np.savez(tmp_path / "in.npz", x=np.ones(8, np.float32))
    return str(tmp_path / "m.onnx"), str(tmp_path / "in.npz")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as end:
        main(["run", *arguments])
    return end.value.code, capsys.readouterr().err


def test_a_small_file_that_asks_for_gigabytes_is_one_message(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, inputs = files
    code, said = run(capsys, model, "--inputs", inputs)
    assert code == 1
    assert said.count("error") == 1
    assert "tensor 'y' f32[600000008]" in said
    assert "more than the 512 MiB that a run of this model may take" in said
    assert "--host-memory 8GiB" in said
    code, said = run(capsys, model, "--inputs", inputs, "--lang", "zh")
    assert code == 1
    assert "主机内存" in said


@pytest.mark.parametrize("size", ["much", "-1GiB", "0", "8 KB", ""])
def test_a_size_that_is_none(
    size: str, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, inputs = files
    code, said = run(capsys, model, "--inputs", inputs, "--host-memory", size)
    assert code == 2
    assert "a size such as 8GiB" in said
    assert "host_memory" in said
