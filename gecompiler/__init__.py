"""Compile an ONNX model the way a graph engine does and see it run on a simulated NPU."""

from __future__ import annotations

from pathlib import Path

# In a checkout `ir`, `passes`, `backends` and `models` lie beside this folder and are found
# from here; an installed package has them inside.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "ir").is_dir():
    __path__.append(str(_root))
