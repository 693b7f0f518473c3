"""Tags of transfers: each micro-batch has its own, so that one is never taken for another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gecompiler.ir.collective_ops import POINT_TO_POINT
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.passes.pipeline_parallel.chunk import crosses


def goes_round(op: Op) -> bool:
    """Whether the op carries a value from rank to rank of one piece of the model."""
    return op.domain == GE_DOMAIN and op.op_type in POINT_TO_POINT and not crosses(op)


@dataclass(frozen=True)
class Tags:
    """The tags that a program of one micro-batch uses: ``low`` to ``low + count - 1``."""

    low: int
    count: int

    @staticmethod
    def of(program: ParallelProgram, which: Callable[[Op], bool] = crosses) -> Tags:
        """Those of all its transfers between pieces, or of ``which`` others."""
        used = [
            int(op.attr("tag", 0)) for t in program.templates for op in t.graph.ops if which(op)
        ]
        low = min(used, default=0)
        return Tags(low, max(used, default=0) - low + 1)

    def of_turn(self, op: Op, turn: int) -> int:
        """The tag of the op in that turn, of which there is one a micro-batch and sender."""
        return turn * self.count + int(op.attr("tag", 0)) - self.low
