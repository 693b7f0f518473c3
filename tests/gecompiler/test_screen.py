"""The report on terminals of any width, with and without colours, and in pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios

import pytest

from gecompiler import Session
from gecompiler.compiled import CompiledModel
from gecompiler.explain import Explainer
from gecompiler.explain_text import explanation_text
from gecompiler.lang import use_language
from gecompiler.lang.width import columns
from gecompiler.latency import latency_split
from gecompiler.report_text import report_text


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    session = Session()
    session.configure(num_streams=2, stream_strategy="critical_path")
    return session.compile("bert-base", batch=1, seq=64)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [40, 60, 80, 96, 160])
def test_lines_fit_the_terminal(model: CompiledModel, width: int, lang: str) -> None:
    with use_language(lang):
        text = report_text(model.compilation, width)
    assert max(map(columns, text.splitlines())) <= width


def test_wide_terminals_show_whole_names_and_narrow_ones_short_bars(model: CompiledModel) -> None:
    narrow, wide = (report_text(model.compilation, width) for width in (60, 160))
    assert "Attention FlashAttention " in wide
    assert narrow.count("=") < wide.count("=")


def test_columns_stand_under_each_other_in_chinese(model: CompiledModel) -> None:
    with use_language("zh"):
        lines = report_text(model.compilation, 96).splitlines()
    rows = [line for line in lines if " x " in line and "%" in line and " us" in line]
    starts = {columns(line[: line.index(" x ")]) for line in rows}
    assert len(rows) > 8
    assert len(starts) == 1


def test_the_latency_is_the_sum_of_its_parts(model: CompiledModel) -> None:
    timeline = model.compilation.result.timeline
    split = latency_split(timeline)
    parts = sum(ns for _, ns in split.running) + split.between_ns + split.host_ns
    assert parts == split.makespan_ns == timeline.makespan_ns
    assert split.host_ns == 0
    assert 0 <= split.slowed_ns <= parts
    data = model.as_dict()["latency"]
    assert data["critical_tasks"] == len(split.tasks) > 1
    assert sum(data["running_us"].values()) + data["between_us"] == pytest.approx(
        timeline.makespan_ns / 1000
    )


@pytest.mark.parametrize("streams", [1, 2])
def test_a_host_that_issues_late_is_the_critical_path(streams: int) -> None:
    """What explain calls critical is what the page and the picture mark, here as elsewhere."""
    session = Session()
    session.configure(launch_mode="host", num_streams=streams, stream_strategy="critical_path")
    compilation = session.compile("bert-base", batch=1, seq=32).compilation
    timeline = compilation.result.timeline
    split, slack = latency_split(timeline), Explainer.of(compilation).times.slack_ns
    assert all(slack[task] == 0 for task in split.tasks)
    assert split.host_ns > 0.5 * timeline.makespan_ns
    assert "the host issuing tasks" in report_text(compilation)
    assert "--launch sunk" in report_text(compilation)


def test_an_explanation_in_chinese(model: CompiledModel) -> None:
    explainer = Explainer.of(model.compilation)
    with use_language("zh"):
        for task in range(0, len(model.schedule.tasks), 7):
            text = explanation_text(explainer.explain(task), explainer)
            bare = text.replace(explainer.name(task), "")
            assert "为何在此" in text
            assert not any(f" {word} " in bare for word in ("the", "its", "which", "of"))


def test_starting_is_nothing_that_tasks_share(model: CompiledModel) -> None:
    explainer = Explainer.of(model.compilation)
    tasks = range(0, len(model.schedule.tasks), 3)
    found = (explanation_text(explainer.explain(task), explainer) for task in tasks)
    texts = [" ".join(text.split()) for text in found]
    assert any("of it by sharing" in text for text in texts)
    assert not any("sharing start-up" in text for text in texts)


def _on_terminal(width: int, **environ: str) -> str:
    """What `gec strategies` and a report print on a terminal of that width."""
    code = "from gecompiler import Session;Session().compile('bert-base', batch=1, seq=16).report()"
    pid, fd = pty.fork()
    if not pid:
        base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        os.execve(sys.executable, [sys.executable, "-c", code], {**base, **environ})
    found = b""
    try:
        while part := os.read(fd, 65536):
            found += part
    except OSError:
        pass  # the terminal is closed
    os.waitpid(pid, 0)
    os.close(fd)
    return found.decode().replace("\r\n", "\n")


def test_colours_only_where_they_are_wanted() -> None:
    coloured = _on_terminal(72, TERM="xterm")
    assert "\033[1mStreams\033[0m" in coloured
    plain = _on_terminal(72, TERM="xterm", NO_COLOR="1")
    assert "\033" not in plain
    assert plain == coloured.replace("\033[1m", "").replace("\033[0m", "")
    assert "\033" not in _on_terminal(72, TERM="dumb")
    assert max(map(columns, plain.splitlines())) <= 72
