"""The tasks and their syncs as columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gecompiler.html_report.compact import StringTable, ragged
from gecompiler.ir.schedule import Demand, Schedule, Task
from gecompiler.ir.schedule_verify.parts import teams
from gecompiler.ir.timeline import Span, Timeline

CAUSES = ("start", "stream", "event", "resource")
"""How ``cause`` is numbered; ``data.js`` has the same order."""

_CENT = 100
"""Core-microseconds are written in hundredths."""

_TEXTS = ("name", "type", "group", "kind", "bound", "communicator")


class TaskColumns:
    """Columns over spans that are in the order in which they are written."""

    def __init__(
        self,
        spans: Sequence[Span],
        schedule: Schedule | None,
        shapes: Mapping[str, str],
        operands: Mapping[int, tuple[Sequence[str], Sequence[str]]],
        strings: StringTable,
    ) -> None:
        self._spans = spans
        self._schedule = schedule
        self._shapes = shapes
        self._operands = operands
        self._strings = strings
        tasks = {} if schedule is None else {task.id: task for task in schedule.tasks}
        self._tasks = [tasks.get(s.task) or _bare(s) for s in spans]
        self._tensors: dict[str, int] = {}

    def encoded(self) -> dict[str, Any]:
        """The columns; ``texts`` names those that hold numbers of strings."""
        spans, tasks, add = self._spans, self._tasks, self._strings.add
        place = {span.task: i for i, span in enumerate(spans)}
        demands = [task.demand for task in tasks]
        said = [self._operands.get(t.id, ((), ())) for t in tasks]
        pairs = list(zip(tasks, said, strict=True))
        reads = ragged([[self._tensor(n) for n in t.reads or texts[0]] for t, texts in pairs])
        writes = ragged([[self._tensor(n) for n in t.writes or texts[1]] for t, texts in pairs])
        return {
            "id": [s.task for s in spans],
            "rank": [s.rank for s in spans],
            "stream": [s.stream for s in spans],
            "gap": _gaps(spans),
            "dur": [s.duration_ns for s in spans],
            "alone": [s.duration_ns - s.alone_ns for s in spans],
            "wait": [s.wait_ns for s in spans],
            "waited": [-1 if s.waited_for is None else place.get(s.waited_for, -1) for s in spans],
            "cause": [CAUSES.index(s.wait_cause) for s in spans],
            "name": [add(s.name) for s in spans],
            "type": [add(s.op_type) for s in spans],
            "group": [add(t.group) for t in tasks],
            "kind": [add(t.kind) for t in tasks],
            "bound": [add(s.bound_by) for s in spans],
            "communicator": [add(t.communicator) for t in tasks],
            **_demand_columns(demands),
            **self._fused(),
            **self._links(demands),
            **self._teams(place),
            "reads": reads,
            "writes": writes,
            **self._tensor_columns(),
            "texts": [*_TEXTS, "tensor", "tensor_type", "fused", "link"],
        }

    def events(self, timeline: Timeline, place: Mapping[int, int]) -> dict[str, Any]:
        """The waits between streams: who, for whom, and over which tensors."""
        add = self._strings.add
        waits = () if self._schedule is None else self._schedule.events
        known = {(e.producer, e.consumer): e for e in waits}
        pairs = [(p, c) for p, c in timeline.events if p in place and c in place]
        found = [known.get(pair) for pair in pairs]
        return {
            "from": [place[p] for p, _ in pairs],
            "to": [place[c] for _, c in pairs],
            "kind": [add("" if e is None else e.kind) for e in found],
            "event_id": [-1 if e is None else e.event_id for e in found],
            "tensors": ragged([[] if e is None else [add(n) for n in e.tensors] for e in found]),
            "texts": ["kind", "tensors"],
        }

    def _tensor(self, name: str) -> int:
        return self._tensors.setdefault(name, len(self._tensors))

    def _tensor_columns(self) -> dict[str, list[int]]:
        sizes = {} if self._schedule is None else self._schedule.buffer_of
        add, shapes = self._strings.add, self._shapes
        return {
            "tensor": [add(name) for name in self._tensors],
            "tensor_type": [add(_type(shapes, name)) for name in self._tensors],
            "tensor_bytes": [sizes[n].bytes if n in sizes else -1 for n in self._tensors],
        }

    def _fused(self) -> dict[str, Any]:
        """The ops of tasks that compute others than the one they are named after."""
        add = self._strings.add
        rows = [(i, t.ops) for i, t in enumerate(self._tasks) if t.ops and t.ops != (t.name,)]
        return {
            "fused_at": [i for i, _ in rows],
            "fused": ragged([[add(op) for op in ops] for _, ops in rows]),
        }

    def _links(self, demands: Sequence[Demand]) -> dict[str, list[int]]:
        rows = [(i, link) for i, d in enumerate(demands) for link in d.link_bytes]
        return {
            "link_at": [i for i, _ in rows],
            "link": [self._strings.add(name) for _, (name, _) in rows],
            "link_bytes": [round(count) for _, (_, count) in rows],
        }

    def _teams(self, place: Mapping[int, int]) -> dict[str, list[int]]:
        """Of parts of collectives: one number for each collective, and for whom they waited."""
        of = [] if self._schedule is None else teams(self._schedule)
        rows = [
            (i, of[s.task][0], s)
            for i, s in enumerate(self._spans)
            if s.task < len(of) and len(of[s.task]) > 1
        ]
        return {
            "team_at": [i for i, _, _ in rows],
            "team": [first for _, first, _ in rows],
            "peer": [-1 if s.peer is None else place.get(s.peer, -1) for _, _, s in rows],
            "peer_wait": [s.peer_ns for _, _, s in rows],
        }


def _type(shapes: Mapping[str, str], name: str) -> str:
    """The tensor's type; of several ranks' tensors ``rank:name`` also that of the name."""
    found = shapes.get(name)
    if found is None:
        rank, colon, rest = name.partition(":")
        found = shapes.get(rest, "") if colon and rank.isdigit() else ""
    return found


def _bare(span: Span) -> Task:
    """A task of which only its span is known, as in a capture."""
    return Task(span.task, span.name, "kernel", span.stream, 0, op_type=span.op_type)


def _gaps(spans: Sequence[Span]) -> list[int]:
    """From the end of the task before on the stream, or from 0."""
    gaps: list[int] = []
    lane, last = None, 0
    for span in spans:
        if (span.rank, span.stream) != lane:
            lane, last = (span.rank, span.stream), 0
        gaps.append(span.start_ns - last)
        last = span.end_ns
    return gaps


def _demand_columns(demands: Sequence[Demand]) -> dict[str, list[int]]:
    return {
        "load": [round(d.load_bytes) for d in demands],
        "store": [round(d.store_bytes) for d in demands],
        "l2": [round(d.l2_bytes) for d in demands],
        "cube": [round(d.cube_us * _CENT) for d in demands],
        "vector": [round(d.vector_us * _CENT) for d in demands],
        "fixed": [round(d.fixed_us * _CENT) for d in demands],
    }
