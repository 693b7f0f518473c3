"""The names that `unroll` gives, taken apart: micro-batch, chunk where there are several."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gecompiler.passes.pipeline_parallel import PipelineShape

_PART = re.compile(r"mb(\d+)/(.*)", re.DOTALL)
_CHUNK = re.compile(r"c(\d+)/(.*)", re.DOTALL)


class OwnName(NamedTuple):
    """A name as the model has it; what all micro-batches share counts as the first's."""

    name: str
    micro_batch: int = 0
    chunk: int | None = None


def own_name(name: str, shape: PipelineShape | None) -> OwnName:
    """The parts of a name of a program that was unrolled to that shape (None: it was not)."""
    if shape is None:
        return OwnName(name)
    match = _PART.fullmatch(name)
    number, own = (int(match[1]), match[2]) if match else (0, name)
    chunk = _CHUNK.fullmatch(own) if shape.chunks > 1 else None
    return OwnName(chunk[2], number, int(chunk[1])) if chunk else OwnName(own, number)
