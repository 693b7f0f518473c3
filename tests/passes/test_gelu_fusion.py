"""Gelu written out with Erf, and what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting_help import assert_same_bits, kinds, rewritten, run

from gecompiler.ir import parse
from gecompiler.passes.canonical.gelu_fusion import GeluFusion

FORMS = {
    "torchscript": "%a = Div(%x, %r2) %e = Erf(%a) %p = Add(%e, %one) %m = Mul(%x, %p) "
    "%y = Mul(%m, %half)",
    "half first": "%h = Mul(%x, %half) %a = Mul(%x, %ir2) %e = Erf(%a) %p = Add(%one, %e) "
    "%y = Mul(%h, %p)",
    "half on the sum": "%a = Mul(%ir2, %x) %e = Erf(%a) %p = Add(%e, %one) "
    "%h = Mul(%p, %half) %y = Mul(%x, %h)",
}


def gelu(body: str, opset: int = 20, dtype: str = "f32", more: str = "") -> str:
    return f"""graph @g (opset {opset}) {{
      input %x: {dtype}[b, 4]
      const %r2: {dtype}[] = 1.4142135
      const %ir2: {dtype}[] = 0.70710677
      const %half: {dtype}[] = 0.5
      const %one: {dtype}[] = 1.0
      {body}
      {more}
      %z = Identity(%y)
      return %z
    }}"""


@pytest.mark.parametrize("form", list(FORMS))
def test_is_one_op_with_the_same_numbers(form: str) -> None:
    text = gelu(FORMS[form])
    graph = rewritten(text, GeluFusion())
    assert kinds(graph) == {"Gelu": 1, "Identity": 1}
    x = np.linspace(-6, 6, 64, dtype=np.float32).reshape(16, 4)
    x[0] = [np.inf, 0.0, -0.0, np.nan]
    assert_same_bits(run(parse(text), {"x": x}), run(graph, {"x": x}), rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const %half: f32[] = 0.5", "const %half: f32[] = 0.25"),
        ("const %one: f32[] = 1.0", "const %one: f32[] = 2.0"),
        ("const %r2: f32[] = 1.4142135", "const %r2: f32[] = 1.4"),
        ("%m = Mul(%x, %p)", "%w = Neg(%x) %m = Mul(%w, %p)"),
        ("%z = Identity(%y)", "%z = Sub(%y, %e)"),
    ],
)
def test_what_is_none_stays(old: str, new: str) -> None:
    text = gelu(FORMS["torchscript"]).replace(old, new)
    assert "Gelu" not in kinds(rewritten(text, GeluFusion()))


def test_half_precision_keeps_its_roundings() -> None:
    text = gelu(FORMS["torchscript"], dtype="f16")
    assert "Gelu" not in kinds(rewritten(text, GeluFusion()))


def test_the_opset_is_raised_where_every_op_keeps_its_meaning() -> None:
    more = "%s = ReduceMean(%x) {axes = [-1], keepdims = 1} %c, %d = Split(%x) {axis = 1}"
    text = gelu(FORMS["torchscript"], 17, more=more).replace("return %z", "return %z, %s, %c")
    graph = rewritten(text, GeluFusion())
    assert graph.opsets[""] == 20
    assert kinds(graph)["Gelu"] == 1
    x = np.linspace(-3, 3, 20, dtype=np.float32).reshape(5, 4)
    assert_same_bits(run(parse(text), {"x": x}), run(graph, {"x": x}), rtol=1e-5)


@pytest.mark.parametrize(
    ("opset", "more"),
    [
        (16, ""),
        (17, "%q = GridSample(%g, %h) {mode = \"bilinear\"}"),
        (17, "%s = If(%k) {then_branch = graph @t { outer %x: f32[b, 4] return %x }, "
             "else_branch = graph @e { outer %x: f32[b, 4] return %x }}"),
    ],
)  # fmt: skip
def test_it_stays_where_one_might_not(opset: int, more: str) -> None:
    ins = "input %g: f32[1, 1, 4, 4] input %h: f32[1, 4, 4, 2] input %k: bool[]"
    text = gelu(FORMS["torchscript"], opset, more=more).replace("const %r2", f"{ins} const %r2")
    if "%q" in more:
        text = text.replace("return %z", "return %z, %q")
    if "%s" in more:
        text = text.replace("return %z", "return %z, %s")
    graph = rewritten(text, GeluFusion())
    assert graph.opsets[""] == opset
    assert "Gelu" not in kinds(graph)


def test_an_uneven_split_keeps_its_opset() -> None:
    text = """graph @g (opset 17) {
      input %x: f32[b, n]
      const %r2: f32[] = 1.4142135
      const %half: f32[] = 0.5
      const %one: f32[] = 1.0
      %a = Div(%x, %r2) %e = Erf(%a) %p = Add(%e, %one) %m = Mul(%x, %p) %y = Mul(%m, %half)
      %c, %d = Split(%y) {axis = 1}
      return %c, %d
    }"""
    assert rewritten(text, GeluFusion()).opsets[""] == 17
