"""What a run may take of the host: memory, and time, before any of it is taken.

A small file can ask for tensors of gigabytes (a padding of 2**30, an outer product). A run may
hold memory in proportion to what the file and the inputs hold, or as much as the user allows; and
do arithmetic in proportion to that. What it asks for is estimated from sizes: those that the graph
states before anything runs, those that only a run tells before each op.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from gecompiler.backends.execution.packing import nbytes
from gecompiler.backends.execution.predicted import predicted
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.backends.execution.work import Shape, work_of
from gecompiler.ir.errors import GecError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType, ValueType

FLOOR = 2**29
"""Bytes that any run may hold."""
A_WEIGHT, AN_INPUT = 16, 4096
"""Bytes more that it may hold for each byte of the weights and of the inputs."""
A_PAIR, MOST_PAIRS = 64, 2**33
"""Bytes for each pair of tokens, as long as these are no more than that."""
WORK = 400
"""Multiply-adds for each byte that it may hold: some seconds for the least."""


class HostMemoryError(GecError):
    """A run asks for more than it may take."""


@dataclass
class HostMemory:
    """The bounds of one run, and how much it holds and has done."""

    limit: int
    """Bytes."""
    work_limit: int
    """Multiply-adds."""
    held_by_file: int
    """Bytes of weights and inputs, for messages."""
    held: int = 0
    done: int = 0

    @staticmethod
    def of(given: int | None, weights: int, inputs: Iterable[Value]) -> HostMemory:
        """Bounds from what the user allows, else from the bytes of weights, and the inputs."""
        values = list(inputs)
        taken = sum(map(value_bytes, values))
        # Each token looks at each other one, in every head.
        pairs = sum(v.size for v in values if getattr(v, "dtype", None) == np.int64) ** 2
        limit = max(FLOOR, A_WEIGHT * weights + AN_INPUT * taken, min(A_PAIR * pairs, MOST_PAIRS))
        limit = limit if given is None else given
        # Each element of a weight, of two bytes or more, meets each of the inputs.
        products = (weights // 2) * (taken // 2) * 4 + 256 * pairs
        return HostMemory(limit, max(WORK * limit, products), weights + taken)

    def admit(self, graph: Graph, planned: int = 0) -> None:
        """HostMemoryError where a graph is known to need more; ``planned`` bytes lie at addresses.

        The largest op's results are there twice, as they are made and as they are kept. Ops
        whose sizes only a run tells are looked at `before` they run.
        """
        largest, at = 0, ""
        for body, op in _sized(graph):
            outputs = _types(body, op.outputs)
            size = _bytes(outputs)
            if size > largest:
                largest, at = size, _described(op, outputs)
        if planned + 2 * largest > self.limit:
            self._refuse(planned + 2 * largest, at)
        for body, op in _sized(graph):
            inputs, outputs = _types(body, op.inputs), _types(body, op.outputs)
            self._do(op, [_sizes(t) for t in inputs], [_sizes(t) for t in outputs])

    def before(self, graph: Graph, op: Op, values: Sequence[Value]) -> None:
        """HostMemoryError where an op whose sizes only this run tells is to make too much."""
        types = [graph.type(v) if v else None for v in op.outputs]
        known = not op.info.data_sized and all(t is None or _static(t) for t in types)
        if known and not op.bodies:
            return
        outputs = [_static(t) for t in predicted(graph, op, values)] if not known else []
        size = _bytes(outputs)
        if self.held + size > self.limit:
            self._refuse(self.held + size, _described(op, outputs))
        shapes = [v.shape if isinstance(v, np.ndarray) else None for v in values]
        self._do(op, shapes, [_sizes(t) for t in outputs])
        if op.bodies:
            self._rounds(op, values)

    def _rounds(self, op: Op, values: Sequence[Value]) -> None:
        """The arithmetic of a loop is that of its body times its rounds, where these are known."""
        rounds = 1
        if op.is_("Loop") and values and isinstance(values[0], np.ndarray):
            rounds = max(0, int(values[0].reshape(-1)[0]))
        elif op.is_("Scan"):
            rounds = max((v.shape[0] for v in values if getattr(v, "shape", ())), default=1)
        before = self.done
        for body in op.bodies:
            self.admit(body)
        each = self.done - before
        self.done = before
        if each * min(rounds, 2**31) + before > self.work_limit and rounds <= 100_000:
            self._refuse_work(each * rounds + before, _where(op))

    def hold(self, size: int) -> None:
        """Bytes that are held from now on; fewer where ``size`` is negative."""
        self.held += size

    def _do(self, op: Op, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> None:
        self.done += work_of(op, inputs, outputs)
        if self.done > self.work_limit:
            self._refuse_work(self.done, _where(op))

    def _refuse(self, size: int, at: str) -> None:
        raise HostMemoryError(
            f"running needs about {_size(size)} of the host's memory, more than the "
            f"{_size(self.limit)} that a run of this model may take "
            f"(its weights and inputs hold {_size(self.held_by_file)})",
            where=at,
            hint=f"if that is meant: --host-memory {_enough(size)}, option host_memory; else "
            "smaller sizes",
        )

    def _refuse_work(self, work: int, at: str) -> None:
        needed = -(-work // WORK)
        raise HostMemoryError(
            f"running takes about {work:.1e} multiply-adds up to here, more than the "
            f"{self.work_limit:.1e} that a run of this model may take",
            where=at,
            hint=f"if that is meant: --host-memory {_enough(needed)}, option host_memory; else "
            "smaller sizes",
        )


_CURRENT: ContextVar[HostMemory | None] = ContextVar("host_memory", default=None)


def current() -> HostMemory | None:
    """The bounds of the run that is under way."""
    return _CURRENT.get()


@contextmanager
def bounded(memory: HostMemory) -> Iterator[HostMemory]:
    """What runs within is held to these bounds; a run within a run to those of the outer one."""
    outer = _CURRENT.get()
    token = _CURRENT.set(outer or memory)
    try:
        yield outer or memory
    finally:
        _CURRENT.reset(token)


def weight_bytes(graphs: Sequence[Graph]) -> int:
    """The bytes of all constants that have data."""
    return sum(
        nbytes(c.type.dtype, c.type.sizes)
        for graph in graphs
        for c in graph.constants.values()
        if c.data is not None or c.source is not None
    )


def value_bytes(value: Value) -> int:
    """The bytes of a value of a run; of a sequence those of all its parts."""
    if isinstance(value, np.ndarray):
        # A view of one element, repeated, takes no memory.
        return 0 if 0 in value.strides and value.size > 1 else int(value.nbytes)
    return sum(map(value_bytes, value)) if isinstance(value, list) else 0


def _sized(graph: Graph) -> Iterator[tuple[Graph, Op]]:
    """All ops, also of bodies, whose types hold no estimates of what only a run tells."""
    left = [graph]
    while left:
        body = left.pop()
        for op in body.ops:
            left += op.bodies
            if not op.info.data_sized:
                yield body, op


def _static(type_: ValueType) -> TensorType | None:
    return type_ if isinstance(type_, TensorType) and type_.is_static else None


def _types(graph: Graph, names: Sequence[str]) -> list[TensorType | None]:
    """The types of values, None where sizes are not known."""
    return [_static(graph.type(name)) if name else None for name in names]


def _bytes(types: Sequence[TensorType | None]) -> int:
    return sum(nbytes(t.dtype, t.sizes) for t in types if t is not None)


def _sizes(type_: TensorType | None) -> Shape | None:
    return None if type_ is None else type_.sizes


def _described(op: Op, outputs: Sequence[TensorType | None]) -> str:
    """The op and the largest of what it makes."""
    made = [(t, name) for t, name in zip(outputs, op.outputs, strict=False) if t is not None]
    if not made:
        return _where(op)
    type_, name = max(made, key=lambda pair: nbytes(pair[0].dtype, pair[0].sizes))
    return f"{_where(op)}, tensor {name!r} {type_}"


def _where(op: Op) -> str:
    return f"node {op.name!r} ({op.kind})"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _enough(size: int) -> str:
    return f"{math.ceil(size * 1.1 / 2**30)}GiB"
