"""Gradient of ai.onnx.preview.training against derivatives worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import gecompiler as ge

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>\n'
A, B = np.array([1.5, -2], np.float32), np.array([3, 0.5], np.float32)


def run(text, **inputs):
    model = ge.Session().compile(parser.parse_model(HEAD + text))
    return model.run(inputs)


def gradient(outputs, inputs, xs, y, zs=()):
    def names(values):
        return ", ".join(f'"{v}"' for v in values)

    attrs = f'xs: strings = [{names(xs)}], y: string = "{y}"'
    attrs += f", zs: strings = [{names(zs)}]" if zs else ""
    return f"{outputs} = ai.onnx.preview.training.Gradient <{attrs}> ({inputs})"


def test_a_product_and_a_sum():
    text = f"""g (float[2] a, float[2] b) => (float[2] d, float[2] da, float[2] db) {{
      c = Add(a, b)
      d = Mul(c, a)
      {gradient("da, db", "a, b", ("a", "b"), "d")}
    }}"""
    found = run(text, a=A, b=B)
    np.testing.assert_allclose(found["d"], (A + B) * A)
    np.testing.assert_allclose(found["da"], 2 * A + B)
    np.testing.assert_allclose(found["db"], A)


def test_of_an_intermediate_value_and_with_one_output_left_out():
    text = f"""g (float[2] a, float[2] b) => (float[2] y, float[2] dh) {{
      h = Exp(a)
      y = Mul(h, b)
      {gradient(", dh", "b, h", ("b", "h"), "y")}
    }}"""
    np.testing.assert_allclose(run(text, a=A, b=B)["dh"], B)


def test_at_other_values_than_those_named():
    text = f"""g (float[2] a, float[2] b, float[2] at) => (float[2] y, float[2] da) {{
      h = Mul(a, a)
      y = Mul(h, b)
      {gradient("da", "at, b", ("a",), "y", ("b",))}
    }}"""
    found = run(text, a=A, b=B, at=B - 1)
    np.testing.assert_allclose(found["y"], A * A * B)
    np.testing.assert_allclose(found["da"], 2 * (B - 1) * B)


def test_of_a_gradient():
    text = f"""g (float[2] a) => (float[2] first, float[2] second) {{
      y = Mul(a, a)
      z = Mul(y, a)
      {gradient("first", "a", ("a",), "z")}
      {gradient("second", "a", ("a",), "first")}
    }}"""
    found = run(text, a=A)
    np.testing.assert_allclose(found["first"], 3 * A**2, rtol=1e-6)
    np.testing.assert_allclose(found["second"], 6 * A, rtol=1e-6)


def test_what_it_does_not_depend_on_has_none():
    text = f"""g (float[2] a, float[3] b) => (float[2] y, float[2] da, float[3] db) {{
      y = Neg(a)
      {gradient("da, db", "a, b", ("a", "b"), "y")}
    }}"""
    found = run(text, a=A, b=np.ones(3, np.float32))
    np.testing.assert_array_equal(found["da"], [-1, -1])
    np.testing.assert_array_equal(found["db"], [0, 0, 0])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (gradient("da", "a", ("aa",), "y"), "no value 'aa'.*\n.*did you mean 'a'"),
        (gradient("da", "a, a", ("a",), "y"), "2 inputs for 1 names"),
        (gradient("da, db", "a", ("a",), "y"), "2 outputs for 1 names"),
        (gradient("da", "a", ("a",), "q"), "has no gradient"),
    ],
)
def test_mistakes(line, words):
    text = f"""g (float[2] a) => (float[2] y, float[2] da) {{
      y = Neg(a)
      q = Hardmax(a)
      {line}
    }}"""
    with pytest.raises(ge.ModelError, match=words):
        run(text, a=A)


def test_sizes_have_to_be_numbers():
    text = f"""g (float[n] a) => (float[n] y, float[n] da) {{
      y = Neg(a)
      {gradient("da", "a", ("a",), "y")}
    }}"""
    with pytest.raises(ge.ModelError, match="bind the sizes first"):
        run(text, a=A)
