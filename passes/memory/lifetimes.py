"""What must lie in memory from when to when, under the order that a schedule enforces.

A **storage** is a tensor with all its views. A **block** is storages that take the same memory
one after the other by intent: an elementwise op writes over the input it used up, and the
output side of a state writes over its input side; parts that are made where the whole will lie
share its block. Times are vectors over the streams: a block is free for a task that knows, of
every stream, that the block's last user there is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.schedule import BufferKind
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.sync import Positions

ALIGNMENT = 512
"""Every block starts at a multiple of this many bytes, as the graph engine has it."""

Clock = Sequence[tuple[int, ...]]

_FROM_START: frozenset[BufferKind] = frozenset({"input", "weight", "state"})

IN_PLACE_OPS = frozenset(
    {
        "Abs",
        "Acos",
        "Add",
        "And",
        "Asin",
        "Atan",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Max",
        "Mean",
        "Min",
        "Mish",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Sum",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Where",
        "Xor",
    }
)
"""Each element of the output needs only the same element of an input that has as many.

Inputs of as many bytes whose elements are of another width are spread over the output, which
happens where types differ (``Pow`` of f32 by i64): they are read on after the first writes.
"""


@dataclass
class Storage:
    """The memory of one tensor and its views."""

    root: str
    bytes: int
    kind: BufferKind
    writer: int | None
    element_bits: int = 0
    users: list[int] = field(default_factory=list)
    """Tasks that write or read it, each once."""


@dataclass
class Block:
    """Storages in the order in which they take the same memory."""

    storages: list[Storage]
    parts: list[tuple[int, Storage]] = field(default_factory=list)
    """What is made within the first storage before that is: (bytes from its beginning, part)."""

    @property
    def bytes(self) -> int:
        """Aligned size: that of the largest storage."""
        return -(-max(s.bytes for s in self.storages) // ALIGNMENT) * ALIGNMENT

    @property
    def start(self) -> int | None:
        """The task that first writes it; None when it is filled before the run."""
        return self.storages[0].writer

    @property
    def writers(self) -> list[int]:
        """The tasks that may be the first to write it."""
        first = [s.writer for _, s in self.parts] or [self.start]
        return [task for task in first if task is not None]

    @property
    def permanent(self) -> bool:
        """Whether its last content is wanted after the run."""
        return self.storages[-1].kind != "activation"

    def needs(self, where: Positions) -> tuple[int, ...]:
        """How many tasks of each lane must be done before the memory is free."""
        found = [0] * where.lanes
        for task in self.storages[-1].users:
            lane = where.lane[task]
            found[lane] = max(found[lane], where.order[task] + 1)
        return tuple(found)


def storages(graph: TaskGraph) -> dict[str, Storage]:
    """All storages by their root tensor, in order of first mention."""
    found: dict[str, Storage] = {}
    for tensor, spec in graph.tensors.items():
        root = graph.root(tensor)
        if root not in found:
            own = graph.tensors[root]
            writer = graph.writer.get(root)
            found[root] = Storage(root, spec.bytes, own.kind, writer, own.element_bits)
        found[root].bytes = max(found[root].bytes, spec.bytes)
    for task in graph.tasks:
        for root in dict.fromkeys(graph.root(v) for v in (*task.writes, *task.reads)):
            found[root].users.append(task.id)
    return found


def blocks(graph: TaskGraph, clock: Clock, where: Positions) -> list[Block]:
    """All blocks; sharing is decided by what ``clock`` orders. In order of first mention."""
    found = storages(graph)
    takes_over = _states(graph, found, clock, where)
    for task in graph.tasks:
        pair = _in_place(graph, task.id, found, clock, where)
        if pair is not None:
            takes_over.setdefault(*pair)  # each is taken over once: by the last of its users
    after = {donor: root for root, donor in takes_over.items()}
    parts: dict[str, list[tuple[int, Storage]]] = {}
    for root, storage in found.items():
        whole = graph.tensors[root].part_of
        if whole is not None:
            parts.setdefault(whole[0], []).append((whole[1], storage))
    result: list[Block] = []
    for root, storage in found.items():
        if root in takes_over or graph.tensors[root].part_of is not None:
            continue
        chain = [storage]
        while chain[-1].root in after:
            chain.append(found[after[chain[-1].root]])
        result.append(Block(chain, parts.get(root, [])))
    return result


def _ordered(before: int, task: int, clock: Clock, where: Positions) -> bool:
    return clock[task][where.lane[before]] > where.order[before]


def _free_for(storage: Storage, task: int, clock: Clock, where: Positions) -> bool:
    """Whether the task is the last user: all others are done before it starts."""
    return all(u == task or _ordered(u, task, clock, where) for u in storage.users)


def _states(
    graph: TaskGraph, found: dict[str, Storage], clock: Clock, where: Positions
) -> dict[str, str]:
    """Outputs of state that may overwrite their input: all its other readers are done."""
    result: dict[str, str] = {}
    for state in graph.states:
        old, new = found[graph.root(state.input)], found[graph.root(state.output)]
        if new.writer is None or old.writer is not None or old.root in result.values():
            continue
        if new.root not in result and _free_for(old, new.writer, clock, where):
            result[new.root] = old.root
    return result


def _in_place(
    graph: TaskGraph, task: int, found: dict[str, Storage], clock: Clock, where: Positions
) -> tuple[str, str] | None:
    """(output, input) where an elementwise task may write over an input it uses up."""
    record = graph.tasks[task]
    if record.op_type not in IN_PLACE_OPS or record.kind != "kernel" or not record.writes:
        return None
    made = found[graph.root(record.writes[0])]
    if graph.tensors[made.root].part_of is not None:
        return None
    for root in _roots(graph, record.reads):
        donor = found[root]
        if donor.kind != "activation" or donor.writer is None:
            continue
        if (donor.bytes, donor.element_bits) != (made.bytes, made.element_bits):
            continue
        if made.bytes and _free_for(donor, task, clock, where):
            return made.root, root
    return None


def _roots(graph: TaskGraph, tensors: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(graph.root(v) for v in tensors)


def from_start(block: Block) -> bool:
    """Whether the block is filled before the run: inputs, weights, state."""
    return block.start is None or block.storages[0].kind in _FROM_START
