"""``gec explain`` on several cards: which card came last, and what an op waits for there."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import gecompiler as ge
from gecompiler.cli import main
from gecompiler.compiled import CompiledModel
from gecompiler.explain import Explainer, Explanation, like_elsewhere, matches
from gecompiler.ir.errors import UsageError

UP = "/transformer/h.{layer}/mlp/c_fc/Gemm"


@cache
def compiled(**options: Any) -> CompiledModel:
    return ge.compile("gpt2", batch=4, seq=16, device="ascend910b", **options)


def explained(model: CompiledModel, name: str, rank: int | None = None) -> list[Explanation]:
    explainer = Explainer.of(model.compilation)
    return [explainer.explain(task) for task in matches(model.compilation, name, rank)]


def test_the_rank_on_which_it_ends_last_is_told_of() -> None:
    model = compiled(tp=2, micro_batches=1)
    name = UP.format(layer=3)
    (found,) = explained(model, name)
    own = [s for s in model.compilation.result.timeline.spans if s.name.endswith(f":{name}")]
    assert found.span.end_ns == max(s.end_ns for s in own)
    assert [e.task.rank for e in explained(model, name, 1)] == [1]
    other = like_elsewhere(model.compilation, found.task.id)
    assert {found.task.rank, *(model.schedule.tasks[t].rank for t in other)} == {0, 1}
    assert name in model.explain(name)


def test_an_op_of_one_stage_is_on_its_ranks_alone() -> None:
    model = compiled(pp=2, micro_batches=1)
    assert [e.task.rank for e in explained(model, UP.format(layer=11))] == [1]
    with pytest.raises(UsageError, match="rank 0 has none; ranks that do: 1"):
        matches(model.compilation, UP.format(layer=11), 0)
    with pytest.raises(UsageError, match="there is no rank 2"):
        matches(model.compilation, UP.format(layer=11), 2)
    with pytest.raises(UsageError, match="no op has this name"):
        matches(model.compilation, UP.format(layer=12))


@pytest.mark.parametrize(
    ("options", "name", "meant"),
    [
        ({"tp": 2, "micro_batches": 1}, "AllReduc", "AllReduce"),
        ({"pp": 2, "micro_batches": 1}, "Recvs", "Recv"),
        ({"pp": 2, "micro_batches": 1}, UP.format(layer=1)[:-1], UP.format(layer=1)),
    ],
)
def test_the_nearest_name_may_be_of_a_collective(
    options: dict[str, int], name: str, meant: str
) -> None:
    with pytest.raises(UsageError, match="no op has this name") as caught:
        matches(compiled(**options).compilation, name)
    assert meant in caught.value.hint
    assert "known:" not in caught.value.hint


def test_micro_batches_are_listed() -> None:
    model = compiled(pp=2, micro_batches=4)
    names = [e.task.name for e in explained(model, UP.format(layer=0))]
    assert names == [f"0:mb{i}/{UP.format(layer=0)}" for i in range(4)]
    assert len(explained(model, names[2])) == 1


def test_a_receive_waits_for_its_sender() -> None:
    model = compiled(pp=2, micro_batches=1)
    (found, *_) = explained(model, "Recv")
    meeting = found.meeting
    assert meeting is not None
    spans = model.compilation.result.timeline.spans
    assert spans[meeting.last].rank == 0
    assert spans[meeting.last].op_type == "Send"
    assert found.span.peer == meeting.last
    assert found.levers[0].kind == "peer"
    assert found.levers[0].gain_ns == found.span.peer_ns
    begun = meeting.arrivals[-1][1]
    assert begun + meeting.transfer_ns == found.span.end_ns
    assert meeting.message_bytes > 0
    text = model.explain(found.task.name)
    assert "last to come was rank 0" in text
    assert "it goes on when rank 0 has come; there: " in text


def test_the_way_leads_through_the_card_that_came_last() -> None:
    """Behind a receive are the sender's tasks: what the second stage waits for."""
    model = compiled(pp=2, micro_batches=1)
    (found,) = explained(model, UP.format(layer=11))
    ranks = {model.schedule.tasks[t].rank for t in found.way.tasks}
    assert ranks == {0, 1}
    assert found.way.between_ns >= 0
    assert found.way.alone_ns + found.way.slowed_ns + found.way.between_ns == found.span.start_ns
    assert found.earliest_ns <= found.span.start_ns


@pytest.mark.parametrize("strategy", ["auto", "heft"])
def test_all_tasks_can_be_explained(strategy: str) -> None:
    model = compiled(tp=2, pp=2, micro_batches=2, stream_strategy=strategy)
    explainer = Explainer.of(model.compilation)
    for task in model.schedule.tasks:
        found = explainer.explain(task.id)
        assert found.why_here
        assert 0 <= found.earliest_ns <= found.span.start_ns
        assert found.slack_ns >= 0
        assert (found.meeting is None) == (task.kind != "collective")
        assert all(model.schedule.tasks[p].rank == task.rank for p in explainer.preds[task.id])


def test_what_the_user_assigned_is_said_to_be_so() -> None:
    session = ge.Session(device="ascend910b")
    session.set_stream_assignment({"FlashAttention": 2})
    model = session.compile("gpt2", batch=2, seq=16, tp=2, micro_batches=1)
    whys = {e.why_here for e in explained(model, "FlashAttention")}
    assert whys == {"assigned by the user"}


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["gpt2", UP.format(layer=2)]
    size = ["--batch", "4", "--seq", "16", "--device", "ascend910b", "--tp", "2"]
    with pytest.raises(SystemExit):
        main(["explain", *model, *size, "--micro-batches", "1", "--rank", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["rank"] == 1
    assert [row["rank"] for row in found["elsewhere"]] == [0]
    with pytest.raises(SystemExit):
        main(["explain", "gpt2", "AllReduce", *size, "--micro-batches", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)["matches"]
    assert len(rows) == 24
    assert {row["op_type"] for row in rows} == {"AllReduce"}


def test_one_card_has_no_other_rank() -> None:
    with pytest.raises(UsageError, match="compiled for one card"):
        matches(compiled(stream_strategy="single").compilation, UP.format(layer=0), 1)
