"""What stages of ZeRO keep and send, against the table of Rajbhandari et al. 2020 (figure 1)."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from tiny_models import tiny

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import load_device
from gecompiler.cards.schedule import CardsResult, schedule_cards
from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.parallel import Mesh
from gecompiler.passes.parallel import parallelise
from gecompiler.passes.pipeline_parallel import PipelineShape
from gecompiler.passes.training import TrainingOptions
from gecompiler.passes.training.ranks import training_program
from gecompiler.passes.training.untie import untied

REPLICAS, PARTS = 4, 3
ADAM = 2
"""Moments for each parameter, in float32 as these are: K of the paper, in parameters."""


@cache
def compiled(stage: int) -> CardsResult:
    """A step of three micro-batches of one short row each, so that weights outweigh activations."""
    graph = untied(tiny("llama", batch=REPLICAS, seq=2, layers=4, width=256))
    mesh = Mesh.of(dp=REPLICAS)
    options = TrainingOptions(optimizer="adamw")
    made = training_program(
        parallelise(graph, mesh), options, bucket_bytes=1 << 17, zero_stage=stage
    )
    cluster = Cluster.of(load_device("ascend910b"), mesh, None)
    found = schedule_cards(made.program, cluster, PipelineShape(1, PARTS, training=True))
    assert found.schedule.findings() == []
    return found


def weights() -> int:
    """Bytes of the parameters, which all are of float32."""
    graph = compiled(0).parts[0].graph
    names = [s.input for s in graph.states if not s.input.endswith(("/m", "/v", "/step"))]
    return sum(kind.bytes for n in names if (kind := graph.tensor(n)) is not None)


def kept(stage: int) -> tuple[float, float]:
    """The bytes of state, and of the sums of gradients that go from one micro-batch to the next."""
    graph = compiled(stage).parts[0].graph
    state = sum(k.bytes for s in graph.states if (k := graph.tensor(s.input)) is not None)
    sums = [op for op in graph.ops if op.info.group == "GradientSum"]
    assert len(sums) % (PARTS - 1) == 0
    total = sum(k.bytes for op in sums if (k := graph.tensor(op.outputs[0])) is not None)
    return state, total / (PARTS - 1)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_what_is_kept_falls_as_the_paper_says(stage: int) -> None:
    """Parameters P, gradients P, moments K P: one N-th from the stage on that shares them."""
    whole, part = weights(), weights() / REPLICAS
    state, sums = kept(stage)
    expected = {
        0: (whole + ADAM * whole, whole),
        1: (whole + part + ADAM * part, whole),  # its part of the parameters is there twice
        2: (whole + part + ADAM * part, part),
        3: (part + ADAM * part, part),
    }[stage]
    assert state == pytest.approx(expected[0], rel=2e-3)
    assert sums == pytest.approx(expected[1], rel=2e-3)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_what_is_sent_is_what_the_paper_says(stage: int) -> None:
    """2 P in a step; with parts of gradients one P for each micro-batch, of parameters two more."""
    graph = compiled(stage).parts[0].graph
    moved = {"AllReduce": 2.0, "ReduceScatter": 1.0, "AllGather": 1.0}
    total = 0.0
    for op in graph.ops:
        if is_collective_op(op) and op.info.group in ("GradientSync", "ParameterGather"):
            whole = op.outputs[0] if op.op_type == "AllGather" else op.inputs[0]
            kind = graph.tensor(whole)
            assert kind is not None
            total += moved[op.op_type] * kind.bytes
    shares = {0: 2, 1: 2, 2: PARTS + 1, 3: PARTS + 2 * PARTS}[stage]
    assert total == pytest.approx(shares * weights(), rel=2e-3)


def test_memory_really_falls() -> None:
    """In the plan of the device's memory, each stage takes less than the one before."""
    plans = [compiled(stage).parts[0].memory for stage in range(4)]
    totals = [plan.arena_bytes for plan in plans if plan is not None]
    assert len(totals) == 4
    saved = [a - b for a, b in pairwise(totals)]
    assert all(bytes_ > 0.5 * weights() for bytes_ in saved), [t / weights() for t in totals]
