"""Dropout and stochastic depth hand on what they get."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting_help import assert_same_bits, check, kinds, rewritten, run

from gecompiler.passes.canonical.inference_mode import InferenceMode
from gecompiler.passes.pass_base import PassContext


def dropout(line: str, returns: str = "%z", ins: str = "") -> str:
    return f"""graph @g (opset 18) {{
      input %x: f32[3, 4]
      {ins}
      const %r: f32[] = 0.5
      const %yes: bool[] = true
      const %no: bool[] = false
      {line}
      %z = Neg(%y)
      return {returns}
    }}"""


@pytest.mark.parametrize("line", ["%y = Dropout(%x)", "%y = Dropout(%x, %r, %no)"])
def test_in_inference_it_goes_silently(line: str) -> None:
    context = PassContext()
    assert kinds(rewritten(dropout(line), InferenceMode(), context)) == {"Neg": 1}
    assert not len(context.diagnostics)


def test_in_training_mode_it_goes_with_a_warning() -> None:
    context = PassContext()
    graph = rewritten(dropout("%y = Dropout(%x, %r, %yes)"), InferenceMode(), context)
    assert kinds(graph) == {"Neg": 1}
    (warning,) = context.diagnostics
    assert warning.code == "training-mode"
    assert "evaluation mode" in warning.hint


def test_a_mode_that_is_computed_stays() -> None:
    text = dropout("%y = Dropout(%x, %r, %t)", ins="input %t: bool[]")
    assert kinds(rewritten(text, InferenceMode())) == {"Dropout": 1, "Neg": 1}


def test_a_mask_that_is_wanted_is_true() -> None:
    text = dropout("%y, %m = Dropout(%x) %n = Not(%m)", "%z, %n")
    graph = check(text, {}, InferenceMode())
    assert kinds(graph) == {"Neg": 1, "Not": 1}


def test_a_mask_that_is_an_output_stays_where_it_is() -> None:
    graph = check(dropout("%y, %m = Dropout(%x)", "%z, %m"), {}, InferenceMode())
    assert kinds(graph) == {"Dropout": 1, "Neg": 1}


PATH = """graph @g (opset 18) {
  input %x: f32[3, 4]
  const %keep: f32[] = 0.9
  const %size: i64[2] = [3, 1]
  const %ref: f32[3, 1] = [[0.0], [0.0], [0.0]]
  %u = RandomUniformLike(%ref) {low = 0.0f, high = 1.0f}
  %s = Add(%u, %keep)
  %f = Floor(%s)
  %d = Div(%x, %keep)
  %y = Mul(%d, %f)
  %z = Neg(%y)
  return %z
}"""


def test_stochastic_depth_keeps_every_path() -> None:
    context = PassContext()
    graph = rewritten(PATH, InferenceMode(), context)
    assert kinds(graph) == {"Neg": 1}
    x = np.ones((3, 4), np.float32)
    assert_same_bits(run(graph, {"x": x}), {"z": -x})
    assert [w.code for w in context.diagnostics] == ["training-mode"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("high = 1.0f", "high = 2.0f"),
        ("%d = Div(%x, %keep)", "const %k: f32[] = 0.8 %d = Div(%x, %k)"),
        ("Floor", "Ceil"),
        ("RandomUniformLike(%ref) {low = 0.0f, high = 1.0f}", "RandomNormalLike(%ref)"),
    ],
)
def test_other_uses_of_random_numbers_stay(old: str, new: str) -> None:
    assert kinds(rewritten(PATH.replace(old, new), InferenceMode()))["Mul"] == 1
