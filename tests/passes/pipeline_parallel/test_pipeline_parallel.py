"""Orders of pipelines: complete, in dependency order, with the known bubbles and peaks."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.errors import UsageError
from gecompiler.ir.infer import infer_types
from gecompiler.passes.pipeline_parallel import PipelineShape, Step, sequence, unroll
from gecompiler.passes.pipeline_parallel.sequence import needed
from gecompiler.passes.rank_schedules import rank_figures

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import program, run


@st.composite
def shapes(draw: st.DrawFn) -> PipelineShape:
    stages = draw(st.integers(1, 5))
    order = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    chunks = draw(st.integers(1, 3)) if order == "interleaved" else 1
    count = draw(st.integers(1, 9))
    return PipelineShape(stages, count, order, chunks, draw(st.booleans()))  # type: ignore[arg-type]


@given(shapes())
def test_every_step_is_run_once_on_its_stage(shape: PipelineShape) -> None:
    phases = ["forward", "backward"] if shape.training else ["forward"]
    wanted = {
        Step(p, m, c)  # type: ignore[arg-type]
        for p in phases
        for m in range(shape.micro_batches)
        for c in range(shape.chunks)
    }
    for stage in range(shape.stages):
        assert Counter(shape.steps(stage)) == Counter(wanted)


@given(shapes(), st.floats(0.1, 10))
def test_the_sequence_respects_what_each_step_needs(shape: PipelineShape, back: float) -> None:
    placed = sequence(shape, lambda stage, step: 1.0 if step.phase == "forward" else back)
    seen: dict[tuple[int, Step], float] = {}
    busy: dict[int, float] = {}
    for p in placed:
        for need in needed(shape, p.stage, p.step):
            assert seen[need] <= p.start
        assert busy.get(p.stage, 0.0) <= p.start
        busy[p.stage] = seen[p.stage, p.step] = p.end


@pytest.mark.parametrize("stages", range(1, 9))
def test_no_stages_of_the_interleaved_order_wait_for_each_other(stages: int) -> None:
    for count in range(1, 3 * stages + 1):
        for chunks in (2, 3, 4):
            placed = sequence(PipelineShape(stages, count, "interleaved", chunks), lambda *_: 1.0)
            assert len(placed) == 2 * stages * count * chunks
            if count >= stages:
                fewest = 2 * (chunks * count + stages - 1)
                assert max(p.end for p in placed) <= fewest + 2 * chunks * (count % stages)


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "count"), [(1, 3), (2, 4), (4, 8), (4, 4), (4, 2), (8, 16)])
def test_the_simulated_bubble_is_the_known_one(order: str, stages: int, count: int) -> None:
    shape = PipelineShape(stages, count, order)  # type: ignore[arg-type]
    _, _, schedule, timeline = run(shape)
    assert shape.bubble == (stages - 1) / (count + stages - 1)
    assert timeline.makespan_ns == (count + stages - 1) * 30_000
    for figures in rank_figures(schedule, timeline):
        assert figures.idle_us * 1000 / timeline.makespan_ns == pytest.approx(shape.bubble)


@pytest.mark.parametrize(
    ("stages", "count", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 8, 4), (3, 6, 3)]
)
def test_the_interleaved_bubble_is_shorter_by_the_chunks(
    stages: int, count: int, chunks: int
) -> None:
    shape = PipelineShape(stages, count, "interleaved", chunks)
    _, _, schedule, timeline = run(shape)
    assert shape.bubble == (stages - 1) / (chunks * count + stages - 1)
    for figures in rank_figures(schedule, timeline):
        assert figures.idle_us * 1000 / timeline.makespan_ns == pytest.approx(shape.bubble)


@given(st.integers(1, 8), st.integers(1, 12))
def test_activations_in_flight_are_the_known_counts(stages: int, count: int) -> None:
    one = PipelineShape(stages, count, "1f1b")
    all_ = PipelineShape(stages, count, "gpipe")
    for stage in range(stages):
        assert one.peak_in_flight(stage) == min(stages - stage, count)
        assert all_.peak_in_flight(stage) == count


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "count"), [(2, 4), (4, 8), (4, 2)])
def test_memory_holds_as_many_activations(order: str, stages: int, count: int) -> None:
    """Counted from the schedule: activations written by a forward, not yet read by its backward."""
    shape = PipelineShape(stages, count, order)  # type: ignore[arg-type]
    _, parts, _, _ = run(shape)
    for rank, part in enumerate(parts):
        held: set[str] = set()
        most = 0
        for task in part.schedule.streams[0, 0]:
            if task.op_type == "Relu":
                held.add(task.writes[0])
                most = max(most, len(held))
            if task.op_type == "Mul":
                held.remove(task.reads[0])
        assert most == shape.peak_in_flight(rank)
        assert part.memory is not None
        assert part.memory.live_bytes >= most * 4096


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_the_planned_memory_grows_with_what_is_in_flight(order: str) -> None:
    """Each micro-batch more in flight takes its activations: their input and their output."""
    shape = PipelineShape(4, 8, order)  # type: ignore[arg-type]
    _, parts, _, _ = run(shape)
    planned = [part.schedule.arena_bytes for part in parts]
    counts = [shape.peak_in_flight(stage) for stage in range(4)]
    middle = planned[1] - planned[2], counts[1] - counts[2]
    assert middle[0] >= middle[1] * 4096


@settings(max_examples=25, deadline=None)
@given(shapes())
def test_any_pipeline_is_safe_on_all_ranks(shape: PipelineShape) -> None:
    found, _, schedule, timeline = run(shape)
    assert schedule.findings() == []
    assert found.mesh.size == shape.stages
    each = 30 if shape.training else 10
    busy = shape.micro_batches * shape.chunks * each
    assert timeline.makespan_ns >= busy * 1000


def test_the_unrolled_graph_is_valid_and_sums_gradients() -> None:
    shape = PipelineShape(2, 3, "1f1b")
    for template in unroll(program(2), shape).templates:
        graph = template.graph
        infer_types(graph)
        graph.verify()
        sums = [op for op in graph.ops if op.op_type == "Add"]
        assert len(sums) == 2
        update = next(op for op in graph.ops if op.op_type == "ApplySgd")
        assert update.attr("grad_scale") == pytest.approx(1 / 3)
        assert graph.inputs.count("w") == 1
        assert graph.outputs == ("w_next",)


def test_pieces_on_one_stage_need_no_link() -> None:
    shape = PipelineShape(1, 2, "interleaved", 3, training=False)
    (template,) = unroll(program(3, training=False), shape).templates
    assert not [op for op in template.graph.ops if op.op_type in ("Send", "Recv")]
    assert template.graph.outputs == ("mb0/c2/y", "mb1/c2/y")


@pytest.mark.parametrize(
    ("stages", "count", "order", "chunks", "said"),
    [
        (2, 4, "1f1b", 2, "interleaved"),
        (2, 0, "1f1b", 1, "micro_batches is 0"),
        (2, 4, "1f2b", 1, "no pipeline schedule"),
    ],
)
def test_what_does_not_go_together_is_refused(
    stages: int, count: int, order: str, chunks: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        PipelineShape(stages, count, order, chunks)  # type: ignore[arg-type]


def test_pieces_must_fit_the_shape() -> None:
    with pytest.raises(UsageError, match="2 pieces"):
        unroll(program(2), PipelineShape(4, 4))
