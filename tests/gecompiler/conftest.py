"""Small models that front-door tests use, built once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gecompiler.cli import main
from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.models import build_spec

sys.path.append(str(Path(__file__).parent))  # helpers of the tests in this folder

TINY = {
    "name": "tiny-llama",
    "family": "llama",
    "description": "small enough to run in a test",
    "source": "made up",
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "intermediate": 48,
    "vocabulary": 37,
    "max_positions": 128,
    "dtype": "f32",
}


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer LLaMA with random weights and symbolic sizes, as an .onnx file."""
    path = tmp_path_factory.mktemp("models") / "tiny.onnx"
    save_onnx(build_spec(TINY, weights="random"), path)
    return path


@pytest.fixture
def gec(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``gec`` in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(w) for w in words])
        out = capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err

    return run
