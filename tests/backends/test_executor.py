"""Real numbers in simulated order: what is right comes out right, what is wrong, wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.backends.execution.host_memory import HostMemory, bounded
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import (
    GecError,
    MissingDataError,
    ModelError,
    ScheduleError,
    UsageError,
)
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.schedule import Buffer, Event, Limits, Schedule, Task
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.ir.types import DType, OpaqueType, tensor

LIMITS = Limits(8, 64, 1000, 2**30, 8, 8)
VIEWS = ("Reshape", "Identity")


def schedule_of(graph, streams=None, *, buffers=None):
    """One task per op in topological order, every tensor at its own address, all synced."""
    ops = graph.topological()
    streams = streams or [0] * len(ops)
    orders = [streams[:i].count(s) for i, s in enumerate(streams)]
    tasks = tuple(
        Task(i, op.name, "kernel", s, order, (op.name,), op.op_type)
        for i, (op, s, order) in enumerate(zip(ops, streams, orders, strict=True))
    )
    made = {v: i for i, op in enumerate(ops) for v in op.outputs}
    events = tuple(
        Event(made[v], i, "data", (v,))
        for i, op in enumerate(ops)
        for v in graph.reads(op)
        if v in made and streams[made[v]] != streams[i]
    )
    buffers, size = buffers or addresses(graph)
    return Schedule(graph.name, "none", "hand", tasks, events, buffers, LIMITS, arena_bytes=size)


def addresses(graph):
    """Every tensor behind the last, views where their source lies."""
    offset, found = 0, {}
    for name in [
        *graph.inputs,
        *graph.constants,
        *(v for o in graph.topological() for v in o.outputs),
    ]:
        type_ = graph.tensor(name)
        if type_ is None or type_.dtype is DType.STRING:
            continue
        op = graph.producer(name)
        if op is not None and op.is_(*VIEWS) and op.inputs[0] in found:
            root = found[op.inputs[0]]
            found[name] = replace(root, tensor=name, alias_of=root.tensor)
            continue
        found[name] = Buffer(name, offset, type_.bytes, "activation")
        offset += -(-type_.bytes // 64) * 64
    return tuple(found.values()), offset


def chain_graph():
    """a = x + 1; b = a * a; y = b - x."""
    graph = Graph("chain")
    graph.add_input("x", tensor("f32", (4,)))
    graph.constant_of("one", np.ones(4, np.float32))
    kind = tensor("f32", (4,))
    graph.add_op(Op("add", "Add", ("x", "one"), ("a",)), [kind])
    graph.add_op(Op("mul", "Mul", ("a", "a"), ("b",)), [kind])
    graph.add_op(Op("sub", "Sub", ("b", "x"), ("y",)), [kind])
    graph.set_outputs(["y"])
    return graph


X = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
Y = (X + 1) ** 2 - X


def timeline_of(*times):
    spans = [
        Span(i, str(i), "", 0, i, start, end, end - start) for i, (start, end) in enumerate(times)
    ]
    return Timeline(tuple(spans))


def test_a_schedule_gives_what_plain_evaluation_gives():
    graph = chain_graph()
    for timeline in (
        None,
        timeline_of((0, 5), (5, 9), (9, 12)),
        timeline_of((0, 0), (0, 0), (0, 0)),
    ):
        found = execute(graph, schedule_of(graph), timeline, {"x": X})
        np.testing.assert_array_equal(found["y"], Y)
    np.testing.assert_array_equal(run_reference(graph, {"x": X})["y"], Y)


def test_a_task_that_starts_before_its_input_is_there_gives_wrong_numbers():
    graph = chain_graph()
    schedule = replace(schedule_of(graph, [0, 1, 0]), events=())
    found = execute(graph, schedule, timeline_of((0, 5), (3, 9), (9, 12)), {"x": X})
    assert not np.allclose(found["y"], Y, equal_nan=True)


def test_inputs_are_read_at_the_start_and_outputs_appear_at_the_end():
    graph = chain_graph()
    schedule = schedule_of(graph)
    where = schedule.buffer_of
    # b lies where x lies: "sub" reads x before "mul" ends when it starts with it.
    reused = [
        replace(b, offset=where["x"].offset) if b.tensor == "b" else b for b in schedule.buffers
    ]
    schedule = replace(schedule, buffers=tuple(reused))
    found = execute(graph, schedule, timeline_of((0, 5), (5, 9), (9, 12)), {"x": X})
    np.testing.assert_array_equal(found["y"], 0)


def test_memory_used_again_too_early_gives_wrong_numbers():
    graph = Graph("diamond")
    kind = tensor("f32", (4,))
    graph.add_input("x", kind)
    for name, op in (("a", "Exp"), ("b", "Neg"), ("c", "Neg")):
        graph.add_op(Op(f"make_{name}", op, ("x",), (name,)), [kind])
    graph.add_op(Op("add", "Add", ("a", "b"), ("ab",)), [kind])
    graph.add_op(Op("out", "Add", ("ab", "c"), ("y",)), [kind])
    graph.set_outputs(["y"])
    schedule = schedule_of(graph)
    want = run_reference(graph, {"x": X})["y"]
    where = schedule.buffer_of
    clash = [
        replace(b, offset=where["a"].offset) if b.tensor == "c" else b for b in schedule.buffers
    ]
    clashing = replace(schedule, buffers=tuple(clash))
    ids = {task.name: task.id for task in schedule.tasks}
    safe = [ids[n] for n in ("make_a", "make_b", "add", "make_c", "out")]
    early = [ids[n] for n in ("make_a", "make_b", "make_c", "add", "out")]
    for order in (safe, early):
        np.testing.assert_array_equal(
            execute(graph, schedule, None, {"x": X}, order=order)["y"], want
        )
    np.testing.assert_array_equal(execute(graph, clashing, None, {"x": X}, order=safe)["y"], want)
    assert not np.allclose(execute(graph, clashing, None, {"x": X}, order=early)["y"], want)


@st.composite
def random_graphs(draw):
    """Elementwise ops and views over a few inputs, on several streams."""
    graph = Graph("random")
    kind = tensor("f32", (2, 3))
    values = [graph.add_input(f"x{i}", kind) for i in range(2)]
    for i in range(draw(st.integers(1, 12))):
        op_type = draw(st.sampled_from(["Add", "Mul", "Sin", "Identity", "Reshape"]))
        picks = [
            draw(st.sampled_from(values)) for _ in range(2 if op_type in ("Add", "Mul") else 1)
        ]
        if op_type == "Reshape":
            picks.append(graph.constant_of("shape", np.array([0, -1])))
        graph.add_op(Op(f"op{i}", op_type, tuple(picks), (f"v{i}",)), [kind])
        values.append(f"v{i}")
    graph.set_outputs(values[-2:])
    streams = [draw(st.integers(0, 2)) for _ in graph.ops]
    return graph, streams, draw(st.randoms(use_true_random=False))


@settings(max_examples=60, deadline=None)
@given(random_graphs())
def test_every_order_that_happens_before_allows_gives_the_same_numbers(case):
    graph, streams, random = case
    schedule = schedule_of(graph, streams)
    inputs = {
        n: np.arange(6, dtype=np.float32).reshape(2, 3) + i for i, n in enumerate(graph.inputs)
    }
    want = run_reference(graph, inputs)
    before = {t.id: {e.producer for e in schedule.waits.get(t.id, ())} for t in schedule.tasks}
    for tasks in schedule.streams.values():
        for a, b in pairwise(tasks):
            before[b.id].add(a.id)
    for _ in range(3):
        order, left = [], sorted(before)
        while left:
            pick = random.choice([t for t in left if before[t] <= set(order)])
            order.append(pick)
            left.remove(pick)
        found = execute(graph, schedule, None, inputs, order=order)
        assert found.keys() == want.keys()
        for name, array in want.items():
            np.testing.assert_array_equal(found[name], array)


def test_strings_and_sequences_live_beside_the_arena():
    graph = Graph("beside", {"": 20})
    graph.add_input("s", tensor("string", (2,)))
    graph.add_input("x", tensor("f32", (4,)))
    graph.constant_of("t", np.array(["-z", "-w"], object))
    graph.constant_of("place", np.array(1, np.int64))
    graph.add_op(Op("join", "StringConcat", ("s", "t"), ("u",)), [tensor("string", (2,))])
    pair = OpaqueType("sequence(f32)", b"")
    graph.add_op(Op("make", "SequenceConstruct", ("x", "x"), ("q",)), [pair])
    graph.add_op(Op("pick", "SequenceAt", ("q", "place"), ("y",)), [tensor("f32", (4,))])
    graph.set_outputs(["u", "y"])
    inputs = {"s": np.array(["a", "b"]), "x": X}
    for found in (
        execute(graph, schedule_of(graph), None, inputs),
        run_reference(graph, inputs),
    ):
        assert found["u"].tolist() == ["a-z", "b-w"]
        np.testing.assert_array_equal(found["y"], X)


def data_dependent_graph(planned):
    graph = Graph("nonzero")
    graph.add_input("x", tensor("f32", (4,)))
    graph.add_op(Op("find", "NonZero", ("x",), ("n",)), [tensor("i64", (1, planned))])
    graph.add_op(Op("size", "Shape", ("n",), ("size",)), [tensor("i64", (2,))])
    graph.add_op(Op("twice", "Add", ("n", "n"), ("y",)), [tensor("i64", (1, planned))])
    graph.set_outputs(["y", "size"])
    return graph


def test_a_size_that_depends_on_the_data_may_be_smaller_than_planned():
    graph = data_dependent_graph(4)
    found = execute(graph, schedule_of(graph), None, {"x": np.array([0, 5, 0, 7], np.float32)})
    assert found["y"].tolist() == [[2, 6]]
    assert found["size"].tolist() == [1, 2]


def test_a_size_larger_than_planned_is_an_error_that_names_the_tensor():
    graph = data_dependent_graph(2)
    with pytest.raises(ScheduleError, match=r"'n' came out as \[1, 4\], 32 bytes, where 16"):
        execute(graph, schedule_of(graph), None, {"x": X})


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F8E4M3FN, DType.I4, DType.U4, DType.F16])
def test_types_that_numpy_lacks_pass_through_memory(dtype):
    graph = Graph("narrow", {"": 21})
    graph.add_input("x", tensor("f32" if dtype.is_float else "i32", (5,)))
    kind = tensor(dtype, (5,))
    graph.add_op(Op("cast", "Cast", ("x",), ("n",), {"to": dtype.code}), [kind])
    graph.add_op(Op("turn", "Transpose", ("n",), ("m",), {"perm": (0,)}), [kind])
    graph.set_outputs(["m"])
    x = np.array([1, 0, 3, 5, 7], graph.tensor("x").dtype.numpy)
    found = execute(graph, schedule_of(graph), None, {"x": x})["m"]
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found.astype(np.float32), x)


def test_bfloat16_arithmetic_rounds_once():
    graph = Graph("bf16", {"": 20})
    kind = tensor("bf16", (64,))
    graph.add_input("x", kind)
    graph.add_op(Op("mul", "Mul", ("x", "x"), ("y",)), [kind])
    graph.add_op(Op("norm", "Softmax", ("y",), ("z",)), [kind])
    graph.set_outputs(["y", "z"])
    x = np.linspace(-3, 3, 64).astype(DType.BF16.numpy)
    found = run_reference(graph, {"x": x})
    np.testing.assert_array_equal(found["y"], (x.astype(np.float32) ** 2).astype(x.dtype))
    assert found["z"].dtype == x.dtype


def flash_graph():
    graph = Graph("flash")
    kind = tensor("f32", (1, 2, 3, 4))
    for name in ("q", "k", "v"):
        graph.add_input(name, kind)
    attrs = {"scale": 0.5, "q_heads": 2, "kv_heads": 2, "window_right": 0}
    op = Op("attend", "FlashAttention", ("q", "k", "v"), ("y",), attrs, GE_DOMAIN)
    graph.add_op(op, [kind])
    graph.set_outputs(["y"])
    return graph


def test_the_fused_op_runs_in_our_kernel():
    graph = flash_graph()
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    found = execute(graph, schedule_of(graph), None, {"q": q, "k": k, "v": v})["y"]
    scores = np.where(np.tri(3, dtype=bool), 0.5 * q @ k.swapaxes(2, 3), -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, weights @ v, rtol=1e-5)


def test_an_op_that_fails_is_named_with_what_was_said():
    graph = Graph("bad")
    graph.add_input("x", tensor("f32", (2, 3)))
    graph.add_op(Op("wrong", "MatMul", ("x", "x"), ("y",)), [tensor("f32", (2, 3))])
    graph.set_outputs(["y"])
    x = np.ones((2, 3), np.float32)
    with pytest.raises(
        ModelError, match=r"node 'wrong' \(MatMul\).*onnxruntime.*reference"
    ) as caught:
        run_reference(graph, {"x": x})
    assert "float32[2, 3]" in caught.value.hint


def test_a_weight_without_data_is_named_before_memory_is_taken():
    graph = Graph("absent")
    graph.add_input("x", tensor("f32", (4, 4)))
    graph.add_constant("layer.weight", Constant.absent(tensor("f32", (4, 4))))
    graph.add_op(Op("mm", "MatMul", ("x", "layer.weight"), ("y",)), [tensor("f32", (4, 4))])
    graph.set_outputs(["y"])
    huge = replace(schedule_of(graph), arena_bytes=2**60)
    for run in (lambda x: execute(graph, huge, None, x), lambda x: run_reference(graph, x)):
        with pytest.raises(MissingDataError, match=r"layer\.weight"):
            run({"x": np.ones((4, 4), np.float32)})


def test_an_arena_beyond_the_memory_there_is_is_refused():
    graph = chain_graph()
    with (
        bounded(HostMemory.of(2**61, 0, ())),
        pytest.raises(GecError, match="is available") as caught,
    ):
        execute(graph, replace(schedule_of(graph), arena_bytes=2**60), None, {"x": X})
    assert "smaller batch" in caught.value.hint


def test_a_schedule_of_another_graph_is_refused():
    graph = chain_graph()
    schedule = schedule_of(graph)
    less = replace(schedule, tasks=schedule.tasks[:2])
    with pytest.raises(ScheduleError, match="'sub' is in no task"):
        execute(graph, less, None, {"x": X})
    with pytest.raises(ScheduleError, match="timeline has 1 tasks"):
        execute(graph, schedule, timeline_of((0, 1)), {"x": X})
    with pytest.raises(UsageError, match="order of all 3 task ids"):
        execute(graph, schedule, None, {"x": X}, order=[0, 1])
    ranks = tuple(replace(t, rank=t.id) for t in schedule.tasks)
    with pytest.raises(ScheduleError, match="several ranks"):
        execute(graph, replace(schedule, tasks=ranks), None, {"x": X})


def test_a_view_of_an_input_is_no_copy_and_may_ride_with_a_later_task():
    graph = Graph("riding")
    graph.add_input("x", tensor("f32", (4,)))
    graph.constant_of("shape", np.array([2, 2]))
    kind = tensor("f32", (2, 2))
    graph.add_op(Op("view", "Reshape", ("x", "shape"), ("v",)), [kind])
    graph.add_op(Op("first", "Neg", ("v",), ("a",)), [kind])
    graph.add_op(Op("second", "Exp", ("v",), ("b",)), [kind])
    graph.set_outputs(["a", "b"])
    plain = schedule_of(graph)
    tasks = (
        Task(0, "first", "kernel", 0, 0, ("view", "first")),
        Task(1, "second", "kernel", 1, 0, ("second",)),
    )
    schedule = replace(plain, tasks=tasks, events=())
    for order in ([0, 1], [1, 0]):
        found = execute(graph, schedule, None, {"x": X}, order=order)
        np.testing.assert_array_equal(found["a"], -X.reshape(2, 2))
        np.testing.assert_allclose(found["b"], np.exp(X).reshape(2, 2), rtol=1e-6)
