"""Ranks in one process: what collectives compute, and what happens when they do not meet."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.backends.execution.ranks import Exchange, exchanged, run_each_rank, run_ranks
from gecompiler.ir import Graph
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import MissingDataError, ScheduleError
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, ParallelProgram, Sharding, Template, Whole
from gecompiler.ir.types import tensor


def collective(op_type: str, axes: str = "tp", size: int = 2, **attrs: object) -> Op:
    outputs = () if op_type == "Send" else ("y",)
    inputs = () if op_type == "Recv" else ("x",)
    given = {"communicator": axes, "group_size": size, **attrs}
    return Op("talk", op_type, inputs, outputs, given, "gecompiler")


PARTS = [np.arange(8.0).reshape(4, 2) + 10 * rank for rank in range(2)]


def test_what_each_collective_computes() -> None:
    a, b = PARTS
    for reduction, expected in (
        ("sum", a + b),
        ("mean", (a + b) / 2),
        ("max", np.maximum(a, b)),
        ("min", np.minimum(a, b)),
    ):
        for found in exchanged(collective("AllReduce", reduction=reduction), PARTS):
            np.testing.assert_array_equal(found, expected)
    for found in exchanged(collective("AllGather", axis=1), PARTS):
        np.testing.assert_array_equal(found, np.concatenate([a, b], axis=1))
    halves = exchanged(collective("ReduceScatter", axis=0, reduction="sum"), PARTS)
    np.testing.assert_array_equal(np.concatenate(halves), a + b)
    for found in exchanged(collective("Broadcast", root=1), PARTS):
        np.testing.assert_array_equal(found, b)
    first, second = exchanged(collective("AllToAll", split_axis=0, concat_axis=1), PARTS)
    np.testing.assert_array_equal(first, np.concatenate([a[:2], b[:2]], axis=1))
    np.testing.assert_array_equal(second, np.concatenate([a[2:], b[2:]], axis=1))


@given(st.sampled_from((1, 2, 4)), st.integers(0, 2), st.integers(0, 2))
def test_exchanging_back_gives_what_was_there(ranks: int, split: int, concat: int) -> None:
    parts = [np.arange(64).reshape(4, 4, 4) + 100 * r for r in range(ranks)]
    there = exchanged(collective("AllToAll", split_axis=split, concat_axis=concat), parts)
    back = exchanged(collective("AllToAll", split_axis=concat, concat_axis=split), there)
    for part, found in zip(parts, back, strict=True):
        if split != concat:
            np.testing.assert_array_equal(found, part)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_sums_are_rounded_once(dtype: type) -> None:
    parts = [np.asarray([1.0], dtype), *[np.asarray([2.0**-9], dtype)] * 8]
    wide = sum(p.astype(np.float32) for p in parts)
    for found in exchanged(collective("AllReduce", reduction="sum"), parts):
        assert found.dtype == dtype
        assert found == wide.astype(dtype)


def program_of(*graphs: Graph, mesh: Mesh) -> ParallelProgram:
    whole = Whole(tensor("f32", (2,)), Sharding((None,)))
    templates = tuple(Template(g, {}, dict.fromkeys(g.inputs, whole)) for g in graphs)
    return ParallelProgram(mesh, templates, tuple(range(len(graphs))))


def graph_of(
    *ops: Op, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)
) -> Graph:
    graph = Graph("rank", {"": 20, "gecompiler": 1})
    for name in inputs:
        graph.add_input(name, tensor("f32", (2,)))
    for op in ops:
        graph.add_op(op, [tensor("f32", (2,)) for _ in op.outputs])
    graph.set_outputs(outputs)
    return graph


def test_a_value_is_passed_on() -> None:
    x = np.asarray([1, 2], np.float32)
    mesh = Mesh.of(pp=2)
    send = graph_of(collective("Send", "pp", peer=1, tag=3), outputs=())
    recv = graph_of(collective("Recv", "pp", peer=-1, tag=3, dtype=1, shape=(2,)), inputs=())
    found = run_each_rank(program_of(send, recv, mesh=mesh), [{"x": x}, {}])
    assert found[0] == {}
    np.testing.assert_array_equal(found[1]["y"], x)


def test_two_that_wait_for_each_other_are_named() -> None:
    attrs = {"dtype": 1, "shape": (2,)}
    graphs = [graph_of(collective("Recv", "pp", peer=1, tag=t, **attrs), inputs=()) for t in (0, 1)]
    with pytest.raises(ScheduleError, match=r"for ever: rank 0 in 'talk' \(Recv\); rank 1 in"):
        run_each_rank(program_of(*graphs, mesh=Mesh.of(pp=2)), [{}, {}])


def test_a_rank_that_leaves_the_others_alone_is_named() -> None:
    x = {"x": np.zeros(2, np.float32)}
    alone = graph_of(collective("AllReduce", reduction="sum"))
    gone = graph_of(Op("copy", "Identity", ("x",), ("y",)))
    with pytest.raises(ScheduleError, match="rank 0 in 'talk'") as caught:
        run_each_rank(program_of(alone, gone, mesh=Mesh.of(tp=2)), [x, x])
    assert "ranks 1 have ended" in str(caught.value)


def test_ranks_in_different_collectives_are_named() -> None:
    x = {"x": np.zeros(2, np.float32)}
    graphs = [
        graph_of(collective("AllReduce", reduction="sum")),
        graph_of(collective("Broadcast", root=0)),
    ]
    with pytest.raises(ScheduleError, match=r"rank 0 is in 'talk' \(AllReduce.*rank 1 in"):
        run_each_rank(program_of(*graphs, mesh=Mesh.of(tp=2)), [x, x])


def test_weights_that_are_not_there_are_asked_for() -> None:
    graph = Graph("g")
    graph.add_input("x", tensor("f32", (2,)))
    graph.add_constant("w", Constant.absent(tensor("f32", (2,))))
    graph.add_op(Op("sum", "Add", ("x", "w"), ("y",)), [tensor("f32", (2,))])
    graph.set_outputs(["y"])
    with pytest.raises(MissingDataError):
        run_ranks(program_of(graph, mesh=Mesh.of()), {"x": np.zeros(2, np.float32)})


def test_a_rank_may_have_come_to_several_at_once() -> None:
    """As where two of its streams talk along different axes."""
    exchange = Exchange(Mesh.of(sp=2, tp=2))
    ops = [replace(collective("AllReduce", axes), name=axes) for axes in ("tp", "sp")]
    for rank in range(4):
        for op in ops:
            exchange.post(rank, op, np.array([10.0**rank]))
    for rank in range(4):
        found = [exchange.collect(rank, op) for op in ops]
        assert [ready for ready, _ in found] == [True, True]
        tp, sp = rank ^ 1, rank ^ 2
        assert [float(value[0]) for _, value in found] == [
            10.0**rank + 10.0**tp,
            10.0**rank + 10.0**sp,
        ]


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min"])
def test_what_has_no_axes_stays_an_array(reduction: str) -> None:
    parts = [np.array(3, np.int64), np.array(5, np.int64)]
    expected = {"sum": 8, "mean": 4, "max": 5, "min": 3}[reduction]
    for found in exchanged(collective("AllReduce", reduction=reduction), parts):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape, int(found)) == (np.int64, (), expected)
