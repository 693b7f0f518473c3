"""What users decide about streams holds on several cards as it does on one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_cards import SPEC, tokens

import gecompiler as ge
from gecompiler.cards.names import own_name
from gecompiler.cli import main
from gecompiler.compiled import CompiledModel
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.ir.schedule import Task
from gecompiler.models import build_spec

LAYOUTS: tuple[dict[str, Any], ...] = (
    {"tp": 2},
    {"dp": 2},
    {"pp": 2, "tp": 2},
    {"pp": 2, "pipeline_schedule": "interleaved"},
    {"sp": 2, "sequence_exchange": "ring"},
)
STRATEGIES = (
    *("single", "default", "critical_path", "compute_overlap", "cv", "load_balance:2"),
    *("main_stream:2", "heft", "optimal", "auto", "pipeline"),
)


@cache
def model() -> Graph:
    return build_spec(SPEC, weights="random")


@cache
def inputs() -> dict[str, Any]:
    return tokens(4, 8)


@cache
def expected() -> Any:
    return ge.compile(model(), batch=4, seq=8).forward(inputs())


@pytest.fixture
def session() -> ge.Session:
    return ge.Session(device="ascend910b", solver_seconds=0.05)


def compiled_on(session: ge.Session, **options: Any) -> CompiledModel:
    """Compiled, verified, and right."""
    found = session.compile(model(), batch=4, seq=8, **options)
    assert found.compilation.findings == ()
    assert "cards-placement" not in codes(found)
    np.testing.assert_allclose(found.forward(inputs()), expected(), rtol=1e-4, atol=1e-5)
    return found


def codes(compiled: CompiledModel) -> list[str]:
    return [w["code"] for w in compiled.as_dict()["warnings"]]


def tasks(compiled: CompiledModel, pattern: str) -> Iterator[Task]:
    """The tasks whose ops the model knows by a name like that."""
    cards = compiled.compilation.cards
    assert cards is not None
    for task in compiled.schedule.tasks:
        own = own_name(task.name.partition(":")[2], cards.shape).name
        if re.search(pattern, own):
            yield task


QUICK = ("heft", "single")
"""On all layouts; the others on the first, and on the rest where slow tests run."""


@pytest.mark.parametrize(
    ("strategy", "layout"),
    [
        pytest.param(s, layout, marks=() if s in QUICK or not i else pytest.mark.slow)
        for s in STRATEGIES
        for i, layout in enumerate(LAYOUTS)
    ],
    ids=str,
)
def test_every_strategy_is_obeyed(
    session: ge.Session, strategy: str, layout: dict[str, Any]
) -> None:
    if strategy == "single" and layout.get("sequence_exchange") == "ring":
        with pytest.raises(UsageError, match="keys that go round need"):
            session.compile(model(), batch=4, seq=8, stream_strategy=strategy, **layout)
        return
    found = compiled_on(session, stream_strategy=strategy, **layout)
    if strategy not in ("auto", "pipeline"):
        assert found.schedule.strategy == found.compilation.result.strategy == strategy
    if strategy == "single":
        assert {task.stream for task in found.schedule.tasks} == {0}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ops_are_placed_by_the_models_names(session: ge.Session, layout: dict[str, Any]) -> None:
    session.set_stream_assignment({"FlashAttention": 1, "MLP gate": 2, "MLP down": 0})
    found = compiled_on(session, **layout)
    cards = found.compilation.cards
    assert cards is not None
    gates = [t for t in found.schedule.tasks if t.group == "MLP gate"]
    assert {t.stream for t in gates if t.kind != "collective"} == {2}
    assert len({t.rank for t in gates}) == cards.program.mesh.size
    downs = [t for t in found.schedule.tasks if t.group == "MLP down"]
    assert {t.stream for t in downs if t.kind != "collective"} == {0}
    attentions = [t for t in found.schedule.tasks if t.op_type == "FlashAttention"]
    assert {t.stream for t in attentions} == {1}
    talk = {(t.rank, t.stream) for t in found.schedule.tasks if t.kind == "collective"}
    rest = {(t.rank, t.stream) for t in found.schedule.tasks if t.kind != "collective"}
    assert not talk & rest


def test_what_is_made_for_an_op_goes_with_it(session: ge.Session) -> None:
    """A ring takes an attention apart: its parts are on the attention's stream."""
    session.set_stream_assignment({"FlashAttention": 3})
    found = compiled_on(session, sp=2, sequence_exchange="ring")
    parts = [t for t in tasks(found, "FlashAttention") if t.kind != "collective"]
    assert {t.stream for t in parts} == {3}
    assert {t.op_type for t in parts} - {"FlashAttention"}


def test_an_op_of_one_stage_is_placed_there(session: ge.Session) -> None:
    name = next(
        op.name
        for op in session.compile(model(), batch=4, seq=8).graph.ops
        if op.info.group == "MLP up" and "layers.3" in op.name
    )
    session.set_stream_assignment({name: 2})
    found = compiled_on(session, pp=2)
    here = list(tasks(found, re.escape(name) + "$"))
    assert {t.rank for t in here} == {1}
    assert {t.stream for t in here} == {2}
    assert len(here) == 4


def test_a_name_that_no_stage_has_is_refused(session: ge.Session) -> None:
    session.set_stream_assignment({"MLP gat": 1})
    with pytest.raises(UsageError, match="no op has this name") as error:
        session.compile(model(), batch=4, seq=8, pp=2)
    assert "MLP gate" in error.value.hint
    session.set_stream_assignment({"MLP gate": 8})
    with pytest.raises(UsageError, match="there is no stream 8"):
        session.compile(model(), batch=4, seq=8, pp=2)


@pytest.mark.parametrize("layout", LAYOUTS[:4], ids=str)
def test_collectives_are_placed_by_type(session: ge.Session, layout: dict[str, Any]) -> None:
    kinds = {"tp": "AllReduce", "pp": "Send"}
    kind = next((k for axis, k in kinds.items() if axis in layout), None)
    if kind is None:
        session.set_stream_assignment({"AllReduce": 3})
        with pytest.raises(UsageError, match="no op has this name"):
            session.compile(model(), batch=4, seq=8, **layout)
        return
    session.set_stream_assignment({kind: 3, "MatMul": 1})
    found = compiled_on(session, **layout)
    talk = [t for t in found.schedule.tasks if t.op_type == kind]
    assert {t.stream for t in talk} == {3}
    assert talk


def test_collectives_on_two_streams_keep_their_order(session: ge.Session) -> None:
    """Two cards must come to them in one order: events hold it where streams do not."""
    graph = session.compile(model(), batch=4, seq=8, tp=2).graph
    names = [op.name for op in graph.ops if op.op_type == "AllReduce"]
    session.set_stream_assignment({name: 2 + i % 2 for i, name in enumerate(names)})
    found = compiled_on(session, tp=2)
    assert {t.stream for t in found.schedule.tasks if t.kind == "collective"} == {2, 3}


class EveryOther(ge.StreamAssignStrategy):
    """Spreads all that there is, collectives too."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def assign(self, op_graph: Any) -> None:
        for number, op in enumerate(op_graph.ops):
            self.seen.append(op.name)
            ge.assign_to_stream(op, number % 2)


@pytest.mark.parametrize("layout", LAYOUTS[:4], ids=str)
def test_a_strategy_of_ones_own_sees_the_models_names(
    session: ge.Session, layout: dict[str, Any]
) -> None:
    strategy = EveryOther()
    session.set_stream_strategy(strategy)
    found = compiled_on(session, **layout)
    assert {t.stream for t in found.schedule.tasks} == {0, 1}
    plain = ge.compile(model(), batch=4, seq=8, stream_strategy="single")
    names = {op.name for op in plain.graph.ops}
    assert len(names & set(strategy.seen)) > len(names) / 2


def test_a_strategy_without_end_is_ended(session: ge.Session) -> None:
    class Endless(ge.StreamAssignStrategy):
        def assign(self, op_graph: Any) -> None:
            while True:
                pass

    session.set_stream_strategy(Endless())
    with pytest.raises(UsageError, match="has not ended"):
        session.compile(model(), batch=4, seq=8, tp=2, custom_seconds=0.05)


@pytest.mark.parametrize("layout", LAYOUTS[:4], ids=str)
def test_sync_points_hold_on_every_card(session: ge.Session, layout: dict[str, Any]) -> None:
    session.add_sync_point("MLP up", "MLP gate")
    session.set_stream_assignment({"MLP gate": 1, "MLP up": 2})
    found = compiled_on(session, **layout)
    schedule, spans = found.schedule, found.timeline.spans
    orders = [c for c in schedule.controls if c.origin == "user"]
    ends = {s.task: s for s in found.compilation.result.timeline.spans}
    assert {schedule.tasks[c.producer].rank for c in orders} == {s.rank for s in spans}
    for order in orders:
        assert ends[order.producer].end_ns <= ends[order.consumer].start_ns
    assert found.as_dict()["sync"]["user_points"] == 1


def test_a_sync_point_holds_within_each_micro_batch(session: ge.Session) -> None:
    session.add_sync_point("MLP up", "MLP gate")
    found = compiled_on(session, pp=2, micro_batches=4)
    cards = found.compilation.cards
    assert cards is not None
    pairs = [
        [own_name(found.schedule.tasks[t].name.partition(":")[2], cards.shape).micro_batch
         for t in (c.producer, c.consumer)]
        for c in found.schedule.controls if c.origin == "user"
    ]  # fmt: skip
    assert len(pairs) == 4 * 4
    assert all(a == b for a, b in pairs)


def test_a_sync_point_between_stages_is_refused(session: ge.Session) -> None:
    graph = session.compile(model(), batch=4, seq=8).graph
    first, last = (
        next(op.name for op in graph.ops if op.info.group == "MLP up" and layer in op.name)
        for layer in ("layers.0", "layers.3")
    )
    session.add_sync_point(first, last)
    with pytest.raises(UsageError, match="no card has both"):
        session.compile(model(), batch=4, seq=8, pp=2)


def test_a_redundant_sync_point_is_told_once(session: ge.Session) -> None:
    session.add_sync_point("Attention q", "FlashAttention")
    found = compiled_on(session, pp=2, tp=2)
    assert codes(found).count("redundant-sync-point") == 1


def test_labels_and_priorities(session: ge.Session) -> None:
    session.set_stream_labels({"FlashAttention": "attention"})
    session.set_priorities({"MLP gate": 5})
    found = compiled_on(session, tp=2, stream_strategy="heft")
    here = {t.stream for t in found.schedule.tasks if t.op_type == "FlashAttention"}
    rest = {t.stream for t in found.schedule.tasks if t.kind == "collective"}
    assert len(here) == 1
    assert not here & rest


def test_limits_of_cores_make_ops_slower(session: ge.Session) -> None:
    plain = compiled_on(session, tp=2).timeline
    session.limit_core_num({"MatMul": (1, None)})
    limited = compiled_on(session, tp=2)
    assert limited.timeline.spans[-1].end_ns > plain.spans[-1].end_ns
    cubes = {t.demand.cube_cores for t in limited.schedule.tasks if t.op_type == "MatMul"}
    assert cubes == {1}


def test_options_of_ges_own(session: ge.Session) -> None:
    one = compiled_on(session, tp=2, pp=2, stream_strategy="default")
    two = compiled_on(
        session, tp=2, pp=2, stream_strategy="default", engine_streams={"DNN_HCCL": 2}
    )

    def streams(found: CompiledModel) -> int:
        return len({t.stream for t in found.schedule.tasks if t.kind == "collective"})

    assert (streams(one), streams(two)) == (1, 2)
    notified = compiled_on(session, tp=2, stream_strategy="heft", sync_primitive="notify")
    assert notified.schedule.sync_primitive == "notify"
    plain = compiled_on(session, tp=2, stream_strategy="heft")
    merged = compiled_on(session, tp=2, stream_strategy="heft", merge_waits=True)
    assert len(merged.schedule.events) <= len(plain.schedule.events)


def test_streams_may_be_few(session: ge.Session) -> None:
    for count in (1, 2, 3):
        found = compiled_on(session, tp=2, stream_strategy="heft", num_streams=count)
        assert len({t.stream for t in found.schedule.tasks}) <= count
    found = compiled_on(session, tp=2, stream_strategy="heft", enable_stream_parallel=False)
    assert {t.stream for t in found.schedule.tasks} == {0}


def test_pipeline_and_assignments_do_not_go_together(session: ge.Session) -> None:
    session.set_stream_assignment({"MLP gate": 1})
    with pytest.raises(UsageError, match="'pipeline' cuts the batch"):
        session.compile(model(), batch=4, seq=8, tp=2, stream_strategy="pipeline")


def test_placements_without_a_way_out_are_refused(session: ge.Session) -> None:
    session.set_stream_assignment({"Send": 3, "Recv": 3})
    with pytest.raises(UsageError, match="cards wait for each other for ever"):
        session.compile(model(), batch=4, seq=8, sp=2, sequence_exchange="ring")


def test_what_one_assigns_of_a_training_step(session: ge.Session) -> None:
    session.set_stream_assignment({"MLP gate": 2})
    found = session.compile(model(), batch=4, seq=8, dp=2, train=True, stream_strategy="heft")
    assert found.compilation.findings == ()
    gates = [t for t in found.schedule.tasks if t.group == "MLP gate" and t.kind != "collective"]
    assert {t.stream for t in gates} == {2}


def test_collectives_may_have_labels_and_limits(session: ge.Session) -> None:
    session.set_stream_labels({"AllReduce": "talk"})
    session.limit_core_num({"AllReduce": (None, 2)})
    found = compiled_on(session, tp=2, stream_strategy="heft")
    talk = [t for t in found.schedule.tasks if t.op_type == "AllReduce"]
    assert len({t.stream for t in talk}) == 1
    assert max(t.demand.vector_cores for t in talk) <= 2
    session.set_stream_labels({"AllReduc": "talk"})
    with pytest.raises(UsageError, match="no op has this name"):
        session.compile(model(), batch=4, seq=8, tp=2)
    session.set_stream_labels({"AllReduce": "talk"})
    with pytest.raises(UsageError, match="no op has this name"):
        session.compile(model(), batch=4, seq=8)


def capture(path: Path, compiled: CompiledModel, factor: float) -> None:
    """An op_summary in which each MatMul takes ``factor`` times as long as on a card."""
    rows = ["Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)"]
    for number, span in enumerate(compiled.compilation.result.timeline.spans):
        if span.rank == 0 and span.op_type == "MatMul":
            name = span.name.partition(":")[2]
            us = span.alone_ns / 1000 * factor
            rows.append(f"{name},MatMulV2,AI_CORE,{number},{us}")
    path.write_text("\n".join(rows) + "\n")


def test_measured_times_hold_on_every_card(session: ge.Session, tmp_path: Path) -> None:
    plain = compiled_on(session, tp=2)
    capture(tmp_path / "op_summary.csv", plain, 10.0)
    measured = compiled_on(session, tp=2, durations=str(tmp_path / "op_summary.csv"))
    share = measured.compilation.measured
    assert share is not None
    assert share.by_name > 0
    before, after = (
        {s.name: s.alone_ns for s in m.compilation.result.timeline.spans if s.op_type == "MatMul"}
        for m in (plain, measured)
    )
    for name, ns in before.items():
        assert after[name] == pytest.approx(10 * ns, rel=1e-3)
    stages = compiled_on(session, pp=2, durations=str(tmp_path / "op_summary.csv"))
    assert stages.compilation.measured is not None
    with pytest.raises(ge.GecError):
        session.compile(model(), batch=4, seq=8, tp=2, durations=str(tmp_path / "none.csv"))


def test_blocks_of_attention_hold_on_every_card(session: ge.Session) -> None:
    def attention(**options: Any) -> int:
        compiled = session.compile("gpt2", batch=1, seq=512, tp=2, micro_batches=1, **options)
        spans = compiled.compilation.result.timeline.spans
        return next(s.alone_ns for s in spans if s.op_type == "FlashAttention")

    assert attention(attention_block_q=16, attention_block_k=16) > attention()


STRATEGY_FILE = """
import gecompiler as ge

class Mine(ge.StreamAssignStrategy):
    def assign(self, op_graph):
        for op in op_graph.ops:
            if op.group == "MLP gate":
                ge.assign_to_stream(op, 2)
"""


def test_the_command_line_says_the_same(
    session: ge.Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(STRATEGY_FILE)
    (tmp_path / "a.yaml").write_text(
        "assignment: {FlashAttention: 1}\n"
        "sync_points: [{producer: MLP up, consumer: MLP gate}]\n"
        "labels: {MLP down: down}\n"
        "options: {stream_strategy: heft}\n"
    )
    save_onnx(model(), tmp_path / "tiny.onnx")
    given = ["--batch", "4", "--seq", "8", "--device", "ascend910b", "--tp", "2"]
    for more in (["--assign", "a.yaml"], ["--strategy", "mine.py"]):
        folder = tmp_path / more[0].strip("-")
        files = [str(tmp_path / more[1])]
        with pytest.raises(SystemExit) as ended:
            main(["compile", str(tmp_path / "tiny.onnx"), *given, more[0], *files,
                  "-o", str(folder), "-q"])  # fmt: skip
        assert not ended.value.code, capsys.readouterr().err
        with pytest.raises(SystemExit) as ended:
            main(["check", str(folder / "schedule.json")])
        assert not ended.value.code, capsys.readouterr().err
    assigned = json.loads((tmp_path / "assign" / "schedule.json").read_text())
    attention = {t["stream"] for t in assigned["tasks"] if t.get("op_type") == "FlashAttention"}
    assert attention == {1}
    mine = json.loads((tmp_path / "strategy" / "schedule.json").read_text())
    gates = {t["stream"] for t in mine["tasks"]
             if t.get("group") == "MLP gate" and t["kind"] != "collective"}  # fmt: skip
    assert gates == {2}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_all_streams_may_be_taken(layout: dict[str, Any]) -> None:
    """Collectives then share them with computing; sends and receives of a ring stay apart."""
    session = ge.Session(device="ascend910")
    session.set_stream_assignment({"FlashAttention": 0, "MLP gate": 1, "MLP up": 2, "MLP down": 3})
    found = compiled_on(session, **layout)
    assert {t.stream for t in found.schedule.tasks} == {0, 1, 2, 3}
