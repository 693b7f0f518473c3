"""Every real export: compiled, verified, executed, exported; attention as the manifest lists it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

from gecompiler.arrays import load_arrays
from gecompiler.comparison import compare_outputs
from gecompiler.compiled import CompiledModel
from gecompiler.export import save_model
from gecompiler.ir.errors import ModelError
from gecompiler.report import report_schema
from gecompiler.request import Request

CORRECTIONS = {
    # The manifest says 5; V is 8 wide in the files: the output projection has 4 x 8 rows.
    "deepseekv3": {"v_head_dim": 8},
}


def _facts(path: Path) -> dict[str, Any]:
    if path.parent.name == "models":
        return _manifest(path) | CORRECTIONS.get(path.stem.split("-")[0], {})
    return _case(path)


def _manifest(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((path.parent / "manifest.yaml").read_text())[path.stem]
    return found


def _case(path: Path) -> dict[str, Any]:
    cases = yaml.safe_load((path.parent / "cases.yaml").read_text())
    found: dict[str, Any] = next(case for case in cases if case["file"] == path.stem)
    return found


def test_model(corpus_model: Path, tmp_path: Path) -> None:
    path = corpus_model
    inputs = load_arrays(path.with_suffix(".inputs.npz"))
    expected = load_arrays(path.with_suffix(".outputs.npz"))
    model = CompiledModel.compile(Request(path, arrays=inputs))
    report = model.as_dict()
    jsonschema.validate(report, report_schema())
    _check_schedule(report)
    _check_attention(report["attention"], _facts(path))
    _check_numbers(model.run(inputs), expected)
    save_model(model.symbolic_graph, tmp_path / "model.onnx")
    _check_numbers(_onnxruntime(tmp_path / "model.onnx", inputs), expected)


def test_an_invalid_model_is_refused_by_node(invalid_model: Path) -> None:
    with pytest.raises(ModelError, match=r"node '.*' \(Add\).*bool") as caught:
        CompiledModel.compile(Request(invalid_model))
    assert invalid_model.name in str(caught.value)


def _check_schedule(report: dict[str, Any]) -> None:
    verified = report["verification"]
    assert all(verified[key] for key in ("race_free", "deadlock_free", "within_limits"))
    times = report["schedule"]
    assert (
        times["lower_bound_us"]
        <= times["best_found_us"]
        <= times["makespan_us"]
        <= times["single_stream_us"]
    )
    assert report["sync"]["events"] <= report["sync"]["ge_rule_events"]


def _check_attention(found: dict[str, Any], facts: dict[str, Any]) -> None:
    if "sites" not in facts:
        allowed = {"yes": (1,), "no": (0,), "either": (0, 1)}[facts["fuse"]]
        assert found["fused"] in allowed, found["sites"]
        return
    assert (found["fused"], found["refused"]) == (facts["sites"], 0), found["sites"]
    sites = found["sites"]
    assert Counter(site["mask"] for site in sites) == Counter(facts["masks"])
    for name in ("q_heads", "kv_heads", "head_dim", "v_head_dim", "kv_cache"):
        if name in facts:
            assert {site[name] for site in sites} == {facts[name]}, name
    for name in ("scale", "softcap"):
        if name in facts:
            assert all(math.isclose(site[name], facts[name], rel_tol=1e-4) for site in sites), name


def _check_numbers(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    rows = compare_outputs(found, expected, rtol=1e-3, atol=1e-4)
    assert all(row.ok for row in rows), [row for row in rows if not row.ok]


def _onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    wanted = {i.name: inputs[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(None, wanted), strict=True))
