"""A batch in parts gives the same numbers, and what mixes samples is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fakes import FakeEvaluator, FakeTarget
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import OpInfo
from gecompiler.ir.types import tensor
from gecompiler.passes.micro_batches.batch_site import MixedSamplesError
from gecompiler.passes.micro_batches.micro_batch import micro_batch
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    SyncPoint,
    UserControl,
    build_schedule,
)

BATCH, SEQ, WIDTH = 6, 4, 8


class Writer:
    """Writes ops whose shapes it works out by running them once on zeros."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph("batched", {"": 18, "gecompiler": 1})
        self.arrays: dict[str, np.ndarray] = {}

    def input(self, name: str, *shape: int, kind: str = "f32") -> str:
        array = self.rng.standard_normal(shape).astype(np.float32)
        if kind == "i64":
            array = self.rng.integers(0, 5, shape)
        self.arrays[name] = array
        return self.graph.add_input(name, tensor(kind, shape))

    def weight(self, *shape: int) -> str:
        array = self.rng.standard_normal(shape).astype(np.float32)
        return self.graph.constant_of("w", array)

    def ints(self, *numbers: int) -> str:
        return self.graph.constant_of("n", np.array(numbers, np.int64))

    def op(self, kind: str, inputs: list[str], shape: tuple[int, ...], **more) -> str:  # type: ignore[no-untyped-def]
        dtype = more.pop("dtype", "f32")
        return self.graph.emit(kind, inputs, tensor(dtype, shape), **more)

    def same(self, count: int) -> Graph:
        """The graph in parts, after both gave the same numbers."""
        split = micro_batch(self.graph, count)
        assert split.graph.inputs == self.graph.inputs
        assert split.graph.outputs == self.graph.outputs
        assert sum(split.sizes) in {len(array) for array in self.arrays.values()}
        expected = run_reference(self.graph, self.arrays)
        found = run_reference(split.graph, self.arrays)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
        return split.graph


def attention(w: Writer, x: str) -> str:
    """Attention as exporters write it: products, heads, a mask that all samples share."""
    heads = (BATCH, SEQ, 2, WIDTH // 2)
    parts = []
    for _ in range(3):
        y = w.op("MatMul", [x, w.weight(WIDTH, WIDTH)], (BATCH, SEQ, WIDTH))
        y = w.op("Reshape", [y, w.ints(0, 0, 2, -1)], heads)
        order = {"perm": (0, 2, 1, 3)}
        parts.append(w.op("Transpose", [y], (BATCH, 2, SEQ, WIDTH // 2), attrs=order))
    mask = w.graph.constant_of("mask", np.tril(np.ones((1, 1, SEQ, SEQ), bool)))
    attrs = FlashAttention(0.5, 2, 2).attrs()
    y = w.op(
        "FlashAttention",
        [*parts, mask],
        (BATCH, 2, SEQ, WIDTH // 2),
        attrs=attrs,
        domain="gecompiler",
    )
    y = w.op("Transpose", [y], heads, attrs={"perm": (0, 2, 1, 3)})
    y = w.op("Reshape", [y, w.ints(BATCH * SEQ, WIDTH)], (BATCH * SEQ, WIDTH))
    y = w.op("Gemm", [y, w.weight(WIDTH, WIDTH), w.weight(WIDTH)], (BATCH * SEQ, WIDTH))
    return w.op("Reshape", [y, w.ints(BATCH, SEQ, WIDTH)], (BATCH, SEQ, WIDTH))


@pytest.mark.parametrize("count", [2, 3, 4, 100])
def test_a_layer_in_parts(count: int) -> None:
    w = Writer()
    ids = w.input("ids", BATCH, SEQ, kind="i64")
    x = w.op("Gather", [w.weight(5, WIDTH), ids], (BATCH, SEQ, WIDTH))
    y = w.op("Add", [x, attention(w, x)], (BATCH, SEQ, WIDTH))
    y = w.op("LayerNormalization", [y, w.weight(WIDTH)], (BATCH, SEQ, WIDTH))
    y = w.op("Softmax", [y], (BATCH, SEQ, WIDTH))
    w.graph.set_outputs([y])
    split = w.same(count)
    kinds = [op.op_type for op in split.ops]
    assert kinds.count("FlashAttention") == min(count, BATCH)
    assert kinds.count("Concat") == 1


def test_what_does_not_depend_on_the_batch_is_shared() -> None:
    w = Writer()
    x = w.input("x", BATCH, WIDTH)
    table = w.op("Tanh", [w.input("row", 1, WIDTH)], (1, WIDTH))
    full = w.op("Expand", [table, w.ints(BATCH, WIDTH)], (BATCH, WIDTH))
    w.graph.set_outputs(
        [w.op("Mul", [w.op("Add", [x, full], (BATCH, WIDTH)), table], (BATCH, WIDTH))]
    )
    kinds = [op.op_type for op in w.same(2).ops]
    assert (kinds.count("Tanh"), kinds.count("Expand"), kinds.count("Add")) == (1, 1, 2)


def test_a_mask_per_sample_and_rows_merged_with_the_sequence() -> None:
    w = Writer()
    x = w.input("x", BATCH, SEQ, WIDTH)
    mask = w.input("mask", BATCH, 1, SEQ)
    flat = w.op("Reshape", [x, w.ints(-1, WIDTH)], (BATCH * SEQ, WIDTH))
    y = w.op("MatMul", [flat, w.weight(WIDTH, WIDTH)], (BATCH * SEQ, WIDTH))
    y = w.op("Reshape", [y, w.ints(BATCH, SEQ, WIDTH)], (BATCH, SEQ, WIDTH))
    y = w.op("MatMul", [mask, y], (BATCH, 1, WIDTH))
    y = w.op("Squeeze", [y, w.ints(1)], (BATCH, WIDTH))
    w.graph.set_outputs([w.op("Unsqueeze", [y, w.ints(0)], (1, BATCH, WIDTH))])
    w.same(4)


def test_moves_that_keep_samples_apart() -> None:
    w = Writer()
    x = w.input("x", BATCH, SEQ, WIDTH)
    y = w.op("Transpose", [x], (SEQ, BATCH, WIDTH), attrs={"perm": (1, 0, 2)})
    a = w.op("Slice", [y, w.ints(0), w.ints(3), w.ints(2)], (SEQ, BATCH, 3))
    b = w.op("Gather", [y, w.ints(1, 2)], (SEQ, BATCH, 2), attrs={"axis": 2})
    c = w.op("Concat", [a, b], (SEQ, BATCH, 5), attrs={"axis": -1})
    d = w.op("ReduceMean", [c], (SEQ, BATCH), attrs={"axes": (2,), "keepdims": 0})
    e = w.op("ArgMax", [c], (BATCH, 5), attrs={"axis": 0, "keepdims": 0}, dtype="i64")
    f = w.op("Trilu", [x], (BATCH, SEQ, WIDTH))
    w.graph.set_outputs([d, e, f])
    w.same(3)


def test_state_is_cut_and_put_together() -> None:
    w = Writer()
    past = w.input("past", BATCH, 2, SEQ, 4)
    new = w.input("new", BATCH, 2, 1, 4)
    y = w.op("Concat", [past, new], (BATCH, 2, SEQ + 1, 4), attrs={"axis": 2}, stem="present")
    w.graph.set_outputs([y, w.op("Relu", [y], (BATCH, 2, SEQ + 1, 4))])
    w.graph.set_states([State("past", y, 2)])
    assert w.same(2).states == w.graph.states


MIXING = {
    "ReduceSum": ("reduces over the batch", {"keepdims": 0}, (SEQ, WIDTH), [0]),
    "CumSum": ("works along the batch", {}, (BATCH, SEQ, WIDTH), [0]),
    "Reshape": ("its parts are not whole samples", {}, (SEQ, BATCH, WIDTH), [SEQ, BATCH, WIDTH]),
    "Gather": ("picks along the batch", {}, (2, SEQ, WIDTH), [0, 1]),
}


@pytest.mark.parametrize("kind", MIXING)
def test_what_mixes_samples_is_refused_by_name(kind: str) -> None:
    why, attrs, shape, numbers = MIXING[kind]
    w = Writer()
    x = w.input("x", BATCH, SEQ, WIDTH)
    w.graph.set_outputs([w.op(kind, [x, w.ints(*numbers)], shape, attrs=attrs, stem="bad")])
    with pytest.raises(MixedSamplesError, match=rf"'bad' \({kind}\): .*{why}"):
        micro_batch(w.graph, 2)


def test_a_batch_that_is_folded_into_other_dims() -> None:
    w = Writer()
    x = w.input("x", BATCH, SEQ, WIDTH)
    y = w.op("Transpose", [x], (SEQ, BATCH, WIDTH), attrs={"perm": (1, 0, 2)})
    shape = (SEQ * BATCH, WIDTH)
    w.graph.set_outputs([w.op("Reshape", [y, w.ints(*shape)], shape, stem="fold")])
    with pytest.raises(MixedSamplesError, match=r"'fold' .*folds the batch into others"):
        micro_batch(w.graph, 2)


@pytest.mark.parametrize(
    ("kind", "attrs", "shape"),
    [
        ("Softmax", {"axis": 0}, (BATCH, WIDTH)),
        ("Transpose", {}, (WIDTH, BATCH)),
        ("Concat", {"axis": 0}, (2 * BATCH, WIDTH)),
    ],
)
def test_work_along_the_batch(kind: str, attrs: dict[str, int], shape: tuple[int, ...]) -> None:
    w = Writer()
    x = w.input("x", BATCH, WIDTH)
    y = w.op(kind, [x, x] if kind == "Concat" else [x], shape, attrs=attrs)
    if kind == "Transpose":  # fine by itself; then the batch is summed over
        y = w.op("MatMul", [y, w.weight(BATCH, 3)], (WIDTH, 3))
    w.graph.set_outputs([y])
    with pytest.raises(MixedSamplesError):
        micro_batch(w.graph, 2)


def test_a_batch_of_one_and_a_graph_without_samples() -> None:
    w = Writer()
    w.graph.set_outputs([w.op("Relu", [w.input("x", 1, WIDTH)], (1, WIDTH))])
    with pytest.raises(MixedSamplesError, match="the batch is 1"):
        micro_batch(w.graph, 2)


def random_writer(seed: int) -> Writer:
    rng = random.Random(seed)
    w = Writer(seed)
    pool: list[tuple[str, tuple[int, ...]]] = [
        (w.input("x", BATCH, SEQ, WIDTH), (BATCH, SEQ, WIDTH))
    ]
    if rng.random() < 0.5:
        pool.append((w.input("square", SEQ, WIDTH), (SEQ, WIDTH)))
    for _ in range(rng.randint(1, 10)):
        x, shape = rng.choice(pool[-4:])
        kind = rng.choice(("Relu", "Transpose", "Reshape", "Add", "MatMul", "Softmax", "Split"))
        if kind == "Transpose":
            order = tuple(rng.sample(range(len(shape)), len(shape)))
            shape = tuple(shape[i] for i in order)
            x = w.op(kind, [x], shape, attrs={"perm": order})
        elif kind == "Reshape":
            at = rng.randrange(len(shape))
            merged = (
                (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
                if at + 1 < len(shape)
                else (*shape, 1)
            )
            x, shape = w.op(kind, [x, w.ints(*merged)], merged), merged
        elif kind == "Add":
            other, size = rng.choice([p for p in pool if p[1][-1:] == shape[-1:]])
            try:
                out = np.broadcast_shapes(shape, size)
            except ValueError:
                continue
            x, shape = w.op(kind, [x, other], out), out
        elif kind == "MatMul" and len(shape) > 1:
            x = w.op(kind, [x, w.weight(shape[-1], 5)], (*shape[:-1], 5))
            shape = (*shape[:-1], 5)
        elif kind == "Softmax":
            x = w.op(kind, [x], shape, attrs={"axis": rng.randrange(len(shape))})
        else:
            x = w.op("Relu", [x], shape)
        pool.append((x, shape))
    w.graph.set_outputs(
        [pool[-1][0]] if w.graph.producer(pool[-1][0]) else [w.op("Relu", [pool[0][0]], pool[0][1])]
    )
    return w


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 4))
def test_random_graphs_in_parts_give_the_same_numbers_or_are_refused(seed: int, count: int) -> None:
    w = random_writer(seed)
    try:
        w.same(count)
    except MixedSamplesError:
        return


def test_most_random_graphs_can_be_split() -> None:
    split = 0
    for seed in range(60):
        try:
            micro_batch(random_writer(seed).graph, 2)
            split += 1
        except MixedSamplesError:
            pass
    assert split > 20


def small_model() -> Writer:
    w = Writer()
    x = w.input("x", BATCH, SEQ, WIDTH)
    y = w.op("Tanh", [x], (BATCH, SEQ, WIDTH), info=OpInfo(group="Gate"), stem="gate")
    z = w.op("Relu", [x], (BATCH, SEQ, WIDTH), info=OpInfo(group="Up"), stem="up")
    w.graph.set_outputs([w.op("Mul", [attention(w, y), z], (BATCH, SEQ, WIDTH), stem="mul")])
    return w


def test_the_strategy_pipeline_keeps_what_the_user_decided() -> None:
    w = small_model()
    target = FakeTarget()
    result = build_schedule(
        w.graph,
        target,
        FakeEvaluator(target),
        ScheduleOptions(strategy="pipeline", pipeline_depth=3, num_streams=3),
        UserControl({"gate": 2, "Up": 1}, [SyncPoint("Gate", "Up")]),
        Diagnostics(),
    )
    parts = range(len(result.micro_batches))
    assert sum(result.micro_batches) == BATCH
    assert len(parts) >= 2
    assert result.schedule.findings() == []
    streams = {t.name: t.stream for t in result.schedule.tasks}
    assert {streams[f"gate#mb{i}"] for i in parts} == {2}
    assert {streams[f"up#mb{i}"] for i in parts} == {1}
    names = result.schedule.tasks
    pairs = {
        (names[c.producer].name, names[c.consumer].name)
        for c in result.schedule.controls
        if c.origin == "user"
    }
    assert pairs == {(f"gate#mb{i}", f"up#mb{i}") for i in parts}
    found = execute(result.graph, result.schedule, result.timeline, w.arrays)
    expected = run_reference(w.graph, w.arrays)
    np.testing.assert_allclose(found["mul_out"], expected["mul_out"], rtol=1e-4, atol=1e-5)


def test_pipeline_says_when_the_batch_cannot_be_split() -> None:
    w = Writer()
    x = w.input("x", BATCH, WIDTH)
    w.graph.set_outputs([w.op("Softmax", [x], (BATCH, WIDTH), attrs={"axis": 0}, stem="mix")])
    target, diagnostics = FakeTarget(), Diagnostics()
    options = ScheduleOptions(strategy="pipeline")
    result = build_schedule(
        w.graph, target, FakeEvaluator(target), options, UserControl(), diagnostics
    )
    assert result.graph is w.graph
    assert result.micro_batches == ()
    warning = next(iter(diagnostics))
    assert warning.code == "pipeline-not-possible"
    assert "'mix'" in warning.message


def test_auto_takes_parts_only_when_it_may() -> None:
    w = small_model()
    target = FakeTarget(hbm=50.0, task_gap_us=0.1, event_us=0.1, copies=4)
    for allowed in (False, True):
        result = build_schedule(
            w.graph,
            target,
            FakeEvaluator(target),
            ScheduleOptions(auto_micro_batches=allowed),
            UserControl(),
            Diagnostics(),
        )
        tried = {row.strategy for row in result.candidates}
        assert ("pipeline" in tried) == allowed
        assert allowed or result.graph is w.graph
        assert result.lower_bound_us <= result.best_found_us <= result.makespan_us
        assert result.makespan_us <= result.single_stream_us


def test_the_batch_is_found_behind_inputs_that_have_none() -> None:
    w = Writer()
    row = w.input("positions", SEQ, WIDTH)
    mixed = w.op("ReduceSum", [row, w.ints(0)], (1, WIDTH))
    x = w.input("x", BATCH, SEQ, WIDTH)
    w.graph.set_outputs([w.op("Add", [x, mixed], (BATCH, SEQ, WIDTH))])
    assert micro_batch(w.graph, 3).sizes == (2, 2, 2)
    w.same(3)


def test_inputs_known_to_have_samples_settle_what_is_equal_by_chance() -> None:
    w = Writer()
    ids = w.input("ids", BATCH, BATCH, WIDTH)
    positions = w.input("positions", BATCH, WIDTH)
    y = w.op("Add", [ids, positions], (BATCH, BATCH, WIDTH))
    w.graph.set_outputs([w.op("Softmax", [y], (BATCH, BATCH, WIDTH), attrs={"axis": 1})])
    split = micro_batch(w.graph, 2, ["ids"])
    assert [op.op_type for op in split.graph.ops].count("Slice") == 2
    w.same(2)
