"""A piece of the model that a stage holds: what is done once a micro-batch, and once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gecompiler.ir.collective_ops import POINT_TO_POINT, SEND
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Template
from gecompiler.passes.pipeline_parallel.phases import part_of

AXIS = "pp"


@dataclass
class Chunk:
    """One template of one micro-batch, its ops by what they are part of, and its names here."""

    template: Template
    piece: int
    """Its place among all pieces of the model."""
    prefix: str = ""
    """Before its names where the stage has several."""
    forward: list[Op] = field(default_factory=list)
    backward: list[Op] = field(default_factory=list)
    once: list[Op] = field(default_factory=list)
    """After all micro-batches."""
    first: list[Op] = field(default_factory=list)
    """Before all of them: what is done once and read by each (parameters that are gathered)."""
    transfers: list[Op] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """Inputs that are the same for all micro-batches."""
    kept: set[str] = field(default_factory=set)
    """Of those, state that is replaced once: parameters, moments."""
    summed: dict[str, str] = field(default_factory=dict)
    """Values that are summed over micro-batches, and the name of the sum so far."""
    ends: set[str] = field(default_factory=set)
    """Values made once for all micro-batches."""
    constants: dict[str, str] = field(default_factory=dict)
    """Names of constants here, where another chunk's of that name is another."""

    @staticmethod
    def of(template: Template, piece: int, prefix: str) -> Chunk:
        """Sorts the template's ops. ModelError for a body that takes values of a micro-batch."""
        found = Chunk(template, piece, prefix)
        lists = {"forward": found.forward, "backward": found.backward, "once": found.once}
        graph = found.graph
        for op in graph.topological():
            taken = [v for v in graph.captures(op) if graph.constant(v) is None]
            if taken:
                raise ModelError(
                    f"its body takes {taken[0]!r} from around it, of which each micro-batch has "
                    "its own",
                    where=f"op {op.name!r} ({op.kind})",
                    hint="run the model without pipeline stages",
                )
            (found.transfers if crosses(op) else lists[part_of(op)]).append(op)
        found._find_first()
        found._find_shared()
        return found

    @property
    def graph(self) -> Graph:
        """The template's graph."""
        return self.template.graph

    def _find_first(self) -> None:
        """Of what is done once, that which depends on no micro-batch and is read by them."""
        graph = self.graph
        made = {v for op in (*self.forward, *self.backward) for v in op.outputs}
        made |= {v for op in self.transfers for v in op.outputs}
        after: list[Op] = []
        for op in self.once:
            if any(v in made for v in graph.reads(op)):
                made.update(op.outputs)
                after.append(op)
        late = {op.name for op in after}
        wanted = {v for op in (*self.forward, *self.backward) for v in graph.reads(op)}
        for op in reversed(self.once):
            if op.name not in late and any(v in wanted for v in op.outputs):
                wanted.update(graph.reads(op))
                self.first.append(op)
        self.first.reverse()
        taken = {op.name for op in self.first}
        self.once = [op for op in self.once if op.name not in taken]

    def _find_shared(self) -> None:
        graph = self.graph
        done_once = (*self.first, *self.once)
        read = dict.fromkeys(v for op in done_once for v in graph.reads(op))
        self.ends = {v for op in done_once for v in op.outputs if v}
        inputs = set(graph.inputs)
        self.shared = {v for v in read if v in inputs}
        self.kept = {s.input for s in graph.states if s.output in self.ends}
        self.shared |= self.kept
        made = {v for v in read if graph.producer(v) is not None} - self.ends
        self.summed = {v: "" for v in read if v in made}

    def stem(self, micro_batch: int) -> str:
        """What names of a micro-batch begin with."""
        return f"mb{micro_batch}/{self.prefix}"

    def name(self, value: str, micro_batch: int) -> str:
        """The name of a value as a micro-batch has it."""
        if value in self.ends or value in self.kept:
            return self.prefix + value
        if value in self.graph.constants:
            return self.constants.get(value, value)
        if not value or value in self.shared:
            return value
        return self.stem(micro_batch) + value

    def names(self, value: str, micro_batches: int) -> list[str]:
        """All names that a value has here: one, or one a micro-batch."""
        return list(dict.fromkeys(self.name(value, m) for m in range(micro_batches)))

    def once_name(self, value: str) -> str:
        """The name of a value as what is done once reads or makes it."""
        return self.summed.get(value) or self.name(value, 0)

    def tell_apart(self, others: Sequence[Chunk]) -> None:
        """Renames the constants of which another chunk has another: each chunk made its own.

        ModelError for one that a body takes, which knows it by its name.
        """
        if not others:
            return
        captured = {name for op in self.graph.ops for name in self.graph.captures(op)}
        for name in self.graph.constants:
            if any(name in other.graph.constants and self._unlike(other, name) for other in others):
                if name in captured:
                    raise ModelError(
                        f"its body takes the constant {name!r}, and another piece on this stage "
                        "has another of this name",
                        where=self.graph.name,
                        hint="take another pipeline schedule than interleaved",
                    )
                self.constants[name] = self.prefix + name

    def _unlike(self, other: Chunk, name: str) -> bool:
        one, two = self.graph.constants[name], other.graph.constants[name]
        cut, also = self.template.constants.get(name), other.template.constants.get(name)
        if one is two and cut == also:
            return False
        if cut is not None and also is not None:
            return cut[0] is not also[0] or cut[1] != also[1]
        return cut is not also or one.digest is None or one.digest != two.digest

    def sender(self, op: Op) -> int:
        """The piece that makes what a Send or Recv of this one carries."""
        return self.piece if op.op_type == SEND else self.piece + int(op.attr("peer", -1))

    def taker(self, op: Op) -> int:
        """The piece that takes it."""
        return self.piece if op.op_type != SEND else self.piece + int(op.attr("peer", 1))


def crosses(op: Op) -> bool:
    """Whether the op carries a value between pieces of the model."""
    point = op.domain == GE_DOMAIN and op.op_type in POINT_TO_POINT
    return point and op.attr("communicator") == AXIS
