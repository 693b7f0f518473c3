"""What a training step is asked to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.passes.training.names import (
    LOSSES,
    OPTIMIZERS,
    RECOMPUTE_MODES,
    Loss,
    Optimizer,
    Recompute,
)

_HYPER: dict[str, dict[str, float | int]] = {
    "none": {},
    "sgd": {"weight_decay": 0.0},
    "momentum": {"weight_decay": 0.0, "momentum": 0.9, "nesterov": 0},
    "adam": {"weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    "adamw": {"weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
}
"""Attributes of each optimiser and what they are where nothing is said, as in torch.optim."""


@dataclass(frozen=True)
class TrainingOptions:
    """Options of `training_step`.

    ``loss``: of the output ``output`` (default: ``logits``, else the first float one):
    ``next-token`` and ``cross-entropy`` take integer labels of its shape without the last axis
    (for the first, the tokens themselves), ``mean-square`` takes ``labels`` of its shape, ``sum``
    none. ``auto``: cross entropy for logits (next-token with causal attention), else mean-square.

    ``optimizer``: ``none`` gives the gradients as outputs ``grad/<parameter>``. ``hyper`` are
    attributes of its step (weight_decay, momentum, nesterov, beta1, beta2, epsilon); with
    ``learning_rate`` None it is the input ``learning_rate``. 16-bit parameters have a float32
    ``master`` copy unless ``master_weights`` is False.

    ``accumulate``: micro-batches of one step, with inputs ``mb0/<input>``, ``mb1/...``; the loss
    is their mean. ``phase_streams`` labels the forward and the backward ops, so that they have a
    stream each and the forward pass of one micro-batch runs beside the backward pass of the one
    before. ``loss_scale`` multiplies the loss before differentiation, and the steps of optimisers
    divide by it (16-bit gradients); ``gradient_weight`` multiplies gradients for good.
    """

    loss: Loss = "auto"
    output: str = ""
    ignore_index: int = -100
    optimizer: Optimizer = "adamw"
    learning_rate: float | None = 1e-4
    hyper: Mapping[str, float | int] = field(default_factory=lambda: MappingProxyType({}))
    parameters: tuple[str, ...] = ()
    recompute: Recompute = "none"
    accumulate: int = 1
    phase_streams: bool = False
    loss_scale: float = 1.0
    gradient_weight: float = 1.0
    master_weights: bool = True

    def __post_init__(self) -> None:
        _one_of("loss", self.loss, LOSSES)
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("recompute", self.recompute, RECOMPUTE_MODES)
        if self.accumulate < 1:
            raise UsageError(f"expected 1 or more, found {self.accumulate}", where="accumulate")
        for name in ("loss_scale", "gradient_weight"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError("expected a number above 0", where=name)
        for name in self.hyper:
            if name not in _HYPER[self.optimizer]:
                raise UsageError(
                    f"the optimiser {self.optimizer!r} has no {name!r}",
                    where="hyper",
                    hint=nearest(name, _HYPER[self.optimizer]),
                )

    def step_attrs(self) -> dict[str, float | int]:
        """The attributes of the optimiser's op."""
        found = {**_HYPER[self.optimizer], **self.hyper}
        return {n: type(_HYPER[self.optimizer][n])(v) for n, v in found.items()}


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(
            f"expected one of {', '.join(known)}, found {value!r}",
            where=name,
            hint=nearest(str(value), known),
        )
