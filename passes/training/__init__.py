"""Training: the backward pass of a forward graph, the optimiser's step, gradients over ranks.

    step = build_training_step(graph, TrainingOptions(optimizer="adamw", recompute="full"))
    step.graph            forward, backward and update; parameters and moments are its state
    step.initial_state()  what the first run is given

Parts: `step` puts them together; `backward` visits the ops in reverse and asks their rules
(`rules`, a ``vjp_*`` file for each family); `recompute` decides what is kept; `optimizer` and
`loss` write their ops; `sync` joins gradients into buckets that are summed over ranks.
"""

from gecompiler.passes.training.backward import gradients
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.step import TrainingStep, build_training_step, training_step

__all__ = [
    "TrainingOptions",
    "TrainingStep",
    "build_training_step",
    "gradients",
    "training_step",
]
