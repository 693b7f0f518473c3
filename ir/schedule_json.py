"""Schedules as JSON. ``schedule.schema.json``, shipped beside this file, describes the form.

Fields at their default may be left out. Reading checks what a schedule needs to make sense as
data: types, ranges, references. Whether it is free of races is `Schedule.verify`'s to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from gecompiler.ir.bounded_read import read_text
from gecompiler.ir.errors import ScheduleError, nearest
from gecompiler.ir.record_json import (
    JsonError,
    Range,
    Reader,
    Writer,
    record_reader,
    record_writer,
)
from gecompiler.ir.schedule import (
    Buffer,
    Control,
    Demand,
    Event,
    Limits,
    PhysicalStream,
    Schedule,
    StateAlias,
    Task,
)

SCHEMA_VERSION = 1
MAX_BYTES = 64 * 2**20
"""Of a file; plain data takes ten times as much in memory."""

_KEPT = {
    Schedule: frozenset(f.name for f in fields(Schedule)) - {"requested_streams", "links"},
    Task: frozenset({"ops", "op_type", "reads", "writes", "rank"}),
    Event: frozenset({"tensors", "event_id", "producer_op", "consumer_op"}),
    Limits: frozenset(f.name for f in fields(Limits)),
}
_ORDER = (
    *("model", "device", "strategy", "requested_streams", "sync_primitive", "limits"),
    *("arena_bytes", "communicators", "links", "states", "physical_streams", "tasks", "events"),
    *("controls", "buffers"),
)
_RANGES: dict[tuple[type, str], Range] = {
    (Event, "event_id"): (-1, 2**31 - 1),
    (StateAlias, "axis"): (-64, 63),
    (Task, "stream"): (0, 2**31 - 1),
    (Task, "order"): (0, 2**31 - 1),
    (Task, "rank"): (0, 2**31 - 1),
    (Buffer, "rank"): (0, 2**31 - 1),
    (PhysicalStream, "id"): (0, 2**31 - 1),
    (PhysicalStream, "stream"): (0, 2**31 - 1),
    (PhysicalStream, "rank"): (0, 2**31 - 1),
    (Demand, "cube_cores"): (0, 2**31 - 1),
    (Demand, "vector_cores"): (0, 2**31 - 1),
    (Demand, "tiles"): (1, 2**63 - 1),
}


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of schedules."""
    text = resources.files("gecompiler.ir").joinpath("schedule.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def to_json(schedule: Schedule) -> dict[str, object]:
    """The schedule as plain data."""
    found = _schedule_writer()(schedule)
    return {"schema_version": SCHEMA_VERSION} | {k: found[k] for k in _ORDER if k in found}


def dump_schedule(schedule: Schedule) -> str:
    """The schedule as JSON text, one task, event or buffer a line; same schedule, same text."""
    lines = []
    for key, value in to_json(schedule).items():
        if isinstance(value, list) and value:
            items = ",\n".join(f"    {_line(item)}" for item in value)
            lines.append(f"  {_line(key)}: [\n{items}\n  ]")
        else:
            lines.append(f"  {_line(key)}: {_line(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


_line = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@lru_cache(maxsize=1)
def _schedule_writer() -> Writer:
    return record_writer(Schedule, _KEPT)


# -------------------------------------------------------------------- reading


def from_json(data: object) -> Schedule:
    """The schedule that plain data describes; ScheduleError names the path of what is wrong."""
    try:
        return _from_json(data)
    except JsonError as error:
        raise ScheduleError(
            str(error), where=error.place or "the schedule", hint=error.hint
        ) from None


def load_schedule(path: str | Path) -> Schedule:
    """The schedule in a file; ScheduleError when it cannot be read or is none."""
    data = _load(Path(path))
    try:
        return from_json(data)
    except ScheduleError as error:
        raise ScheduleError(
            error.message, where=f"{path}: {error.where}", hint=error.hint
        ) from None


def _load(path: Path) -> object:
    try:
        return json.loads(
            read_text(path, MAX_BYTES), object_pairs_hook=_no_twins, parse_constant=_no_constant
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScheduleError(f"the schedule cannot be read: {reason}", where=str(path)) from None
    except (JsonError, json.JSONDecodeError) as error:
        raise ScheduleError(f"this is no JSON: {error}", where=str(path)) from None
    except (RecursionError, ValueError) as error:  # too deep, not UTF-8, or absurdly long numbers
        raise ScheduleError(f"this is no schedule: {error}", where=str(path)) from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise JsonError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice")
    return found


def _no_constant(name: str) -> object:
    raise JsonError(f"{name} is no number of JSON's")


@lru_cache(maxsize=1)
def _schedule_reader() -> Reader:
    return record_reader(Schedule, _RANGES)


def _from_json(data: object) -> Schedule:
    if not isinstance(data, dict):
        raise JsonError(f"expected an object, found {type(data).__name__}")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION or type(version) is not int:
        error = JsonError(
            f"expected {SCHEMA_VERSION}, found {version!r}",
            "this is no schedule, or one of another release of gecompiler",
        )
        error.path.append("schema_version")
        raise error
    found: Schedule = _schedule_reader()({k: v for k, v in data.items() if k != "schema_version"})
    _check_references(found)
    return found


def _check_references(schedule: Schedule) -> None:
    for i, task in enumerate(schedule.tasks):
        if task.id != i:
            raise _at(
                f"expected {i}, since a task's id is its place, found {task.id}", "tasks", i, "id"
            )
    count = len(schedule.tasks)
    groups: tuple[tuple[str, Iterable[Event | Control]], ...] = (
        ("events", schedule.events),
        ("controls", schedule.controls),
    )
    for name, edges in groups:
        for i, edge in enumerate(edges):
            for end in ("producer", "consumer"):
                if getattr(edge, end) >= count:
                    raise _at(f"there is no task {getattr(edge, end)}", name, i, end)
    _check_names(schedule)
    _check_links(schedule)


def _check_links(schedule: Schedule) -> None:
    known: set[str] = set()
    for i, link in enumerate(schedule.links):
        if link.name in known:
            raise _at(f"the links {link.name!r} stand twice", "links", i, "name")
        known.add(link.name)
        if not link.bytes_per_us:
            raise _at("links that carry nothing", "links", i, "bytes_per_us")


def _check_names(schedule: Schedule) -> None:
    known = {c.name for c in schedule.communicators}
    for i, task in enumerate(schedule.tasks):
        if task.communicator and task.communicator not in known:
            message = f"there is no communicator {task.communicator!r}"
            raise _at(message, "tasks", i, "communicator", hint=nearest(task.communicator, known))
    tensors: set[str] = set()
    for i, buffer in enumerate(schedule.buffers):
        if buffer.tensor in tensors:
            raise _at(f"tensor {buffer.tensor!r} has two buffers", "buffers", i, "tensor")
        tensors.add(buffer.tensor)
        if buffer.offset + buffer.bytes >= 2**63:
            raise _at("the buffer ends beyond 64 bits", "buffers", i, "offset")
    for i, buffer in enumerate(schedule.buffers):
        if buffer.alias_of is not None and buffer.alias_of not in tensors:
            message = f"there is no buffer of a tensor {buffer.alias_of!r}"
            raise _at(message, "buffers", i, "alias_of", hint=nearest(buffer.alias_of, tensors))


def _at(message: str, *path: str | int, hint: str = "") -> JsonError:
    error = JsonError(message, hint)
    error.path.extend(reversed(path))
    return error
