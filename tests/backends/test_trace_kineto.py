"""The Kineto dialect: what HolisticTraceAnalysis insists on."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from trace_help import DEVICE, check_flows, check_ids, check_nesting, empty, ns, parse, recording

from gecompiler.backends.simulator import Simulator
from gecompiler.backends.trace import Recording, kineto_files, trace_files
from gecompiler.backends.trace.msprof_rows import card_rows
from gecompiler.ir.schedule import Demand, Schedule, Task


@pytest.mark.parametrize(("ranks", "streams"), [(1, 1), (1, 4), (3, 2)])
def test_traces_follow_the_rules(ranks: int, streams: int) -> None:
    found = recording(ranks, streams)
    files = kineto_files(found)
    assert len(files) == ranks
    for rank, text in enumerate(files.values()):
        # Its reader looks line by line for this, and takes the first.
        line = next(line for line in text.splitlines() if re.search(r'"rank":\s+(\d+)', line))
        assert re.search(r'"rank":\s+(\d+)', line)[1] == str(rank)  # type: ignore[index]
        data = parse(text)
        assert data["distributedInfo"]["world_size"] == ranks
        events = data["traceEvents"]
        check_nesting(events)
        check_flows(events)
        check_ids(events)
        timed = [e for e in events if e["ph"] == "X"]
        assert all(e["cat"] and ns(e["dur"]) >= 0 for e in timed)
        launches = {e["args"]["correlation"]: e for e in timed if e["cat"] == "cuda_runtime"}
        tasks = [e for e in timed if e["cat"] in ("kernel", "gpu_memcpy")]
        assert len(tasks) == len(launches) == sum(s.rank == rank for s in found.timeline.spans)
        for task in tasks:
            launch = launches[task["args"]["correlation"]]
            assert ns(launch["ts"]) + ns(launch["dur"]) <= ns(task["ts"])
            assert task["args"]["device"] == rank
            assert task["args"]["stream"] == task["tid"]
            talks = task["args"]["kind"] == "collective"
            assert bool(re.match(r"^nccl.*Kernel", task["name"])) == talks
            assert task["name"].startswith("Memcpy") == (task["args"]["kind"] == "load")
        (step,) = [e for e in timed if e["cat"] == "user_annotation"]
        assert step["name"] == "ProfilerStep#1"
        last = ns(step["ts"]) + ns(step["dur"])
        assert all(ns(t["ts"]) + ns(t["dur"]) <= last for t in timed)


@pytest.mark.parametrize("name", ["/SyncBN/Conv", "Memcpy_7", "nccl_Kernel", "dma_in", "Memset"])
def test_a_kernel_whose_name_misleads_is_renamed(name: str) -> None:
    task = Task(0, name, "kernel", 0, 0, op_type="Conv", demand=Demand(fixed_us=1))
    plan = Schedule("m", "ascend910", "s", (task,), (), (), DEVICE.limits)
    (text,) = kineto_files(Recording(Simulator(DEVICE)(plan), plan)).values()
    (kernel,) = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "kernel"]
    assert kernel["name"] == "kernel Conv 0"
    assert kernel["args"]["ops"] == []


def test_nothing_is_a_run_too_and_the_same_run_gives_the_same_text() -> None:
    (text,) = kineto_files(empty()).values()
    assert parse(text)["traceEvents"]
    assert trace_files(recording(), "kineto") == trace_files(recording(), "kineto")


@pytest.mark.skipif(
    importlib.util.find_spec("hta") is None, reason="HolisticTraceAnalysis is not installed"
)
def test_holistic_trace_analysis_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTA_DISABLE_NS_ROUNDING", raising=False)
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

    for path, text in kineto_files(recording(2)).items():
        place = tmp_path / path
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    found = TraceAnalysis(trace_dir=str(tmp_path / "kineto"))
    breakdown = found.get_temporal_breakdown(visualize=False)
    assert sorted(breakdown["rank"]) == [0, 1]
    for rank, compute in zip(breakdown["rank"], breakdown["compute_time(us)"], strict=True):
        ours = card_rows(recording(2), rank).step_time("1").computing / 1000
        assert compute == pytest.approx(ours, abs=0.01)
    kinds, _ = found.get_gpu_kernel_breakdown(visualize=False)
    assert {"COMMUNICATION", "COMPUTATION", "MEMORY"} & set(kinds["kernel_type"])
    assert "COMMUNICATION" in set(kinds["kernel_type"])
