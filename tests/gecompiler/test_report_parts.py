"""The report on waits, queues and memory."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

import gecompiler as ge
from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.models import build_spec
from gecompiler.report import report_schema
from gecompiler.report_text import report_text


def test_every_wait_names_the_ops_at_its_ends(tiny_path: Path) -> None:
    session = ge.Session(stream_strategy="load_balance:3")
    model = session.compile(tiny_path, batch=2, seq=64)
    report = model.as_dict()
    jsonschema.validate(report, report_schema())
    waits = report["sync"]["waits"]
    assert len(waits) == report["sync"]["events"] > 5
    names = {op.name for op in model.graph.ops}
    for wait in waits:
        assert {wait["producer"], wait["consumer"]} <= names
        assert wait["producer_stream"] != wait["consumer_stream"]
    assert any(wait["wait_us"] > 0 for wait in waits)
    assert any(wait["tensors"] for wait in waits)
    assert report["sync"]["primitive"] == "event"


def test_notifies_in_the_place_of_events(tiny_path: Path) -> None:
    options = {"stream_strategy": "load_balance:3", "sync_primitive": "notify"}
    model = ge.Session(**options).compile(tiny_path, batch=2, seq=64)
    report = model.as_dict()
    jsonschema.validate(report, report_schema())
    assert report["sync"]["primitive"] == "notify"
    assert report["sync"]["event_ids_available"] == 1024
    assert not model.compilation.findings
    assert "notifies" in report_text(model.compilation)
    with pytest.raises(ge.UsageError, match="'event' or 'notify'"):
        ge.Session(sync_primitive="flag")
    with pytest.raises(ge.UsageError, match="expected true or false"):
        ge.Session(merge_waits="maybe")


def test_queues_that_are_too_short_for_a_stream(tiny_path: Path) -> None:
    report = ge.Session(num_streams=1).compile(tiny_path).as_dict()
    (only,) = report["streams"]["physical"]["streams"]
    assert only["tasks"] == report["streams"]["per_stream"][0]["tasks"]


def test_memory_by_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "decode.onnx"
    spec = {
        "name": "tiny-decode", "family": "llama", "description": "a cache", "source": "made up",
        "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 48, "vocabulary": 37,
        "max_positions": 128, "dtype": "f32",
    }  # fmt: skip
    save_onnx(build_spec(spec, weights="random"), path)
    found = ge.Session(num_streams=1).compile(path, batch=2, seq=16).as_dict()["resources"]
    kinds = ("weight", "state", "input", "workspace", "activation")
    assert sum(found[f"{kind}_bytes"] for kind in kinds) == found["peak_memory_bytes"]
    assert 0 < found["weight_bytes"] < found["live_memory_bytes"] <= found["peak_memory_bytes"]
    assert found["memory_planner"]


def test_the_cache_is_told_apart(corpus: Path) -> None:
    path = corpus / "models" / "llama-decode-sdpa-dynamo.onnx"
    found = ge.Session(num_streams=1).compile(path).as_dict()["resources"]
    assert found["state_bytes"] > 0


def test_the_state_of_a_training_step_is_no_cache(tmp_path: Path) -> None:
    spec = {
        "name": "tiny-train", "family": "llama", "description": "small", "source": "made up",
        "hidden": 32, "layers": 1, "heads": 4, "kv_heads": 2, "intermediate": 48, "vocabulary": 37,
        "max_positions": 128, "dtype": "f32",
    }  # fmt: skip
    model = ge.compile(build_spec(spec), batch=2, seq=8, train=True)
    text = report_text(model.compilation)
    assert "parameters, optimizer" in text
    assert "KV cache" not in text
