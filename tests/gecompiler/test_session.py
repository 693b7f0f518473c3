"""The Python API as interfaces.md gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import gecompiler as ge
from gecompiler.models import build


@pytest.fixture
def session() -> ge.Session:
    return ge.Session(device="ascend910")


@pytest.fixture
def default_session() -> Iterator[None]:
    """Gives the module-level functions a clean default session, and takes it away again."""
    saved = ge.__dict__.pop("_default_session", None)
    yield
    ge.__dict__.pop("_default_session", None)
    if saved is not None:
        ge.__dict__["_default_session"] = saved


def _inputs(batch: int, seq: int) -> dict[str, np.ndarray]:
    return {
        "input_ids": np.arange(batch * seq).reshape(batch, seq) % 37,
        "attention_mask": np.ones((batch, seq), np.int64),
    }


@pytest.mark.usefixtures("default_session")
def test_module_functions_act_on_one_default_session() -> None:
    ge.set_option("num_streams", 2)
    ge.configure({"stream_strategy": "default"}, overlap_ratio=0.5)
    assert ge.get_option("num_streams") == 2
    assert ge.options()["overlap_ratio"] == 0.5
    assert ge.Session().get_option("num_streams") is None
    assert ge.get_device_capability("max_streams") == 4
    assert ge.device().name == "ascend910"


def test_everything_promised_is_exported() -> None:
    for name in ge.__all__:
        assert getattr(ge, name) is not None
    with pytest.raises(AttributeError, match="set_optoin"):
        _ = ge.set_optoin


def test_a_model_compiles_from_a_path_a_proto_a_graph_and_a_name(
    session: ge.Session, tiny_path: Path
) -> None:
    graph = build("gpt2", layers=1)
    before = str(graph)
    for source in (tiny_path, str(tiny_path), onnx.load(tiny_path), graph, "gpt2"):
        model = session.compile(source, batch=1, seq=16, stream_strategy="single")
        assert model.schedule.tasks
    assert str(graph) == before


def test_forward_takes_arrays_a_dict_or_keywords_and_other_sizes(
    session: ge.Session, tiny_path: Path
) -> None:
    model = session.compile(tiny_path, batch=2, seq=8)
    reference = onnxruntime.InferenceSession(tiny_path)
    for batch, seq in ((2, 8), (3, 5)):
        inputs = _inputs(batch, seq)
        want = reference.run(None, inputs)[0]
        for found in (model.forward(inputs), model(**inputs), model(*inputs.values())):
            np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({}, "input_ids"),
        ({"input_ids": np.zeros((2, 8), np.int64)}, "attention_mask"),
        ({**_inputs(2, 8), "input_idz": 1}, "input_idz"),
        ({**_inputs(2, 8), "input_ids": np.zeros((2, 8, 1), np.int64)}, "input_ids"),
        ({**_inputs(2, 8), "input_ids": np.zeros((2, 8), np.complex64)}, "input_ids"),
        ({**_inputs(2, 8), "input_ids": np.zeros((3, 9), np.int64)}, "input_ids|attention_mask"),
    ],
)
def test_wrong_inputs_are_named(
    session: ge.Session, tiny_path: Path, inputs: dict[str, np.ndarray], named: str
) -> None:
    model = session.compile(tiny_path, batch=2, seq=8)
    with pytest.raises(ge.GecError, match=named):
        model.forward(inputs)


def test_profiling_keeps_the_timeline_of_the_last_run(
    session: ge.Session, tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ge.UsageError, match="enable_profiling"):
        session.get_execution_timeline()
    model = session.compile(tiny_path, batch=2, seq=8)
    session.enable_profiling()
    with pytest.raises(ge.UsageError, match="forward"):
        session.get_execution_timeline()
    model.forward(_inputs(2, 8))
    timeline = session.get_execution_timeline()
    timeline.print()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"Stream{i}" for i in range(4)]
    timeline.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())
    assert timeline.makespan_ns == model.timeline.makespan_ns > 0


def test_an_assignment_wins_over_the_strategy(session: ge.Session, tiny_path: Path) -> None:
    session.set_stream_assignment({"FlashAttention": 2, "MLP gate": 1, "MLP up": 1})
    model = session.compile(tiny_path, batch=2, seq=8)
    streams = {task.op_type: task.stream for task in model.schedule.tasks}
    assert streams["FlashAttention"] == 2
    assert {t.stream for t in model.schedule.tasks if t.group == "MLP up"} == {1}
    assert model.schedule.findings() == []


@pytest.mark.parametrize("assignment", [{"a": "0"}, {"a": -1}, {"a": True}, {3: 1}])
def test_a_wrong_assignment_is_refused_at_once(
    session: ge.Session, assignment: dict[str, int]
) -> None:
    with pytest.raises(ge.UsageError, match="set_stream_assignment"):
        session.set_stream_assignment(assignment)


def test_a_custom_strategy_that_fails_is_named_and_contained(
    session: ge.Session, tiny_path: Path
) -> None:
    class Broken(ge.StreamAssignStrategy):
        def assign(self, op_graph: object) -> None:
            raise ZeroDivisionError

    class Wild(ge.StreamAssignStrategy):
        def assign(self, op_graph: object) -> None:
            ge.assign_to_stream(op_graph.ops[0], 99)  # type: ignore[attr-defined]

    for strategy, name in ((Broken(), "Broken"), (Wild(), "99")):
        session.set_stream_strategy(strategy)
        with pytest.raises(ge.UsageError, match=name):
            session.compile(tiny_path, batch=2, seq=8)
    session.set_stream_strategy(None)
    assert session.compile(tiny_path, batch=2, seq=8).schedule.tasks
    with pytest.raises(ge.UsageError, match="instance"):
        session.set_stream_strategy(Broken)


def test_sync_points_are_checked(session: ge.Session, tiny_path: Path) -> None:
    with pytest.raises(ge.UsageError, match="data_ready"):
        session.add_sync_point("a", "b", "data_redy")
    session.add_sync_point("FlashAttention", "MLP gatee")
    with pytest.raises(ge.UsageError, match="MLP gate"):
        session.compile(tiny_path, batch=2, seq=8)


def test_an_implied_sync_point_is_said_to_be_redundant(
    session: ge.Session, tiny_path: Path
) -> None:
    session.add_sync_point("FlashAttention", "MLP down")
    report = session.compile(tiny_path, batch=2, seq=8, stream_strategy="single").as_dict()
    assert report["sync"]["user_points"] == 0
    assert any("redundant" in w["code"] for w in report["warnings"])


def test_sessions_in_threads_do_not_see_each_other(tiny_path: Path) -> None:
    found: dict[int, int] = {}

    def work(streams: int) -> None:
        session = ge.Session(num_streams=streams, stream_strategy="critical_path")
        model = session.compile(tiny_path, batch=2, seq=8)
        found[streams] = model.schedule.requested_streams or 0

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in (1, 2, 3, 4)}


def test_options_of_one_compilation_do_not_stay(session: ge.Session, tiny_path: Path) -> None:
    session.compile(tiny_path, batch=2, seq=8, num_streams=2, stream_strategy="default")
    assert session.get_option("num_streams") is None


def test_parallel_off_means_one_stream(session: ge.Session, tiny_path: Path) -> None:
    session.set_option("enable_stream_parallel", False)
    session.set_option("num_streams", 4)
    model = session.compile(tiny_path, batch=2, seq=8)
    assert {task.stream for task in model.schedule.tasks} == {0}


def test_sizes_and_streams_may_be_numpy_integers(session: ge.Session, tiny_path: Path) -> None:
    session.set_stream_assignment({"FlashAttention": np.int64(1)})  # type: ignore[dict-item]
    model = session.compile(tiny_path, batch=np.int64(2), input_shapes={"input_ids": (2, 8)})
    assert model.compilation.binding == {"batch": 2, "seq": 8}


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 2.5},
        {"batch": "2"},
        {"batch": True},
        {"seq": 0},
        {"input_shapes": {"input_ids": 5}},
        {"input_shapes": {"input_ids": "ab"}},
        {"input_shapes": [1]},
    ],
)
def test_sizes_of_the_wrong_kind_are_refused(
    session: ge.Session, tiny_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(ge.UsageError, match="expected"):
        session.compile(tiny_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [None, 5, object()])
def test_what_is_no_model_is_refused(session: ge.Session, source: object) -> None:
    with pytest.raises(ge.UsageError, match="ModelProto"):
        session.compile(source)


def test_wrong_calls_leave_the_session_usable(session: ge.Session, tiny_path: Path) -> None:
    for call in (
        lambda: session.add_sync_point(1, 2),  # type: ignore[arg-type]
        lambda: session.set_option(3, 4),  # type: ignore[arg-type]
        lambda: session.configure(3),  # type: ignore[arg-type]
        lambda: session.set_stream_assignment(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ge.UsageError):
            call()
    assert session.compile(tiny_path, batch=1, seq=8).schedule.tasks


def test_lists_and_foreign_byte_orders_are_taken(session: ge.Session, tiny_path: Path) -> None:
    model = session.compile(tiny_path, batch=1, seq=3)
    want = model.forward(np.array([[1, 2, 3]]), np.ones((1, 3), np.int64))
    np.testing.assert_array_equal(model.forward([[1, 2, 3]], [[1, 1, 1]]), want)
    swapped = np.array([[1, 2, 3]], ">i8")
    np.testing.assert_array_equal(model.forward(swapped, np.ones((1, 3), ">i8")), want)
    with pytest.raises(ge.UsageError, match="twice"):
        model.forward([[1, 2, 3]], input_ids=[[1, 2, 3]])
    with pytest.raises(ge.UsageError, match="input_ids"):
        model.forward([["a", "b", "c"]], [[1, 1, 1]])
