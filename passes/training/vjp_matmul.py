"""Gradients of matrix products: Gemms, which need no transpose, with a matrix on the right."""

from __future__ import annotations

from gecompiler.ir.types import TensorType
from gecompiler.passes.training.site import Gradients, Rule, Site


def _matmul(site: Site) -> Gradients:
    t = site.tape
    a, b = site.shape(0), site.shape(1)
    dy = site.dy
    if len(b) == 1:
        dy = t.reshape(dy, (*t.shape(dy), 1))
    if len(a) == 1:
        dy = t.reshape(dy, (*t.shape(dy)[:-1], 1, t.shape(dy)[-1]))
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    ways = _by_matrix if len(right) == 2 else _by_batch
    found = ways(site, dy, left, right)
    return {i: t.reshape(grad, site.shape(i)) for i, grad in found.items()}


def _by_matrix(site: Site, dy: str, left: tuple[int, ...], right: tuple[int, ...]) -> Gradients:
    """All rows of X are one matrix."""
    t, found, rows = site.tape, {}, site.tape.flat(dy)
    if site.wants(0):
        found[0] = t.gemm(rows, t.reshape(site.x(1), right), tb=True)
    if site.wants(1):
        found[1] = t.gemm(t.flat(t.reshape(site.x(0), left)), rows, ta=True)
    return found


def _by_batch(site: Site, dy: str, left: tuple[int, ...], right: tuple[int, ...]) -> Gradients:
    t, found = site.tape, {}
    if site.wants(0):
        found[0] = t.sum_to(t.matmul(dy, t.swapped(t.reshape(site.x(1), right))), left)
    if site.wants(1):
        found[1] = t.sum_to(t.matmul(t.swapped(t.reshape(site.x(0), left)), dy), right)
    return found


def _gemm(site: Site) -> Gradients:
    t, op, found = site.tape, site.op, {}
    ta, tb = bool(op.attr("transA", 0)), bool(op.attr("transB", 0))
    alpha, beta = float(op.attr("alpha", 1.0)), float(op.attr("beta", 1.0))
    dy = t.scaled(site.dy, alpha)
    if site.wants(0):
        b = site.x(1)
        found[0] = t.gemm(b, dy, ta=tb, tb=True) if ta else t.gemm(dy, b, tb=not tb)
    if site.wants(1):
        a = site.x(0)
        found[1] = t.gemm(dy, a, ta=True, tb=ta) if tb else t.gemm(a, dy, ta=not ta)
    if site.wants(2):
        found[2] = t.scaled(t.sum_to(site.dy, site.shape(2)), beta)
    return found


def _einsum(site: Site) -> Gradients:
    """Each operand's is the Einsum of dY with the others, over letters that these have."""
    source, arrow, target = str(site.op.attr("equation", "")).replace(" ", "").partition("->")
    terms = source.split(",")
    if not arrow:
        letters = "".join(terms)
        target = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if "." in source or any(len(set(term)) < len(term) for term in terms):
        site.fail(f"with the equation {source!r} has no gradient here")
    t, found = site.tape, {}
    for index, term in enumerate(terms):
        if not site.wants(index):
            continue
        others = [(o, i) for i, o in enumerate(terms) if i != index]
        there = set(target).union(*(o for o, _ in others))
        made = "".join(c for c in term if c in there)
        equation = f"{','.join([target, *(o for o, _ in others)])}->{made}"
        sizes = dict(zip(term, site.shape(index), strict=True))
        kind = TensorType(site.type(index).dtype, tuple(sizes[c] for c in made))
        inputs = [site.dy, *(site.x(i) for _, i in others)]
        grad = t.emit("Einsum", inputs, kind, attrs={"equation": equation})[0]
        kept = tuple(sizes[c] if c in there else 1 for c in term)
        found[index] = t.expand(t.reshape(grad, kept), site.shape(index))
    return found


RULES: dict[str, Rule] = {"MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum}
