"""Which axes a reduction goes over, given by attribute, by input, or not at all."""

from __future__ import annotations

import pytest

from gecompiler.ir import parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.anchors import reduced_axes
from gecompiler.passes.attention.elements import Elements


@pytest.mark.parametrize(
    ("opset", "line", "axes"),
    [
        (12, "%y = ReduceSum(%x)", (0, 1, 2)),
        (12, "%y = ReduceSum(%x) {axes = [-1]}", (2,)),
        (12, "%y = ReduceSum(%x) {axes = [0, -2]}", (0, 1)),
        (18, "%y = ReduceMax(%x)", (0, 1, 2)),
        (18, "const %a: i64[1] = [-1] %y = ReduceMax(%x, %a)", (2,)),
        (18, "const %a: i64[2] = [1, -3] %y = ReduceSum(%x, %a)", (1, 0)),
        (18, "input %a: i64[1] %y = ReduceSum(%x, %a)", None),
    ],
)
def test_axes(opset: int, line: str, axes: tuple[int, ...] | None) -> None:
    graph = parse(f"graph (opset {opset}) {{ input %x: f32[2, 3, 4] {line} return %y }}")
    infer_types(graph)
    op = graph.producer("y")
    assert op is not None
    assert reduced_axes(Elements(graph), op, 3) == axes
