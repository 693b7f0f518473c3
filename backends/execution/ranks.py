"""All ranks of a parallel program run in this process, in lock step, with real numbers.

Each rank runs its ops in order until one needs others; a collective is computed when all of its
group have come to it, in the order of their places, so that sums are the same on every rank and
in every run. Ranks that wait for each other for ever are a ScheduleError that names them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gecompiler.backends.execution.host_memory import (
    HostMemory,
    bounded,
    value_bytes,
    weight_bytes,
)
from gecompiler.backends.execution.machine import load_constant
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.backends.execution.run_op import run_op
from gecompiler.ir.collective_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    RECV,
    REDUCE_SCATTER,
    SEND,
    is_collective_op,
)
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, ParallelProgram
from gecompiler.ir.types import DType


def run_ranks(program: ParallelProgram, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """The whole model's outputs by name, from the whole model's inputs.

    UsageError for inputs that do not fit, MissingDataError for weights that are not there,
    ModelError for an op that cannot be computed, ScheduleError for ranks that deadlock.
    """
    local = [program.local_inputs(rank, inputs) for rank in range(program.mesh.size)]
    return program.join_outputs(run_each_rank(program, local))


def run_each_rank(
    program: ParallelProgram, inputs: list[dict[str, Value]]
) -> list[dict[str, Value]]:
    """Each rank's own outputs, from each rank's own inputs.

    What all take together of the host is in proportion to constants and inputs, or
    `host_memory.bounded` (HostMemoryError).
    """
    graphs = [program.graph(rank) for rank in range(len(inputs))]
    taken = [value for given in inputs for value in given.values()]
    with bounded(HostMemory.of(None, weight_bytes(graphs), taken)) as bounds:
        for graph in graphs:
            bounds.admit(graph)
        return _in_lock_step(program, inputs, bounds)


def _in_lock_step(
    program: ParallelProgram, inputs: list[dict[str, Value]], bounds: HostMemory
) -> list[dict[str, Value]]:
    ranks = [
        _Rank(number, program.graph(number), dict(given), bounds)
        for number, given in enumerate(inputs)
    ]
    exchange = Exchange(program.mesh)
    while any(not rank.done for rank in ranks):
        moved = False
        for rank in ranks:
            moved |= rank.advance(exchange)
        if not moved:
            _deadlock(ranks)
    return [rank.outputs() for rank in ranks]


def _deadlock(ranks: list[_Rank]) -> None:
    waiting = [
        f"rank {r.number} in {r.current.name!r} ({r.current.op_type})" for r in ranks if not r.done
    ]
    finished = [str(r.number) for r in ranks if r.done]
    raise ScheduleError(
        "ranks wait for each other for ever: " + "; ".join(waiting),
        where=f"ranks {', '.join(finished)} have ended" if finished else "all ranks",
        hint="every rank of a group must run its collectives in one order",
    )


@dataclass
class _Rank:
    """One rank: its graph, and how far it is."""

    number: int
    graph: Graph
    values: dict[str, Value]
    bounds: HostMemory
    at: int = 0
    posted: bool = False

    def __post_init__(self) -> None:
        self.order = self.graph.topological()
        self.left = dict.fromkeys(self.graph.values, 0)
        for op in self.order:
            for name in self.graph.reads(op):
                self.left[name] += 1
        for name in self.graph.outputs:
            self.left[name] += 1

    @property
    def done(self) -> bool:
        """Whether all ops have run."""
        return self.at == len(self.order)

    @property
    def current(self) -> Op:
        """The op that is next."""
        return self.order[self.at]

    def advance(self, exchange: Exchange) -> bool:
        """Runs ops until one waits; whether anything was done."""
        moved = False
        while not self.done:
            op = self.current
            given = [self._read(v) if v else None for v in op.inputs]
            if is_collective_op(op):
                if not self.posted:
                    exchange.post(self.number, op, given[0] if given else None)
                    self.posted = moved = True
                ready, result = exchange.collect(self.number, op)
                if not ready:
                    return moved
                results = [result] if op.outputs else []
                self.posted = False
            else:
                captures = {v: self._read(v) for v in self.graph.captures(op)}
                results = run_op(self.graph, op, given, captures)
            self._store(op, results)
            moved = True
        return moved

    def _read(self, name: str) -> Value:
        if name not in self.values:
            self.values[name] = load_constant(self.graph, name)
        return self.values[name]

    def _store(self, op: Op, results: list[Value]) -> None:
        for name, value in zip(op.outputs, results, strict=True):
            if name:
                self.values[name] = value
                self.bounds.hold(value_bytes(value))
        for name in self.graph.reads(op):
            self.left[name] -= 1
            if not self.left[name]:
                gone = self.values.pop(name)
                self.bounds.hold(-value_bytes(gone) if self.graph.producer(name) else 0)
        self.at += 1

    def outputs(self) -> dict[str, Value]:
        """The rank's outputs by name."""
        return {name: self._read(name) for name in self.graph.outputs}


@dataclass
class _Meeting:
    """One collective: who has come, and what each takes away."""

    ops: dict[int, Op] = field(default_factory=dict)
    given: dict[int, Value] = field(default_factory=dict)
    results: dict[int, Value] | None = None


@dataclass
class Exchange:
    """Where collectives meet: the n-th of a communicator is the n-th of each of its ranks."""

    mesh: Mesh
    _counts: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    _meetings: dict[tuple[str, int], _Meeting] = field(default_factory=dict)
    _current: dict[tuple[int, str], tuple[str, int]] = field(default_factory=dict)
    """The meeting of each op of a rank: one may have come to several."""
    _mail: dict[tuple[int, int, str, object], deque[Value]] = field(default_factory=dict)

    def post(self, rank: int, op: Op, value: Value) -> None:
        """The rank has come to the op with that value."""
        axes = str(op.attr("communicator"))
        if op.op_type in (SEND, RECV):
            if op.op_type == SEND:
                key = (rank, self._peer(rank, op), axes, op.attr("tag"))
                self._mail.setdefault(key, deque()).append(value)
            return
        name = self.mesh.communicator(axes, rank)
        number = self._counts[(rank, name)]
        self._counts[(rank, name)] += 1
        meeting = self._meetings.setdefault((name, number), _Meeting())
        meeting.ops[rank], meeting.given[rank] = op, value
        self._current[rank, op.name] = (name, number)
        group = self.mesh.group(axes, rank)
        if len(meeting.ops) == len(group):
            self._check(name, meeting)
            parts = [meeting.given[r] for r in group]
            found = exchanged(op, parts)
            meeting.results = dict(zip(group, found, strict=True))

    def collect(self, rank: int, op: Op) -> tuple[bool, Value]:
        """Whether the op has ended for the rank, and what it made."""
        if op.op_type == SEND:
            return True, None
        if op.op_type == RECV:
            key = (self._peer(rank, op), rank, str(op.attr("communicator")), op.attr("tag"))
            box = self._mail.get(key)
            return (True, box.popleft()) if box else (False, None)
        key_ = self._current[rank, op.name]
        results = self._meetings[key_].results
        if results is None:
            return False, None
        value = results.pop(rank)
        if not results:
            del self._meetings[key_]
        return True, value

    def _peer(self, rank: int, op: Op) -> int:
        group = self.mesh.group(str(op.attr("communicator")), rank)
        return group[(group.index(rank) + int(op.attr("peer"))) % len(group)]

    @staticmethod
    def _check(name: str, meeting: _Meeting) -> None:
        """All must do the same; else the ranks that do not are named."""
        first_rank, first = next(iter(sorted(meeting.ops.items(), key=lambda item: item[0])))
        for rank, op in meeting.ops.items():
            same = op.op_type == first.op_type and dict(op.attrs) == dict(first.attrs)
            if not same or _kind(meeting.given[rank]) != _kind(meeting.given[first_rank]):
                raise ScheduleError(
                    f"rank {first_rank} is in {first.name!r} ({first.op_type}, "
                    f"{_kind(meeting.given[first_rank])}), rank {rank} in {op.name!r} "
                    f"({op.op_type}, {_kind(meeting.given[rank])})",
                    where=f"communicator {name}",
                    hint="every rank of a group must run its collectives in one order",
                )


def _kind(value: Value) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else "nothing"


def exchanged(op: Op, parts: list[Array]) -> list[Array]:
    """What each rank of the group takes away, by place, of what each brings.

    Sums of 16 bits and less are made in float32 and rounded once.
    """
    count = len(parts)
    if op.op_type == ALL_REDUCE:
        return [_reduced(parts, str(op.attr("reduction", "sum")))] * count
    if op.op_type == ALL_GATHER:
        return [np.concatenate(parts, axis=op.attr("axis"))] * count
    if op.op_type == REDUCE_SCATTER:
        total = _reduced(parts, str(op.attr("reduction", "sum")))
        return np.split(total, count, axis=op.attr("axis"))
    if op.op_type == BROADCAST:
        return [parts[int(op.attr("root", 0))]] * count
    assert op.op_type == ALL_TO_ALL
    pieces = [np.split(part, count, axis=op.attr("split_axis")) for part in parts]
    axis = op.attr("concat_axis")
    return [np.concatenate([p[n] for p in pieces], axis=axis) for n in range(count)]


def _reduced(parts: list[Array], reduction: str) -> Array:
    dtype = parts[0].dtype
    narrow = DType.from_numpy(dtype).is_float and dtype.itemsize < 4
    total = parts[0].astype(np.float32 if narrow else dtype)
    for part in parts[1:]:
        if reduction == "max":
            total = np.maximum(total, part)
        elif reduction == "min":
            total = np.minimum(total, part)
        else:
            total = total + part
    if reduction == "mean":
        total = total / len(parts)
    return np.asarray(total, dtype)  # numpy makes a number of arrays without axes
