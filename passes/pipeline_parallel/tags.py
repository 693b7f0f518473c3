"""Tags of transfers, one for each micro-batch and sender."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.passes.pipeline_parallel.chunk import crosses


@dataclass(frozen=True)
class Tags:
    """The tags that a program of one micro-batch uses: ``low`` to ``low + count - 1``."""

    low: int
    count: int

    @staticmethod
    def of(program: ParallelProgram) -> Tags:
        """Those of all its transfers."""
        used = [
            int(op.attr("tag", 0)) for t in program.templates for op in t.graph.ops if crosses(op)
        ]
        low = min(used, default=0)
        return Tags(low, max(used, default=0) - low + 1)

    def of_turn(self, op: Op, turn: int) -> int:
        """The tag of the op in that turn, of which there is one a micro-batch and sender."""
        return turn * self.count + int(op.attr("tag", 0)) - self.low
