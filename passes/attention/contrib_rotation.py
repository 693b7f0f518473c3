"""The rotation that GroupQueryAttention does itself, as an op of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Rotary
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import Shape, TensorType
from gecompiler.passes.attention import contrib_operands as ops
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.refusal import at


@dataclass(frozen=True, slots=True)
class Rotation:
    """The cosines and sines of some places, to be broadcast over heads."""

    angles: tuple[str, str]
    attrs: Mapping[str, Attr]

    @staticmethod
    def of(e: Elements, build: Builder, op: Op, index: str, lead: Shape) -> Rotation:
        """The op's tables (places, D/2) at ``index``, of shape ``lead``: (B, S) or (S,)."""
        tables = [op.input(n) for n in (7, 8)]
        if not all(tables):
            raise at(op, "rotates without tables")
        half = ops.shape_of(e, op, 7, 2)[1]
        if not isinstance(half, int):
            raise at(op, f"rotates by tables of {half} columns")
        found: list[str] = []
        for table in tables:
            row = build.emit("Gather", (table, index), build.dtype(table), (*lead, half), axis=0)
            found.append(build.unsqueeze(row, (1,)) if len(lead) == 2 else row)
        style = "interleaved" if op.attr("rotary_interleaved", 0) else "half"
        return Rotation((found[0], found[1]), Rotary(2 * half, 0, style).attrs())

    def turned(self, build: Builder, value: str) -> str:
        """Q or K (B, heads, S, D), rotated."""
        return build.graph.emit(
            ROTARY_EMBEDDING,
            (value, *self.angles),
            TensorType(build.dtype(value), build.shape(value)),
            attrs=self.attrs,
            domain=GE_DOMAIN,
            info=build.info,
            stem=f"{build.scope}{ROTARY_EMBEDDING}",
        )
