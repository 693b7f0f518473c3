"""Cross entropy of logits that ranks have by words (Shoeybi et al. 2019, section 3).

Each rank takes the log-sum-exp of its words and the logit of the label where it has it. A maximum
and a sum over the ranks, of a number or two for each position, make of these what the loss is
made of; the logits stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gecompiler.ir.collective_ops import ALL_REDUCE
from gecompiler.ir.op import Attr
from gecompiler.ir.training_ops import CROSS_ENTROPY, CROSS_ENTROPY_PART
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.training.sync_options import Group
from gecompiler.passes.training.tape import Tape


def write_parallel_loss(
    tape: Tape,
    inputs: tuple[str, str, str],
    group: Group,
    attrs: Mapping[str, Attr],
    count: str = "",
) -> str:
    """The loss of logits, labels and the numbers of the words; equal on all ranks of the group."""
    kind = tape.type(inputs[0])
    wide = kind.dtype if kind.dtype is DType.F64 else DType.F32
    rows = TensorType(wide, kind.sizes[:-1])
    own, here = tape.own(CROSS_ENTROPY_PART, inputs, rows, rows, attrs=attrs)
    top = _reduced(tape, own, group, "max")
    share = tape.unary("Exp", tape.binary("Sub", own, top))
    size = math.prod(rows.sizes)
    both = tape.concat([tape.reshape(share, (size,)), tape.reshape(here, (size,))], 0)
    total, hit = tape.split(_reduced(tape, both, group, "sum"), 0, (size, size))
    lse = tape.add(top, tape.unary("Log", tape.reshape(total, rows.sizes)))
    found = [*inputs, lse, tape.reshape(hit, rows.sizes), *([count] if count else [])]
    given = {**attrs, "ranks": group.size}
    return tape.own(CROSS_ENTROPY, found, TensorType(wide, ()), attrs=given)[0]


def _reduced(tape: Tape, value: str, group: Group, reduction: str) -> str:
    attrs: dict[str, Attr] = {"communicator": group.communicator, "group_size": group.size}
    attrs["reduction"] = reduction
    return tape.own(ALL_REDUCE, [value], tape.type(value), attrs=attrs)[0]
