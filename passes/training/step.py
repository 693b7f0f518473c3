"""The training step: a graph that runs forward, backward, and replaces the parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import GE_DOMAIN, Op, OpInfo
from gecompiler.ir.training_ops import BACKWARD, FORWARD
from gecompiler.ir.types import DType, TensorType, ValueType
from gecompiler.passes.effects import has_side_effects
from gecompiler.passes.training.backward import Backward, Transfer
from gecompiler.passes.training.loss import (
    chosen_loss,
    chosen_output,
    is_counted,
    labels_type,
    write_loss,
)
from gecompiler.passes.training.names import GRADIENT, LABEL_COUNT, LABELS, LOSS, Loss
from gecompiler.passes.training.optimizer import write_steps
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.parameters import parameters
from gecompiler.passes.training.public_names import name_outputs, updated
from gecompiler.passes.training.recompute import Saved, kept_values
from gecompiler.passes.training.tape import Tape
from gecompiler.passes.training.untie import untied
from gecompiler.passes.training.vjp_fused import needs_more


@dataclass(frozen=True)
class TrainingStep:
    """A step, and what it starts from.

    ``graph``: its inputs are those of the model, labels, and the state; outputs the loss and the
    state for the next step (or the gradients, without an optimiser). ``gradients`` are the
    values that hold them, by parameter, in the order in which the backward pass completes them.
    ``initial`` holds the state before the first step.
    """

    graph: Graph
    loss: str
    gradients: Mapping[str, str]
    initial: Mapping[str, Constant]

    def initial_state(self) -> dict[str, Array]:
        """The arrays of the state; MissingDataError for a model without weights."""
        return {name: constant.array() for name, constant in self.initial.items()}

    def next_state(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The state for the next step, from the outputs of this one."""
        kept = {s.input: outputs[s.output] for s in self.graph.states}
        stays = {n: c.array() for n, c in self.initial.items() if n not in kept}
        return {**stays, **kept}


def training_step(graph: Graph, options: TrainingOptions | None = None) -> Graph:
    """The graph of `build_training_step`."""
    return build_training_step(graph, options).graph


def build_training_step(graph: Graph, options: TrainingOptions | None = None) -> TrainingStep:
    """The training step of a forward graph, whose sizes are bound and which stays as it is.

    Parameters (`parameters`) become inputs that are declared state; vectors that an exporter
    merged are several again (`untied`). ModelError for an op that
    has no gradient, for sizes that are not bound, and where nothing is to be trained; UsageError
    for names that are not there. Near-linear in the model's ops.
    """
    asked = options or TrainingOptions()
    graph = untied(graph, asked.parameters)
    output = chosen_output(graph, asked.output)
    builder = StepBuilder(graph, asked, output, chosen_loss(graph, output, asked.loss))
    if not builder.weights:
        raise ModelError(
            "the model has no parameter to train",
            where=graph.name,
            hint="name some of its constants (train_parameters)",
        )
    return builder.build()


LossWriter = Callable[[Tape, str, str, Loss, TrainingOptions, str], str]
"""Writes the loss of an output that is held against labels, and gives its name."""


@dataclass
class StepBuilder:
    """Writes a step of a graph, or of the part of one that a stage of a pipeline holds.

    ``output`` is what the loss is of, ``""`` where this part has none: then gradients come in by
    Recv. ``write`` writes the loss, ``told`` makes of a rank's loss the one that is told;
    ``wholes`` are the model's constants of which a rank has parts; ``live`` the transfers that
    bring what depends on parameters elsewhere (`Backward`). ``shares``: the graph sees a part of
    the batch, so that it is told how many labels to divide by (`LABEL_COUNT`).
    """

    source: Graph
    options: TrainingOptions
    output: str
    loss: Loss
    write: LossWriter = write_loss
    told: Callable[[Tape, str], str] = lambda tape, value: value
    wholes: Mapping[str, Constant] | None = None
    live: Collection[Transfer] | None = None
    shares: bool = False

    def __post_init__(self) -> None:
        source = self.source
        self.graph = Graph(source.name, {**source.opsets, GE_DOMAIN: 1})
        self.graph.metadata = dict(source.metadata)
        self.tape = Tape(self.graph)
        self.ops = _needed(source, self.output)
        read = {v for op in self.ops for v in source.reads(op)}
        names = parameters(source, self.options.parameters, self.wholes)
        self.weights = {n: source.constants[n] for n in names if n in read}

    def build(self) -> TrainingStep:
        """The step."""
        for name in self.source.constants:
            if name not in self.weights:
                self.graph.add_constant(name, self.source.constants[name])
        losses: list[str] = []
        """The loss of each micro-batch as it is told."""
        grads: dict[str, str] = {}
        names = [self._names(i) for i in range(self.options.accumulate)]
        for rename in names:
            self._add_inputs(rename)
        for name, constant in self.weights.items():
            self.graph.add_input(name, constant.type)
        for rename in names:
            grads = self._micro_batch(rename, losses, grads)
        return self._finish(losses, grads)

    def _names(self, index: int) -> _Renamed:
        prefix = f"mb{index}/" if self.options.accumulate > 1 else ""
        return _Renamed(prefix, frozenset(self.source.constants))

    def _add_inputs(self, rename: _Renamed) -> None:
        for value in self.source.inputs:
            self.graph.add_input(rename(value), self.source.type(value))

    def _micro_batch(
        self, rename: _Renamed, losses: list[str], grads: dict[str, str]
    ) -> dict[str, str]:
        """Forward and backward of one micro-batch; gradients are added to those before."""
        graph, tape, options = self.graph, self.tape, self.options
        first = len(graph)
        for op in self.ops:
            self._copy(op, rename)
        loss = self._loss(rename) if self.output else ""
        ops = graph.ops[first:]
        if loss:
            losses.append(self.told(tape, loss))
        run = Backward(tape, ops, frozenset(self.weights), dict(grads), live=self.live)
        kept = kept_values(graph, ops, run.active, options.recompute)
        saved = Saved(graph, run.active, kept, self._label(BACKWARD))
        tape.saved = saved
        run.before_visit = saved.wait_for
        run.label = self._label(BACKWARD)
        tape.info, tape.stem = self._info(OpInfo(phase=BACKWARD)), "grad/loss"
        if self.output:
            scale = options.loss_scale * options.gradient_weight / options.accumulate
            run.grads[loss] = tape.number(scale, tape.dtype(loss))
        return run.run()

    def _loss(self, rename: _Renamed) -> str:
        tape = self.tape
        tape.info, tape.stem = self._info(OpInfo(phase=FORWARD, group="Loss")), rename(LOSS)
        output, labels, count = rename(self.output), "", ""
        kind = labels_type(self.graph, output, self.loss)
        if kind is not None:
            labels = self.graph.add_input(rename(LABELS), kind)
        if is_counted(self.loss) and (self.shares or self.options.accumulate > 1):
            count = self.graph.add_input(rename(LABEL_COUNT), TensorType(DType.F32, ()))
        return self.write(tape, output, labels, self.loss, self.options, count)

    def _copy(self, op: Op, rename: _Renamed) -> None:
        source, graph = self.source, self.graph
        outputs = [rename(v) for v in op.outputs]
        types: list[ValueType] = [source.type(v) if v else None for v in op.outputs]
        if needs_more(op):
            outputs.append(graph.fresh(f"{outputs[0]}:saved"))
            types.append(_more_type(source, op))
        twin = Op(
            rename.op(op.name),
            op.op_type,
            tuple(rename(v) for v in op.inputs),
            tuple(outputs),
            op.attrs,
            op.domain,
            self._info(replace(op.info, phase=FORWARD)),
        )
        graph.add_op(twin, types)

    def _label(self, phase: str) -> str | None:
        return phase if self.options.phase_streams else None

    def _info(self, info: OpInfo) -> OpInfo:
        label = self._label(info.phase)
        return info if label is None else replace(info, label=label)

    def _finish(self, losses: list[str], grads: dict[str, str]) -> TrainingStep:
        graph = self.graph
        wanted = {LOSS: self._told(losses)} if losses else {}
        initial = dict(self.weights)
        states: tuple[State, ...] = ()
        if self.options.optimizer == "none":
            wanted |= {f"{GRADIENT}{name}": grad for name, grad in grads.items()}
        else:
            update = write_steps(self.tape, self.weights, grads, self.options)
            initial.update(update.initial)
            states = update.states
            wanted |= {updated(state.input): state.output for state in states}
        named = name_outputs(graph, wanted)
        graph.set_outputs(named.values())
        graph.set_states(replace(s, output=named[updated(s.input)]) for s in states)
        drop_unused(graph)
        if not states:
            grads = {name: named[f"{GRADIENT}{name}"] for name in grads}
        return TrainingStep(graph, named.get(LOSS, ""), grads, initial)

    def _told(self, losses: list[str]) -> str:
        """The mean of the losses of the micro-batches."""
        tape = self.tape
        tape.info, tape.stem = self._info(OpInfo(phase=FORWARD, group="Loss")), LOSS
        loss = losses[0]
        for more in losses[1:]:
            loss = tape.add(loss, more)
        return tape.scaled(loss, 1 / len(losses))


class _Renamed:
    """The names of a micro-batch; constants and parameters are shared."""

    def __init__(self, prefix: str, shared: frozenset[str]) -> None:
        self.prefix, self.shared = prefix, shared

    def __call__(self, value: str) -> str:
        return value if not value or value in self.shared else self.prefix + value

    def op(self, name: str) -> str:
        return self.prefix + name


def _needed(graph: Graph, output: str) -> list[Op]:
    """The ops that the output depends on, in topological order; effects are kept."""
    wanted = {output}
    found: list[Op] = []
    for op in reversed(graph.topological()):
        if any(v in wanted for v in op.outputs) or has_side_effects(op):
            wanted.update(graph.reads(op))
            found.append(op)
    return found[::-1]


def _more_type(graph: Graph, op: Op) -> TensorType | None:
    """The type of the output that the gradient needs besides: log-sum-exp, or the sum."""
    first = graph.tensor(op.inputs[0])
    if first is None or op.op_type != FLASH_ATTENTION:
        return first
    wide = DType.F64 if first.dtype is DType.F64 else DType.F32
    shape = FlashAttention.of(op).operand(first.shape or ())
    return TensorType(wide, shape[:3])


def drop_unused(graph: Graph) -> None:
    """Removes ops and constants on which no output and no effect depends."""
    kept = set(graph.outputs)
    for op in reversed(graph.topological()):
        if any(v in kept for v in op.outputs) or has_side_effects(op):
            kept.update(graph.reads(op))
        else:
            graph.remove_op(op.name)
    for name in list(graph.constants):
        if name not in kept:
            graph.remove_constant(name)
