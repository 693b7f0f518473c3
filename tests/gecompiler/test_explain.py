"""``gec explain`` and ``model.explain``: figures on made-up schedules, and names on a model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_help import Gec
from hypothesis import given, settings
from hypothesis import strategies as st

import gecompiler as ge
from gecompiler.backends.simulator import Simulator
from gecompiler.explain import Explainer, Explanation, matches
from gecompiler.explain_data import explanation_data
from gecompiler.explain_text import explanation_text
from gecompiler.html_report.critical import critical_tasks
from gecompiler.ir.schedule import Communicator, Demand, Event, Schedule, Task
from tests.backends.plain_device import DEVICE as ROUND

DEVICE = dataclasses.replace(ROUND, launch_mode="sunk")
MANY = 10**9


def fixed(us: float) -> Demand:
    """Takes that long and shares nothing."""
    return Demand(fixed_us=us)


def memory(us: float) -> Demand:
    """Keeps the whole of HBM busy for that long."""
    return Demand(load_bytes=us * 1e6, tiles=MANY)


def explainer(
    streams: Sequence[Sequence[tuple[str, Demand]]],
    needs: Sequence[tuple[str, str]] = (),
    host: bool = False,
    host_us: float = 5.0,
) -> Explainer:
    """Streams of tasks; ``needs`` are (producer, consumer), with an event across streams."""
    tasks = [
        Task(0, name, "kernel", stream, order, op_type="MatMul", demand=demand)
        for stream, queue in enumerate(streams)
        for order, (name, demand) in enumerate(queue)
    ]
    tasks = [dataclasses.replace(task, id=i) for i, task in enumerate(tasks)]
    number = {task.name: task for task in tasks}
    pairs = [(number[a], number[b]) for a, b in needs]
    events = [Event(a.id, b.id, "data", ("t",)) for a, b in pairs if a.stream != b.stream]
    device = DEVICE
    if host:
        device = dataclasses.replace(DEVICE, launch_mode="host", host_launch_us=host_us)
    schedule = Schedule("m", "d", "s", tuple(tasks), tuple(events), (), device.limits)
    preds = [[a.id for a, b in pairs if b.id == task.id] for task in tasks]
    return Explainer(schedule, Simulator(device)(schedule), device, preds)


def of(found: Explainer, name: str) -> Explanation:
    return found.explain(next(t.id for t in found.schedule.tasks if t.name == name))


def levers(found: Explainer, name: str) -> dict[str, float]:
    return {lever.kind: lever.gain_ns / 1000 for lever in of(found, name).levers}


def test_a_start_upon_the_stream() -> None:
    found = explainer([[("a", fixed(10)), ("b", fixed(5)), ("c", fixed(3))]], [("a", "c")])
    c = of(found, "c")
    assert (c.span.start_ns, c.data_ready_ns, c.data_from) == (17_000, 10_000, 0)
    assert [(r.kind, r.at_ns, r.by) for r in c.releases] == [("stream", 17_000, 1)]
    assert (c.way.tasks, c.way.alone_ns, c.way.slowed_ns) == ((0, 1), 15_000, 0)
    assert c.way.between_ns == 2_000
    # another stream has it after a and the event; the data alone allow a launch after a
    assert levers(found, "c") == {"move": 17 - 10.75, "shorten": 5.0, "shorten_back": 10.0}
    assert c.earliest_ns == 10_750
    assert c.critical
    text = explanation_text(c, found)
    assert "its stream is free: after b  <- decides" in text
    assert "move it to Stream1, on which nothing runs then" in text
    assert "or move that: it is not needed" in text


def test_a_start_upon_an_event() -> None:
    streams = [[("a", fixed(10)), ("d", fixed(30))], [("b", fixed(4)), ("c", fixed(3))]]
    found = explainer(streams, [("a", "c")])
    c = of(found, "c")
    assert c.span.start_ns == 10_750
    assert [(r.kind, r.at_ns, r.by) for r in c.releases] == [
        ("event", 10_750, 0), ("stream", 5_250, 2),
    ]  # fmt: skip
    assert c.span.wait_ns == 5_750
    assert c.way.tasks == (0,)
    assert levers(found, "c") == {"shorten": 10.750 - 5.250}
    # d ends the run: 10 + gap 1 + record 0.5 + 30
    assert found.timeline.makespan_ns == 41_500
    assert c.slack_ns == 41_500 - c.span.end_ns
    assert of(found, "b").slack_ns == c.slack_ns + 5_500
    assert of(found, "a").critical
    assert "the event of a (Stream0) has arrived (data: t)  <- decides" in explanation_text(
        c, found
    )


def test_joining_the_stream_of_what_it_depends_on() -> None:
    found = explainer([[("a", fixed(10))], [("b", fixed(20)), ("c", fixed(3))]], [("a", "c")])
    assert of(found, "c").span.start_ns == 21_250
    # behind a on its stream: 10 and a gap, the same as by an event for a longer gap
    rows = {(r.kind, r.stream): r.gain_ns for r in of(found, "c").levers}
    assert rows["move", 2] == 21_250 - 10_750
    slow = dataclasses.replace(DEVICE, event_wait_us=3.0)
    timeline = Simulator(slow)(found.schedule)
    again = Explainer(found.schedule, timeline, slow, found.preds)
    rows = {(r.kind, r.stream): r.gain_ns for r in of(again, "c").levers}
    assert rows["join", 0] == timeline.spans[2].start_ns - 11_000
    assert "move it to Stream0, behind a (Stream0)" in explanation_text(of(again, "c"), again)


def test_a_start_upon_the_host() -> None:
    found = explainer([[("a", fixed(1)), ("b", fixed(1)), ("c", fixed(1))]], host=True)
    c = of(found, "c")
    assert [(r.kind, r.at_ns) for r in c.releases] == [("host", 15_000), ("stream", 12_000)]
    assert (c.way.tasks, c.way.between_ns) == ((), 15_000)
    assert levers(found, "c") == {"launch": 3.0}
    assert "--launch sunk" in explanation_text(c, found)
    # a and b wait for the host themselves: the run ends no later if each is 3 us later
    assert of(found, "b").slack_ns == 3_000
    assert of(found, "a").slack_ns == 6_000


def test_the_host_is_a_floor_to_every_gain() -> None:
    found = explainer([[("a", fixed(40)), ("b", fixed(1))]], host=True)
    assert of(found, "b").span.start_ns == 46_000
    assert levers(found, "b")["shorten"] == 46 - 10


def test_the_first_waits_for_nothing() -> None:
    found = explainer([[("a", fixed(10))]])
    a = of(found, "a")
    assert [(r.kind, r.at_ns, r.by) for r in a.releases] == [("start", 0, None)]
    assert a.levers == ()
    text = explanation_text(a, found)
    assert "nothing came before that held it up" in text
    assert "cannot start earlier" in text


def test_what_sharing_costs() -> None:
    found = explainer([[("a", memory(10)), ("c", fixed(1))], [("b", memory(10))]])
    a = of(found, "a")
    assert (a.span.start_ns, a.span.end_ns, a.span.alone_ns) == (0, 20_000, 10_000)
    assert a.beside == ((2, 20_000),)
    text = explanation_text(a, found)
    assert "limited by hbm: 10.00 us more than alone, beside b (Stream1) 20.00 us" in text
    c = of(found, "c")
    assert (c.way.alone_ns, c.way.slowed_ns, c.way.between_ns) == (10_000, 10_000, 1_000)
    assert levers(found, "c")["contention"] == 10.0


def test_parts_of_a_collective_share_their_slack() -> None:
    def part(rank: int) -> Task:
        return Task(0, f"all{rank}", "collective", 0, 1, rank=rank, communicator="w",
                    demand=Demand(fixed_us=1.0, link_bytes=(("hccs:0-1", 1e5),)))  # fmt: skip

    def first(rank: int, us: float) -> Task:
        return Task(0, f"a{rank}", "kernel", 0, 0, rank=rank, demand=fixed(us))

    rows = [first(0, 10), part(0), first(1, 4), part(1)]
    tasks = tuple(dataclasses.replace(task, id=i) for i, task in enumerate(rows))
    schedule = Schedule(
        "m", "d", "s", tasks, (), (), DEVICE.limits, communicators=(Communicator("w", (0, 1)),)
    )
    timeline = Simulator(DEVICE)(schedule)
    found = Explainer(schedule, timeline, DEVICE, [[], [0], [], [2]])
    assert of(found, "all0").critical
    assert of(found, "a0").critical
    assert of(found, "all1").slack_ns == of(found, "a1").slack_ns == 6_000


@st.composite
def drawn(draw: st.DrawFn) -> Explainer:
    count = draw(st.integers(1, 3))
    streams: list[list[tuple[str, Demand]]] = [[] for _ in range(count)]
    names: list[tuple[str, int]] = []
    for i in range(draw(st.integers(1, 12))):
        stream = draw(st.integers(0, count - 1))
        us = draw(st.integers(0, 9)) * draw(st.sampled_from([1, 1.00037]))
        streams[stream].append((f"t{i}", draw(st.sampled_from([fixed, memory]))(us)))
        names.append((f"t{i}", stream))
    pairs = [(a, b) for j, (b, _) in enumerate(names) for a, _ in names[:j]]
    needs = draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)) if pairs else []
    host = draw(st.booleans())
    return explainer(streams, needs, host, host_us=draw(st.sampled_from([0.5, 4.0])))


@given(drawn())
@settings(max_examples=150, deadline=None)
def test_the_decisive_condition_is_the_last_and_the_parts_add_up(found: Explainer) -> None:
    for task in found.schedule.tasks:
        one = found.explain(task.id)
        start = one.span.start_ns
        assert abs(one.releases[0].at_ns - start) <= 1
        assert all(r.at_ns <= start + 1 for r in one.releases)
        assert one.data_ready_ns <= start
        assert one.earliest_ns <= start
        way = one.way
        assert way.alone_ns + way.slowed_ns + way.between_ns == start
        assert all(0 < lever.gain_ns <= start for lever in one.levers)
        assert 0 <= one.slack_ns <= found.timeline.makespan_ns - one.span.end_ns
        json.dumps(explanation_data(one, found))
        assert explanation_text(one, found).startswith(task.name)
    if found.device.launch_mode == "sunk":
        assert all(found.explain(t).critical for t in critical_tasks(found.timeline))


@given(drawn(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_task_may_be_later_by_its_slack_and_no_more(
    found: Explainer, data: st.DataObject
) -> None:
    tasks = found.schedule.tasks
    if any(t.demand.load_bytes for t in tasks) or found.device.launch_mode == "host":
        return  # what shares resources takes another time then, and the host another order
    task = data.draw(st.sampled_from(tasks))
    slack = found.times.slack_ns[task.id]
    for more, longer in ((slack, 0), (slack + 2_000, 2_000)):
        demand = fixed(task.demand.fixed_us + more / 1000)
        changed = tuple(dataclasses.replace(t, demand=demand) if t is task else t for t in tasks)
        again = Simulator(found.device)(dataclasses.replace(found.schedule, tasks=changed))
        assert abs(again.makespan_ns - found.timeline.makespan_ns - longer) <= 1


# ----------------------------------------------------------------- a model


OPTIONS = ("--strategy", "load_balance:3", "--batch", 2, "--seq", 64)


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> ge.CompiledModel:
    session = ge.Session(stream_strategy="load_balance:3")
    return session.compile(tiny_path, batch=2, seq=64)


def test_every_task_of_a_model(model: ge.CompiledModel) -> None:
    found = Explainer.of(model.compilation)
    for task in model.schedule.tasks:
        one = found.explain(task.id)
        assert one.why_here
        assert abs(one.releases[0].at_ns - one.span.start_ns) <= 1
        assert matches(model.compilation, task.name) == [task.id]
    assert any(found.explain(t.id).releases[0].kind == "event" for t in model.schedule.tasks)


def test_the_command_says_what_the_model_says(
    gec: Gec, tiny_path: Path, model: ge.CompiledModel
) -> None:
    name = model.schedule.tasks[-1].name
    code, out, _ = gec("explain", tiny_path, name, *OPTIONS)
    assert code == 0
    assert out == model.explain(name) + "\n"
    code, out, _ = gec("explain", tiny_path, name, "--json", *OPTIONS)
    data = json.loads(out)
    assert (code, data["name"]) == (0, name)
    assert data["start_us"] == model.timeline.spans[-1].start_ns / 1000
    assert data["why_here"] in model.explain(name)


def test_a_name_of_several(gec: Gec, tiny_path: Path, model: ge.CompiledModel) -> None:
    code, out, _ = gec("explain", tiny_path, "MatMul", *OPTIONS)
    named = [t.name for t in model.schedule.tasks if t.op_type == "MatMul"]
    assert code == 0
    assert f"stands for {len(named)} tasks" in out
    assert "the nearest is" in out
    _, out, _ = gec("explain", tiny_path, "MatMul", "--json", *OPTIONS)
    rows = json.loads(out)["matches"]
    assert sorted(row["name"] for row in rows) == sorted(named)
    assert [row["start_us"] for row in rows] == sorted(row["start_us"] for row in rows)
    group = next(t.group for t in model.schedule.tasks if t.group)
    assert gec("explain", tiny_path, group, *OPTIONS)[0] == 0
    assert gec("explain", tiny_path, "*", *OPTIONS)[0] == 0


def test_a_name_of_none(gec: Gec, tiny_path: Path, model: ge.CompiledModel) -> None:
    name = model.schedule.tasks[0].name
    code, out, error = gec("explain", tiny_path, name + "x", *OPTIONS)
    assert (code, out) == (2, "")
    assert f"did you mean {name!r}" in error
    with pytest.raises(ge.UsageError, match="did you mean"):
        model.explain(name + "x")
    assert gec("explain", tiny_path, name, "--stop-after", "canonicalize")[0] == 2


def test_an_op_that_was_fused_is_found_by_its_old_name(model: ge.CompiledModel) -> None:
    op = next(op for op in model.graph.ops if len(op.info.sources) > 1)
    old = next(s for s in op.info.sources if s not in model.graph)
    assert model.explain(old).startswith(f"{old!r} is the work of this task:\n{op.name} (")


def test_the_micro_batches_of_an_op_are_found_by_its_name(tiny_path: Path) -> None:
    session = ge.Session(stream_strategy="pipeline", num_streams=2)
    model = session.compile(tiny_path, batch=4, seq=64)
    assert model.compilation.result.micro_batches
    name = next(t.name for t in model.schedule.tasks if t.name.endswith("#mb1"))
    found = [model.schedule.tasks[t].name for t in matches(model.compilation, name[:-4])]
    assert sorted(found) == [f"{name[:-4]}#mb{i}" for i in range(len(found))]
    assert len(found) == len(model.compilation.result.micro_batches)
    assert matches(model.compilation, name) != matches(model.compilation, name[:-4])
