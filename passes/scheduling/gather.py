"""Concatenations that cost nothing: their parts are made where the whole lies.

Along the first dim that is not 1 the parts of a Concat lie one behind the other in its output,
so that the kernels that make them can write there, and nothing is left to be moved. The graph
engine does the same (the attribute ``_no_padding_continuous_input`` of its ops).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import TaskKind
from gecompiler.ir.types import TensorType

DMA_BYTES = 32
"""A kernel writes from multiples of this many bytes on."""


class Made(Protocol):
    """A task in the making."""

    @property
    def main(self) -> Op:
        """The op that it computes."""

    @property
    def kind(self) -> TaskKind:
        """What it is."""

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads."""


@dataclass(frozen=True)
class Memory:
    """What is known of the memory of values: whose it is, and what must have its own."""

    root: Callable[[str], str]
    makers: dict[str, int]
    """The task that makes a root."""
    kept: Collection[str]
    """Roots that are outputs, or state."""


def gathers(graph: Graph, tasks: Sequence[Made], memory: Memory) -> dict[str, tuple[str, int]]:
    """The whole in which each part is made, and how many bytes from its beginning. Near-linear."""
    readers = Counter(r for task in tasks for r in {memory.root(v) for v in task.reads})
    found: dict[str, tuple[str, int]] = {}
    for task in tasks:
        op = task.main
        if op.is_("Concat") and not op.domain and op.outputs[0] not in found:
            parts = _parts(graph, tasks, op, memory)
            if parts is not None and all(readers[r] == 1 and r not in found for r in parts):
                found |= {part: (op.outputs[0], at) for part, at in parts.items()}
    return found


def _parts(graph: Graph, tasks: Sequence[Made], op: Op, memory: Memory) -> dict[str, int] | None:
    """The roots of the inputs and where they come to lie, None where they must be moved."""
    if not _lies_in_turn(graph, op):
        return None
    found: dict[str, int] = {}
    at = 0
    for value in op.inputs:
        root = memory.root(value)
        type_, own = graph.tensor(value), graph.tensor(root)
        if root in found or root in memory.kept or root not in memory.makers or at % DMA_BYTES:
            return None
        if type_ is None or own is None or type_.bytes != own.bytes or not own.bytes:
            return None
        maker = tasks[memory.makers[root]]
        if maker.kind != "kernel" or maker.main.is_("Concat") or maker.main.bodies:
            return None
        found[root] = at
        at += own.bytes
    return found


def _lies_in_turn(graph: Graph, op: Op) -> bool:
    made = graph.tensor(op.outputs[0])
    axis = op.attrs.get("axis", 0)
    if not isinstance(made, TensorType) or not made.is_static or not isinstance(axis, int):
        return False
    if made.dtype.bits % 8 or len(op.inputs) < 2:
        return False
    return all(size == 1 for size in made.sizes[: axis % len(made.sizes)])
