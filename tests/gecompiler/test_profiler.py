"""The profiler: what it records, its table, its trace."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest

import gecompiler as ge
from gecompiler.backends.counters import listeners
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.profiler import ProfilerActivity, profile


def tensor(kind, shape):
    return TensorType(DType.from_short(kind), shape)


def attend(length=64, **options):
    q = np.ones((1, length, 4, 8), np.float16)
    return ge.ops.flash_attention(q, q[:, :, :2], q[:, :, :2], 4, **options)


def test_averages_add_up_the_calls():
    with profile(record_shapes=True, profile_memory=True) as prof:
        for length in (64, 64, 200):
            attend(length, is_causal=True)
        out, lse = attend(return_lse=True)
        q = np.ones((1, 64, 4, 8), np.float16)
        ge.ops.flash_attention_backward(out, q, q, q, out, lse, 4)
    attend()  # after the end
    first, second = prof.key_averages()
    assert (first.key, first.count) == ("flash_attention", 4)
    assert (second.key, second.count) == ("flash_attention_backward", 1)
    counters = [e.counters for e in prof.events()]
    assert first.flops == sum(c.flops for c in counters[:4])
    assert first.hbm_bytes == sum(c.hbm_bytes for c in counters[:4])
    assert first.npu_time_total == pytest.approx(sum(c.time_us for c in counters[:4]))
    assert 0 < first.cube_utilisation < 1
    assert first.npu_memory_usage == (3 * 64 + 200) * 4 * 8 * 2 + 4 * 64 * 4
    shapes = [(e.key, e.input_shapes[0], e.count) for e in prof.key_averages(True)]
    assert shapes == [
        ("flash_attention", (1, 64, 4, 8), 3),
        ("flash_attention", (1, 200, 4, 8), 1),
        ("flash_attention_backward", (1, 64, 4, 8), 1),
    ]


def test_the_table_shows_what_was_asked_for_in_the_order_asked_for():
    with profile(record_shapes=True, profile_memory=True) as prof:
        attend(64)
        attend(2000)
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="npu_time_total")
    lines = table.splitlines()
    assert lines[1].split()[0] == "Name"
    assert "Input Shapes" in lines[1]
    assert "NPU Mem" in lines[1]
    assert "[1, 2000, 4, 8]" in lines[3]
    assert "[1, 64, 4, 8]" in lines[4]
    assert len({len(line) for line in lines[1:5]}) == 1
    assert str(prof.key_averages()) == prof.key_averages().table()
    short = prof.key_averages(group_by_input_shape=True).table("npu_time_total", row_limit=1)
    assert "[1, 64, 4, 8]" not in short
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        attend()
    only_host = prof.key_averages().table()
    assert "CPU total" in only_host
    assert not any(word in only_host for word in ("NPU", "Shapes"))


def test_blocks_that_overflow_are_told():
    with profile(device="ascend910") as prof:
        attend(600, block_size_q=512, block_size_k=512)
    assert "blocks overflow" in prof.key_averages().table()


def test_the_trace_holds_calls_kernels_and_counters(tmp_path):
    with profile(record_shapes=True, with_stack=True) as prof:
        attend(300)
        attend(300, block_size_q=128)
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    hosts = [e for e in events if e.get("cat") == "cpu_op"]
    assert len(kernels) == len(hosts) == 2
    assert kernels[1]["ts"] >= kernels[0]["ts"] + kernels[0]["dur"] - 1e-6
    for kernel, host, call in zip(kernels, hosts, prof.events(), strict=True):
        assert kernel["dur"] == pytest.approx(call.counters.time_us, abs=1e-3)
        assert kernel["args"]["flops"] == call.counters.flops
        assert host["args"]["Input Dims"] == [list(s) for s in call.shapes]
        assert "test_profiler.py" in host["args"]["stack"][0]
        assert kernel["ts"] >= host["ts"]
    curve = [e["args"]["in use"] for e in events if e["name"] == "HBM (GB/s)"]
    assert max(curve) > min(curve) == 0
    assert {e["ph"] for e in events} == {"M", "X", "C", "s", "f"}


def written_out():
    """Attention of 4 heads, as exporters write it."""
    graph = Graph("attention", {"": 20})
    kind, scores = tensor("f32", (1, 4, 40, 16)), tensor("f32", (1, 4, 40, 40))
    for name in ("q", "k", "v"):
        graph.add_input(name, kind)
    turned = tensor("f32", (1, 4, 16, 40))
    graph.add_op(Op("turn", "Transpose", ("k",), ("kt",), {"perm": (0, 1, 3, 2)}), [turned])
    graph.add_op(Op("qk", "MatMul", ("q", "kt"), ("s",)), [scores])
    graph.add_op(Op("soft", "Softmax", ("s",), ("p",), {"axis": -1}), [scores])
    graph.add_op(Op("pv", "MatMul", ("p", "v"), ("y",)), [kind])
    graph.set_outputs(["y"])
    return graph


def test_compiled_models_run_the_same_kernel_and_are_recorded():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 4, 40, 16)).astype(np.float32) for _ in range(3))
    model = ge.compile(written_out())
    with profile(record_shapes=True) as prof:
        found = model.forward(q=q, k=k, v=v)
        want = ge.ops.flash_attention(
            q, k, v, 4, input_layout="BNSD", scale=1.0, block_size_q=128, block_size_k=128
        )
    compiled, direct = prof.events()
    assert (compiled.name, direct.name) == ("FlashAttention", "flash_attention")
    np.testing.assert_array_equal(found["y"] if isinstance(found, dict) else found, want)
    assert compiled.shapes == direct.shapes
    assert replace(compiled.counters, op=direct.name) == direct.counters


def test_profilers_nest_and_have_devices_of_their_own():
    with profile(device="ascend910") as outer:
        attend()
        with profile(device="ascend910b") as inner:
            attend()
    assert [len(p.events()) for p in (outer, inner)] == [2, 1]
    assert outer.events()[1].counters.device == "ascend910"
    assert inner.events()[0].counters.device == "ascend910b"


def test_errors_end_the_profile_and_mistakes_are_named():
    seen = []
    prof = profile(on_trace_ready=seen.append)
    with pytest.raises(ge.UsageError, match="block_size_q"), prof:
        attend(block_size_q=0)
    assert seen == [prof]
    attend()
    assert not prof.events()
    with pytest.raises(ge.UsageError, match="npu_time_total"):
        prof.key_averages().table(sort_by="cuda_time_total")
    with pytest.raises(ge.UsageError, match="record_shapes"):
        prof.key_averages(group_by_input_shape=True)
    with pytest.raises(ge.UsageError, match="ProfilerActivity"):
        profile(activities=["cpu"])
    with pytest.raises(ge.UsageError, match="not on"):
        prof.stop()


def test_profilers_end_in_any_order():
    first, second = profile(), profile()
    first.start()
    second.start()
    attend()
    first.stop()
    attend()
    second.stop()
    attend()
    assert (len(first.events()), len(second.events())) == (1, 2)
    assert not listeners()


def slices_nest(events):
    """Whether every track has a name, and its slices lie one after the other or nest."""
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    if not {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= named:
        return False
    ends = {}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        stack = ends.setdefault((e["pid"], e["tid"]), [])
        while stack and stack[-1] <= e["ts"] + 1e-6:
            stack.pop()
        if stack and e["ts"] + e["dur"] > stack[-1] + 1e-6:
            return False
        stack.append(e["ts"] + e["dur"])
    return True


def arrows_touch_slices(events):
    slices = [e for e in events if e["ph"] == "X"]
    return all(
        any(
            (s["pid"], s["tid"]) == (e["pid"], e["tid"])
            and s["ts"] - 1e-6 <= e["ts"] <= s["ts"] + s["dur"]
            for s in slices
        )
        for e in events
        if e["ph"] in "sf"
    )


def test_threads_of_the_context_have_tracks_of_their_own(tmp_path):
    with profile(with_stack=True) as prof, ThreadPoolExecutor(4) as pool:
        started = Barrier(4)

        def work():
            started.wait()
            for _ in range(5):
                attend(200)

        done = [pool.submit(copy_context().run, work) for _ in range(4)]
        for task in done:
            task.result()
    assert len(prof.events()) == 20
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["tid"] for e in events if e.get("cat") == "cpu_op"} == {0, 1, 2, 3}
    assert slices_nest(events)
    assert arrows_touch_slices(events)


def test_ranks_and_caches_show_the_callers_line_and_add_up_to_the_time(tmp_path):
    q = np.ones((1, 64, 4, 8), np.float16)
    cache = ge.ops.PagedKVCache(ge.ops.PagedAttentionConfig(4, 8))
    cache.append(q, q)
    with profile(with_stack=True) as prof:
        started = time.perf_counter_ns()
        ge.ops.sequence_parallel(q, q, q, 4, 4, "ring")
        ge.ops.tensor_parallel(q, q, q, 4, 2)
        ge.ops.flash_attention_with_paged_kv(q, cache, 4)
        took = time.perf_counter_ns() - started
    assert len(prof.events()) == 7
    for call in prof.events():
        assert "test_profiler.py" in call.stack[0], call.stack[0]
    assert sum(call.host_ns for call in prof.events()) <= took
    assert dict(prof.events()[-1].counters.reads)["page table"] == 4 * 4 * 4
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert slices_nest(events)
    assert arrows_touch_slices(events)


def test_torchs_names_of_columns():
    with profile(profile_memory=True) as prof:
        attend(64)
        attend(300, is_causal=True)
    table = prof.key_averages().table
    for name in ("cpu_time_total", "npu_time_total", "npu_memory_usage"):
        assert table(sort_by=f"self_{name}") == table(sort_by=name)
    assert table(row_limit=-1) == table()
    with pytest.raises(ge.UsageError, match="'selfish' is not known"):
        table(sort_by="selfish")


def test_activities_may_be_one():
    with profile(activities=ProfilerActivity.NPU) as prof:
        attend()
    assert "CPU total" not in prof.key_averages().table()
    with pytest.raises(ge.UsageError, match="activities must be of ProfilerActivity"):
        profile(activities=5)
