"""The scheduling log: a line a decision, with the word Stream, for every strategy."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest
from fakes import FakeEvaluator, FakeTarget, random_graph

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    ScheduleResult,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams.registry import STRATEGIES


def built(graph: Graph, strategy: str, **fixed: int) -> ScheduleResult:
    target = FakeTarget()
    return build_schedule(
        graph,
        target,
        FakeEvaluator(target),
        ScheduleOptions(strategy=strategy, solver_seconds=0.5),
        UserControl(fixed),
        Diagnostics(),
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_line_for_each_task_and_each_wait(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    if strategy == "optimal":
        pytest.importorskip("ortools")
    caplog.set_level(logging.INFO, "gecompiler.streams")
    result = built(random_graph(7, 14), strategy)
    lines = [r.getMessage() for r in caplog.records if r.name == "gecompiler.streams"]
    assert all("Stream" in line for line in lines)
    for task in result.schedule.tasks:
        head = re.escape(f"Stream {task.stream}: {task.op_type or task.kind} {task.name} (")
        (line,) = [text for text in lines if re.match(head, text)]
        assert re.search(r": [^:)]{4,}", line[len(task.name) :]), line
    waits = [line for line in lines if " waits for " in line]
    assert len(waits) == len(result.schedule.events)


def test_the_users_word_is_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gecompiler.streams")
    graph = random_graph(3, 10, views=False)
    label = replace(graph.op("op4").info, label="side")
    graph.replace_op("op4", graph.op("op4").with_(info=label))
    for strategy in ("critical_path", "heft", "auto"):
        caplog.clear()
        built(graph, strategy, op2=2)
        text = "\n".join(r.getMessage() for r in caplog.records)
        assert re.search(r"Stream 2: \w+ op2 \(\w+: assigned by the user\)", text)
        assert re.search(r"Stream \d: \w+ op4 \(\w+: label 'side'\)", text)


def test_nothing_is_worked_out_for_a_log_that_nobody_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "gecompiler.streams")
    built(random_graph(7, 14), "default")
    assert not caplog.records
