"""Summing gradients over replicas behind the backward pass; sharing the optimiser's state (ZeRO).

The collectives are named ``GradientSync``: they depend on the gradients of their bucket alone,
so that on a stream of their own they run beside the rest of the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.collective_ops import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import Op, OpInfo
from gecompiler.ir.training_ops import (
    BACKWARD,
    MOMENTS,
    OPTIMIZER,
    RECOMPUTE,
    SYNC,
    is_optimizer,
    master_slot,
)
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.bucket_collective import collective
from gecompiler.passes.training.buckets import Bucket, Synced, buckets_of, first_uses
from gecompiler.passes.training.optimizer import readers_of
from gecompiler.passes.training.sharded import Flat
from gecompiler.passes.training.sync_options import SyncOptions
from gecompiler.passes.training.tape import Tape

GRADIENT_SYNC, PARAMETER_GATHER = "GradientSync", "ParameterGather"


def sync_gradients(
    graph: Graph, options: SyncOptions, initial: Mapping[str, Constant] | None = None
) -> Synced:
    """The training step ``graph`` with its gradients reduced over ``options.replicas``.

    ``initial`` is its state before the first step, needed where ``zero_stage`` shares it. O(ops).
    """
    return _Writer(graph, options, initial or {}).write()


@dataclass
class _Writer:
    old: Graph
    options: SyncOptions
    initial: Mapping[str, Constant]
    shards: dict[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.buckets = buckets_of(self.old, self.options)
        self.new = Graph(self.old.name, self.old.opsets)
        self.new.metadata = dict(self.old.metadata)
        self.new.reserve(self.old)
        self.tape = Tape(self.new, info=OpInfo(phase=SYNC, group=GRADIENT_SYNC))
        self.reduced: dict[str, str] = {}
        """Gradients by value: what is to be read in their place."""
        self.wholes: list[tuple[Bucket, str]] = []
        """Buckets that are summed, to be taken apart."""
        self.parts: dict[int, str] = {}
        """By bucket, the gradients of this replica's part."""
        self.owned: dict[int, str] = {}
        """By bucket, the parameters of this replica's part."""
        self.gathered: dict[tuple[str, bool], str] = {}
        """Parameters by name and whether for the backward pass: where they are found whole."""
        self.states: list[State] = []
        self.renamed: dict[str, str] = {}

    @property
    def shared(self) -> tuple[Bucket, ...]:
        """The buckets whose optimiser's state replicas share."""
        if self.options.zero_stage == 0 or self.options.replicas.size == 1:
            return ()
        return tuple(bucket for bucket in self.buckets if bucket.alike)

    def write(self) -> Synced:
        old, new = self.old, self.new
        dropped = self._dropped()
        for name in old.inputs:
            if name not in dropped:
                new.add_input(name, old.type(name))
        for name, constant in old.constants.items():
            new.add_constant(name, constant)
        for bucket in self.shared:
            self.owned[bucket.number] = self._shard(bucket, "param", 0)
        self._ops()
        for bucket in self.shared:
            self._update(bucket)
        self._close(dropped)
        return Synced(new, self.buckets, self.shards, frozenset(self.shards))

    def _dropped(self) -> set[str]:
        """Inputs that parts take the place of: moments and masters, with stage 3 parameters too."""
        found: set[str] = set()
        for bucket in self.shared:
            for gradient in bucket.gradients:
                first = 3 + (MOMENTS[gradient.step.op_type] > 1)
                found.update(gradient.step.inputs[first:])
                if self.options.zero_stage == 3:
                    found.add(gradient.parameter)
        return found

    # ------------------------------------------------------------ the ops as they were

    def _ops(self) -> None:
        old = self.old
        waiting = {b.number: {g.value for g in b.gradients} for b in self.buckets}
        of = {g.value: b for b in self.buckets for g in b.gradients}
        uses = first_uses(old, self.shared) if self.options.zero_stage == 3 else {}
        steps: list[Op] = []
        for op in old.topological():
            for bucket, again, after in uses.get(op.name, ()):
                self._gather_whole(bucket, again, after)
            if is_optimizer(op):
                steps.append(op)
                continue
            self._copy(op)
            for value in op.outputs:
                if value in of:
                    bucket = of[value]
                    waiting[bucket.number].discard(value)
                    if not waiting[bucket.number]:
                        self._reduce(bucket)
        self._take_apart()
        apart = {g.step.name for b in self.shared for g in b.gradients}
        for op in steps:
            if op.name not in apart:
                self._copy(op)

    def _copy(self, op: Op) -> None:
        again = op.info.phase in (RECOMPUTE, BACKWARD)
        inputs = []
        for slot, value in enumerate(op.inputs):
            found = self.gathered.get((value, again), value)
            if is_optimizer(op) and slot == 1:
                found = self.reduced.get(value, value)
            inputs.append(found)
        types = [self.old.type(v) if v else None for v in op.outputs]
        self.new.add_op(op.with_(inputs=tuple(inputs)), types)

    # ------------------------------------------------------------ buckets

    def _reduce(self, bucket: Bucket) -> None:
        tape, options, ranks = self.tape, self.options, self.options.replicas.size
        tape.stem = name = f"{GRADIENT_SYNC}/{bucket.number}"
        grads = bucket.gradients
        shares = bucket.number in self.owned
        if len(grads) == 1 and not shares:
            self.reduced[grads[0].value] = self._summed(name, grads[0].value, bucket)
            return
        flat = [tape.reshape(g.value, (g.size,)) for g in grads]
        if shares:
            padding = bucket.chunk(ranks) * ranks - bucket.size
            if padding:
                kind = grads[0].type.dtype.numpy
                flat.append(tape.constant(np.zeros(padding, kind)))
            whole = tape.concat(flat, 0)
            if bucket.others is not None:
                whole = collective(
                    self.tape, f"{name}/all", ALL_REDUCE, whole, bucket.others, reduction="sum"
                )
            self.parts[bucket.number] = collective(
                self.tape,
                name,
                REDUCE_SCATTER,
                whole,
                options.replicas,
                axis=0,
                reduction=options.reduction,
            )
            return
        self.wholes.append((bucket, self._summed(name, tape.concat(flat, 0), bucket)))

    def _take_apart(self) -> None:
        """Gradients out of their buckets: behind all else, as it would wait for the sync."""
        for bucket, whole in self.wholes:
            self.tape.stem = f"{GRADIENT_SYNC}/{bucket.number}"
            for gradient, part in zip(bucket.gradients, self._cut(bucket, whole), strict=True):
                self.reduced[gradient.value] = part

    def _summed(self, name: str, value: str, bucket: Bucket) -> str:
        """Reduced over replicas and over the other ranks that hold copies."""
        options = self.options
        if bucket.others is not None:
            value = collective(
                self.tape, f"{name}/all", ALL_REDUCE, value, bucket.others, reduction="sum"
            )
        if options.replicas.size == 1 or not bucket.alike:
            return value
        return collective(
            self.tape, name, ALL_REDUCE, value, options.replicas, reduction=options.reduction
        )

    # ------------------------------------------------------------ shared state

    def _shard(self, bucket: Bucket, what: str, slot: int) -> str:
        """An input for this replica's part of what the steps of a bucket read at that place."""
        ranks = self.options.replicas.size
        names = [g.step.inputs[slot] for g in bucket.gradients]
        first = self.old.tensor(names[0])
        assert first is not None
        chunk = bucket.chunk(ranks)
        made = self.new.add_input(
            self.new.fresh(f"zero/{bucket.number}/{what}"), TensorType(first.dtype, (chunk,))
        )
        constants = tuple(self.initial.get(n) for n in names)
        self.shards[made] = Flat.constant(
            names, constants, TensorType(first.dtype, (chunk * ranks,))
        )
        return made

    def _update(self, bucket: Bucket) -> None:
        """One step for the part of a bucket; the whole parameters are gathered behind it."""
        tape, step = self.tape, bucket.gradients[0].step
        tape.info = OpInfo(phase=OPTIMIZER)
        number, old = bucket.number, self.owned[bucket.number]
        first = 3 + (MOMENTS[step.op_type] > 1)
        names = ["m", "v"][: MOMENTS[step.op_type]]
        names += ["master"] if len(step.inputs) > master_slot(step) else []
        rest = [self._shard(bucket, what, first + i) for i, what in enumerate(names)]
        inputs = [old, self.parts[number], *step.inputs[2:first], *rest]
        types = [tape.type(v) for v in (old, *rest)]
        tape.stem = f"optimizer/{number}"
        made = tape.own(step.op_type, inputs, *types, attrs=step.attrs)
        self.states += [State(a, b) for a, b in zip((old, *rest), made, strict=True)]
        if self.options.zero_stage == 3:
            self._wait_for_readers(old, made[0])
            return
        self._spread(bucket, made[0])

    def _wait_for_readers(self, value: str, made: str) -> None:
        step = self.new.producer(made)
        for op in self.new.users(value):
            if step is not None and op.name != step.name:
                self.new.add_control(op.name, step.name)

    def _spread(self, bucket: Bucket, part: str) -> None:
        """All replicas get all new parameters of the bucket."""
        tape = self.tape
        tape.info = OpInfo(phase=OPTIMIZER, group=PARAMETER_GATHER)
        name = f"{PARAMETER_GATHER}/{bucket.number}"
        tape.stem = name
        whole = collective(self.tape, name, ALL_GATHER, part, self.options.replicas, axis=0)
        readers = {g.parameter: readers_of(self.new, g.parameter) for g in bucket.gradients}
        for gradient, value in zip(bucket.gradients, self._cut(bucket, whole), strict=True):
            self.states.append(State(gradient.parameter, value))
            self.renamed[gradient.step.outputs[0]] = value
            maker = self.new.producer(value)
            while maker is not None and maker.is_("Reshape"):
                maker = self.new.producer(maker.inputs[0])
            for reader in readers[gradient.parameter]:
                if maker is not None and (reader, maker.name) not in self.new.controls:
                    self.new.add_control(reader, maker.name)

    def _cut(self, bucket: Bucket, whole: str) -> list[str]:
        """The parameters that lie one after the other in a bucket."""
        tape, sizes = self.tape, [g.size for g in bucket.gradients]
        padding = tape.shape(whole)[0] - sum(sizes)
        parts = tape.split(whole, 0, [*sizes, *([padding] if padding else [])])
        pairs = zip(parts, bucket.gradients, strict=False)
        return [tape.reshape(part, g.type.sizes) for part, g in pairs]

    def _gather_whole(self, bucket: Bucket, again: bool, after: str) -> None:
        tape = self.tape
        before = tape.info
        tape.info = OpInfo(phase=BACKWARD if again else "forward", group=PARAMETER_GATHER)
        name = f"{PARAMETER_GATHER}/{bucket.number}{'/again' if again else ''}"
        tape.stem = name
        part = self.owned[bucket.number]
        whole = collective(self.tape, name, ALL_GATHER, part, self.options.replicas, axis=0)
        maker = self.new.producer(whole)
        if after and maker is not None:
            self.new.add_control(after, maker.name)
        for gradient, value in zip(bucket.gradients, self._cut(bucket, whole), strict=True):
            self.gathered[gradient.parameter, again] = value
        tape.info = before

    # ------------------------------------------------------------ the end

    def _close(self, dropped: set[str]) -> None:
        old, new = self.old, self.new
        for before, after in old.controls:
            if before in new and after in new and (before, after) not in new.controls:
                new.add_control(before, after)
        states = [s for s in old.states if s.input not in dropped and new.has_value(s.output)]
        kept = {s.input for s in states}
        states += [s for s in self.states if s.input not in kept]
        made = {s.output for s in states}
        others = [v for v in old.outputs if new.has_value(v) and v not in made]
        new.set_outputs([*others, *(s.output for s in states)])
        new.set_states(states)
