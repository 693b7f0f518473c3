"""The options of training."""

from __future__ import annotations

from gecompiler import option_checks as checks
from gecompiler.option import Option
from gecompiler.passes.training.names import LOSSES, OPTIMIZERS, RECOMPUTE_MODES

TRAINING_OPTIONS: tuple[Option, ...] = (
    Option(
        "train",
        False,
        "true or false",
        "Compile a training step: forward and backward pass, and the optimiser's step. With "
        "micro_batches on one card gradients are summed over them, and the forward pass of one "
        "may run beside the backward pass of the one before.",
        checks.boolean,
    ),
    Option(
        "optimizer",
        "adamw",
        ", ".join(map(repr, OPTIMIZERS)),
        "train: the optimiser; none: gradients are the outputs.",
        checks.one_of(*OPTIMIZERS),
    ),
    Option(
        "recompute",
        "none",
        ", ".join(map(repr, RECOMPUTE_MODES)),
        "train: what the backward pass computes again instead of keeping it: the inside of "
        "attentions, all but matrix products (selective), or all but the inputs of blocks (full).",
        checks.one_of(*RECOMPUTE_MODES),
    ),
    Option(
        "train_loss",
        "auto",
        ", ".join(map(repr, LOSSES)),
        "train: the loss; auto: cross entropy for logits (of the next token with causal "
        "attention), else the mean square of the distance from labels.",
        checks.one_of(*LOSSES),
    ),
    Option(
        "train_output",
        None,
        "name of an output, or 'none'",
        "train: the output that the loss is of; by default logits, else the first of floats.",
        checks.text_or_none,
    ),
    Option(
        "train_parameters",
        (),
        "names or globs of constants, a list or separated by commas",
        "train: the constants to train; by default those that are used as weights are.",
        checks.names,
    ),
    Option(
        "zero_stage",
        0,
        "a number from 0 to 3",
        "train with dp: what replicas share instead of each holding all of it (ZeRO): 1 the "
        "state of the optimiser, 2 gradients too, 3 parameters too.",
        checks.whole(0, 3),
    ),
    Option(
        "bucket_mib",
        25.0,
        "a number of MiB, from 0.001 to 65536",
        "train with dp: gradients that are summed over replicas at once (as DDP's buckets).",
        checks.number(0.001, 65536),
    ),
)
