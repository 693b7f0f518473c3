"""The rules of ``gecompiler.FlashAttention``; `flash_attention` says what it means."""

from __future__ import annotations

import math

from gecompiler.ir.dims import Dim
from gecompiler.ir.errors import GraphError
from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType, Shape, TensorType

_ALIGNMENTS = ("top_left", "bottom_right")
_MASKED_ROWS = ("nan", "zero", "mean")


def check_flash_attention(graph: Graph, op: Op) -> None:
    """Raises GraphError when the op is one and breaks a rule; unknown sizes break none."""
    if op.is_(FLASH_ATTENTION, domain=GE_DOMAIN):
        _Checker(graph, op).check()


def differ(a: Dim, b: Dim) -> bool:
    """Whether two sizes are proven to differ."""
    difference = a - b
    return isinstance(difference, int) and difference != 0


class _Checker:
    def __init__(self, graph: Graph, op: Op) -> None:
        self.graph = graph
        self.op = op

    def check(self) -> None:
        op = self.op
        self._require(
            3 <= len(op.inputs) <= 5 and all(op.inputs[:3]),
            f"has the inputs {op.inputs}, expected query, key, value and perhaps mask and sinks",
        )
        self._require(
            1 <= len(op.outputs) <= 2 and bool(op.outputs[0]),
            f"has {len(op.outputs)} outputs, expected 1, or 2 with the log-sum-exp",
        )
        attrs = self._attrs()
        self._types()
        self._shapes(attrs)

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise GraphError(
                f"op {self.op.name!r} (FlashAttention) {message}", where=self.graph.name
            )

    def _attrs(self) -> FlashAttention:
        for name in ("q_heads", "kv_heads", "window_left", "window_right", "row_offset"):
            value = self.op.attr(name, 1)
            self._require(type(value) is int, f"has {name} = {value!r}, expected an integer")
        for name in ("scale", "softcap"):
            value = self.op.attr(name, 0.0)
            finite = isinstance(value, (int, float)) and math.isfinite(value)
            self._require(finite, f"has {name} = {value!r}, expected a finite number")
        found = FlashAttention.of(self.op)
        self._require(found.q_heads > 0, f"has q_heads = {found.q_heads}, expected at least 1")
        self._require(found.softcap >= 0, f"has softcap = {found.softcap}, expected 0 or more")
        for side in (found.window_left, found.window_right):
            self._require(side >= -1, f"has the window bound {side}, expected -1 or more")
        for name, known in (("align", _ALIGNMENTS), ("masked_row", _MASKED_ROWS)):
            value = getattr(found, name)
            self._require(value in known, f"has {name} = {value!r}, expected one of {known}")
        return found

    def _tensor(self, index: int) -> TensorType | None:
        return self.graph.tensor(self.op.input(index))

    def _types(self) -> None:
        query = self._tensor(0)
        if query is not None:
            self._require(query.dtype.is_float, f"has a query of type {query}, expected floats")
            for value in (*self.op.inputs[1:3], self.op.outputs[0]):
                other = self.graph.tensor(value)
                self._require(
                    other is None or other.dtype is query.dtype,
                    f"has {value!r} of type {other}, expected {query.dtype.short} as its query",
                )
        mask, sinks = self._tensor(3), self._tensor(4)
        self._require(
            mask is None or mask.dtype is DType.BOOL or mask.dtype.is_float,
            f"has a mask of type {mask}, expected bool or floats",
        )
        self._require(
            sinks is None or sinks.dtype.is_float, f"has sinks of type {sinks}, expected floats"
        )

    def _shapes(self, attrs: FlashAttention) -> None:
        given = (self._shape4(i, n) for i, n in enumerate(("query", "key", "value")))
        query, key, value = (attrs.operand(shape) if shape else () for shape in given)
        heads = 2 if attrs.reads_rows_first else 1
        output = self.graph.shape(self.op.outputs[0])
        if query:
            self._same(query[1], attrs.q_heads, f"query's axis {heads} against q_heads")
        for shape, name in ((key, "key"), (value, "value")):
            if shape:
                self._same(shape[1], attrs.kv_heads, f"{name}'s axis {heads} against kv_heads")
            if shape and query and shape[0] != 1:
                self._same(shape[0], query[0], f"{name}'s batch against query's")
        if query and key:
            self._same(key[3], query[3], "key's head size against query's")
        if key and value:
            self._same(value[2], key[2], "value's length against key's")
        if query and value and output:
            self._all_same(output, attrs.result((*query[:3], value[3])), "output")
        mask, sinks = self._tensor(3), self._tensor(4)
        if mask and mask.shape is not None and query and key:
            self._broadcasts(mask.shape, (*query[:3], key[2]))
        if sinks and sinks.shape is not None:
            self._all_same(sinks.shape, (attrs.q_heads,), "sinks")

    def _shape4(self, index: int, name: str) -> Shape:
        """The shape of an operand, empty where it is unknown."""
        shape = self.graph.shape(self.op.inputs[index])
        if shape is None:
            return ()
        self._require(len(shape) == 4, f"has a {name} of {len(shape)} axes, expected 4")
        return shape

    def _same(self, found: Dim, wanted: Dim, what: str) -> None:
        self._require(not differ(found, wanted), f"compares {what}: {found} is not {wanted}")

    def _all_same(self, found: Shape, wanted: Shape, what: str) -> None:
        same = len(found) == len(wanted) and not any(map(differ, found, wanted))
        self._require(same, f"has {what} of shape {_text(found)}, expected {_text(wanted)}")

    def _broadcasts(self, mask: Shape, scores: Shape) -> None:
        fits = len(mask) <= 4 and all(
            size == 1 or not differ(size, score)
            for size, score in zip(reversed(mask), reversed(scores), strict=False)
        )
        self._require(fits, f"has a mask of shape {_text(mask)} for scores {_text(scores)}")


def _text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
