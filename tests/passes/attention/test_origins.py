"""What scores lead back to, behind ops that no attention has between its products."""

from __future__ import annotations

import pytest

from gecompiler.ir import infer_types, parse
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.origin_kinds import DISTANT, NOTHING, PRODUCT
from gecompiler.passes.attention.sites import Origins

PRODUCTS = """
  input %q: f32[2, 3, 4] input %k: f32[2, 4, 3] input %row: f32[2, 1, 4] input %x: f32[2, 3, 3]
  %whole = MatMul(%q, %k)
  %short = MatMul(%row, %k)
"""


@pytest.mark.parametrize(
    ("op", "found"),
    [
        ("Add(%whole, %x)", PRODUCT),
        ("Pow(%whole, %x)", DISTANT),
        ("Pow(%x, %whole)", DISTANT),
        ("Pow(%x, %short)", NOTHING),  # it is spread: an element is none of its own any more
        ("Pow(%short, %x)", NOTHING),
        ("Pow(%x, %x)", NOTHING),
        ("CumSum(%whole, %axis)", NOTHING),
    ],
)
def test_only_what_keeps_its_place_leads_back(op: str, found: int) -> None:
    graph = parse(f"graph (opset 17) {{ {PRODUCTS} const %axis: i64[] = 1 %y = {op} return %y }}")
    infer_types(graph)
    assert Origins(Elements(graph)).leads("y") == found
