"""Gathers that take everything in order, and index arithmetic in general."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting_help import GraphMaker, check, feeds, kinds, run

from gecompiler.ir import infer_types, parse
from gecompiler.ir.dims import substitute
from gecompiler.passes.canonical.affine_index import affine, affine_array
from gecompiler.passes.canonical.uniform_values import uniform
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.rewriting import Rewriter

HEAD = """graph @g (opset 18) {
  input %m: bool[b, s]
  const %i0: i64[] = 0
  const %i1: i64[] = 1
  const %a0: i64[1] = [0]
  const %a123: i64[3] = [1, 2, 3]
  const %a012: i64[3] = [0, 1, 2]
  const %last: i64[1] = [-1]
  %d = Shape(%m)
  %b = Gather(%d, %i0)
  %s = Gather(%d, %i1)
  %rb = Range(%i0, %b, %i1)
  %rs = Range(%i0, %s, %i1)
  %ib = Unsqueeze(%rb, %a123)
  %is = Unsqueeze(%rs, %a012)
"""
SIZES = {"b": 3, "s": 4}


def test_the_torchscript_way_of_indexing_a_mask() -> None:
    text = (
        HEAD
        + """
      %flat = Flatten(%m) {axis = 2}
      const %any: i64[1] = [-1]
      %f1 = Reshape(%m, %any)
      %row = Mul(%ib, %s)
      %at = Add(%is, %row)
      %y = Gather(%f1, %at)
      %z = Not(%y)
      return %z
    }"""
    )
    assert kinds(check(text, SIZES)) == {"Unsqueeze": 1, "Not": 1}


def test_the_dynamo_way_of_indexing_a_mask() -> None:
    text = (
        HEAD
        + """
      %max = Max(%ib, %is)
      %shape = Shape(%max)
      %eb = Expand(%ib, %shape)
      %es = Expand(%is, %shape)
      %ub = Unsqueeze(%eb, %last)
      %us = Unsqueeze(%es, %last)
      %at = Concat(%ub, %us) {axis = -1}
      %y = GatherND(%m, %at)
      %z = Not(%y)
      return %z
    }"""
    )
    assert kinds(check(text, SIZES)) == {"Unsqueeze": 1, "Not": 1}


def test_the_other_order_is_no_reshape() -> None:
    text = (
        HEAD
        + """
      const %any: i64[1] = [-1]
      %f1 = Reshape(%m, %any)
      %col = Mul(%is, %b)
      %at = Add(%ib, %col)
      %y = Gather(%f1, %at)
      return %y
    }"""
    )
    assert kinds(check(text, SIZES))["Gather"] == 1


@pytest.mark.parametrize("change", ["const %i0: i64[] = 1", "const %i1: i64[] = 2"])
def test_counting_from_one_or_in_twos_is_no_reshape(change: str) -> None:
    text = """graph @g (opset 18) {
      input %x: f32[8, n]
      const %i0: i64[] = 0
      const %i1: i64[] = 1
      const %end: i64[] = 8
      %at = Range(%i0, %end, %i1)
      %y = Gather(%x, %at)
      %z = Neg(%y)
      return %z
    }"""
    assert kinds(check(text, {"n": 2})) == {"Neg": 1}
    name = change.split(":", maxsplit=1)[0]
    lines = [change if line.strip().startswith(name) else line for line in text.split("\n")]
    assert kinds(check("\n".join(lines), {"n": 2})) == {"Gather": 1, "Neg": 1}


def test_constant_indices_in_order() -> None:
    index = np.stack(np.indices((3, 4)), axis=-1).reshape(3, 1, 1, 4, 2)
    text = f"""graph @g (opset 18) {{
      input %m: bool[3, 4]
      const %at: i64[3, 1, 1, 4, 2] = {index.tolist()}
      %y = GatherND(%m, %at)
      %z = Not(%y)
      return %z
    }}"""
    assert kinds(check(text)) == {"Unsqueeze": 1, "Not": 1}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=0, max_size=3),
    st.lists(st.integers(-5, 5), min_size=3, max_size=3),
    st.integers(-5, 5),
)
def test_numbers_are_affine_when_they_are(shape: list[int], steps: list[int], first: int) -> None:
    array = np.full(shape, first)
    for axis, (size, step) in enumerate(zip(shape, steps, strict=False)):
        line = np.arange(size) * step
        array = array + line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    found = affine_array(array)
    assert found is not None
    assert found.constant == first
    assert [c for c, n in zip(found.coefficients, shape, strict=True) if n > 1] == [
        s for s, n in zip(steps, shape, strict=False) if n > 1
    ]
    if array.size > 2:
        array.flat[-1] += 1
        again = affine_array(array)
        assert again is None or again != found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_claimed_of_computed_values_is_true(seed: int) -> None:
    """Affine forms and uniform values of random graphs, against the numbers."""
    source = parse(GraphMaker(seed, 25).text)
    graph = source.copy()
    facts = infer_types(graph)
    r = Rewriter(graph, ValueFacts(graph, facts.values))
    made = [v for op in graph.ops for v in op.outputs]
    forms = {v: affine(r, v) for v in made}
    same = {v: uniform(r, v) for v in made}
    wanted = [v for v in made if forms[v] is not None or same[v] is not None]
    if not wanted:
        return
    source.set_outputs(wanted)
    sizes = {"b": 2, "s": 3}
    numbers = run(source, feeds(source, sizes))
    for value in wanted:
        array = numbers[value]
        if same[value] is not None and array.size:
            assert np.all(array == same[value]), value
        form = forms[value]
        if form is not None:
            grid = np.indices(array.shape) if array.ndim else np.zeros((0,))
            total = np.full(array.shape, substitute(form.constant, sizes))
            for line, step in zip(grid, form.coefficients, strict=True):
                total = total + line * substitute(step, sizes)
            assert np.array_equal(total, array), value
