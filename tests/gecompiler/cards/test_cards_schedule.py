"""All ranks in one timeline: safe, and the same where one of each kind stands for all."""

from __future__ import annotations

from typing import Any

import pytest

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import load_device
from gecompiler.cards.schedule import CardsResult, schedule_cards
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.pipeline_parallel import PipelineShape
from gecompiler.passes.rank_schedules.figures import union
from gecompiler.passes.rank_schedules.volume import sent_bytes

X = TensorType(DType.F16, (512, 1024))
W = TensorType(DType.F16, (1024, 1024))


def collective(kind: str, name: str, value: str, out: str, axes: str, size: int) -> Op:
    attrs: dict[str, Any] = {"communicator": axes, "group_size": size, "reduction": "sum"}
    return Op(name, kind, (value,), (out,), attrs, GE_DOMAIN)


def transfer(kind: str, value: str, peer: int, size: int) -> Op:
    attrs: dict[str, Any] = {"communicator": "pp", "group_size": size, "peer": peer, "tag": 0}
    if kind == "Send":
        return Op("send", kind, (value,), (), attrs, GE_DOMAIN)
    attrs |= {"dtype": "f16", "shape": X.sizes}
    return Op("recv", kind, (), (value,), attrs, GE_DOMAIN)


def program(mesh: Mesh, layers: int = 3) -> ParallelProgram:
    """Layers of products, summed over tp; a sum over dp beside the last; stages over pp."""
    sizes, stages = dict(mesh.axes), mesh.axis_size("pp")
    templates = []
    for stage in range(stages):
        graph = Graph("layers", {"": 20, GE_DOMAIN: 1})
        value = "x"
        if stage:
            graph.add_op(transfer("Recv", "x", -1, stages), [X])
        else:
            graph.add_input("x", X)
        for layer in range(layers):
            weight = graph.add_input(f"w{layer}", W)
            graph.add_op(Op(f"mm{layer}", "MatMul", (value, weight), (f"y{layer}",)), [X])
            value = f"y{layer}"
            if "tp" in sizes:
                op = collective("AllReduce", f"ar{layer}", value, f"z{layer}", "tp", sizes["tp"])
                graph.add_op(op, [X])
                value = f"z{layer}"
        outputs = []
        if "dp" in sizes:
            graph.add_op(collective("AllReduce", "sync", "y0", "s", "dp", sizes["dp"]), [X])
            outputs.append("s")
        if stage < stages - 1:
            graph.add_op(transfer("Send", value, 1, stages))
        else:
            outputs.append(value)
        graph.set_outputs(outputs)
        templates.append(Template(graph))
    stage_of = tuple(mesh.coordinates(rank).get("pp", 0) for rank in range(mesh.size))
    return ParallelProgram(mesh, tuple(templates), stage_of)


def run(mesh: Mesh, *, fold: bool, shape: PipelineShape | None = None) -> CardsResult:
    cluster = Cluster.of(load_device("ascend910b"), mesh)
    return schedule_cards(program(mesh), cluster, shape, fold=fold)


MESHES = ({"tp": 2}, {"tp": 8}, {"dp": 4}, {"tp": 2, "dp": 4}, {"pp": 2, "tp": 2, "dp": 2})


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_all_ranks_are_safe(sizes: dict[str, int]) -> None:
    mesh = Mesh.of(**sizes)
    found = run(mesh, fold=False)
    assert found.schedule.findings() == []
    assert {task.rank for task in found.schedule.tasks} == set(range(mesh.size))
    found.timeline.verify()


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_one_rank_of_each_kind_gives_the_time_of_all(sizes: dict[str, int]) -> None:
    mesh = Mesh.of(**sizes)
    shape = PipelineShape(2, 4, "1f1b", 1, training=False) if "pp" in sizes else None
    full, folded = run(mesh, fold=False, shape=shape), run(mesh, fold=True, shape=shape)
    assert len(folded.ranks) == len(folded.program.templates) < mesh.size
    assert folded.timeline.makespan_ns == pytest.approx(full.timeline.makespan_ns, rel=1e-3)
    by_rank = {figures.rank: figures for figures in full.figures}
    for figures in folded.figures:
        same = by_rank[figures.rank]
        assert figures.exposed_us == pytest.approx(same.exposed_us, rel=0.01, abs=0.1)
        assert figures.compute_us == pytest.approx(same.compute_us, rel=0.01, abs=0.1)


def test_collectives_have_streams_of_their_own() -> None:
    found = run(Mesh.of(tp=2, dp=2), fold=False)
    kinds: dict[int, set[str]] = {}
    for task in found.schedule.tasks:
        axes = task.communicator.partition(":")[0]
        kinds.setdefault(task.stream, set()).add(axes)
    assert kinds[0] == {""}
    assert sorted(map(sorted, kinds.values())) == [[""], ["dp"], ["tp"]]


def test_time_is_compute_exposed_and_idle() -> None:
    found = run(Mesh.of(pp=2, tp=2), fold=False)
    for figures in found.figures:
        parts = figures.compute_us + figures.exposed_us + figures.idle_us
        assert parts * 1000 == pytest.approx(found.timeline.makespan_ns)
        assert 0 < figures.exposed_us <= figures.communication_us
        assert set(figures.exposed_by) == {"pp", "tp"}


def test_a_sum_beside_computing_is_hidden() -> None:
    """The sum over dp goes on while the later layers compute."""
    found = run(Mesh.of(dp=2), fold=False)
    sync = [s for s in found.timeline.spans if s.name.endswith("sync")]
    last = [s for s in found.timeline.spans if s.name.endswith("mm2")]
    assert sync[0].start_ns < last[0].start_ns


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("AllReduce", 2 * 7 / 8), ("ReduceScatter", 7 / 8), ("AllToAll", 7 / 8), ("AllGather", 7)],
)
def test_bytes_that_a_rank_sends(kind: str, sent: float) -> None:
    graph = Graph("one", {"": 20, GE_DOMAIN: 1})
    graph.add_input("x", X)
    op = graph.add_op(collective(kind, "c", "x", "y", "tp", 8), [X])
    assert sent_bytes(graph, op) == sent * X.bytes


def test_intervals_join_where_they_touch() -> None:
    assert union([(4, 6), (0, 2), (1, 3)]) == [(0, 3), (4, 6)]
    assert union([(4, 6), (0, 3)], gap=1) == [(0, 6)]
