"""A training step that was compiled for several cards, run with real numbers on all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gecompiler.backends.execution.ranks import run_each_rank
from gecompiler.backends.execution.run_inputs import check_inputs
from gecompiler.cards.names import OwnName, own_name
from gecompiler.cards.run import batch_axis
from gecompiler.ir.dims import substitute
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.parallel import Template
from gecompiler.ir.parallel.program import Whole
from gecompiler.ir.types import TensorType
from gecompiler.passes.training import TrainingOptions
from gecompiler.passes.training.names import LABEL_COUNT, LABELS
from gecompiler.passes.training.public_names import updated
from gecompiler.passes.training.rank_states import joined, model_states, states_in
from gecompiler.passes.training.ranks import REPLICAS

if TYPE_CHECKING:
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.passes.training.ranks import TrainingProgram

Arrays = dict[str, Any]


def run_training(
    graph: Graph, binding: Mapping[str, int], cards: CardsResult, inputs: Mapping[str, Any]
) -> Arrays:
    """The loss of the whole batch and the parameters after the first step, of the whole model.

    ``inputs`` are the model's and, where the loss has some, ``labels``. Names are those of one
    card (`public_names`). UsageError for inputs that do not fit.
    """
    assert cards.training is not None
    return _Run(graph, binding, cards, cards.training).step(inputs)


@dataclass(frozen=True)
class _Run:
    graph: Graph
    binding: Mapping[str, int]
    cards: CardsResult
    training: TrainingProgram

    @property
    def parts(self) -> int:
        return 1 if self.cards.shape is None else self.cards.shape.micro_batches

    def own(self, name: str) -> OwnName:
        return own_name(name, self.cards.shape)

    def step(self, inputs: Mapping[str, Any]) -> Arrays:
        """One step from the state before the first."""
        program = self.cards.program
        given = self._given(inputs)
        local = [self._local(rank, given) for rank in range(program.mesh.size)]
        outputs = run_each_rank(program, local)
        return {**self._losses(outputs), **self._state(outputs)}

    # ------------------------------------------------------------ in

    def _given(self, inputs: Mapping[str, Any]) -> Arrays:
        """The data of the whole batch, checked; labels as the ranks want them."""
        data = {name: array for name, array in inputs.items() if name != LABELS}
        found = check_inputs(self.graph, data)
        for name, array in found.items():
            self._fits(name, array, self.graph.tensor(name))
        kind = self._labels_type()
        if kind is None and LABELS in inputs:
            raise UsageError("the loss has no labels", where=f"input {LABELS!r}")
        if kind is None:
            return found
        whole = TensorType(kind.dtype, (kind.sizes[0] * self.parts, *kind.sizes[1:]))
        only = Graph(self.graph.name, self.graph.opsets)
        only.add_input(LABELS, whole)
        if LABELS not in inputs:
            raise UsageError(
                f"missing; expected {whole}",
                where=f"input {LABELS!r}",
                hint="the loss of a training step is held against them; --train-loss sum has none",
            )
        labels = check_inputs(only, {LABELS: inputs[LABELS]})[LABELS]
        if self.training.shifts_labels:
            last = np.full_like(labels[:, :1], TrainingOptions().ignore_index)
            labels = np.concatenate([labels[:, 1:], last], axis=1)
        count = self.training.label_count(np.split(labels, self.parts))
        return {**found, LABELS: labels, LABEL_COUNT: count}

    def _fits(self, name: str, array: Any, kind: TensorType | None) -> None:
        """UsageError for other sizes than were compiled for, which a training step stays with."""
        if kind is None or kind.shape is None:
            return
        wanted = tuple(substitute(dim, self.binding) for dim in kind.shape)
        if tuple(array.shape) != wanted:
            raise UsageError(
                f"has sizes {list(array.shape)}, the step is compiled for {list(wanted)}",
                where=f"input {name!r}",
                hint="give these sizes (--batch, --seq) in compiling",
            )

    def _labels_type(self) -> TensorType | None:
        """That of a micro-batch's labels."""
        for template in self.training.program.templates:
            if LABELS in template.inputs:
                return template.inputs[LABELS].type
        return None

    def _local(self, rank: int, given: Arrays) -> Arrays:
        """What the rank starts from: its share of the data, and its state."""
        program = self.cards.program
        template, mesh = program.template(rank), program.mesh
        states = self._initial(rank)
        found: Arrays = {}
        for name in template.graph.inputs:
            own = self.own(name)
            kept = [s for c, s in enumerate(states) if own.chunk in (c, None) and own.name in s]
            if own.name in given:
                whole = self._part(own, given[own.name])
                found[name] = template.inputs[name].sharding.take(whole, mesh, rank)
            elif kept:
                found[name] = kept[0][own.name]
        return found

    def _part(self, own: OwnName, array: Any) -> Any:
        """A micro-batch's part of the data."""
        if self.parts == 1 or own.name == LABEL_COUNT:
            return array
        axis: int | None = 0
        if own.name != LABELS:
            axis = batch_axis(self.graph, own.name, self.binding, self.cards.batch_symbols)
        return array if axis is None else np.split(array, self.parts, axis)[own.micro_batch]

    def _initial(self, rank: int) -> list[Arrays]:
        """The state of each piece of the model that the rank has, by chunk."""
        chunks = 1 if self.cards.shape is None else self.cards.shape.chunks
        return [self.training.initial_state(self._piece(rank, c)) for c in range(chunks)]

    def _piece(self, rank: int, chunk: int) -> int:
        """The rank of the mesh of all pieces that has a chunk of this one's."""
        place = self.cards.program.mesh.coordinates(rank)
        pieces, shape = self.training.program.mesh, self.cards.shape
        if shape is None or "pp" not in dict(pieces.axes):
            return pieces.rank(place)
        return pieces.rank({**place, "pp": chunk * shape.stages + place.get("pp", 0)})

    def _template(self, rank: int, chunk: int | None) -> int:
        """The number of the template that the rank's chunk is of."""
        return self.training.forward.template_of[self._piece(rank, chunk or 0)]

    # ------------------------------------------------------------ out

    def _losses(self, outputs: list[Arrays]) -> Arrays:
        """The mean over micro-batches, which are equally large."""
        found: dict[str, dict[int, Any]] = {}
        for rank, made in enumerate(outputs):
            for name in self.cards.program.template(rank).outputs:
                own = self.own(name)
                found.setdefault(own.name, {}).setdefault(own.micro_batch, made[name])
        return {name: sum(parts.values()) / self.parts for name, parts in found.items()}

    def _state(self, outputs: list[Arrays]) -> Arrays:
        """Parameters and moments after the step, named as one card names them."""
        mesh, training = self.cards.program.mesh, self.training
        known = [training.wholes(number) for number in range(len(training.steps))]
        parts: dict[str, dict[int, Any]] = {}
        wholes: dict[str, tuple[Whole, Template]] = {}
        for rank in range(mesh.size):
            for own, state in self._own_states(rank):
                number = self._template(rank, own.chunk)
                for name, array in self._found(rank, own.name, state, number, outputs):
                    if name in known[number]:
                        parts.setdefault(name, {})[rank] = array
                        wholes[name] = known[number][name], training.forward.templates[number]
        found: Arrays = {}
        for name, (whole, template) in wholes.items():
            array = joined(whole, parts[name], mesh)
            found.update((updated(n), part) for n, part in model_states(name, array, template))
        return found

    def _own_states(self, rank: int) -> Iterator[tuple[OwnName, State]]:
        for state in self.cards.program.template(rank).graph.states:
            yield self.own(state.input), state

    def _found(
        self, rank: int, name: str, state: State, number: int, outputs: list[Arrays]
    ) -> Iterator[tuple[str, Any]]:
        """The states that the rank has, whole where replicas (``dp``) have parts of them."""
        pieces = self.training.synced[number].pieces.get(name)
        if pieces is None:
            yield name, outputs[rank][state.output]
            return
        group = self.cards.program.mesh.group(REPLICAS, rank)
        if rank == group[0]:
            yield from states_in([outputs[r][state.output] for r in group], pieces)
