"""RotaryEmbedding gets cos and sin of the batch it wants."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting_help import kinds, rewritten, run

from gecompiler.passes.canonical.explicit_broadcast import ExplicitBroadcast


def rotary(batch: str, cache: str, extra: str = "") -> str:
    return f"""graph @g (opset 23) {{
      input %x: f32[{batch}, 2, s, 8]
      input %cos: f32[{cache}, s, 4]
      input %sin: f32[{cache}, s, 4]
      {extra}
      %y = RotaryEmbedding(%x, %cos, %sin)
      return %y
    }}"""


@pytest.mark.parametrize("batch", ["b", "3"])
def test_a_batch_of_one_is_expanded(batch: str) -> None:
    graph = rewritten(rotary(batch, "1"), ExplicitBroadcast())
    assert kinds(graph)["Expand"] == 2
    draw = np.random.default_rng(0)
    x, angle = draw.standard_normal((3, 2, 5, 8)), draw.standard_normal((1, 5, 4))
    feeds = {"x": x, "cos": np.cos(angle), "sin": np.sin(angle)}
    found = run(graph, {k: v.astype(np.float32) for k, v in feeds.items()})["y"]
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = x[..., :4], x[..., 4:]
    wanted = np.concatenate([first * c - second * s, first * s + second * c], axis=-1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch", "cache"), [("b", "b"), ("1", "1"), ("3", "3"), ("b", "n")])
def test_other_batches_are_left_alone(batch: str, cache: str) -> None:
    assert kinds(rewritten(rotary(batch, cache), ExplicitBroadcast())) == {"RotaryEmbedding": 1}


def test_layers_share_the_expanded_caches() -> None:
    text = rotary("b", "1").replace("return %y", "%z = RotaryEmbedding(%y, %cos, %sin) return %z")
    assert kinds(rewritten(text)) == {"RotaryEmbedding": 2, "Expand": 2, "Shape": 1, "Concat": 1}


def test_a_batch_that_no_input_tells_is_read_off_the_tensor() -> None:
    text = """graph @g (opset 23) {
      input %m: bool[n]
      input %w: f32[1, 2, 5, 8]
      input %cos: f32[1, 5, 4]
      input %sin: f32[1, 5, 4]
      const %a: i64[3] = [1, 2, 3]
      %i = NonZero(%m)
      const %at: i64[1] = [0]
      %f = Squeeze(%i, %at)
      %g = Cast(%f) {to = 1}
      %h = Unsqueeze(%g, %a)
      %x = Mul(%h, %w)
      %y = RotaryEmbedding(%x, %cos, %sin)
      return %y
    }"""
    graph = rewritten(text)
    assert kinds(graph)["Expand"] == 2
    feeds = {
        "m": np.array([True, False, True]),
        "w": np.ones((1, 2, 5, 8), np.float32),
        "cos": np.ones((1, 5, 4), np.float32),
        "sin": np.zeros((1, 5, 4), np.float32),
    }
    assert run(graph, feeds)["y"].shape == (2, 2, 5, 8)
