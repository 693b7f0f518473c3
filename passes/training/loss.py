"""The loss of a model's output."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import ModelError, UsageError, nearest
from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Attr
from gecompiler.ir.training_ops import CROSS_ENTROPY
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.training.names import Loss
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.tape import Tape


def chosen_output(graph: Graph, name: str) -> str:
    """The output that the loss is of; UsageError for an unknown one, ModelError if none fits."""
    floats = [v for v in graph.outputs if (k := graph.tensor(v)) is not None and k.dtype.is_float]
    if name and name not in floats:
        raise UsageError(
            f"{name!r} is no output of floats", where="train_output", hint=nearest(name, floats)
        )
    if not floats:
        raise ModelError(
            "the model has no output of floats to train on",
            where=graph.name,
            hint="train a model that gives logits or hidden states",
        )
    return name or ("logits" if "logits" in floats else floats[0])


def chosen_loss(graph: Graph, output: str, asked: Loss) -> Loss:
    """The loss that ``auto`` means for the output."""
    if asked != "auto":
        return asked
    kind = graph.tensor(output)
    if "logits" not in output.rsplit("/", 1)[-1] or kind is None or not kind.rank or kind.rank < 2:
        return "mean-square"
    return "next-token" if is_causal(graph) and kind.rank > 2 else "cross-entropy"


def is_causal(graph: Graph) -> bool:
    """Whether some attention sees no key behind its query."""
    return any(
        op.is_(FLASH_ATTENTION, domain=GE_DOMAIN) and op.attr("window_right", -1) == 0
        for op in graph.ops
    )


def labels_type(graph: Graph, output: str, loss: Loss) -> TensorType | None:
    """The type of the labels, None for a loss without."""
    kind = graph.tensor(output)
    assert kind is not None
    if loss == "sum":
        return None
    if loss == "mean-square":
        return kind
    if not kind.shape or (loss == "next-token" and len(kind.shape) < 2):
        raise ModelError(
            f"output {output!r} is {kind}: too few axes for {loss}",
            where=graph.name,
            hint="choose another loss (train_loss) or output (train_output)",
        )
    return TensorType(DType.I64, kind.shape[:-1])


def label_attrs(loss: Loss, options: TrainingOptions) -> dict[str, Attr]:
    """The attributes of a cross entropy that say which label a position has."""
    return {"ignore_index": options.ignore_index, "shift": int(loss == "next-token")}


def is_counted(loss: Loss) -> bool:
    """Whether the loss is a mean over as many positions as have labels."""
    return loss in ("next-token", "cross-entropy")


def mean_count(parts: Iterable[Array], ignored: int, *, shift: bool) -> Array:
    """How many labels the parts of a batch have in the mean."""
    found = [int(((part[..., 1:] if shift else part) != ignored).sum()) for part in parts]
    return np.asarray(sum(found) / len(found), np.float32)


def write_loss(
    tape: Tape, output: str, labels: str, loss: Loss, options: TrainingOptions, count: str = ""
) -> str:
    """The scalar loss of one micro-batch, in float32 (float64 for float64).

    ``count`` is the number of labels to divide by, if it is not that of these.
    """
    kind = tape.type(output)
    wide = kind.dtype if kind.dtype is DType.F64 else DType.F32
    scalar = TensorType(wide, ())
    if loss in ("next-token", "cross-entropy"):
        attrs, rows = label_attrs(loss, options), TensorType(wide, kind.sizes[:-1])
        given = [output, labels, *(["", "", "", count] if count else [])]
        return tape.own(CROSS_ENTROPY, given, scalar, rows, attrs=attrs)[0]
    value = output
    if loss == "mean-square":
        gap = tape.binary("Sub", output, labels)
        value = tape.mul(gap, gap)
    total = tape.reduce("ReduceSum", tape.cast(value, wide), range(len(kind.sizes)))
    if loss == "sum":
        return tape.reshape(total, ())
    return tape.scaled(tape.reshape(total, ()), 1 / max(1, math.prod(kind.sizes)))
