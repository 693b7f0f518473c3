"""What replicas share of the optimiser's state and the parameters (ZeRO, Rajbhandari et al. 2020).

Each has its part of a bucket: one flat vector of the parameters that lie in it, one of each
moment. A step of the optimiser is made of that part; then all get the whole parameters (stages
1 and 2), or each keeps its part and they are gathered before they are used (stage 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gecompiler.ir.collective_ops import ALL_GATHER
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import OpInfo
from gecompiler.ir.training_ops import (
    BACKWARD,
    FORWARD,
    MOMENTS,
    OPTIMIZER,
    PARAMETER_GATHER,
    master_slot,
)
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.bucket_collective import collective
from gecompiler.passes.training.buckets import Bucket, Pieces
from gecompiler.passes.training.optimizer import readers_of
from gecompiler.passes.training.sharded import Flat
from gecompiler.passes.training.sync_options import Group
from gecompiler.passes.training.tape import Tape


@dataclass
class SharedState:
    """Writes into ``tape.graph`` what replicas share, of a step ``old`` that shares nothing."""

    old: Graph
    tape: Tape
    replicas: Group
    initial: Mapping[str, Constant]
    shards: dict[str, Constant] = field(default_factory=dict)
    """By name of the input: what all replicas' parts are together before the first step."""
    pieces: dict[str, Pieces] = field(default_factory=dict)
    """By name of the input: which states lie in it."""
    owned: dict[int, str] = field(default_factory=dict)
    """By bucket: the replica's part of the parameters."""
    states: list[State] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph that is written."""
        return self.tape.graph

    @staticmethod
    def replaced(bucket: Bucket, *, parameters: bool) -> set[str]:
        """The inputs that parts take the place of: moments and masters, if asked parameters."""
        found: set[str] = set()
        for gradient in bucket.gradients:
            first = 3 + (MOMENTS[gradient.step.op_type] > 1)
            found.update(gradient.step.inputs[first:])
            if parameters:
                found.add(gradient.parameter)
        return found

    def own(self, bucket: Bucket) -> None:
        """Declares the replica's part of the parameters."""
        self.owned[bucket.number] = self._shard(bucket, "param", 0)

    def _shard(self, bucket: Bucket, what: str, slot: int) -> str:
        """An input for this replica's part of what the steps of a bucket read at that place."""
        names = [g.step.inputs[slot] for g in bucket.gradients]
        first = self.old.tensor(names[0])
        assert first is not None
        chunk = bucket.chunk(self.replicas.size)
        made = self.graph.add_input(
            self.graph.fresh(f"zero/{bucket.number}/{what}"), TensorType(first.dtype, (chunk,))
        )
        whole = TensorType(first.dtype, (chunk * self.replicas.size,))
        self.shards[made] = Flat.constant(names, [self.initial.get(n) for n in names], whole)
        sizes = [g.type.sizes for g in bucket.gradients]
        self.pieces[made] = tuple(zip(names, sizes, strict=True))
        return made

    def update(self, bucket: Bucket, gradients: str, *, keep: bool) -> None:
        """One step for the part of a bucket, of whose gradients the replica has ``gradients``.

        With ``keep`` each keeps its part of the new parameters; else all get the whole.
        """
        tape, step = self.tape, bucket.gradients[0].step
        tape.info = OpInfo(phase=OPTIMIZER)
        number, old = bucket.number, self.owned[bucket.number]
        first = 3 + (MOMENTS[step.op_type] > 1)
        names = ["m", "v"][: MOMENTS[step.op_type]]
        names += ["master"] if len(step.inputs) > master_slot(step) else []
        rest = [self._shard(bucket, what, first + i) for i, what in enumerate(names)]
        inputs = [old, gradients, *step.inputs[2:first], *rest]
        types = [tape.type(v) for v in (old, *rest)]
        tape.stem = f"optimizer/{number}"
        made = tape.own(step.op_type, inputs, *types, attrs=step.attrs)
        self.states += [State(a, b) for a, b in zip((old, *rest), made, strict=True)]
        if keep:
            self._wait_for_readers(old, made[0])
        else:
            self._spread(bucket, made[0])

    def _wait_for_readers(self, value: str, made: str) -> None:
        step = self.graph.producer(made)
        for op in self.graph.users(value):
            if step is not None and op.name != step.name:
                self.graph.add_control(op.name, step.name)

    def _spread(self, bucket: Bucket, part: str) -> None:
        """All replicas get all new parameters of the bucket."""
        tape, graph = self.tape, self.graph
        tape.info = OpInfo(phase=OPTIMIZER, group=PARAMETER_GATHER)
        name = f"{PARAMETER_GATHER}/{bucket.number}"
        tape.stem = name
        whole = collective(tape, name, ALL_GATHER, part, self.replicas, axis=0)
        readers = {g.parameter: readers_of(graph, g.parameter) for g in bucket.gradients}
        for gradient, value in zip(bucket.gradients, taken_apart(tape, bucket, whole), strict=True):
            self.states.append(State(gradient.parameter, value))
            maker = graph.producer(value)
            while maker is not None and maker.is_("Reshape"):
                maker = graph.producer(maker.inputs[0])
            for reader in readers[gradient.parameter]:
                if maker is not None and (reader, maker.name) not in graph.controls:
                    graph.add_control(reader, maker.name)

    def gathered(self, bucket: Bucket, *, again: bool, after: str) -> dict[str, str]:
        """The whole parameters for the forward or, ``again``, the backward pass, by name.

        They are gathered no earlier than the op ``after`` is done.
        """
        tape = self.tape
        before = tape.info
        tape.info = OpInfo(phase=BACKWARD if again else FORWARD, group=PARAMETER_GATHER)
        name = f"{PARAMETER_GATHER}/{bucket.number}{'/again' if again else ''}"
        tape.stem = name
        part = self.owned[bucket.number]
        whole = collective(tape, name, ALL_GATHER, part, self.replicas, axis=0)
        maker = self.graph.producer(whole)
        if after and maker is not None:
            self.graph.add_control(after, maker.name)
        parts = taken_apart(tape, bucket, whole)
        tape.info = before
        return {g.parameter: v for g, v in zip(bucket.gradients, parts, strict=True)}


def taken_apart(tape: Tape, bucket: Bucket, whole: str) -> list[str]:
    """What lies one after the other in a bucket."""
    sizes = [g.size for g in bucket.gradients]
    padding = tape.shape(whole)[0] - sum(sizes)
    parts = tape.split(whole, 0, [*sizes, *([padding] if padding else [])])
    pairs = zip(parts, bucket.gradients, strict=False)
    return [tape.reshape(part, g.type.sizes) for part, g in pairs]
