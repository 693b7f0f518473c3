"""A training program for several ranks, from the program of the forward pass.

Each template is differentiated as it is, collectives included (`vjp_collectives`). What is
differentiated is the sum of the losses of all ranks, each weighted so that together they are the
loss of the whole batch; the gradient of a parameter of which several ranks hold copies is then
the sum over these. Labels lie as the output does that the loss is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gecompiler.ir.collective_ops import ALL_REDUCE
from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.errors import ModelError, UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr, OpInfo
from gecompiler.ir.parallel import Mesh, ParallelProgram, Sharding, Template
from gecompiler.ir.parallel.program import Whole
from gecompiler.ir.training_ops import BACKWARD, GRADIENT_SYNC, SYNC, is_optimizer
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.training.backward import Transfer, live_transfers
from gecompiler.passes.training.buckets import Synced
from gecompiler.passes.training.loss import mean_count
from gecompiler.passes.training.names import LABEL_COUNT, LABELS
from gecompiler.passes.training.optimizer import MASTER, widened
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.rank_copies import CopySums, CutConstant
from gecompiler.passes.training.rank_loss import PIPELINE, RankLoss
from gecompiler.passes.training.rank_states import base_of, state_wholes, twins
from gecompiler.passes.training.sharded import Flat
from gecompiler.passes.training.step import StepBuilder, TrainingStep
from gecompiler.passes.training.sync import sync_gradients
from gecompiler.passes.training.sync_options import Group, SyncOptions
from gecompiler.passes.training.tape import Tape

REPLICAS = "dp"


@dataclass(frozen=True)
class TrainingProgram:
    """The program, and what each rank's state is before the first step.

    ``shifts_labels``: each rank has a part of the sequence, so that labels are given already
    moved to the position that is held against them. ``options`` are those that were asked for.
    """

    program: ParallelProgram
    forward: ParallelProgram
    steps: tuple[TrainingStep, ...]
    synced: tuple[Synced, ...]
    shifts_labels: bool
    options: TrainingOptions = field(default_factory=TrainingOptions)
    shifts_in_step: bool = False
    """Whether a position is held against the label of the next one there."""

    def wholes(self, number: int) -> dict[str, Whole]:
        """What each state of a template is of the whole model's, and how that lies on ranks.

        Of a parameter in several cuts only the first.
        """
        template = self.forward.templates[number]
        again = {name for names in twins(template) for name in list(names)[1:]}
        found = state_wholes(template, self.steps[number].initial)
        return {
            name: whole
            for name, whole in found.items()
            if name not in again and base_of(name, template) not in again
        }

    def initial_state(self, rank: int) -> dict[str, Array]:
        """The arrays of the rank's state; MissingDataError for a model without weights."""
        number = self.forward.template_of[rank]
        constants = self.forward.graph(rank).constants
        step, synced = self.steps[number], self.synced[number]
        inputs = set(self.program.templates[number].graph.inputs)
        own = {name: _own(name, c, constants) for name, c in step.initial.items()}
        found = {name: c.array() for name, c in own.items() if name in inputs}
        mesh = self.program.mesh
        for name in synced.initial:
            found[name] = self._part(synced.initial[name], own, mesh, rank)
        return found

    def label_count(self, parts: Sequence[Array]) -> Array:
        """`LABEL_COUNT` of labels of micro-batches, as the program takes them (`shifts_labels`)."""
        wholes = [t.inputs[LABELS].sharding for t in self.program.templates if LABELS in t.inputs]
        axes = [name for name, _ in self.program.mesh.axes if name in wholes[0].axes]
        rows = self.program.mesh.axis_size("+".join(axes)) if axes else 1
        found = mean_count(parts, self.options.ignore_index, shift=self.shifts_in_step)
        return np.asarray(found / rows, np.float32)

    def _part(self, flat: Constant, own: Mapping[str, Constant], mesh: Mesh, rank: int) -> Array:
        """The rank's part of its own constants, one after the other."""
        source = flat.source
        assert isinstance(source, Flat)
        whole = source.with_constants(own).load(flat.type)
        return np.split(whole, mesh.axis_size(REPLICAS))[mesh.place(REPLICAS, rank)]


def _own(name: str, constant: Constant, table: Mapping[str, Constant]) -> Constant:
    """What a rank has in the place of a constant of its template."""
    base = name.removesuffix(MASTER)
    if name != base and base in table:
        return widened(table[base], constant.type)
    return table.get(name, constant)


def training_program(
    forward: ParallelProgram,
    options: TrainingOptions | None = None,
    *,
    bucket_bytes: float = 25 * 2**20,
    zero_stage: int = 0,
) -> TrainingProgram:
    """The training program of the ranks of ``forward``, whose templates are of one micro-batch.

    ``forward`` should be of a graph whose merged vectors are `untied`. ModelError for what cannot
    be trained over ranks: a parameter that two stages of a pipeline cut differently, and rows of
    the output that do not divide.
    """
    maker = _Maker(forward, options or TrainingOptions(), bucket_bytes, zero_stage)
    return maker.make()


class _Maker:
    def __init__(
        self, forward: ParallelProgram, options: TrainingOptions, bucket_bytes: float, stage: int
    ) -> None:
        self.forward, self.mesh, self.options = forward, forward.mesh, options
        self.bucket_bytes, self.stage = bucket_bytes, stage
        self.loss = RankLoss(forward, options)
        self.added: dict[int, dict[str, CutConstant]] = {}
        self.known: dict[int, Mapping[str, Constant]] = {}
        self.live: set[Transfer] | None = None
        weights = [self._weights(number) for number in range(len(forward.templates))]
        graphs = [template.graph for template in forward.templates]
        self.live = live_transfers(list(zip(graphs, weights, strict=True)))
        self.tied = self._tied()

    def make(self) -> TrainingProgram:
        steps = tuple(self._builder(t).build() for t in self.forward.templates)
        synced = tuple(
            self._sync(step, template)
            for step, template in zip(steps, self.forward.templates, strict=True)
        )
        templates = tuple(
            self._template(template, step, found)
            for template, step, found in zip(self.forward.templates, steps, synced, strict=True)
        )
        program = replace(self.forward, templates=templates)
        loss = self.loss
        return TrainingProgram(
            program, self.forward, steps, synced, loss.shifts, self.options,
            loss.kind == "next-token",
        )  # fmt: skip

    def _tied(self) -> dict[str, tuple[Constant, TensorType]]:
        """Parameters that several stages hold: the whole, and the type of what a rank has."""
        found: dict[str, tuple[Constant, TensorType]] = {}
        if self.mesh.axis_size(PIPELINE) == 1:
            return found
        stages: dict[str, dict[int, None]] = {}
        for rank, number in enumerate(self.forward.template_of):
            template = self.forward.templates[number]
            for name, constant in self._weights(number).items():
                stages.setdefault(name, {})[self.mesh.coordinates(rank)[PIPELINE]] = None
                whole = template.constants.get(name, (constant, None))[0]
                if found.setdefault(name, (whole, constant.type))[1] != constant.type:
                    raise ModelError(
                        f"parameter {name!r} is cut in different ways in two stages",
                        where="pp",
                        hint="train without pipeline stages, or untie the model's weights",
                    )
        return {name: found[name] for name, held in stages.items() if len(held) > 1}

    def _weights(self, number: int) -> Mapping[str, Constant]:
        if number not in self.known:
            self.known[number] = self._builder(self.forward.templates[number]).weights
        return self.known[number]

    def _builder(self, template: Template) -> StepBuilder:
        """Of the step of one micro-batch of a template."""
        loss, graph = self.loss, template.graph
        options = replace(self.options, gradient_weight=loss.weight(), accumulate=1)
        wholes = {name: whole for name, (whole, _) in template.constants.items()}
        return StepBuilder(
            graph, options, self._output(graph), loss.kind, loss.write, loss.told, wholes,
            self.live, shares=True,
        )  # fmt: skip

    def _output(self, graph: Graph) -> str:
        """What the loss is of, if the stage has it."""
        return self.loss.output if self.loss.output in graph.outputs else ""

    def _sum_over_stages(self, step: TrainingStep) -> None:
        """Every stage takes part, with zeros where it has nothing of a parameter."""
        tape = Tape(step.graph, info=OpInfo(phase=SYNC, group=GRADIENT_SYNC))
        stages = self.mesh.axis_size(PIPELINE)
        for name, (_, kind) in self.tied.items():
            tape.stem = f"{GRADIENT_SYNC}/{name}"
            users = step.graph.users(name) if step.graph.has_value(name) else ()
            steps = [op for op in users if is_optimizer(op) and op.inputs[0] == name]
            grad = steps[0].inputs[1] if steps else tape.zeros(kind)
            attrs: dict[str, Attr] = {"communicator": PIPELINE, "group_size": stages}
            attrs["reduction"] = "sum"
            total = tape.own(ALL_REDUCE, [grad], kind, attrs=attrs)[0]
            if steps:
                step.graph.set_input(steps[0].name, 1, total)

    # ------------------------------------------------------------ one template

    def _sync(self, step: TrainingStep, template: Template) -> Synced:
        if self.options.optimizer == "none":
            raise UsageError(
                "gradients over ranks are summed for an optimiser, and there is none",
                where="option 'optimizer'",
                hint="choose sgd, momentum, adam or adamw",
            )
        self._sum_over_stages(step)
        others: dict[str, Group] = {}
        unlike: set[str] = set()
        sums = CopySums(step.graph, self.mesh, BACKWARD if self.stage > 1 else SYNC)
        model_axes = [a for a, _ in self.mesh.axes if a not in (PIPELINE, REPLICAS)]
        several = [name for names in twins(template) for name in names]
        for names in twins(template):
            sums.write_twins(names, "+".join(model_axes))
        for name in step.gradients:
            if name in template.constants and name not in several:
                sums.write(name, *template.constants[name])
            axes = [] if name in several else self._copies(name, template)
            if name in template.constants and REPLICAS in template.constants[name][1].axes:
                unlike.add(name)
            if axes:
                others[name] = Group("+".join(axes), self.mesh.axis_size("+".join(axes)))
        options = SyncOptions(
            Group(REPLICAS, self.mesh.axis_size(REPLICAS)),
            others,
            frozenset(unlike),
            self.bucket_bytes,
            self.stage,
            "sum",
        )
        self.added[id(template)] = sums.constants
        return sync_gradients(step.graph, options, step.initial)

    def _copies(self, name: str, template: Template) -> list[str]:
        """The axes but those of replicas and stages along which ranks hold the same of it."""
        found = template.constants.get(name)
        cut = self.loss.cut_axes(found[1]) if found else []
        left_out = (*cut, PIPELINE, REPLICAS)
        return [axis for axis, _ in self.mesh.axes if axis not in left_out]

    def _template(self, template: Template, step: TrainingStep, synced: Synced) -> Template:
        graph = synced.graph
        inputs = {n: w for n, w in template.inputs.items() if n in graph.inputs}
        if LABELS in graph.inputs:
            inputs[LABELS] = self.loss.labels()
        if LABEL_COUNT in graph.inputs:
            inputs[LABEL_COUNT] = Whole(TensorType(DType.F32, ()), Sharding(()))
        states = state_wholes(template, step.initial)
        inputs.update((name, states[name]) for name in step.initial if name in graph.inputs)
        known = {**template.constants, **self.added[id(template)], **self.loss.words}
        constants = {n: c for n, c in known.items() if n in graph.constants}
        outputs = {}
        if step.loss:
            kind = graph.tensor(step.loss)
            assert kind is not None
            outputs[step.loss] = Whole(kind, Sharding(()))
        return Template(graph, constants, inputs, outputs)
