"""Summing gradients over replicas behind the backward pass; sharing what they need (ZeRO).

The collectives are named ``GradientSync``: they depend on the gradients of their bucket alone,
so that on a stream of their own they run beside the rest of the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.collective_ops import ALL_REDUCE, REDUCE_SCATTER
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op, OpInfo
from gecompiler.ir.training_ops import BACKWARD, GRADIENT_SYNC, RECOMPUTE, SYNC, is_optimizer
from gecompiler.passes.training.bucket_collective import collective
from gecompiler.passes.training.buckets import Bucket, Synced, buckets_of, first_uses
from gecompiler.passes.training.public_names import name_outputs, updated
from gecompiler.passes.training.shared_state import SharedState, taken_apart
from gecompiler.passes.training.sync_options import SyncOptions
from gecompiler.passes.training.tape import Tape

IN_FLIGHT = 2
"""Buckets of a micro-batch that wait to be reduced to parts while more gradients are made: with
more of them whole gradients would pile up, which stages 2 and 3 are to save."""


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

    def __post_init__(self) -> None:
        self.buckets = buckets_of(self.old, self.options)
        self.new = Graph(self.old.name, self.old.opsets)
        self.new.metadata = dict(self.old.metadata)
        self.new.reserve(self.old)
        self.tape = Tape(self.new, info=OpInfo(phase=SYNC, group=GRADIENT_SYNC))
        self.share = SharedState(self.old, self.tape, self.options.replicas, self.initial)
        self.reduced: dict[str, str] = {}
        """By the op of a step: the gradient that it is to read."""
        self.wholes: list[tuple[Bucket, str]] = []
        """Buckets that are summed, to be taken apart."""
        self.by_gradient = self._by_gradient()
        self.parts: dict[int, str] = {}
        """By bucket, the gradients of this replica's part."""
        self.gathered: dict[tuple[str, bool], str] = {}
        """Parameters by name and whether for the backward pass: where they are found whole."""
        self.scattered: list[str] = []
        """Ops that reduce gradients of a micro-batch to parts, in order."""

    @property
    def shared(self) -> tuple[Bucket, ...]:
        """The buckets whose optimiser's state replicas share."""
        if self.options.zero_stage == 0 or self.options.replicas.size == 1:
            return ()
        return tuple(bucket for bucket in self.buckets if bucket.alike)

    def write(self) -> Synced:
        old, new, share = self.old, self.new, self.share
        parameters = self.options.zero_stage == 3
        dropped: set[str] = set()
        for bucket in self.shared:
            dropped |= share.replaced(bucket, parameters=parameters)
        for name in old.inputs:
            if name not in dropped:
                new.add_input(name, old.type(name))
        for name, constant in old.constants.items():
            new.add_constant(name, constant)
        for bucket in self.shared:
            share.own(bucket)
        self._ops()
        for bucket in self.shared:
            share.update(bucket, self.parts[bucket.number], keep=parameters)
        self._close(dropped)
        return Synced(new, self.buckets, share.shards, share.pieces)

    # ------------------------------------------------------------ the ops as they were

    def _ops(self) -> None:
        old = self.old
        waiting = {b.number: {g.value for g in b.gradients} for b in self.buckets}
        of = self.by_gradient
        uses = first_uses(old, self.shared) if self.options.zero_stage == 3 else {}
        steps: list[Op] = []
        for op in old.topological():
            for bucket, again, after in uses.get(op.name, ()):
                found = self.share.gathered(bucket, again=again, after=after)
                self.gathered.update(((name, again), value) for name, value in found.items())
            if is_optimizer(op):
                steps.append(op)
                continue
            self._copy(op)
            for value in op.outputs:
                for bucket in of.get(value, {}).values():
                    waiting[bucket.number].discard(value)
                    if not waiting[bucket.number]:
                        self._reduce(bucket)
        self._take_apart()
        apart = {g.step.name for b in self.shared for g in b.gradients}
        for op in steps:
            if op.name not in apart:
                self._copy(op)

    def _by_gradient(self) -> dict[str, dict[int, Bucket]]:
        """The buckets that have a gradient: it may be that of several parameters."""
        found: dict[str, dict[int, Bucket]] = {}
        for bucket in self.buckets:
            for gradient in bucket.gradients:
                found.setdefault(gradient.value, {})[bucket.number] = bucket
        return found

    def _copy(self, op: Op) -> None:
        again = op.info.phase in (RECOMPUTE, BACKWARD)
        inputs = []
        for slot, value in enumerate(op.inputs):
            found = self.gathered.get((value, again), value)
            if is_optimizer(op) and slot == 1:
                found = self.reduced.get(op.name, value)
            inputs.append(found)
        types = [self.old.type(v) if v else None for v in op.outputs]
        self.new.add_op(op.with_(inputs=tuple(inputs)), types)
        if len(self.scattered) >= IN_FLIGHT and any(v in self.by_gradient for v in op.outputs):
            self.new.add_control(self.scattered[-IN_FLIGHT], op.name)

    # ------------------------------------------------------------ buckets

    def _reduce(self, bucket: Bucket) -> None:
        tape = self.tape
        tape.stem = name = f"{GRADIENT_SYNC}/{bucket.number}"
        grads = bucket.gradients
        shares = bucket.number in self.share.owned
        # with stages 2 and 3 a part of the sum is kept from one micro-batch to the next, so that
        # what is reduced belongs to each of them
        each = shares and self.options.zero_stage > 1 and not bucket.late
        tape.info = OpInfo(phase=BACKWARD if each else SYNC, group=GRADIENT_SYNC)
        if len(grads) == 1 and not shares:
            self.reduced[grads[0].step.name] = self._summed(name, grads[0].value, bucket)
            return
        flat = [tape.reshape(g.value, (g.size,)) for g in grads]
        if shares:
            self.parts[bucket.number] = part = self._scattered(name, flat, bucket)
            maker = self.new.producer(part)
            if each and maker is not None:
                self.scattered.append(maker.name)
        else:
            self.wholes.append((bucket, self._summed(name, tape.concat(flat, 0), bucket)))

    def _take_apart(self) -> None:
        """Gradients out of their buckets: behind all else, as it would wait for the sync."""
        self.tape.info = OpInfo(phase=SYNC, group=GRADIENT_SYNC)
        for bucket, whole in self.wholes:
            self.tape.stem = f"{GRADIENT_SYNC}/{bucket.number}"
            parts = taken_apart(self.tape, bucket, whole)
            self.reduced.update(
                (g.step.name, part) for g, part in zip(bucket.gradients, parts, strict=True)
            )

    def _summed(self, name: str, value: str, bucket: Bucket) -> str:
        """Reduced over replicas and over the other ranks that hold copies."""
        options = self.options
        value = self._over_others(name, value, bucket)
        if options.replicas.size == 1 or not bucket.alike:
            return value
        return collective(
            self.tape, name, ALL_REDUCE, value, options.replicas, reduction=options.reduction
        )

    def _scattered(self, name: str, flat: list[str], bucket: Bucket) -> str:
        """The replica's part of what `_summed` gives of gradients that are flat."""
        tape, options = self.tape, self.options
        ranks, dtype = options.replicas.size, bucket.gradients[0].type.dtype
        padding = bucket.chunk(ranks) * ranks - bucket.size
        if padding:
            flat = [*flat, tape.constant(np.zeros(padding, dtype.numpy))]
        whole = self._over_others(name, tape.concat(flat, 0), bucket)
        way = {"axis": 0, "reduction": options.reduction}
        return collective(tape, name, REDUCE_SCATTER, whole, options.replicas, **way)

    def _over_others(self, name: str, value: str, bucket: Bucket) -> str:
        if bucket.others is None:
            return value
        name = f"{name}/all"
        return collective(self.tape, name, ALL_REDUCE, value, bucket.others, reduction="sum")

    # ------------------------------------------------------------ the end

    def _close(self, dropped: set[str]) -> None:
        old, new = self.old, self.new
        for before, after in old.controls:
            if before in new and after in new and (before, after) not in new.controls:
                new.add_control(before, after)
        states = [s for s in old.states if s.input not in dropped and new.has_value(s.output)]
        kept = {s.input for s in states}
        states += [s for s in self.share.states if s.input not in kept]
        named = name_outputs(new, {updated(s.input): s.output for s in states})
        states = [replace(s, output=named[updated(s.input)]) for s in states]
        made = {s.output for s in states}
        others = [v for v in old.outputs if new.has_value(v) and v not in made]
        new.set_outputs([*others, *(s.output for s in states)])
        new.set_states(states)
