"""What a vector-Jacobian rule sees of the op it differentiates, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gecompiler.ir.errors import ModelError
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.tape import Sizes, Tape

Gradients = dict[int, str]
"""Gradients by input; an input that is left out has none."""


@dataclass(frozen=True, slots=True)
class Site:
    """An op on the way back. ``grads`` are the gradients of its outputs, None where there is none.

    Rules write ops by ``tape`` and read the forward pass by `x` and `y` only, as what these give
    may have to be computed again.
    """

    tape: Tape
    op: Op
    grads: tuple[str | None, ...]
    active: tuple[bool, ...]

    @property
    def dy(self) -> str:
        """The gradient of the first output."""
        if self.grads[0] is None:
            self.fail("has a gradient for an output that no rule differentiates")
        assert self.grads[0] is not None
        return self.grads[0]

    def wants(self, index: int) -> bool:
        """Whether the gradient of that input is asked for."""
        return index < len(self.active) and self.active[index]

    def has(self, index: int) -> bool:
        """Whether that input is there."""
        return bool(self.op.input(index))

    def x(self, index: int) -> str:
        """The name of that input for backward ops, ``""`` where it is left out."""
        name = self.op.input(index)
        return self.tape.saved(name) if name else ""

    def y(self, index: int = 0) -> str:
        """The name of that output for backward ops."""
        return self.tape.saved(self.op.outputs[index])

    def type(self, index: int) -> TensorType:
        """The type of that input."""
        return self.tape.type(self.op.inputs[index])

    def shape(self, index: int) -> Sizes:
        """The sizes of that input."""
        return self.type(index).sizes

    def axes(self) -> tuple[int, ...] | None:
        """Axes that are an attribute in old opsets and the second input in new ones."""
        if self.op.input(1):
            found = self.tape.ints(self.op.input(1))
            if found is None:
                self.fail("has axes that are computed in the run")
            return found
        given = self.op.attr("axes")
        return None if given is None else tuple(given)

    def fail(self, what: str) -> None:
        """Raises the ModelError that this op cannot be differentiated."""
        raise no_gradient(self.op, what)


def no_gradient(op: Op, what: str = "has no gradient here") -> ModelError:
    """The error of an op that stands between the loss and what is trained."""
    return ModelError(
        f"{op.kind} {what}",
        where=f"node {op.name!r}",
        hint="train other parameters (train_parameters), or write this part with other ops",
    )


Rule = Callable[[Site], Gradients]
