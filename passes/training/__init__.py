"""Training: the backward pass of a forward graph, the optimiser's step, gradients over ranks.

    step = build_training_step(graph, TrainingOptions(optimizer="adamw", recompute="full"))
    step.graph            forward, backward and update; parameters and moments are its state
    step.initial_state()  what the first run is given

Parts: `step` puts them together; `backward` visits the ops in reverse and asks their rules
(`rules`, a ``vjp_*`` file for each family); `recompute` decides what is kept; `optimizer` and
`loss` write their ops; `sync` joins gradients into buckets that are summed over ranks, and
`ranks` makes a training program of a program for several ranks. Names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "SyncOptions": "sync_options",
    "TrainingOptions": "options",
    "TrainingStep": "step",
    "build_training_step": "step",
    "gradients": "backward",
    "sync_gradients": "sync",
    "training_step": "step",
}

__all__ = sorted(_HOME)  # noqa: PLE0605  (built from the table above)

if TYPE_CHECKING:
    from gecompiler.passes.training.backward import gradients as gradients
    from gecompiler.passes.training.options import TrainingOptions as TrainingOptions
    from gecompiler.passes.training.step import TrainingStep as TrainingStep
    from gecompiler.passes.training.step import build_training_step as build_training_step
    from gecompiler.passes.training.step import training_step as training_step
    from gecompiler.passes.training.sync import sync_gradients as sync_gradients
    from gecompiler.passes.training.sync_options import SyncOptions as SyncOptions


def __getattr__(name: str) -> object:
    if name in _HOME:
        module = importlib.import_module(f"{__name__}.{_HOME[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
