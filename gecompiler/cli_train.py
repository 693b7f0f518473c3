"""The options of training steps."""

from __future__ import annotations

from typing import Any

import click

from gecompiler.cli_options import F, with_options
from gecompiler.passes.training.names import LOSSES, OPTIMIZERS, RECOMPUTE_MODES

NAMES = (
    *("train", "optimizer", "recompute", "train_loss", "train_output"),
    *("zero_stage", "bucket_mib"),
)

_OPTIONS = (
    click.option("--train", is_flag=True, help="Compile a training step of the model."),
    click.option(
        "--optimizer", type=click.Choice(OPTIMIZERS), help="Its optimiser (default: adamw)."
    ),
    click.option(
        "--recompute", type=click.Choice(RECOMPUTE_MODES),
        help="What the backward pass computes again (default: none).",
    ),
    click.option(
        "--train-loss", type=click.Choice(LOSSES), help="The loss (default: as the output is)."
    ),
    click.option("--train-output", metavar="NAME", help="The output that the loss is of."),
    click.option(
        "--zero", "zero_stage", type=click.IntRange(0, 3),
        help="What replicas (--dp) share: optimiser state, gradients, parameters (ZeRO).",
    ),
    click.option(
        "--bucket-mib", type=click.FloatRange(0.001, 65536),
        help="Gradients that replicas sum at once (default: 25).",
    ),
)  # fmt: skip


def train_options(command: F) -> F:
    """Adds the options of training steps."""
    return with_options(command, _OPTIONS)


def take_train(values: dict[str, Any]) -> dict[str, Any]:
    """Takes these options out of a command's keyword arguments; None where not given."""
    found = {name: values.pop(name) for name in NAMES}
    return {**found, "train": found["train"] or None}
