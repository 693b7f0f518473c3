"""Writes the graph of one stage: its steps and transfers in the order of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gecompiler.ir.collective_ops import RECV, SEND
from gecompiler.ir.graph import Graph
from gecompiler.ir.graph_base import State
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Template
from gecompiler.ir.parallel.program import Whole
from gecompiler.passes.pipeline_parallel.chunk import Chunk
from gecompiler.passes.pipeline_parallel.events import events, phase_of
from gecompiler.passes.pipeline_parallel.meetings import Once, meet
from gecompiler.passes.pipeline_parallel.orders import PipelineShape, Step
from gecompiler.passes.pipeline_parallel.phases import runs_beside
from gecompiler.passes.pipeline_parallel.posts import AHEAD, Posts
from gecompiler.passes.pipeline_parallel.sequence import Placed
from gecompiler.passes.pipeline_parallel.tags import Tags, goes_round

_Summand = tuple[Chunk, str, int]
"""A value that is summed over micro-batches, as one of these has it."""


class StageWriter:
    """The graph of one stage, whose chunks are given as templates of one micro-batch.

    ``tags`` are those of the whole program; each becomes one of its micro-batch and sender.
    ``rounds`` are those of what goes from rank to rank of one piece.
    """

    def __init__(
        self,
        chunks: Sequence[Template],
        stage: int,
        shape: PipelineShape,
        placed: Sequence[Placed],
        tags: Tags,
        rounds: Tags,
    ) -> None:
        self.stage = stage
        self.shape = shape
        self.placed = placed
        self.tags = tags
        self.rounds = rounds
        self.posts = Posts(shape, placed)
        several = len(chunks) > 1
        self.chunks = [
            Chunk.of(template, c * shape.stages + stage, f"c{c}/" if several else "")
            for c, template in enumerate(chunks)
        ]
        for number, chunk in enumerate(self.chunks):
            chunk.tell_apart(self.chunks[:number])
        first = chunks[0].graph
        self.new = Graph(first.name, first.opsets)
        self.new.metadata = dict(first.metadata)
        self.last: str | None = None
        """The last op of the step before."""
        self.ends: list[str | None] = []
        """The last op of each step so far."""
        self.sent: dict[int, dict[str, int]] = {}
        """Sends by the stage they go to, and which of its steps takes what they carry."""
        self.joined = True
        """Whether collectives in a row end one turn, where micro-batches take turns."""
        self.leaving: list[tuple[int, str]] = []
        """Sends without an answer, and after how many steps they were posted."""
        self.late: list[_Summand] = []
        """What replicas reduce beside the steps that follow, to be added up after one more."""

    def write(self) -> Template:
        """The template of the stage."""
        for chunk in self.chunks:
            self._declare(chunk)
            self._done_once(chunk, chunk.first)
        self._body()
        self._sum_late([])
        once = [Once.of(chunk) for chunk in self.chunks]
        for chunk, found in zip(self.chunks, once, strict=True):
            self._done_once(chunk, found.before)
        meet(self.new, self.chunks, once, self.shape.stages)
        for chunk, found in zip(self.chunks, once, strict=True):
            self._done_once(chunk, found.after)
            self._controls(chunk)
        return self._close()

    # ------------------------------------------------------------ what is written when

    def _body(self) -> None:
        """The steps of all micro-batches, and the transfers between."""
        for event in events(self.chunks, self.stage, self.shape, self.placed, self.posts):
            chunk, step = self.chunks[event.chunk], self.placed[event.order].step
            if event.late:
                self._step(chunk, step)
            else:
                self._transfer(chunk, chunk.transfers[event.index], step.micro_batch)

    # ------------------------------------------------------------ writing

    def _declare(self, chunk: Chunk) -> None:
        for own, constant in chunk.graph.constants.items():
            name = chunk.constants.get(own, own)
            if not self.new.has_value(name):
                self.new.add_constant(name, constant)
        for value in chunk.graph.inputs:
            for name in chunk.names(value, self.shape.micro_batches):
                if not self.new.has_value(name):
                    self.new.add_input(name, chunk.graph.type(value))

    def _step(self, chunk: Chunk, step: Step) -> None:
        """The ops of a step; the first of them come after the last one of the step before."""
        ops = chunk.forward if step.phase == "forward" else chunk.backward
        names = {op.name for op in ops}
        stem = chunk.stem(step.micro_batch)
        before = [] if self.last is None else [self.last]
        before += self._left()
        late: list[_Summand] = []
        for op in ops:
            self._add(chunk, op, step.micro_batch)
            if before and not any(p.name in names for p in chunk.graph.predecessors(op)):
                for name in before:
                    self.new.add_control(name, stem + op.name)
            if not runs_beside(op):
                self.last = stem + op.name
            for value in op.outputs:
                if value in chunk.summed and runs_beside(op):
                    late.append((chunk, value, step.micro_batch))
                elif value in chunk.summed:
                    self._accumulate(chunk, value, step.micro_batch)
        self._sum_late(late)
        self.ends.append(self.last)

    def _sum_late(self, found: list[_Summand]) -> None:
        """Adds what was reduced beside the step before: by now it is there; keeps ``found``."""
        for summand in self.late:
            self._accumulate(*summand)
        self.late = found

    def _left(self) -> list[str]:
        """Sends that must be over before the next step: one may still be on its way."""
        done = [name for at, name in self.leaving if at < len(self.ends)]
        self.leaving = [(at, name) for at, name in self.leaving if at >= len(self.ends)]
        return done

    def _add(self, chunk: Chunk, op: Op, micro_batch: int) -> None:
        if goes_round(op):
            turn = micro_batch * self.shape.chunks + chunk.piece // self.shape.stages
            op = op.with_(attrs={**op.attrs, "tag": self.rounds.of_turn(op, turn)})
        made = op.with_(
            name=chunk.stem(micro_batch) + op.name,
            inputs=tuple(chunk.name(v, micro_batch) for v in op.inputs),
            outputs=tuple(chunk.name(v, micro_batch) for v in op.outputs),
        )
        self.new.add_op(made, [chunk.graph.type(v) if v else None for v in op.outputs])

    def _transfer(self, chunk: Chunk, op: Op, micro_batch: int) -> None:
        sender, stages = chunk.sender(op), self.shape.stages
        if int(op.attr("peer", 0)) % stages:
            turn = micro_batch * stages * self.shape.chunks + sender
            attrs = {**op.attrs, "tag": self.tags.of_turn(op, turn), "group_size": stages}
            self._add(chunk, op.with_(attrs=attrs), micro_batch)
            if op.op_type == RECV:
                self._hold(chunk, op, micro_batch)
            elif self.shape.training:
                at = self.posts.place(chunk.taker(op), phase_of(op), micro_batch)
                self.sent.setdefault(at[0], {})[chunk.stem(micro_batch) + op.name] = at[1]
            else:
                self.leaving.append((len(self.ends), chunk.stem(micro_batch) + op.name))
        elif op.op_type == RECV:
            other = self.chunks[sender // stages]
            self._take(chunk, op, micro_batch, other)

    def _hold(self, chunk: Chunk, op: Op, micro_batch: int) -> None:
        """A receive is posted while the step before the one that needs it runs, not earlier.

        What its sender had to have from here is sent by then: said, so that memory can be used
        again.
        """
        name = chunk.stem(micro_batch) + op.name
        turn = self.posts.place(chunk.piece, phase_of(op), micro_batch)[1] - AHEAD - 1
        before = self.ends[turn] if turn >= 0 else None
        if before is not None:
            self.new.add_control(before, name)
        stage, made = self.posts.place(chunk.sender(op), phase_of(op), micro_batch)
        pending = self.sent.get(stage, {})
        for send in [send for send, taken in pending.items() if taken <= made]:
            self.new.add_control(send, name)
            del pending[send]

    def _take(self, chunk: Chunk, op: Op, micro_batch: int, other: Chunk) -> None:
        """What another piece on this very stage sends."""
        sent = next(
            s.inputs[0]
            for s in other.transfers
            if s.op_type == SEND and s.attr("tag") == op.attr("tag")
        )
        name = chunk.stem(micro_batch) + op.name
        output = chunk.name(op.outputs[0], micro_batch)
        made = Op(name, "Identity", (other.name(sent, micro_batch),), (output,), info=op.info)
        self.new.add_op(made, [chunk.graph.type(op.outputs[0])])

    def _accumulate(self, chunk: Chunk, value: str, micro_batch: int) -> None:
        """Adds what a micro-batch gives to the sum so far, as soon as it is made."""
        so_far, here = chunk.summed[value], chunk.name(value, micro_batch)
        maker = chunk.graph.producer(value)
        if so_far and maker is not None:
            info, type_ = replace(maker.info, group="GradientSum"), chunk.graph.type(value)
            here = self.new.emit("Add", [so_far, here], type_, stem=f"{here}/sum", info=info)
            added = self.new.producer(here)
            self.last = added.name if added is not None else self.last
        chunk.summed[value] = here

    def _done_once(self, chunk: Chunk, ops: Sequence[Op]) -> None:
        """What comes before all micro-batches, or follows them, whose gradients are then summed.

        Their mean is applied, since a micro-batch's loss is the mean over its own samples.
        """
        for op in ops:
            attrs = op.attrs
            if op.domain == GE_DOMAIN and op.op_type.startswith("Apply"):
                scale = float(op.attr("grad_scale", 1.0)) / self.shape.micro_batches
                attrs = {**attrs, "grad_scale": scale}
            made = op.with_(
                name=chunk.prefix + op.name,
                inputs=tuple(chunk.once_name(v) for v in op.inputs),
                outputs=tuple(chunk.once_name(v) for v in op.outputs),
                attrs=attrs,
            )
            self.new.add_op(made, [chunk.graph.type(v) if v else None for v in op.outputs])

    def _controls(self, chunk: Chunk) -> None:
        """The orders of the template, within each micro-batch and between these and the rest."""
        once = {op.name for op in (*chunk.first, *chunk.once)}
        for before, after in chunk.graph.controls:
            for m in range(self.shape.micro_batches):
                ends = [
                    (chunk.prefix if name in once else chunk.stem(m)) + name
                    for name in (before, after)
                ]
                if ends[0] in self.new and ends[1] in self.new:
                    self.new.add_control(*ends)

    def _close(self) -> Template:
        inputs: dict[str, Whole] = {}
        outputs: dict[str, Whole] = {}
        order: dict[str, None] = {}
        states: dict[State, None] = {}
        count = self.shape.micro_batches
        for chunk in self.chunks:
            for value, whole in chunk.template.inputs.items():
                inputs.update(dict.fromkeys(chunk.names(value, count), whole))
            for value in chunk.graph.outputs:
                order.update(dict.fromkeys(chunk.names(value, count)))
            for value, whole in chunk.template.outputs.items():
                outputs.update(dict.fromkeys(chunk.names(value, count), whole))
            for state in chunk.graph.states:
                for m in range(count):
                    own = chunk.name(state.input, m), chunk.name(state.output, m)
                    states[replace(state, input=own[0], output=own[1])] = None
        constants = {
            k.constants.get(n, n): c for k in self.chunks for n, c in k.template.constants.items()
        }
        self.new.set_outputs(order)
        self.new.set_states(states)
        return Template(self.new, constants, inputs, outputs)
