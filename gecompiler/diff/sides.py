"""What timelines are read from: a compiled model's folder, a trace, a schedule, a profile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gecompiler.backends.trace.recording import TaskFacts
from gecompiler.captures.cells import nanoseconds
from gecompiler.ir.errors import UsageError
from gecompiler.ir.timeline import Span
from gecompiler.whole_folder import settle


class Op(NamedTuple):
    """One task's run."""

    name: str
    op_type: str
    shapes: str
    """Of inputs and outputs, ``2,8;8,4->2,4``; '' where the file does not say."""
    rank: int
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Side:
    """A timeline to compare."""

    path: str
    kind: str
    """``simulated``, ``captured``, or ``trace``: a file that may hold either."""
    ops: tuple[Op, ...]
    """In the order of time."""

    @property
    def makespan_ns(self) -> int:
        """From the first start to the last end."""
        ends = [op.start_ns + op.duration_ns for op in self.ops]
        return max(ends) - min(op.start_ns for op in self.ops) if ends else 0


def load_side(path: str | os.PathLike[str]) -> Side:
    """Opens a folder of ``gec compile -o``, its trace.json or schedule.json, or a profile.

    UsageError for what is none of them.
    """
    place, where = Path(path), os.fspath(path)
    settle(place)
    if place.is_dir():
        for name in ("trace.json", "schedule.json"):
            if (place / name).is_file():
                return _file(place / name, where)
        return _profile(where)
    return _file(place, where)


def _file(path: Path, where: str) -> Side:
    if path.suffix.lower() == ".json":
        if path.name == "schedule.json" or _is_schedule(path):
            return _simulated(path, where)
        ops = _traced(path)
        if ops:
            return Side(where, "trace", _ordered(ops))
    return _profile(where if path == Path(where) else os.fspath(path))


def _is_schedule(path: Path) -> bool:
    """Whether a file begins as schedules do."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            head = file.read(4096)
    except (OSError, UnicodeDecodeError, ValueError):
        return False
    return '"schema_version"' in head and '"strategy"' in head


def _simulated(path: Path, where: str) -> Side:
    """A schedule says no times: the device that it names runs it."""
    from gecompiler.backends.device import load_device
    from gecompiler.backends.simulator import Simulator
    from gecompiler.ir.schedule_json import load_schedule

    schedule = load_schedule(path)
    if schedule.device.lower().endswith((".yaml", ".yml")):
        raise UsageError(
            f"the schedule names the file {schedule.device!r} as its device",
            where=where,
            hint="only built-in devices are looked up for a schedule; `gec devices` lists them",
        )
    timeline = Simulator(load_device(schedule.device))(schedule)
    return Side(where, "simulated", _ordered(_op(span, None) for span in timeline.spans))


def _profile(where: str) -> Side:
    from gecompiler.profiles import open_profile

    found = open_profile(where)
    return Side(
        where,
        "captured",
        _ordered(_op(span, found.facts.get(span.task)) for span in found.timeline.spans),
    )


def _op(span: Span, facts: TaskFacts | None) -> Op:
    shapes = "" if facts is None else _shapes(facts.inputs.shapes, facts.outputs.shapes)
    return Op(span.name, span.op_type, shapes, span.rank, span.start_ns, span.duration_ns)


def _shapes(inputs: Iterable[str], outputs: Iterable[str]) -> str:
    before, after = ";".join(inputs), ";".join(outputs)
    return f"{before}->{after}" if before or after else ""


def _traced(path: Path) -> list[Op]:
    """The tasks of a trace that gecompiler wrote; none where another tool did."""
    from gecompiler.profiles.json_events import read_events

    ops: list[Op] = []
    for event in read_events(path):
        args = event.get("args")
        if event.get("ph") != "X" or not isinstance(args, dict) or "task" not in args:
            continue
        start, duration = _ns(event.get("ts")), _ns(event.get("dur"))
        if start is None or duration is None or duration < 0:
            raise UsageError("a task's time is no time", where=str(path))
        pid = event.get("pid")
        shapes = [str(args.get(f"{side}_shapes", "")) for side in ("input", "output")]
        ops.append(
            Op(
                str(event.get("name", "")),
                str(args.get("op", "")),
                _shapes(shapes[:1], shapes[1:]),
                pid if isinstance(pid, int) else 0,
                start,
                duration,
            )
        )
    return ops


def _ns(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return nanoseconds(str(value)[:64])


def _ordered(ops: Iterable[Op]) -> tuple[Op, ...]:
    return tuple(sorted(ops, key=lambda op: (op.start_ns, op.rank, op.name)))
