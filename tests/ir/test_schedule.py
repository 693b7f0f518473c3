"""Schedules as JSON: exact both ways, described by a schema, refused with the path at fault."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
from growth import Make, growth_of_calls, growth_of_time
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import Buffer, Demand, Event, Limits, Schedule, ScheduleError, Task
from gecompiler.ir.schedule import (
    BufferKind,
    Communicator,
    Control,
    EventKind,
    StateAlias,
    TaskKind,
)
from gecompiler.ir.schedule_json import dump_schedule, load_schedule, schema

LIMITS = Limits(4, 64, 1000, 2**35, 32, 64)


def small() -> Schedule:
    demand = Demand(load_bytes=1024.0, cube_us=1.5, cube_cores=8, link_bytes=(("hccs", 2.5),))
    return Schedule(
        "model",
        "ascend910",
        "default",
        (
            Task(0, "a", "kernel", 0, 0, ("op_a",), "MatMul", "MLP up", ("x",), ("y",), demand),
            Task(1, "b", "collective", 1, 0, reads=("y",), writes=("z",), communicator="world"),
        ),
        (Event(0, 1, "data", ("y",), 3),),
        (
            Buffer("x", 0, 64, "input"),
            Buffer("y", 64, 64, "activation"),
            Buffer("z", 64, 64, "output", alias_of="y"),
        ),
        LIMITS,
        (Control(0, 1, "user", "data_ready"),),
        (StateAlias("x", "z", 64, 2),),
        (Communicator("world", (0, 1)),),
        128,
        2,
    )


# ---------------------------------------------------------------- random schedules

texts = st.text(max_size=5)
names = st.lists(texts, max_size=3).map(tuple)
sizes = st.integers(0, 2**62)
smalls = st.integers(0, 2**31 - 1)
amounts = st.floats(0, 2**62) | st.integers(0, 2**53).map(float)
demands = st.builds(
    Demand,
    load_bytes=amounts,
    store_bytes=amounts,
    l2_bytes=amounts,
    cube_us=amounts,
    vector_us=amounts,
    cube_cores=smalls,
    vector_cores=smalls,
    link_bytes=st.lists(st.tuples(texts, amounts), max_size=2).map(tuple),
    fixed_us=amounts,
    tiles=st.integers(1, 2**40),
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    communicators = draw(st.lists(texts.filter(bool), unique=True, max_size=2))
    count = draw(st.integers(0, 4))
    tasks = [
        Task(
            i,
            draw(texts),
            draw(st.sampled_from(get_args(TaskKind))),
            draw(smalls),
            draw(smalls),
            draw(names),
            draw(texts),
            draw(texts),
            draw(names),
            draw(names),
            draw(st.just(Demand()) | demands),
            draw(smalls),
            draw(st.sampled_from(["", *communicators])),
        )
        for i in range(count)
    ]
    ids = st.integers(0, max(0, count - 1))
    some = st.integers(0, 3 if count else 0)
    tensors = draw(st.lists(texts, unique=True, max_size=4))
    alias = st.sampled_from([None, *tensors])
    kinds = st.sampled_from(get_args(BufferKind))
    rows = [(draw(sizes), draw(sizes), draw(kinds), draw(alias), draw(smalls)) for _ in tensors]
    axes = st.none() | st.integers(-64, 63)
    return Schedule(
        draw(texts),
        draw(texts),
        draw(texts),
        tuple(tasks),
        tuple(
            Event(draw(ids), draw(ids), draw(st.sampled_from(get_args(EventKind))), draw(names))
            for _ in range(draw(some))
        ),
        tuple(Buffer(t, *row) for t, row in zip(tensors, rows, strict=True)),
        Limits(*(draw(sizes) for _ in fields(Limits))),
        tuple(
            Control(draw(ids), draw(ids), draw(st.sampled_from(["graph", "user"])), draw(texts))
            for _ in range(draw(some))
        ),
        tuple(
            StateAlias(draw(texts), draw(texts), draw(sizes), draw(axes)) for _ in range(draw(some))
        ),
        tuple(Communicator(c, tuple(draw(st.lists(sizes, max_size=3)))) for c in communicators),
        draw(sizes),
        draw(st.none() | sizes),
    )


VALIDATOR = jsonschema.Draft202012Validator(schema())


@settings(max_examples=120, deadline=None)
@given(schedules())
def test_round_trip_is_exact_and_fits_the_schema(schedule: Schedule) -> None:
    data = schedule.to_json()
    assert Schedule.from_json(data) == schedule
    VALIDATOR.validate(data)
    text = dump_schedule(schedule)
    assert json.loads(text) == data
    assert dump_schedule(Schedule.from_json(json.loads(text))) == text


def _places(data: Any) -> list[tuple[Any, Any]]:
    """All places of a JSON tree as (container, key)."""
    found: list[tuple[Any, Any]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(items):
        found.append((data, key))
        if isinstance(value, (dict, list)):
            found += _places(value)
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    st.sampled_from([None, True, -1, 1.5, 2**63, 1e300, "text", [], {}, [[]], "kernel", math.inf]),
)
def test_reader_and_schema_agree_on_damage(data: st.DataObject, bad: Any) -> None:
    tree = json.loads(dump_schedule(small()))
    container, key = data.draw(st.sampled_from(_places(tree)))
    if data.draw(st.booleans()) and isinstance(container, dict):
        del container[key]
    else:
        container[key] = copy.deepcopy(bad)
    valid = VALIDATOR.is_valid(tree)
    try:
        Schedule.from_json(tree)
    except ScheduleError as error:
        # What only the reader refuses is a reference, which a schema cannot see.
        seen = any(w in str(error) for w in ("there is no", "its place", "two buffers", "64 bits"))
        assert seen == valid
    else:
        assert valid


def test_the_schema_is_one_and_complete() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    parts = schema()["$defs"] | {"schedule": schema()}
    classes = {
        "schedule": Schedule,
        "limits": Limits,
        "communicator": Communicator,
        "state": StateAlias,
        "task": Task,
        "demand": Demand,
        "event": Event,
        "control": Control,
        "buffer": Buffer,
    }
    for name, cls in classes.items():
        keys = set(parts[name]["properties"]) - {"schema_version"}
        assert keys == {f.name for f in fields(cls)}
        required = {f.name for f in fields(cls) if f.default is f.default_factory is MISSING}
        assert set(parts[name]["required"]) - {"schema_version"} == required
        hints = get_type_hints(cls)
        for key, entry in parts[name]["properties"].items():
            if "enum" in entry:
                assert entry["enum"] == list(get_args(hints[key]))
            if key not in required and key != "schema_version":
                assert "default" in entry, (name, key)


def test_the_text_is_compact_and_readable() -> None:
    text = dump_schedule(small())
    assert text.count("\n") < 40
    assert (
        '    {"id": 0, "name": "a", "kind": "kernel", "stream": 0, "order": 0, "ops": ["op_a"], '
        '"op_type": "MatMul", "group": "MLP up", "reads": ["x"], "writes": ["y"], '
        '"demand": {"load_bytes": 1024, "cube_us": 1.5, "cube_cores": 8, '
        '"link_bytes": [["hccs", 2.5]]}, "rank": 0},\n'
    ) in text
    assert '"schema_version": 1,' in text
    assert "null" not in text


MISTAKES: list[tuple[str, Any, str, str, str]] = [
    ("schema_version", 2, "schema_version", "expected 1, found 2", "another release"),
    ("schema_version", True, "schema_version", "expected 1, found True", ""),
    ("model", 3, "model", "expected a string, found 3", ""),
    ("tasks", {}, "tasks", "expected a list, found an object of 0", ""),
    ("tasks.1", 7, "tasks[1]", "expected an object, found 7", ""),
    ("tasks.1.id", 5, "tasks[1].id", "expected 1, since a task's id is its place, found 5", ""),
    ("tasks.1.id", "1", "tasks[1].id", "expected an integer of at least 0, found '1'", ""),
    ("tasks.1.id", 1.0, "tasks[1].id", "expected an integer of at least 0, found 1.0", ""),
    ("tasks.1.kind", "kernal", "tasks[1].kind", "expected one of 'kernel', ", ""),
    ("tasks.1.streem", 0, "tasks[1]", "'streem' is no key of this object", "'stream'"),
    ("tasks.1.reads.0", None, "tasks[1].reads[0]", "expected a string, found null", ""),
    ("tasks.1.communicator", "word", "tasks[1].communicator", "no communicator 'word'", "'world'"),
    ("tasks.0.demand.tiles", 0, "tasks[0].demand.tiles", "expected an integer of at least 1", ""),
    (
        "tasks.0.demand.cube_us",
        -1,
        "tasks[0].demand.cube_us",
        "expected a number of at least 0",
        "",
    ),
    ("tasks.0.demand.cube_us", 1e400, "tasks[0].demand.cube_us", "found inf", ""),
    ("tasks.0.demand.cube_us", float("nan"), "tasks[0].demand.cube_us", "found nan", ""),
    ("tasks.0.demand.cube_us", False, "tasks[0].demand.cube_us", "found false", ""),
    ("tasks.0.demand.link_bytes.0", ["a"], "tasks[0].demand.link_bytes[0]", "a list of 2", ""),
    ("tasks.0.demand.link_bytes.0.1", "a", "tasks[0].demand.link_bytes[0][1]", "a number", ""),
    ("events.0.producer", 2, "events[0].producer", "there is no task 2", ""),
    ("events.0.event_id", -2, "events[0].event_id", "expected an integer from -1 to", ""),
    ("controls.0.consumer", 9, "controls[0].consumer", "there is no task 9", ""),
    ("controls.0.origin", "me", "controls[0].origin", "expected one of 'graph', 'user'", ""),
    ("buffers.0.bytes", 2**63, "buffers[0].bytes", "found 9223372036854775808", ""),
    ("buffers.0.offset", 2**63 - 1, "buffers[0].offset", "ends beyond 64 bits", ""),
    ("buffers.2.alias_of", "yy", "buffers[2].alias_of", "no buffer of a tensor 'yy'", "'y'"),
    ("buffers.2.tensor", "x", "buffers[2].tensor", "tensor 'x' has two buffers", ""),
    ("states.0.axis", 99, "states[0].axis", "expected an integer from -64 to 63", ""),
    ("limits.max_streams", None, "limits.max_streams", "found null", ""),
    ("extra", 1, "the schedule", "'extra' is no key of this object", "known:"),
]


@pytest.mark.parametrize(("place", "value", "path", "message", "hint"), MISTAKES)
def test_mistakes_are_named_by_path(
    place: str, value: Any, path: str, message: str, hint: str, tmp_path: Path
) -> None:
    tree: Any = small().to_json()
    *steps, last = (int(s) if s.isdigit() else s for s in place.split("."))
    spot = tree
    for step in steps:
        spot = spot[step]
    spot[last] = value
    with pytest.raises(ScheduleError) as caught:
        Schedule.from_json(tree)
    assert caught.value.where == path
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("key", ["tasks", "limits", "model"])
def test_what_is_missing_is_named(key: str) -> None:
    tree = small().to_json()
    del tree[key]
    with pytest.raises(ScheduleError, match=f"the object lacks '{key}'"):
        Schedule.from_json(tree)


@pytest.mark.parametrize("data", [None, [], "schedule", 3])
def test_other_data_is_no_schedule(data: object) -> None:
    with pytest.raises(ScheduleError, match="the schedule: expected an object"):
        Schedule.from_json(data)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(dump_schedule(small()), "utf-8")
    assert load_schedule(path) == small() == load_schedule(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "this is no JSON: Expecting property name"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b"\xff\xfe", "this is no schedule"),
        (b"[" * 100_000, "this is no schedule"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "this is no schedule"),
        (b'{"schema_version": 1, "model": 1}', "schedule.json: model: expected a string"),
    ],
)
def test_bad_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(content)
    with pytest.raises(ScheduleError) as caught:
        load_schedule(path)
    assert message in str(caught.value)
    assert str(path) in caught.value.where


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="cannot be read: No such file"):
        load_schedule(tmp_path / "nothing.json")
    with pytest.raises(ScheduleError, match="cannot be read"):
        load_schedule(tmp_path)


def test_streams_waits_and_buffers_are_indexed() -> None:
    tasks = [Task(0, "a", "kernel", 1, 1), Task(1, "b", "kernel", 1, 0), Task(2, "c", "host", 0, 0)]
    event = Event(0, 2, "data")
    schedule = Schedule("m", "d", "s", tuple(tasks), (event,), small().buffers, LIMITS)
    assert [(key, [t.name for t in found]) for key, found in schedule.streams.items()] == [
        ((0, 0), ["c"]),
        ((0, 1), ["b", "a"]),
    ]
    assert schedule.waits == {2: (event,)}
    assert schedule.buffer_of["z"].alias_of == "y"


def large_schedule(count: int) -> Schedule:
    demand = Demand(load_bytes=1.5e6, store_bytes=2.25e5, cube_us=3.25, cube_cores=32, tiles=7)
    tasks = tuple(
        Task(i, f"/model/layers.{i}/fc", "kernel", i % 4, i // 4, (f"op{i}",), "MatMul", "MLP up",
             (f"t{i}", f"w{i}"), (f"t{i + 1}",), demand)
        for i in range(count)
    )  # fmt: skip
    events = tuple(Event(i, i + 1, "data", (f"t{i}",), i % 64) for i in range(count // 2))
    buffers = tuple(Buffer(f"t{i}", i * 512, 512, "activation") for i in range(count))
    return Schedule("m", "d", "s", tasks, events, buffers, LIMITS)


def writing_and_reading(path: Path) -> Make:
    def make(count: int) -> Callable[[], object]:
        schedule = large_schedule(count)

        def there_and_back() -> None:
            path.write_text(dump_schedule(schedule), "utf-8")
            assert load_schedule(path) == schedule

        return there_and_back

    return make


def test_the_file_takes_work_that_grows_with_the_tasks(tmp_path: Path) -> None:
    assert growth_of_calls(writing_and_reading(tmp_path / "s.json"), 100, 800) < 8 * 1.2


@pytest.mark.slow
def test_the_file_takes_time_that_grows_with_the_tasks(tmp_path: Path) -> None:
    assert growth_of_time(writing_and_reading(tmp_path / "s.json"), 5_000, 40_000, 3) < 8 * 3
