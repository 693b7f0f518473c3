"""The optimiser's step: every parameter is replaced, and its moments with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import Attr, OpInfo
from gecompiler.ir.training_ops import MOMENTS, OPTIMIZER
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.tape import Tape

OP_TYPES = {
    "sgd": "ApplySgd",
    "momentum": "ApplyMomentum",
    "adam": "ApplyAdam",
    "adamw": "ApplyAdamW",
}
_MOMENTS = ("m", "v")
STEP, LEARNING_RATE = "optimizer/step", "learning_rate"
MASTER = "/master"
"""What the name of a parameter's float32 copy ends with."""


@dataclass(frozen=True)
class Update:
    """The states that the optimiser keeps, and what they are before the first step."""

    states: tuple[State, ...]
    initial: Mapping[str, Constant]


def write_steps(
    tape: Tape, weights: Mapping[str, Constant], grads: Mapping[str, str], options: TrainingOptions
) -> Update:
    """A step for each parameter that has a gradient; the others stay as they are.

    Each waits, by orders of control, for all that reads the parameter, so that it may be
    written where it lies.
    """
    writer = _Steps(tape, options)
    for name, constant in weights.items():
        if name in grads:
            writer.write(name, constant, grads[name])
    return Update(tuple(writer.states), writer.initial)


class _Steps:
    def __init__(self, tape: Tape, options: TrainingOptions) -> None:
        self.tape, self.options, self.graph = tape, options, tape.graph
        self.states: list[State] = []
        self.initial: dict[str, Constant] = {}
        tape.info, tape.stem = OpInfo(phase=OPTIMIZER), "optimizer"
        self.op_type = OP_TYPES[options.optimizer]
        self.rate = self._rate()
        self.count = self._count() if MOMENTS[self.op_type] > 1 else ""

    def _rate(self) -> str:
        if self.options.learning_rate is None:
            return self.graph.add_input(LEARNING_RATE, TensorType(DType.F32, ()))
        return self.tape.number(self.options.learning_rate, DType.F32)

    def _count(self) -> str:
        """The number of this step, from 1."""
        before = self._state(STEP, Constant.of(np.array(0, np.int64)))
        after = self.tape.add(before, self.tape.constant(np.array(1, np.int64)))
        self.states.append(State(before, after))
        return after

    def _state(self, name: str, initial: Constant) -> str:
        made = self.graph.add_input(self.graph.fresh(name), initial.type)
        self.initial[made] = initial
        return made

    def write(self, name: str, constant: Constant, grad: str) -> None:
        tape, kind = self.tape, constant.type
        wide = TensorType(DType.F64 if kind.dtype is DType.F64 else DType.F32, kind.shape)
        moments = _MOMENTS[: MOMENTS[self.op_type]]
        olds = [self._state(f"{name}/{m}", zeros(wide)) for m in moments]
        if self.options.master_weights and kind.dtype.bits < 32:
            olds.append(self._state(f"{name}{MASTER}", widened(constant, wide)))
        attrs: dict[str, Attr] = {**self.options.step_attrs()}
        attrs["grad_scale"] = 1 / self.options.loss_scale
        tape.stem = f"optimizer/{name}"
        inputs = [name, grad, self.rate, *([self.count] if self.count else []), *olds]
        readers = readers_of(self.graph, name)
        news = tape.own(self.op_type, inputs, kind, *(wide for _ in olds), attrs=attrs)
        self.states += [State(a, b) for a, b in zip([name, *olds], news, strict=True)]
        step = self.graph.producer(news[0])
        assert step is not None
        for reader in readers:
            self.graph.add_control(reader, step.name)


_VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


def readers_of(graph: Graph, value: str) -> tuple[str, ...]:
    """The ops that read a value, also by views of it."""
    found: dict[str, None] = {}
    todo = [value]
    while todo:
        for op in graph.users(todo.pop()):
            if op.is_(*_VIEWS):
                todo += op.outputs
            else:
                found[op.name] = None
    return tuple(found)


@dataclass(frozen=True)
class _Zeros:
    """Data that is all 0."""

    def load(self, type_: TensorType) -> np.ndarray:
        """The zeros."""
        return np.zeros(type_.sizes, type_.dtype.numpy)

    def describe(self) -> str:
        """For messages."""
        return "zeros"


@dataclass(frozen=True)
class _Widened:
    """Another constant's data in a wider type."""

    base: Constant

    def load(self, type_: TensorType) -> np.ndarray:
        """The base's data, converted."""
        return self.base.array().astype(type_.dtype.numpy)

    def describe(self) -> str:
        """For messages."""
        return "a copy in another type"


def zeros(kind: TensorType) -> Constant:
    """Zeros that take no memory until they are asked for."""
    return Constant(kind, source=_Zeros())


def widened(constant: Constant, kind: TensorType) -> Constant:
    """The constant in a wider type; without data where it has none."""
    if constant.data is None and constant.source is None:
        return Constant.absent(kind)
    return Constant(kind, source=_Widened(constant))
