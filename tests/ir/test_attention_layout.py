"""The layout of FlashAttention: shapes, rules, text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gecompiler.ir import Graph, parse
from gecompiler.ir.errors import GecError
from gecompiler.ir.flash_attention import LAYOUTS, FlashAttention, exchanged
from gecompiler.ir.infer import infer_types

HEADS_FIRST = {"q": "b, 8, s, 16", "k": "b, 2, t, 16", "v": "b, 2, t, 12", "y": "b, 8, s, 12"}
ROWS_FIRST = {"q": "b, s, 8, 16", "k": "b, t, 2, 16", "v": "b, t, 2, 12", "y": "b, s, 8, 12"}


def shapes(layout: str) -> tuple[dict[str, str], str]:
    """Those of Q, K and V, and that of the output."""
    read = ROWS_FIRST if layout == "BSND" else HEADS_FIRST
    return read, (HEADS_FIRST if layout == "BNSD" else ROWS_FIRST)["y"]


def graph_of(layout: str, read: dict[str, str], made: str = "") -> Graph:
    known = f": f32[{made}]" if made else ""
    return parse(f"""graph @g (opset 18) {{
      input %q: f32[{read["q"]}]
      input %k: f32[{read["k"]}]
      input %v: f32[{read["v"]}]
      input %m: bool[b, 1, s, t]
      %y{known} = gecompiler.FlashAttention(%q, %k, %v, %m) {{
        scale = 1.0, q_heads = 8, kv_heads = 2, layout = "{layout}"}}
      return %y
    }}""")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes_follow_the_layout(layout: str) -> None:
    read, made = shapes(layout)
    graph = graph_of(layout, read)
    infer_types(graph)
    assert str(graph.type("y")) == f"f32[{made}]"
    graph.verify()
    assert str(parse(str(graph))) == str(graph)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_of_another_layout_are_refused(layout: str) -> None:
    wrong = HEADS_FIRST if layout == "BSND" else ROWS_FIRST
    with pytest.raises(GecError):
        infer_types(graph_of(layout, {n: s.replace("s, ", "5, ") for n, s in wrong.items()}))
    read, made = shapes(layout)
    other = (HEADS_FIRST if made == ROWS_FIRST["y"] else ROWS_FIRST)["y"]
    sized = [text.replace("s", "5") for text in (*read.values(), other)]
    graph = graph_of(layout, dict(zip(read, sized, strict=False)), sized[-1])
    with pytest.raises(GecError, match="output"):
        graph.verify()


@pytest.mark.parametrize("layout", ["SBH", "BSND_BNSD", "bnsd", ""])
def test_layouts_that_no_kernel_offers_are_refused(layout: str) -> None:
    graph = graph_of(layout, HEADS_FIRST)
    with pytest.raises(GecError, match="layout"):
        graph.verify()
    with pytest.raises(GecError, match="layout"):
        infer_types(graph)


def test_the_usual_layout_is_not_written() -> None:
    assert "layout" not in FlashAttention(1.0, 2, 2).attrs()
    assert FlashAttention(1.0, 2, 2, layout="BSND").attrs()["layout"] == "BSND"


def test_exchange_is_its_own_inverse() -> None:
    axes: Sequence[str] = "bnsd"
    assert "".join(exchanged(axes)) == "bsnd"
    assert "".join(exchanged(exchanged(axes))) == "bnsd"
