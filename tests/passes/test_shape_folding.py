"""Shape arithmetic: made constant where sizes are proven, shared where they are not."""

from __future__ import annotations

import pytest
from rewriting_help import check, kinds, rewritten

from gecompiler.ir import Graph
from gecompiler.passes.canonical.shape_folding import ShapeFolding

HEADS = """graph @heads (opset 17) {
  input %x: f32[b, s, 32]
  const %i0: i64[] = 0
  const %i1: i64[] = 1
  const %at0: i64[1] = [0]
  const %minus: i64[1] = [-1]
  const %eight: i64[1] = [8]
  const %any: i64[1] = [-1]
  const %ones: i64[1] = [1]
  const %neg: i64[] = -1
  %d0 = Shape(%x)
  %b = Gather(%d0, %i0)
  %d1 = Shape(%x)
  %s = Gather(%d1, %i1)
  %bu = Unsqueeze(%b, %at0)
  %su = Unsqueeze(%s, %at0)
  %t = Concat(%bu, %su, %minus, %eight) {axis = 0}
  %h = Reshape(%x, %t)
  %k = Transpose(%h) {perm = [0, 2, 1, 3]}
  BODY
}"""


def graph(*lines: str) -> str:
    return HEADS.replace("BODY", "\n".join(lines))


def test_a_computed_target_of_known_sizes_is_constant() -> None:
    found = check(graph("return %k"), {"b": 2, "s": 3})
    assert kinds(found) == {"Reshape": 1, "Transpose": 1}


def test_exporters_way_of_expanding_heads_needs_no_shapes() -> None:
    """torch writes Where(target == -1, ones, target) into every Expand."""
    text = graph(
        "const %two: i64[1] = [2]",
        "%kd = Shape(%k)",
        "%kh = Gather(%kd, %i1)",
        "%ku = Unsqueeze(%k, %two)",
        "%khu = Unsqueeze(%kh, %at0)",
        "%e = Concat(%bu, %khu, %two, %su, %eight) {axis = 0}",
        "%r = Reshape(%e, %any)",
        "%rs = Shape(%r)",
        "%fill = ConstantOfShape(%rs) {value = i64[1] [1]}",
        "%m = Mul(%fill, %neg)",
        "%eq = Equal(%r, %m)",
        "%w = Where(%eq, %fill, %r)",
        "%y = Expand(%ku, %w)",
        "return %y",
    )
    found = check(text, {"b": 2, "s": 3})
    assert kinds(found) == {"Reshape": 1, "Transpose": 1, "Unsqueeze": 1, "Expand": 1}
    expand = next(op for op in found.ops if op.op_type == "Expand")
    assert found.constants[expand.inputs[1]].array().tolist() == [1, 1, 2, 1, 1]


def sizes_of(graph: Graph) -> list[str]:
    return [str(dict(op.attrs)) for op in graph.ops if op.op_type == "Shape"]


def test_sizes_that_are_needed_come_from_the_inputs_once() -> None:
    text = graph(
        "%r = Range(%i0, %s, %i1)",
        "%kd = Shape(%k)",
        "const %i2: i64[] = 2",
        "%ks = Gather(%kd, %i2)",
        "%q = Range(%i0, %ks, %i1)",
        "%z = Add(%r, %q)",
        "return %z",
    )
    found = check(text, {"b": 2, "s": 3})
    assert kinds(found) == {"Shape": 1, "Squeeze": 1, "Range": 1, "Add": 1}
    assert found.topological()[0].inputs == ("x",)


def test_products_and_sums_of_sizes_have_one_form() -> None:
    text = graph(
        "%p = Mul(%s, %b)",
        "%p1 = Add(%p, %i1)",
        "%o = Mul(%b, %s)",
        "%o1 = Add(%i1, %o)",
        "%r = Range(%i0, %p1, %i1)",
        "%q = Range(%i0, %o1, %i1)",
        "return %r, %q",
    )
    found = check(text, {"b": 2, "s": 3})
    assert kinds(found)["Mul"] == 1
    assert kinds(found)["Add"] == 1
    assert kinds(found)["Range"] == 1


def test_a_target_of_two_sizes_is_put_together_from_the_inputs() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b, s, 4]
      const %flat: i64[2] = [-1, 4]
      const %i0: i64[] = 0
      const %i1: i64[] = 1
      const %at: i64[1] = [0]
      const %four: i64[1] = [4]
      %a = Reshape(%x, %flat)
      %c = Cos(%a)
      %y = Sin(%x)
      %dims = Shape(%y)
      %b = Gather(%dims, %i0)
      %s = Gather(%dims, %i1)
      %bu = Unsqueeze(%b, %at)
      %su = Unsqueeze(%s, %at)
      %t = Concat(%bu, %su, %four) {axis = 0}
      %z = Reshape(%c, %t)
      return %z
    }"""
    found = check(text, {"b": 2, "s": 3})
    assert kinds(found) == {"Reshape": 2, "Cos": 1, "Shape": 1}
    assert next(op for op in found.ops if op.op_type == "Shape").inputs == ("x",)


def test_sizes_that_the_inputs_do_not_tell_stay_where_they_are() -> None:
    text = """graph @g (opset 18) {
      input %x: bool[n]
      %a = NonZero(%x)
      %y = Shape(%a)
      return %y
    }"""
    assert kinds(rewritten(text)) == {"NonZero": 1, "Shape": 1}


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ("[1, 1, 1]", {"Neg": 1}),
        ("[2, 3, 4]", {"Expand": 1, "Neg": 1}),
        ("[1, 1, 1, 1]", {"Unsqueeze": 1, "Neg": 1}),
    ],
)
def test_expand_targets(target: str, left: dict[str, int]) -> None:
    rank = target.count(",") + 1
    text = f"""graph @g (opset 18) {{
      input %x: f32[2, 1, 4]
      const %t: i64[{rank}] = {target}
      %a = Expand(%x, %t)
      %y = Neg(%a)
      return %y
    }}"""
    assert kinds(check(text, {}, ShapeFolding())) in (left, {"Expand": 1, "Neg": 1})


def test_known_contents_keep_their_type() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2, n]
      const %i0: i64[] = 0
      %d = Shape(%x)
      %g = Gather(%d, %i0)
      %c = Cast(%g) {to = 6}
      %f = Cast(%g) {to = 1}
      return %c, %f
    }"""
    found = check(text, {"n": 3})
    assert [op.op_type for op in found.ops] == ["Identity", "Identity"]


def test_before_shape_had_bounds_the_arithmetic_stays_as_it_is() -> None:
    text = graph("%r = Range(%i0, %s, %i1)", "return %r").replace("opset 17", "opset 14")
    assert kinds(check(text, {"b": 2, "s": 3})) == {"Shape": 1, "Gather": 1, "Range": 1}
