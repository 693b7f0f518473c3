"""Lower bounds through all ranks: none is above what is simulated, and some are equal to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gecompiler as ge
from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import load_device
from gecompiler.cards.schedule import CardsResult, schedule_cards
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.ir.types import DType, TensorType
from gecompiler.models import build_spec
from gecompiler.passes.pipeline_parallel import PipelineShape
from gecompiler.passes.rank_schedules.bounds import Linked, rank_bounds
from gecompiler.passes.streams.bounds import lower_bounds

MESHES = ({"tp": 2}, {"tp": 4}, {"tp": 2, "dp": 2}, {"pp": 2}, {"pp": 3}, {"pp": 2, "tp": 2})


@st.composite
def programs(draw: st.DrawFn) -> tuple[ParallelProgram, PipelineShape | None, int]:
    """Stages of products, sums over ranks and joins of branches, of random sizes."""
    mesh = Mesh.of(**draw(st.sampled_from(MESHES)))
    stages = mesh.axis_size("pp")
    rows, width = draw(st.sampled_from([64, 512, 2048])), draw(st.sampled_from([128, 1024]))
    x = TensorType(DType.F16, (rows, width))
    weight = TensorType(DType.F16, (width, width))
    axes = [a for a in ("tp", "dp") if mesh.axis_size(a) > 1]
    templates = []
    for stage in range(stages):
        graph = Graph("random", {"": 20, GE_DOMAIN: 1})
        if stage:
            attrs: dict[str, Any] = {"communicator": "pp", "group_size": stages, "tag": 0}
            given_ = attrs | {"peer": -1, "dtype": "f16", "shape": x.sizes}
            graph.add_op(Op("recv", "Recv", (), ("x",), given_, GE_DOMAIN), [x])
        else:
            graph.add_input("x", x)
        values = ["x"]
        for n in range(draw(st.integers(1, 6))):
            kind = draw(st.sampled_from(["MatMul", "Add", "Relu", *("sum" for _ in axes)]))
            one = draw(st.sampled_from(values[-3:]))
            if kind == "MatMul":
                made = Op(f"op{n}", kind, (one, graph.add_input(f"w{n}", weight)), (f"y{n}",))
            elif kind == "sum":
                axis = draw(st.sampled_from(axes))
                size = mesh.axis_size(axis)
                attrs = {"communicator": axis, "group_size": size, "reduction": "sum"}
                made = Op(f"op{n}", "AllReduce", (one,), (f"y{n}",), attrs, GE_DOMAIN)
            else:
                two = draw(st.sampled_from(values))
                made = Op(f"op{n}", kind, (one, two) if kind == "Add" else (one,), (f"y{n}",))
            graph.add_op(made, [x])
            values.append(f"y{n}")
        if stage < stages - 1:
            attrs = {"communicator": "pp", "group_size": stages, "peer": 1, "tag": 0}
            graph.add_op(Op("send", "Send", (values[-1],), (), attrs, GE_DOMAIN))
        else:
            graph.set_outputs([values[-1]] if len(values) > 1 else [])
        templates.append(Template(graph))
    stage_of = tuple(mesh.coordinates(rank).get("pp", 0) for rank in range(mesh.size))
    count = draw(st.integers(1, 4))
    abreast = draw(st.integers(1, count)) if stages == 1 else 1
    shape = PipelineShape(stages, count, training=False, abreast=abreast)
    return ParallelProgram(mesh, tuple(templates), stage_of), shape, draw(st.integers(1, 2))


def bounds(found: CardsResult) -> dict[str, float]:
    parts = [found.parts[found.program.template_of[rank]] for rank in found.ranks]
    most = found.cluster.limits.max_streams
    return rank_bounds(found.schedule, parts, found.cluster, most)


@settings(max_examples=60)
@given(programs(), st.sampled_from(["mesh8", "quads", "pairs"]), st.booleans())
def test_no_bound_is_above_what_is_simulated(
    drawn: tuple[ParallelProgram, PipelineShape | None, int], topology: str, fold: bool
) -> None:
    program, shape, lanes = drawn
    cluster = Cluster.of(load_device("ascend910b"), program.mesh, topology)
    found = schedule_cards(program, cluster, shape, memory=False, fold=fold, lanes=lanes)
    makespan = found.timeline.makespan_ns / 1000
    made = bounds(found)
    assert {"critical_path", "streams"} <= made.keys()
    for name, us in made.items():
        assert us <= makespan + 1e-6, name
    for part in found.parts:
        own = lower_bounds(part.tasks, cluster, cluster.limits.max_streams)
        assert made["critical_path"] >= own.us["critical_path"] - 0.002


def test_a_chain_leads_through_all_stages() -> None:
    """One micro-batch through a pipeline is a chain: the bound is nearly the time itself."""
    spec: dict[str, Any] = {
        "name": "tiny", "family": "llama", "description": "small", "source": "this test",
        "hidden": 256, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 64,
        "intermediate": 512, "vocabulary": 50, "max_positions": 512, "norm_epsilon": 1e-5,
        "rope_theta": 10000.0, "dtype": "f16",
    }  # fmt: skip
    compiled = ge.compile(
        build_spec(spec), batch=1, seq=512, pp=4, micro_batches=1, device="ascend910b"
    )
    result, cards = compiled.compilation.result, compiled.compilation.cards
    assert cards is not None
    alone = max(
        lower_bounds(part.tasks, cards.cluster, 8).us["critical_path"] for part in cards.parts
    )
    assert result.critical_path_us > 2 * alone
    assert result.lower_bound_us == pytest.approx(result.makespan_us, rel=0.35)
    assert result.lower_bound_us <= result.best_found_us <= result.makespan_us


def test_tasks_that_a_strategy_split_have_no_bound_over_ranks() -> None:
    mesh = Mesh.of(tp=2)
    graph = Graph("one", {"": 20, GE_DOMAIN: 1})
    type_ = TensorType(DType.F16, (64, 64))
    graph.add_input("x", type_)
    graph.add_op(Op("relu", "Relu", ("x",), ("y",)), [type_])
    graph.set_outputs(["y"])
    program = ParallelProgram(mesh, (Template(graph),), (0, 0))
    found = schedule_cards(program, Cluster.of(load_device("ascend910b"), mesh, "mesh8"))
    parts = [found.parts[0], found.parts[0]]
    assert Linked.of(found.schedule, parts) is not None
    from dataclasses import replace

    cut = replace(parts[0], schedule=replace(parts[0].schedule, tasks=()))
    assert Linked.of(found.schedule, [cut, parts[1]]) is None
    assert rank_bounds(found.schedule, [cut, parts[1]], found.cluster, 4) == {}
