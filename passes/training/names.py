"""The names that options of training take."""

from __future__ import annotations

from typing import Literal

Optimizer = Literal["none", "sgd", "momentum", "adam", "adamw"]
OPTIMIZERS: tuple[Optimizer, ...] = ("none", "sgd", "momentum", "adam", "adamw")
Loss = Literal["auto", "next-token", "cross-entropy", "mean-square", "sum"]
LOSSES: tuple[Loss, ...] = ("auto", "next-token", "cross-entropy", "mean-square", "sum")
Recompute = Literal["none", "attention", "selective", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = ("none", "attention", "selective", "full")

LOSS, LABELS = "loss", "labels"
LABEL_COUNT = "labels/count"
"""Of micro-batches and of replicas: how many labels one has in the mean, a float."""
GRADIENT, UPDATED = "grad/", "updated/"
"""Before names of outputs of a step: of a parameter's gradient, of the next value of a state."""
