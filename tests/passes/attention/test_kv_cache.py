"""KV caches: found, left in place, and declared as state."""

from __future__ import annotations

import pytest
from attention_help import check, flash, fuse

from gecompiler.ir import parse

SIZES = {"b": 2, "n": 4}
TEXT = """graph (opset 17) {
  input %q: f32[b, 4, 1, 8]
  input %k: f32[b, 2, 1, 8] input %v: f32[b, 2, 1, 8]
  input %pk: f32[b, 2, n, 8] input %pv: f32[b, 2, n, 8]
  %nk = Concat(%pk, %k) {axis = -2} %nv = Concat(%pv, %v) {axis = 2}
  const %two: i64[1] = [2] const %e: i64[5] = [1, 1, 2, 1, 1] const %sh: i64[4] = [0, 4, -1, 8]
  %k5 = Unsqueeze(%nk, %two) %k6 = Expand(%k5, %e) %k4 = Reshape(%k6, %sh)
  %v5 = Unsqueeze(%nv, %two) %v6 = Expand(%v5, %e) %v4 = Reshape(%v6, %sh)
  %kt = Transpose(%k4) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
  %p = Softmax(%m) {axis = -1} %out = MatMul(%p, %v4)
  return %out, %nk, %nv
}"""


def test_a_cache_by_concat_becomes_state() -> None:
    (site,) = check(TEXT, SIZES)
    assert (site.kv_cache, site.q_heads, site.kv_heads) == (True, 4, 2)
    graph = parse(TEXT)
    fuse(graph)
    assert [(s.input, s.output, s.axis) for s in graph.states] == [("pk", "nk", 2), ("pv", "nv", 2)]
    assert flash(graph).inputs == ("q", "nk", "nv"), "the cache is read as it is"
    assert sum(op.op_type == "Concat" for op in graph.ops) == 2


def test_a_concat_that_is_no_output_is_no_cache() -> None:
    text = TEXT.replace("return %out, %nk, %nv", "return %out")
    (site,) = check(text, SIZES)
    assert not site.kv_cache
    graph = parse(text)
    fuse(graph)
    assert graph.states == ()


def test_a_cache_of_fixed_length_written_in_place() -> None:
    text = """graph (opset 18) {
      input %q: f32[b, 4, 1, 8] input %cache: f32[6, 4, 8] input %new: f32[1, 4, 8]
      input %at: i64[1, 1] input %v: f32[1, 4, 6, 8]
      %next = ScatterND(%cache, %at, %new) const %z: i64[1] = [0]
      %four = Unsqueeze(%next, %z) %k = Transpose(%four) {perm = [0, 2, 3, 1]}
      %m = MatMul(%q, %k) %p = Softmax(%m) {axis = -1} %out = MatMul(%p, %v)
      return %out, %next }"""
    graph = parse(text)
    (site,) = fuse(graph)
    assert site.kv_cache
    assert [(s.input, s.output, s.axis) for s in graph.states] == [("cache", "next", None)]


@pytest.mark.parametrize("axis", [0, 1])
def test_the_axis_of_a_cache_in_another_layout(axis: int) -> None:
    shape = ["n", "b", "4", "8"] if axis == 0 else ["b", "n", "4", "8"]
    new = [("1" if d == "n" else d) for d in shape]
    perm = "[1, 2, 0, 3]" if axis == 0 else "[0, 2, 1, 3]"
    text = f"""graph (opset 17) {{
      input %q: f32[b, 4, 1, 8] input %k: f32[{", ".join(new)}] input %pk: f32[{", ".join(shape)}]
      input %v: f32[b, 4, n + 1, 8]
      %nk = Concat(%pk, %k) {{axis = {axis}}} %kk = Transpose(%nk) {{perm = {perm}}}
      %kt = Transpose(%kk) {{perm = [0, 1, 3, 2]}} %m = MatMul(%q, %kt)
      %p = Softmax(%m) {{axis = -1}} %out = MatMul(%p, %v) return %out, %nk }}"""
    (site,) = check(text, SIZES)
    assert site.kv_cache
    graph = parse(text)
    fuse(graph)
    assert [s.axis for s in graph.states] == [axis]


def test_states_declared_already_are_kept() -> None:
    text = TEXT.replace("return", "state %pk -> %nk axis 2 return")
    graph = parse(text)
    fuse(graph)
    assert [(s.input, s.axis) for s in graph.states] == [("pk", 2), ("pv", 2)]
