"""Sums over the stages of a pipeline, of parameters that several pieces of the model have.

A template of one piece sums over all pieces. A stage that has several adds theirs up first, and
then takes part once. Stages do this in the order of the names, hence all in the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gecompiler.ir.collective_ops import ALL_REDUCE
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.pipeline_parallel.chunk import AXIS, Chunk


@dataclass
class Once:
    """What a chunk does once after all micro-batches, by where the sums over stages are."""

    before: list[Op] = field(default_factory=list)
    meetings: dict[str, Op] = field(default_factory=dict)
    after: list[Op] = field(default_factory=list)

    @staticmethod
    def of(chunk: Chunk) -> Once:
        """Sorts the chunk's ops."""
        found, met = Once(), set[str]()
        for op in chunk.once:
            if _is_meeting(op):
                found.meetings[op.name] = op
            elif not any(value in met for value in chunk.graph.reads(op)):
                found.before.append(op)
                continue
            else:
                found.after.append(op)
            met.update(op.outputs)
        return found


def _is_meeting(op: Op) -> bool:
    return op.is_(ALL_REDUCE, domain=GE_DOMAIN) and op.attr("communicator") == AXIS


def meet(graph: Graph, chunks: Sequence[Chunk], found: Sequence[Once], stages: int) -> None:
    """Writes the sums over the stages into the graph of one that has those chunks."""
    for name in sorted({name for once in found for name in once.meetings}):
        pairs = [
            (chunk, once.meetings[name])
            for chunk, once in zip(chunks, found, strict=True)
            if name in once.meetings
        ]
        _meet(graph, pairs, stages)


def _meet(graph: Graph, pairs: Sequence[tuple[Chunk, Op]], stages: int) -> None:
    (first, op), *others = pairs
    type_, total = first.graph.type(op.outputs[0]), first.once_name(op.inputs[0])
    for chunk, twin in others:
        terms = [total, chunk.once_name(twin.inputs[0])]
        total = graph.emit("Add", terms, type_, stem=f"{op.name}/chunks", info=op.info)
    whole = first.once_name(op.outputs[0])
    made = op.with_(
        name=first.prefix + op.name,
        inputs=(total,),
        outputs=(whole,),
        attrs={**op.attrs, "group_size": stages},
    )
    graph.add_op(made, [type_])
    for chunk, twin in others:
        output = chunk.once_name(twin.outputs[0])
        copy = Op(chunk.prefix + twin.name, "Identity", (whole,), (output,), info=op.info)
        graph.add_op(copy, [type_])
