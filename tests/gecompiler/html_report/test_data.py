"""The data of a page says what timeline and schedule say."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_help import layered_schedule, layered_subject

from gecompiler.compiled import CompiledModel
from gecompiler.html_report import Subject, compilation_subject, page_data
from gecompiler.html_report.compact import StringTable, deltas, ragged
from gecompiler.html_report.critical import critical_tasks
from gecompiler.html_report.curves import thinned
from gecompiler.html_report.facts import facts
from gecompiler.html_report.memory_curve import memory_curves
from gecompiler.ir.schedule import Buffer
from gecompiler.ir.timeline import Span, Timeline, Usage


def decoded(table: dict[str, Any]) -> list[str]:
    """As data.js does it, in UTF-16 units."""
    found, last = [], b""
    for shared, rest in zip(table["shared"], table["rest"], strict=True):
        last = last[: 2 * shared] + rest.encode("utf-16-le", "surrogatepass")
        found.append(last.decode("utf-16-le", "surrogatepass"))
    return found


@given(st.lists(st.text(st.characters(), max_size=6), max_size=20))
def test_strings_come_back(texts: list[str]) -> None:
    table = StringTable()
    numbers = [table.add(text) for text in texts]
    ranks, back = table.ranks(), decoded(table.encoded())
    assert [back[ranks[n]] for n in numbers] == texts


def test_strings_share_what_their_neighbours_begin_with() -> None:
    table = StringTable()
    for text in ("/layers.0/q", "/layers.0/k", "/😀a", "/😀b"):
        table.add(text)
    encoded = table.encoded()
    assert encoded["shared"][1] == len("/layers.0/")
    assert encoded["shared"][3] == 3  # one slash and two units


@given(st.lists(st.integers(-(10**12), 10**12)))
def test_steps_add_up(values: list[int]) -> None:
    assert list(accumulate(deltas(values))) == values


def test_ragged_rows_keep_their_lengths() -> None:
    assert ragged([[1, 2], [], [3]]) == {"lengths": [2, 0, 1], "values": [1, 2, 3]}


def times_of(data: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Start and end of each task, as data.js finds them."""
    tasks, found = data["tasks"], {}
    lane, at = None, 0
    for i, task in enumerate(tasks["id"]):
        if (tasks["rank"][i], tasks["stream"][i]) != lane:
            lane, at = (tasks["rank"][i], tasks["stream"][i]), 0
        start = at + tasks["gap"][i]
        at = start + tasks["dur"][i]
        found[task] = (start, at)
    return found


@pytest.fixture(scope="module")
def subject() -> Subject:
    return layered_subject(60, 3, 2)


@pytest.fixture(scope="module")
def data(subject: Subject) -> dict[str, Any]:
    return page_data(subject)


def test_times_are_those_of_the_spans(subject: Subject, data: dict[str, Any]) -> None:
    expected = {s.task: (s.start_ns, s.end_ns) for s in subject.timeline.spans}
    assert times_of(data) == expected
    assert data["makespan"] == subject.timeline.makespan_ns


def test_columns_name_what_the_tasks_name(subject: Subject, data: dict[str, Any]) -> None:
    assert subject.schedule is not None
    strings, tasks = decoded(data["strings"]), data["tasks"]
    tensors = [strings[n] for n in tasks["tensor"]]
    reads = iter(tasks["reads"]["values"])
    for i, task_id in enumerate(tasks["id"]):
        task, span = subject.schedule.tasks[task_id], subject.timeline.spans[task_id]
        assert strings[tasks["name"][i]] == task.name
        assert strings[tasks["type"][i]] == task.op_type
        assert strings[tasks["group"][i]] == task.group
        assert strings[tasks["bound"][i]] == span.bound_by
        assert span.duration_ns - tasks["alone"][i] == span.alone_ns
        assert tasks["load"][i] == task.demand.load_bytes
        assert tasks["cube"][i] == 100 * task.demand.cube_us
        back = tasks["waited"][i]
        assert (None if back < 0 else tasks["id"][back]) == span.waited_for
        count = tasks["reads"]["lengths"][i]
        assert [tensors[next(reads)] for _ in range(count)] == list(task.reads)
    types = {strings[n] for n in tasks["tensor_type"]}
    assert types == {"f16[8, 4096]"}  # found also for rank:name
    assert set(tasks["tensor_bytes"]) == {65_536}


def test_waits_point_at_their_tasks(subject: Subject, data: dict[str, Any]) -> None:
    assert subject.schedule is not None
    ids, events = data["tasks"]["id"], data["events"]
    pairs = [(ids[a], ids[b]) for a, b in zip(events["from"], events["to"], strict=True)]
    assert pairs == [(e.producer, e.consumer) for e in subject.schedule.events]
    strings = decoded(data["strings"])
    assert {strings[n] for n in events["kind"]} == {"data"}
    assert events["tensors"]["lengths"] == [1] * len(pairs)


def test_the_same_subject_gives_the_same_text(subject: Subject) -> None:
    assert json.dumps(page_data(subject)) == json.dumps(page_data(layered_subject(60, 3, 2)))


def test_a_timeline_alone_is_enough() -> None:
    bare = Subject(layered_subject(8).timeline)
    found = page_data(bare)
    assert found["report"] is None
    assert len(found["tasks"]["id"]) == 8
    assert found["curves"]["memory"] == []


def test_captures_say_operands_and_streams_in_words() -> None:
    timeline = layered_subject(4, 1).timeline
    bare = Subject(timeline, operands={1: (("2,8 FLOAT16 ND",), ())}, stream_names={(0, 0): "PTA"})
    found = page_data(bare)
    strings = decoded(found["strings"])
    assert found["tasks"]["reads"] == {"lengths": [0, 1, 0, 0], "values": [0]}
    assert strings[found["tasks"]["tensor"][0]] == "2,8 FLOAT16 ND"
    assert found["lanes"] == [[0, 0, "PTA"]]


def test_an_empty_timeline_has_no_tasks() -> None:
    found = page_data(Subject(Timeline(())))
    assert found["tasks"]["id"] == []
    assert found["critical"] == []
    assert found["makespan"] == 0


def test_the_critical_path_has_no_hole(subject: Subject) -> None:
    path = critical_tasks(subject.timeline)
    spans = subject.timeline.spans
    assert spans[path[-1]].end_ns == subject.timeline.makespan_ns
    assert spans[path[0]].waited_for is None
    for before, after in pairwise(path):
        assert spans[after].waited_for == before
        assert spans[before].end_ns <= spans[after].start_ns


def test_a_circle_of_waits_ends() -> None:
    a = Span(0, "a", "Add", 0, 0, 0, 5, 5, waited_for=1)
    b = Span(1, "b", "Add", 0, 1, 0, 5, 5, waited_for=0)
    assert sorted(critical_tasks(Timeline((a, b)))) == [0, 1]


def live_at(schedule: Any, timeline: Timeline, time: int) -> int:
    """Bytes in use, by looking at every buffer."""
    total = 0
    for buffer in schedule.buffers:
        users = [t.id for t in schedule.tasks if buffer.tensor in (*t.reads, *t.writes)]
        spans = [timeline.spans[i] for i in users]
        last = timeline.makespan_ns if buffer.kind == "output" else max(s.end_ns for s in spans)
        total += buffer.bytes * (min(s.start_ns for s in spans) <= time < last)
    return total


@given(st.integers(2, 12), st.integers(1, 3), st.randoms())
def test_memory_is_what_lives(count: int, streams: int, random: Any) -> None:
    subject = layered_subject(count, streams)
    assert subject.schedule is not None
    times, used = memory_curves(subject.schedule, subject.timeline)[0]
    for _ in range(5):
        time = random.randrange(subject.timeline.makespan_ns)
        at = max((i for i, t in enumerate(times) if t <= time), default=None)
        found = 0 if at is None else used[at]
        assert found == live_at(subject.schedule, subject.timeline, time)


def test_memory_of_views_and_weights() -> None:
    subject = layered_subject(8, 2)
    assert subject.schedule is not None
    plain = memory_curves(subject.schedule, subject.timeline)[0]
    view = Buffer("view", 0, 65_536, "activation", alias_of="out_0")
    circle = (Buffer("p", 0, 8, "activation", "q"), Buffer("q", 0, 8, "activation", "p"))
    same = replace(subject.schedule, buffers=(*subject.schedule.buffers, view))
    assert memory_curves(same, subject.timeline)[0] == plain
    memory_curves(replace(same, buffers=(*same.buffers, *circle)), subject.timeline)
    weight = Buffer("w", 999, 1000, "weight")
    more = replace(subject.schedule, buffers=(*subject.schedule.buffers, weight))
    assert memory_curves(more, subject.timeline)[0][1][0] >= 1000
    assert max(memory_curves(more, subject.timeline)[0][1]) == max(plain[1]) + 1000


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_thinned_curves_keep_their_mean(steps: list[tuple[int, float]], most: int) -> None:
    times = tuple(accumulate([0, *(gap for gap, _ in steps[1:])]))
    curve = Usage("hbm", 1.0, "", times, tuple(part for _, part in steps))
    until = times[-1] + 10
    at, parts = thinned(curve.times_ns, curve.fractions, until, most)
    assert len(at) <= most + 1 or at == times
    width = at[1] - at[0] if len(at) > 1 else until
    if at != times:
        area = sum(part * width for part in parts)
        assert area == pytest.approx(curve.mean(until) * until, abs=1e-6)


def test_facts_add_up(subject: Subject) -> None:
    found = facts(subject.timeline)
    assert sum(time for _, time in found["busy"]) == sum(
        s.duration_ns for s in subject.timeline.spans
    )
    assert 0 <= found["idle"] < subject.timeline.makespan_ns


def test_idle_time_is_counted_once() -> None:
    spans = (
        Span(0, "a", "Add", 0, 0, 10, 20, 10),
        Span(1, "b", "Add", 0, 1, 12, 18, 6),
        Span(2, "c", "Add", 0, 1, 25, 30, 5, wait_ns=7, waited_for=0, wait_cause="event"),
    )
    found = facts(Timeline(spans))
    assert found["idle"] == 15
    assert (found["event_waits"], found["event_wait"]) == (1, 7)


def test_a_compilation_shows_its_shapes_and_sites(compiled: CompiledModel) -> None:
    subject = compilation_subject(compiled.compilation)
    found = page_data(subject)
    strings = decoded(found["strings"])
    types = {strings[n] for n in found["tasks"]["tensor_type"]}
    assert "f32[2, 16, 32]" in types
    assert len(found["report"]["attention"]["sites"]) == 2
    assert found["single"] is not None
    english, chinese = found["advice"]["en"], found["advice"]["zh"]
    assert len(english) == len(chinese) > 0
    assert not set(english) & set(chinese)
    single = sum(found["single"]["gap"]) + sum(found["single"]["dur"])
    assert single == round(1000 * found["report"]["schedule"]["single_stream_us"])


def test_schedules_of_the_helper_are_sound() -> None:
    layered_schedule(40, 3, 2)
    layered_subject(40, 3, 2).timeline.verify()
