"""Options, user control, warnings and comparisons of a whole scheduling."""

from __future__ import annotations

import logging

import pytest
from fakes import FakeEvaluator, FakeTarget, random_graph

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.dims import symbol
from gecompiler.ir.errors import ModelError, ScheduleError, UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import tensor
from gecompiler.passes.scheduling.certificate import certificate
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    ScheduleResult,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams import strategy_table


def branches(count: int, size: int = 32) -> Graph:
    """Independent chains of two ops each, summed up."""
    graph = Graph("branches")
    type_ = tensor("f32", (size, size))
    x = graph.add_input("x", type_)
    ends = []
    for i in range(count):
        y = graph.emit("Relu", [x], type_, stem=f"a{i}")
        ends.append(graph.emit("Tanh", [y], type_, stem=f"b{i}"))
    graph.set_outputs([graph.emit("Sum", ends, type_, stem="sum")])
    return graph


def build(
    graph: Graph,
    target: FakeTarget | None = None,
    user: UserControl | None = None,
    diagnostics: Diagnostics | None = None,
    **options: object,
) -> ScheduleResult:
    target = target or FakeTarget()
    return build_schedule(
        graph,
        target,
        FakeEvaluator(target),
        ScheduleOptions(**options),  # type: ignore[arg-type]
        user or UserControl(),
        diagnostics if diagnostics is not None else Diagnostics(),
    )


def test_auto_spreads_independent_work_and_reports_candidates() -> None:
    result = build(branches(4))
    assert result.strategy == "auto"
    assert result.used > 1
    assert result.makespan_us < result.single_stream_us
    assert sum(row.chosen for row in result.candidates) == 1
    assert {row.strategy for row in result.candidates} >= {"single", "critical_path"}
    chosen = next(row for row in result.candidates if row.chosen)
    assert (chosen.strategy, chosen.makespan_us) == (result.chosen, result.makespan_us)


def test_auto_keeps_one_stream_where_more_gain_nothing() -> None:
    result = build(branches(1))
    assert (result.used, result.chosen) == (1, "single")
    assert result.makespan_us == result.single_stream_us


def test_auto_prefers_fewer_streams_within_the_gain_asked_for() -> None:
    greedy, frugal = build(branches(4), auto_min_gain=0.0), build(branches(4), auto_min_gain=1.0)
    assert greedy.makespan_us == greedy.best_found_us
    assert frugal.used < greedy.used
    assert frugal.best_found_us == greedy.best_found_us


def test_more_streams_than_the_device_has() -> None:
    diagnostics = Diagnostics()
    graph = branches(6, size=2)
    result = build(graph, diagnostics=diagnostics, num_streams=8, strategy="critical_path")
    assert result.used == 4
    assert result.requested == 8
    assert result.schedule.requested_streams == 8
    assert [(w.code, w.message) for w in diagnostics] == [
        ("too-many-streams", "requested 8, device has 4, using 4")
    ]


def test_parallel_disabled_means_one_stream() -> None:
    diagnostics = Diagnostics()
    user = UserControl({"Relu": 1})
    result = build(branches(3), user=user, diagnostics=diagnostics, enable_parallel=False)
    assert result.used == 1
    assert [w.code for w in diagnostics] == ["assignment-ignored"]


@pytest.mark.parametrize("strategy", strategy_table())
def test_assignment_wins_over_every_strategy(strategy: str) -> None:
    if strategy == "optimal":
        pytest.importorskip("ortools", reason="the extra `solver` is not installed")
    user = UserControl({"Tanh": 2, "sum": 1})
    result = build(branches(3), user=user, strategy=strategy)
    wanted = {"b": 2, "s": 1}
    placed = [t for t in result.schedule.tasks if t.name[0] in wanted and "/join" not in t.name]
    assert len(placed) >= 4
    assert all(t.stream == wanted[t.name[0]] for t in placed)
    assert result.schedule.findings() == []


def test_assignment_beyond_num_streams_is_obeyed_and_told() -> None:
    diagnostics = Diagnostics()
    user = UserControl({"sum": 3})
    result = build(branches(2), user=user, diagnostics=diagnostics, num_streams=2)
    assert {t.name: t.stream for t in result.schedule.tasks}["sum"] == 3
    assert "assignment-needs-streams" in [w.code for w in diagnostics]


def test_assignment_to_a_stream_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="there is no stream 9: fake has 4"):
        build(branches(2), user=UserControl({"sum": 9}))


def test_slower_than_one_stream_is_obeyed_and_told() -> None:
    diagnostics = Diagnostics()
    user = UserControl({"Relu": 0, "Tanh": 1, "Sum": 0})
    build(branches(1), user=user, diagnostics=diagnostics)
    assert [w.code for w in diagnostics] == ["slower-than-single", "pseudo-parallel"]


def test_streams_that_hardly_overlap_are_told() -> None:
    diagnostics = Diagnostics()
    target = FakeTarget(event_us=0.2)
    user = UserControl({"Relu": 0, "Tanh": 1, "Sum": 0})
    build(branches(1), target, user, diagnostics)
    (warning,) = diagnostics
    assert warning.code == "pseudo-parallel"
    assert "waits for" in warning.message
    assert "because of" in warning.message


def test_streams_that_share_what_limits_them_are_told_of_it() -> None:
    graph = Graph("shared")
    type_ = tensor("f16", (256, 512, 4096))
    ends = []
    for i in range(2):
        x = graph.add_input(f"x{i}", type_)
        for k in range(3):
            x = graph.emit("Relu", [x], type_, stem=f"r{i}_{k}")
        ends.append(x)
    graph.set_outputs(ends)
    device = load_device("ascend910")
    diagnostics = Diagnostics()
    user = UserControl({"r0_*": 0, "r1_*": 1})
    result = build_schedule(graph, device, Simulator(device), ScheduleOptions(), user, diagnostics)
    assert result.timeline.overlap > 0.5
    (warning,) = diagnostics
    assert warning.code == "pseudo-parallel"
    assert "share hbm" in warning.message


def test_unknown_strategy_and_options() -> None:
    with pytest.raises(UsageError, match="no stream strategy 'critical_pth'") as error:
        ScheduleOptions(strategy="critical_pth")
    assert "critical_path" in error.value.hint
    for options in ({"num_streams": 0}, {"overlap_ratio": 1.5}, {"auto_min_gain": -1.0}):
        with pytest.raises(UsageError, match="expected a number"):
            ScheduleOptions(**options)
    with pytest.raises(UsageError, match="expected a number from 1"):
        ScheduleOptions(pipeline_depth=0)


def test_unbound_sizes_are_refused_with_what_to_do() -> None:
    graph = Graph("symbolic")
    x = graph.add_input("x", tensor("f32", (symbol("batch"), 4)))
    graph.set_outputs([graph.emit("Relu", [x], tensor("f32", (symbol("batch"), 4)))])
    with pytest.raises(ModelError, match=r"'x' is not known: f32\[batch, 4\]") as error:
        build(graph)
    assert "--batch" in error.value.hint


def big(layers: int) -> Graph:
    graph = Graph("big")
    x = graph.add_input("x", tensor("f32", (8, 64)))
    for i in range(layers):
        w = graph.add_constant(f"layer{i}.weight", Constant.absent(tensor("f32", (64, 64 + i))))
        x = graph.emit("MatMul", [x, w], tensor("f32", (8, 64 + i)), stem=f"mm{i}")
        x = graph.emit("Gather", [x], tensor("f32", (8, 64)), stem=f"cut{i}")
    graph.set_outputs([x])
    return graph


def test_a_model_that_does_not_fit_is_told_or_refused() -> None:
    target = FakeTarget().with_limits(memory_bytes=50_000)
    diagnostics = Diagnostics()
    result = build(big(6), target, diagnostics=diagnostics)
    warning = next(w for w in diagnostics if w.code == "out-of-memory")
    assert "'layer5.weight'" in warning.message
    assert "weights" in warning.message
    assert "--device" in warning.hint
    assert {f.category for f in result.schedule.findings()} == {"limit"}
    with pytest.raises(ScheduleError, match="of memory are needed, fake has"):
        build(big(6), target, strict_memory=True)


def two_chains() -> Graph:
    """Two chains with large tensors that end small, so that one could use the other's memory."""
    graph = Graph("chains")
    large, small = tensor("f32", (64, 64)), tensor("f32", (1, 1))
    x = graph.add_input("x", large)
    for name in ("a", "b"):
        y = x
        for i in range(3):
            y = graph.emit("Transpose", [y], large, stem=f"{name}{i}")
        graph.emit("ReduceSum", [y], small, stem=f"{name}_end")
    graph.set_outputs(["a_end_out", "b_end_out"])
    return graph


def test_memory_is_bought_back_with_syncs_where_it_must_be() -> None:
    """Two streams that must share memory wait for each other, and the schedule stays safe."""
    graph, target, large = two_chains(), FakeTarget(), 64 * 64 * 4
    user = UserControl({"a*": 0, "b*": 1})
    roomy = build(graph, target, user)
    assert roomy.peak_memory_bytes >= 5 * large
    assert roomy.events == 0
    tight = build(graph, target.with_limits(memory_bytes=4 * large), user)
    assert tight.peak_memory_bytes <= 4 * large
    assert tight.schedule.findings() == []
    assert {e.kind for e in tight.schedule.events} == {"buffer"}


def test_more_event_ids_than_the_device_has() -> None:
    target = FakeTarget().with_limits(max_events=1)
    user = UserControl({**{f"a{i}": 0 for i in range(6)}, **{f"b{i}": 1 for i in range(6)}})
    with pytest.raises(ScheduleError, match="event ids are needed at once, the device has 1"):
        build(branches(6), target, user, strategy="default")


def test_auto_passes_over_candidates_the_device_cannot_hold() -> None:
    target = FakeTarget().with_limits(max_events=1)
    result = build(branches(4), target)
    assert result.schedule.findings() == []
    assert any(row.makespan_us is None and "event ids" in row.note for row in result.candidates)


def test_a_line_per_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gecompiler.streams"):
        result = build(branches(2))
    lines = [r.getMessage() for r in caplog.records]
    assert all(line.startswith("Stream ") for line in lines)
    for task in result.schedule.tasks:
        assert sum(f"Stream {task.stream}: {task.op_type} {task.name} (" in x for x in lines) == 1


def test_every_strategy_says_what_it_does() -> None:
    table = strategy_table()
    assert list(table)[:3] == ["auto", "single", "default"]
    assert all((kind.__doc__ or "").split("\n")[0].endswith(".") for kind in table.values())


def test_an_empty_graph_and_a_graph_of_copies() -> None:
    graph = Graph("through")
    x = graph.add_input("x", tensor("f32", (4,)))
    graph.set_outputs([x])
    result = build(graph)
    assert (len(result.schedule.tasks), result.makespan_us, result.lower_bound_us) == (0, 0.0, 0.0)
    assert result.schedule.findings() == []


def test_simulations_are_few() -> None:
    target = FakeTarget()
    evaluator = FakeEvaluator(target)
    build_schedule(
        random_graph(3, 18), target, evaluator, ScheduleOptions(), UserControl(), Diagnostics()
    )
    assert evaluator.runs <= 9


def test_the_certificate_says_what_more_streams_bring() -> None:
    result = build(branches(6, size=256), FakeTarget(copies=4), auto_min_gain=1.0)
    found = certificate(result)
    assert [r.streams for r in found.by_streams] == sorted({r.streams for r in found.by_streams})
    times = [r.makespan_us for r in found.by_streams]
    assert times == sorted(times, reverse=True)
    assert times[-1] == result.best_found_us
    assert found.next == next(r for r in found.by_streams if r.streams > result.used)
    assert found.next_gain == pytest.approx(result.makespan_us / found.next.makespan_us - 1)
    assert found.gap == pytest.approx(result.best_found_us / result.lower_bound_us - 1)
    widest = certificate(build(branches(6, size=256), FakeTarget(copies=4), auto_min_gain=0.0))
    assert (widest.next, widest.next_gain) == (None, 0.0)
