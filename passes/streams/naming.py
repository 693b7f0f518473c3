"""How the names that users write find ops: by name, type, group, or glob, in that order.

An op that is no more, since it became part of another, is found by its name as that other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op


@dataclass
class NameTable:
    """The ops of a graph under every name a user may give them."""

    graph: Graph
    _by_type: dict[str, list[Op]] = field(default_factory=dict)
    _by_group: dict[str, list[Op]] = field(default_factory=dict)
    _by_prefix: dict[str, list[Op]] = field(default_factory=dict)
    _by_source: dict[str, list[Op]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.graph.ops:
            for kind in dict.fromkeys((op.op_type, op.kind)):
                self._by_type.setdefault(kind, []).append(op)
            group = op.info.group
            if group:
                self._by_group.setdefault(group, []).append(op)
            words = group.split(" ")
            for end in range(1, len(words)):
                self._by_prefix.setdefault(" ".join(words[:end]), []).append(op)
            for source in op.info.sources:
                self._by_source.setdefault(source, []).append(op)

    def find(self, name: str) -> tuple[int, list[Op]]:
        """How ``name`` matched (0 op, 1 type, 2 group, 3 group's first words, 4 glob), and what.

        A group name also stands for the groups that begin with it: ``MLP`` for ``MLP gate``.
        UsageError with the nearest names when nothing matches.
        """
        return find_in([self], name)[0]

    def match(self, name: str) -> tuple[int, list[Op]] | None:
        """The same, None when nothing matches."""
        if name in self.graph:
            return 0, [self.graph.op(name)]
        if name in self._by_type:
            return 1, self._by_type[name]
        if name in self._by_source:
            return 0, self._by_source[name]
        if name in self._by_group or name in self._by_prefix:
            wider = self._by_prefix.get(name, [])
            return (2 if not wider else 3), [*self._by_group.get(name, []), *wider]
        found = [op for op in self.graph.ops if _matches(op, name)]
        if found and any(c in name for c in "*?["):
            return 4, found
        return None

    def known(self) -> list[str]:
        """The names, types and groups that there are."""
        return [*self.graph_names(), *self._by_type, *self._by_group, *self._by_prefix]

    def refuse_within_a_body(self, name: str) -> None:
        """UsageError that names the op in whose body the name is, if it is in one."""
        for op in self.graph.ops:
            if any(_holds(body, name) for body in op.bodies):
                raise UsageError(
                    f"it is in a body of {op.name!r} ({op.op_type}), which runs as one task",
                    where=f"stream assignment {name!r}",
                    hint=f"name {op.name!r} instead",
                )

    def graph_names(self) -> list[str]:
        """The names of all ops."""
        return [op.name for op in self.graph.ops]


def _holds(body: Graph, name: str) -> bool:
    """Whether an op of a body, or of the bodies in it, has this name or is of this type."""
    left = [body]
    while left:
        for op in left.pop().ops:
            if name in (op.name, op.op_type, *op.info.sources):
                return True
            left += op.bodies
    return False


def _matches(op: Op, pattern: str) -> bool:
    return any(fnmatchcase(n, pattern) for n in (op.name, op.info.group, op.info.scope) if n)


def resolve_names(
    graph: Graph, assignment: Mapping[str, int], diagnostics: Diagnostics | None = None
) -> dict[str, int]:
    """The stream of every op that the user's names stand for.

    Where two names stand for one op, the more exact kind of match wins, then the later name;
    with a warning where they are of two ops that were fused. UsageError when a name stands for
    nothing.
    """
    found = resolve_in([NameTable(graph)], assignment, diagnostics)
    return {op.name: found[op.name] for op in graph.ops if op.name in found}


def resolve_in(
    tables: Sequence[NameTable],
    assignment: Mapping[str, int],
    diagnostics: Diagnostics | None = None,
) -> dict[str, int]:
    """The same for the ops of several graphs, of which a name need only be in one."""
    best: dict[str, tuple[int, int, str]] = {}
    for name, stream in assignment.items():
        for rank, ops in find_in(tables, name):
            for op in ops:
                exactness = 2 if rank == 3 and op.info.group == name else rank
                before = best.get(op.name)
                if before is None or exactness <= before[0]:
                    best[op.name] = (exactness, stream, name)
                if before is not None and before[0] == rank == 0 and before[1] != stream:
                    _warn_of_fusion(op, before[2], name, stream, diagnostics)
    return {name: stream for name, (_, stream, _) in best.items()}


def find_in(tables: Sequence[NameTable], name: str) -> list[tuple[int, list[Op]]]:
    """How the name matched in each graph that has it, and what.

    UsageError when none has, with the nearest names of all of them.
    """
    found = [match for table in tables if (match := table.match(name)) is not None]
    if found:
        return found
    for table in tables:
        table.refuse_within_a_body(name)
    raise UsageError(
        "no op has this name, type or group, nor matches it as a glob",
        where=f"stream assignment {name!r}",
        hint=nearest(name, dict.fromkeys(known for table in tables for known in table.known())),
    )


def _warn_of_fusion(
    op: Op, first: str, second: str, stream: int, diagnostics: Diagnostics | None
) -> None:
    if diagnostics is not None:
        diagnostics.warn(
            "assignment-fused",
            f"{first!r} and {second!r} are assigned to two streams and became one op, "
            f"{op.name!r} ({op.op_type}): it is on stream {stream}",
            "assign both to one stream, or keep them apart: give them two stream labels",
        )
