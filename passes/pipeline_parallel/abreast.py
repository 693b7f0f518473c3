"""Micro-batches side by side on one stage: what one sends hides behind what the others compute.

Each micro-batch's ops are cut after its collectives, and the micro-batches take turns at the
stretches between: while the all-reduce of the first is on its way, the second computes what
comes before its own. All ranks take turns alike, so that collectives have one order on each.

Sources: Wang et al. 2024, "Domino: Eliminating Communication in LLM Training via Generic Tensor
Slicing and Overlapping", section 3; the two-batch overlap of DeepSeek's and SGLang's engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.errors import ModelError
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.passes.pipeline_parallel.chunk import Chunk, crosses
from gecompiler.passes.pipeline_parallel.phases import part_of
from gecompiler.passes.pipeline_parallel.stage import StageWriter
from gecompiler.passes.scheduling.lowering import VIEW_OPS


def require_alike(program: ParallelProgram) -> bool:
    """Whether all ranks compute between the same collectives; ModelError where these differ.

    Where they compute between others, a turn ends after every collective.
    """
    runs = [_runs(step_ops(t.graph.topological())) for t in program.templates]
    flat = [[name for run in found for name in run] for found in runs]
    for number, names in enumerate(flat):
        if names != flat[0]:
            raise ModelError(
                "ranks do not run the same collectives, so that micro-batches cannot take turns",
                where=f"template {number}",
                hint="give one micro-batch (--micro-batches 1)",
            )
    return all(found == runs[0] for found in runs)


def step_ops(ops: Sequence[Op]) -> list[Op]:
    """What each micro-batch runs, forwards and then backwards."""
    forward = [op for op in ops if part_of(op) == "forward" and not crosses(op)]
    return forward + [op for op in ops if part_of(op) == "backward" and not crosses(op)]


def stretches(ops: Sequence[Op], *, joined: bool) -> Iterator[list[Op]]:
    """The ops cut after collectives; ``joined``: after the last of several in a row."""
    found: list[Op] = []
    talks = False
    for op in ops:
        talk = is_collective_op(op)
        if talks and not (joined and (talk or op.is_(*VIEW_OPS))):
            yield found
            found, talks = [], False
        found.append(op)
        talks = talks or talk
    if found:
        yield found


def _runs(ops: Sequence[Op]) -> list[list[str]]:
    """The names of the collectives of each stretch."""
    return [[op.name for op in s if is_collective_op(op)] for s in stretches(ops, joined=True)]


class AbreastWriter(StageWriter):
    """The graph of the only stage, ``shape.abreast`` of whose micro-batches take turns."""

    def _body(self) -> None:
        chunk, abreast = self.chunks[0], self.shape.abreast
        ops = [*chunk.forward, *chunk.backward]
        inner = {op.name for op in ops}
        before: list[str] = []
        for first in range(0, self.shape.micro_batches, abreast):
            group = range(first, min(first + abreast, self.shape.micro_batches))
            last: dict[int, str] = {}
            for stretch in stretches(ops, joined=self.joined):
                for micro_batch in group:
                    for op in stretch:
                        last[micro_batch] = self._turn(chunk, op, micro_batch, before, inner)
            before = list(last.values())

    def _turn(
        self, chunk: Chunk, op: Op, micro_batch: int, before: Sequence[str], inner: set[str]
    ) -> str:
        """Writes an op, after the micro-batches of the round before; what was written last."""
        self._add(chunk, op, micro_batch)
        self.last = chunk.stem(micro_batch) + op.name
        if not any(p.name in inner for p in chunk.graph.predecessors(op)):
            for name in before:
                self.new.add_control(name, self.last)
        for value in op.outputs:
            if value in chunk.summed:
                self._accumulate(chunk, value, micro_batch)
        return self.last
