"""What users note on ops: a stream label, a priority, limits on cores; and how it lasts.

A mark sits in `OpInfo`. Rewrites hand it on to what they put in an op's place; fusions keep
marks that all their members share and are refused otherwise. `place_marks` writes the marks
that users gave by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op, OpInfo
from gecompiler.passes.streams.naming import NameTable

Placed = tuple[str | None, int, int | None, int | None]

WEIGHTLESS = ("Constant", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Ops that move nothing: without a mark of their own they go along with any."""


def placed(info: OpInfo) -> Placed:
    """The marks of an op: label, priority, limits on cube and vector cores."""
    return (info.label, info.priority, info.cube_cores, info.vector_cores)


UNMARKED = placed(OpInfo())


def with_marks(info: OpInfo, source: OpInfo) -> OpInfo:
    """``info``, with the marks of ``source`` where it has none itself."""
    if placed(source) == UNMARKED or placed(info) != UNMARKED:
        return info
    label, priority, cube, vector = placed(source)
    return replace(info, label=label, priority=priority, cube_cores=cube, vector_cores=vector)


def shared_marks(ops: Iterable[Op]) -> Placed | None:
    """The marks that all ops have; None where they differ. Views without marks do not count."""
    found = {
        placed(op.info) for op in ops if placed(op.info) != UNMARKED or not op.is_(*WEIGHTLESS)
    }
    if len(found) > 1:
        return None
    return next(iter(found), UNMARKED)


def difference(ops: Sequence[Op]) -> str:
    """In words what is marked differently among the ops: ``label 'a' and no label``."""
    marks = [placed(op.info) for op in ops if not op.is_(*WEIGHTLESS) or op.info.label]
    names = ("label", "priority", "limit of cube cores", "limit of vector cores")
    for i, name in enumerate(names):
        values = list(dict.fromkeys(mark[i] for mark in marks))
        if len(values) > 1:
            said = [f"no {name}" if v is None else f"{name} {v!r}" for v in values[:2]]
            return " and ".join(said)
    return "other marks"


@dataclass(frozen=True)
class Marks:
    """Marks by name, as users give them; names match as in `naming`."""

    labels: Mapping[str, str] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    cores: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Limits on (cube cores, vector cores), None for no limit."""

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))


def place_marks(graph: Graph, marks: Marks, *, exact: bool = False) -> Marks:
    """Writes marks onto the ops that names stand for; returns those whose names match nothing.

    With ``exact`` only names of single ops count: so marks of the model's own ops are placed
    before the passes, and those of types, groups and globs after them, as assignments are.
    """
    if not marks:
        return marks
    table = NameTable(graph)
    changes: dict[str, dict[str, object]] = {}

    def note(name: str, **change: object) -> bool:
        if exact and name not in graph:
            return False
        try:
            ops = table.find(name)[1]
        except UsageError:
            return False
        for op in ops:
            changes.setdefault(op.name, {}).update(change)
        return True

    left = Marks(
        {n: v for n, v in marks.labels.items() if not note(n, label=v)},
        {n: v for n, v in marks.priorities.items() if not note(n, priority=v)},
        {n: v for n, v in marks.cores.items() if not note(n, cube_cores=v[0], vector_cores=v[1])},
    )
    for name, change in changes.items():
        op = graph.op(name)
        graph.replace_op(name, op.with_(info=replace(op.info, **change)))  # type: ignore[arg-type]
    return left


def refuse_unmatched(graph: Graph, left: Marks) -> None:
    """UsageError with the nearest names for a mark whose name stood for nothing."""
    for what, names in (
        ("stream label", left.labels),
        ("priority", left.priorities),
        ("limit of cores", left.cores),
    ):
        for name in names:
            try:
                NameTable(graph).find(name)
            except UsageError as error:
                raise UsageError(
                    error.message, where=f"{what} for {name!r}", hint=error.hint
                ) from None
