"""The schedule of several cards, executed at its addresses in the order of its simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import load_device
from gecompiler.backends.execution.executor import run_reference
from gecompiler.backends.execution.ranks_schedule import execute_ranks
from gecompiler.cards.schedule import CardsResult, schedule_cards
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.parallel import Mesh
from gecompiler.passes.parallel import ParallelOptions, parallelise
from gecompiler.passes.parallel.plan import SequenceWay
from gecompiler.passes.pipeline_parallel import PipelineShape
from tests.passes.parallel.models_help import inputs_of, tiny


def scheduled(
    family: str, phase: str = "prefill", way: SequenceWay = "gather", **sizes: int
) -> CardsResult:
    mesh = Mesh.of(**sizes)
    program = parallelise(tiny(family, phase), mesh, ParallelOptions(sequence=way))
    return schedule_cards(program, Cluster.of(load_device("ascend910b"), mesh, "mesh8"))


@pytest.mark.parametrize(
    ("family", "phase", "way", "sizes"),
    [
        ("llama", "prefill", "gather", {"tp": 2}),
        ("llama", "prefill", "gather", {"dp": 2, "sp": 2, "tp": 2}),
        ("llama", "decode", "gather", {"tp": 2, "pp": 2}),
        ("gpt2", "prefill", "all-to-all", {"pp": 2, "sp": 2}),
        ("bert", "prefill", "gather", {"sp": 4}),
        ("llama", "prefill", "ring", {"sp": 4, "tp": 2}),
    ],
)
def test_numbers_at_planned_addresses(
    family: str, phase: str, way: SequenceWay, sizes: dict[str, int]
) -> None:
    cards = scheduled(family, phase, way, **sizes)
    graph = tiny(family, phase)
    arrays = inputs_of(graph)
    found = execute_ranks(cards.program, cards.schedule, cards.timeline, arrays)
    expected = run_reference(graph, arrays)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=2e-5)


def test_a_rank_left_out_is_named() -> None:
    cards = scheduled("bert", tp=2)
    tasks = tuple(t for t in cards.schedule.tasks if t.rank == 0)
    with pytest.raises(ScheduleError, match="rank 1 has no tasks"):
        execute_ranks(
            cards.program,
            replace(cards.schedule, tasks=tasks),
            cards.timeline,
            inputs_of(tiny("bert")),
        )


def test_a_part_that_ends_before_another_starts_is_named() -> None:
    cards = scheduled("bert", tp=2)
    first = next(t for t in cards.schedule.tasks if t.kind == "collective" and t.rank == 0)
    spans = []
    for span in cards.timeline.spans:
        late = cards.schedule.tasks[span.task].rank == 1
        shift = 10**9 if late else 0
        spans.append(replace(span, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift))
    apart = replace(cards.timeline, spans=tuple(spans))
    with pytest.raises(ScheduleError, match=f"{first.name}.* ends before all others"):
        execute_ranks(cards.program, cards.schedule, apart, inputs_of(tiny("bert")))


@pytest.mark.parametrize(
    ("family", "topology", "sizes"),
    [
        ("bert", "mesh8", {"sp": 2, "tp": 2}),
        ("bert", "mesh8", {"sp": 4, "dp": 2}),
        ("bert", "nodes2", {"dp": 2, "sp": 2, "tp": 2}),
        ("bert", "mesh8", {"pp": 2, "sp": 2, "dp": 2}),
        ("llama", "mesh8", {"sp": 2, "tp": 2}),
    ],
)
def test_keys_that_go_round_take_as_long_where_one_rank_stands_for_others(
    family: str, topology: str, sizes: dict[str, int]
) -> None:
    """What comes from a rank that runs the same is not there before it was sent."""
    mesh = Mesh.of(**sizes)
    cluster = Cluster.of(load_device("ascend910b"), mesh, topology)
    program = parallelise(tiny(family), mesh, ParallelOptions(sequence="ring"))
    shape = PipelineShape(2, 2, "1f1b", 1, training=False) if "pp" in sizes else None
    full = schedule_cards(program, cluster, shape, fold=False)
    folded = schedule_cards(program, cluster, shape, fold=True)
    assert len(folded.ranks) < len(full.ranks)
    assert folded.schedule.findings() == []
    assert folded.timeline.makespan_ns == pytest.approx(full.timeline.makespan_ns, rel=1e-3)
