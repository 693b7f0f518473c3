"""Contractions: MatMul, Einsum, Gemm and FusedMatMul seen as one thing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.contraction import Contraction, contraction


def seen(line: str, a: list[int], b: list[int], opset: int = 17) -> Contraction | None:
    graph = parse(
        f"graph (opset {opset}, com.microsoft 1) {{ input %a: f32{a} input %b: f32{b} "
        f"%y = {line} return %y }}"
    )
    infer_types(graph)
    op = graph.producer("y")
    assert op is not None
    return contraction(graph, op)


def computed(c: Contraction, a: Any, b: Any) -> Any:
    """The product by its definition."""
    letters = [chr(97 + n) for n in range(len(c.sources[0]))]
    terms = []
    for n, array in enumerate((a, b)):
        labels = [""] * array.ndim
        labels[c.summed[n]] = "z"
        for letter, source in zip(letters, c.sources[n], strict=True):
            if source is not None:
                labels[source] = letter
        squeezed = [k for k, x in enumerate(labels) if array.shape[k] == 1 and x != "z"]
        terms.append(("".join(x for k, x in enumerate(labels) if k not in squeezed), squeezed))
    left, right = (x.squeeze(tuple(s)) for x, (_, s) in zip((a, b), terms, strict=True))
    used = [x for x in letters if x in terms[0][0] or x in terms[1][0]]
    out = np.einsum(f"{terms[0][0]},{terms[1][0]}->{''.join(used)}", left, right) * c.alpha
    return np.expand_dims(out, [n for n, x in enumerate(letters) if x not in used])


CASES = [
    ("MatMul(%a, %b)", [2, 3, 4, 5], [2, 3, 5, 6], lambda a, b: a @ b),
    ("MatMul(%a, %b)", [2, 3, 4, 5], [5, 6], lambda a, b: a @ b),
    ("MatMul(%a, %b)", [4, 5], [2, 5, 6], lambda a, b: a @ b),
    ("MatMul(%a, %b)", [2, 3, 4, 5], [2, 1, 5, 6], lambda a, b: a @ b),
    ("Gemm(%a, %b) {transB = 1, alpha = 0.5}", [4, 5], [6, 5], lambda a, b: 0.5 * a @ b.T),
    (
        'Einsum(%a, %b) {equation = "bhid,bhjd->bhij"}',
        [2, 3, 4, 5],
        [2, 3, 6, 5],
        lambda a, b: a @ b.swapaxes(-1, -2),
    ),
    (
        'Einsum(%a, %b) {equation = "...id, ...jd -> ...ij"}',
        [2, 3, 4, 5],
        [3, 6, 5],
        lambda a, b: a @ b.swapaxes(-1, -2),
    ),
    (
        'Einsum(%a, %b) {equation = "bihd,bjd->bhij"}',
        [2, 4, 3, 5],
        [2, 6, 5],
        lambda a, b: np.einsum("bihd,bjd->bhij", a, b),
    ),
    (
        'Einsum(%a, %b) {equation = "ik,kj"}',
        [4, 5],
        [5, 6],
        lambda a, b: a @ b,
    ),
    (
        "com.microsoft.FusedMatMul(%a, %b) {transB = 1, alpha = 0.25}",
        [2, 3, 4, 5],
        [2, 3, 6, 5],
        lambda a, b: 0.25 * a @ b.swapaxes(-1, -2),
    ),
]


@pytest.mark.parametrize(("line", "a", "b", "expected"), CASES)
def test_axes_and_factor_are_read_from_the_op(
    line: str, a: list[int], b: list[int], expected: Any
) -> None:
    found = seen(line, a, b)
    assert found is not None
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal(a), draw.standard_normal(b)
    np.testing.assert_allclose(computed(found, x, y), expected(x, y))


@pytest.mark.parametrize(
    "equation",
    ["bhid,bhjd->bhi", "bhii,bhij->bhj", "bhid,bhjd->bhijd", "bhid,bhkd->bhi"],
)
def test_einsums_that_are_no_single_contraction_are_left(equation: str) -> None:
    assert seen(f'Einsum(%a, %b) {{equation = "{equation}"}}', [2, 3, 4, 4], [2, 3, 4, 4]) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_any_einsum_of_one_sum_is_understood(seed: int) -> None:
    draw = random.Random(seed)
    size = {x: draw.choice([2, 3, 4]) for x in "abcdz"}
    shared = draw.sample("ab", draw.randrange(3))
    left, right = [*shared, "c", "z"], [*shared, "d", "z"]
    out = [*shared, "c", "d"]
    for part in (left, right, out):
        draw.shuffle(part)
    equation = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    a, b = [size[x] for x in left], [size[x] for x in right]
    found = seen(f'Einsum(%a, %b) {{equation = "{equation}"}}', a, b)
    assert found is not None
    x, y = np.random.default_rng(0).standard_normal(a), np.random.default_rng(1).standard_normal(b)
    np.testing.assert_allclose(computed(found, x, y), np.einsum(equation, x, y))


@pytest.mark.parametrize("attr", ["transBatchA", "transBatchB"])
def test_batches_that_are_exchanged_are_left(attr: str) -> None:
    line = f"com.microsoft.FusedMatMul(%a, %b) {{{attr} = 1}}"
    assert seen(line, [3, 3, 3], [3, 3, 3]) is None
    assert seen(line.replace("= 1", "= 0"), [3, 3, 3], [3, 3, 3]) is not None
