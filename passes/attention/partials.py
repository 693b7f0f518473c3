"""Attention over keys in parts, each with a softmax of its own, put together by log-sum-exp.

    o = sum_i w_i softmax(s_i) V_i,   w_i = exp(l_i) / sum_j exp(l_j),   l_i = log sum exp(s_i)

is softmax([s_1 ... s_n]) [V_1 ; ... ; V_n] (FlashDecoding, Dao et al. 2023). It is written in many
ways: by maxima and sums, by logarithms, weighted before or after the division. All are read as
a sum of ``c_i exp(s_i) V_i`` with the logarithm of each ``c_i`` as a sum of known logarithms; where
all are minus that of the sum of everything, it is one attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.op import Op
from gecompiler.passes.attention.anchors import Anchor, reduced_axes
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.match import Match, match
from gecompiler.passes.attention.noops import is_noop, maker, origin
from gecompiler.passes.attention.pieces import Joining, piece_of
from gecompiler.passes.attention.refusal import Refusal, at
from gecompiler.passes.attention.sites import Origins
from gecompiler.passes.attention.terms import Overwrite

MAX_DEPTH = 24
MAX_TERMS = 64

Atom = frozenset[str] | str
"""The logarithm of a sum of exponentials of those scores together, or a value itself."""

Log = Mapping[Atom, int]
"""A sum of atoms with factors."""


@dataclass(frozen=True, slots=True)
class Term:
    """``exp(log) * exp(scores) @ values``."""

    scores: str
    values: str
    log: Log
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Partials:
    """A value that is one attention over several parts, computed by ``ops``."""

    op: Op
    terms: tuple[Term, ...]
    ops: tuple[Op, ...]


def partials(e: Elements) -> Iterator[Partials]:
    """Every value of the graph that is put together so, in topological order."""
    for op in e.graph.topological():
        if op.domain or op.op_type not in ("Add", "Sum", "Div"):
            continue
        reader = _Reader(e)
        try:
            terms = reader.terms(op.outputs[0])
        except Refusal:
            continue
        whole = frozenset(t.scores for t in terms)
        if 1 < len(terms) == len(whole) and all(dict(t.log) == {whole: -1} for t in terms):
            ops = dict.fromkeys((*reader.ops, *(o for t in terms for o in t.ops)))
            yield Partials(op, tuple(terms), tuple(ops))


def match_partials(e: Elements, origins: Origins, found: Partials) -> Match:
    """The one attention; Refusal where its parts do not go together."""
    scores, values = [t.scores for t in found.terms], [t.values for t in found.terms]
    ops = list(found.ops)
    build = Builder(e.graph, scope=f"{found.op.name}/", sources=tuple(values))
    axis = len(build.shape(scores[0])) - 1
    joined = Joining(e, origins.leads, found.op, axis, ops).whole(scores)
    shapes = [build.shape(v) for v in values]
    if any(s[:-2] != shapes[0][:-2] or len(s) != len(shapes[0]) for s in shapes):
        raise at(found.op, "puts together parts with V of different batches")
    weights = build.emit("Softmax", (joined,), build.dtype(joined), build.shape(joined), axis=axis)
    whole = build.concat(values, len(shapes[0]) - 2)
    out = found.op.outputs[0]
    product = build.emit("MatMul", (weights, whole), build.dtype(out), build.shape(out))
    softmax = e.graph.producer(weights)
    assert softmax is not None
    one = match(e, origins, Anchor(softmax, joined, weights, axis, (softmax,)))
    if any(isinstance(t, Overwrite) and np.isinf(t.sentinel) for t in one.terms):
        raise at(found.op, "puts together parts that may have no key, and are NaN then")
    if one.out != product:
        raise at(found.op, "puts together parts in a way that cannot be followed")
    return replace(one, op=found.op, out=out, ops=(*one.ops, *dict.fromkeys(ops)))


class _Reader:
    """Reads one value; ``ops`` are those it has looked through."""

    def __init__(self, e: Elements) -> None:
        self.e = e
        self.ops: list[Op] = []

    def terms(self, value: str, depth: int = 0) -> list[Term]:
        """The value as a sum of terms; Refusal where it is none."""
        op = self._made(value)
        if op is None or depth > MAX_DEPTH:
            raise Refusal("no sum of parts")
        if op.is_("Add", "Sum"):
            found = [t for name in op.inputs for t in self.terms(name, depth + 1)]
            if len(found) > MAX_TERMS:
                raise Refusal("too many parts")
            return found
        if op.is_("Div"):
            inner, log = self.terms(op.inputs[0], depth + 1), self.log(op.inputs[1])
            return [replace(t, log=_plus(t.log, log, -1)) for t in inner]
        if op.is_("Mul"):
            for n in (0, 1):
                if self._is_row(op.inputs[1 - n]):
                    inner, log = self.terms(op.inputs[n], depth + 1), self.log(op.inputs[1 - n])
                    return [replace(t, log=_plus(t.log, log)) for t in inner]
        if op.is_("MatMul"):
            return [self._term(op)]
        raise Refusal("no sum of parts")

    def _term(self, op: Op) -> Term:
        """``P V``, with P a softmax of scores or exponentials of them."""
        weights = self._made(op.inputs[0])
        if weights is None:
            raise Refusal("no weights")
        if weights.is_("Softmax") and self._on_last(weights, weights.attr("axis", -1)):
            scores = origin(self.e, weights.inputs[0])
            return Term(scores, op.inputs[1], {frozenset((scores,)): -1}, (op, weights))
        if weights.is_("Exp"):
            scores, shift = self._shifted(weights.inputs[0])
            return Term(scores, op.inputs[1], _plus({}, shift, -1), (op, weights))
        raise Refusal("no weights")

    def _shifted(self, value: str) -> tuple[str, Log]:
        """Scores less a value per row: (scores, what is subtracted)."""
        op = maker(self.e, value)
        if op is not None and op.is_("Sub") and self._is_row(op.inputs[1]):
            self.ops.append(op)
            return origin(self.e, op.inputs[0]), self.linear(op.inputs[1])
        return origin(self.e, value), {}

    # ------------------------------------------------------------ logarithms

    def log(self, value: str, depth: int = 0) -> Log:
        """The logarithm of a positive value per row."""
        op = self._made(value)
        if op is None or depth > MAX_DEPTH:
            raise Refusal("no known logarithm")
        if op.is_("Exp"):
            return self.linear(op.inputs[0], depth + 1)
        if op.is_("Mul", "Div"):
            sign = 1 if op.is_("Mul") else -1
            a, b = (self.log(name, depth + 1) for name in op.inputs)
            return _plus(a, b, sign)
        if op.is_("Add", "Sum"):
            return _joint([self.log(name, depth + 1) for name in op.inputs])
        if op.is_("ReduceSum") and self._reduces_last(op):
            return self._log_of_sum(op, depth)
        piece = piece_of(self.e, origin(self.e, value))
        if piece is not None:
            return self._log_of_weight(piece, depth)
        raise Refusal("no known logarithm")

    def _log_of_sum(self, op: Op, depth: int) -> Log:
        """Of exponentials of scores, or of rows behind each other."""
        inner = self._made(op.inputs[0])
        if inner is None or not inner.is_("Exp"):
            raise Refusal("no sum of exponentials")
        scores, shift = self._shifted(inner.inputs[0])
        rows = maker(self.e, scores)
        if rows is not None and rows.is_("Concat") and self._is_row(rows.inputs[0]):
            return _plus(self._joined(rows, depth), shift, -1)
        return _plus({frozenset((scores,)): 1}, shift, -1)

    def _joined(self, rows: Op, depth: int) -> Log:
        """The log-sum-exp of values per row behind each other along the last axis."""
        self.ops.append(rows)
        if not self._on_last(rows, rows.attr("axis", 0)):
            raise Refusal("not behind each other along the last axis")
        return _joint([self.linear(name, depth + 1) for name in rows.inputs])

    def _log_of_weight(self, piece: tuple[Op, str, int], depth: int) -> Log:
        """Of an entry of a softmax over values per row."""
        cut, whole, index = piece
        softmax = self._made(whole)
        rows = None if softmax is None else maker(self.e, softmax.inputs[0])
        if softmax is None or not softmax.is_("Softmax") or rows is None:
            raise Refusal("no weight")
        if not rows.is_("Concat") or not self._on_last(softmax, softmax.attr("axis", -1)):
            raise Refusal("no weight")
        self.ops += [cut, softmax]
        total = self._joined(rows, depth)
        if not 0 <= index < len(rows.inputs):
            raise Refusal("no weight")
        return _plus(self.linear(rows.inputs[index], depth + 1), total, -1)

    def linear(self, value: str, depth: int = 0) -> Log:
        """A value per row as a sum of logarithms and of values of which nothing is known."""
        name = origin(self.e, value)
        op = self.e.graph.producer(name)
        if op is None or op.domain or depth > MAX_DEPTH or not self._is_row(name):
            return {name: 1}
        if op.is_("Add", "Sub"):
            self.ops.append(op)
            a, b = (self.linear(n, depth + 1) for n in op.inputs)
            return _plus(a, b, 1 if op.is_("Add") else -1)
        if op.is_("Log"):
            self.ops.append(op)
            return self.log(op.inputs[0], depth + 1)
        if op.is_("ReduceLogSumExp") and self._reduces_last(op):
            self.ops.append(op)
            rows = maker(self.e, op.inputs[0])
            if rows is not None and rows.is_("Concat") and self._is_row(rows.inputs[0]):
                return self._joined(rows, depth)
            return {frozenset((origin(self.e, op.inputs[0]),)): 1}
        if op.is_("ReduceMax", "Max"):
            self._maxima(op, 0)
        return {name: 1}

    # ------------------------------------------------------------ shapes

    def _maxima(self, op: Op, depth: int) -> None:
        """Notes ops that find the largest scores: nobody needs them afterwards."""
        self.ops.append(op)
        for name in op.inputs:
            inner = maker(self.e, name)
            if depth < 8 and inner is not None and inner.is_("ReduceMax", "Max", "Concat"):
                self._maxima(inner, depth + 1)

    def _made(self, value: str) -> Op | None:
        op = self.e.graph.producer(value)
        while op is not None and is_noop(self.e, op):
            self.ops.append(op)
            op = self.e.graph.producer(op.inputs[0])
        if op is None or op.domain:
            return None
        self.ops.append(op)
        return op

    def _is_row(self, value: str) -> bool:
        """Whether there is one number per row."""
        shape = self.e.shape(value)
        return bool(shape) and shape is not None and shape[-1] == 1

    def _on_last(self, op: Op, axis: int) -> bool:
        shape = self.e.shape(op.outputs[0])
        return shape is not None and axis % len(shape) == len(shape) - 1

    def _reduces_last(self, op: Op) -> bool:
        shape = self.e.shape(op.inputs[0])
        if shape is None or not op.attr("keepdims", 1):
            return False
        return reduced_axes(self.e, op, len(shape)) == (len(shape) - 1,)


def _plus(a: Log, b: Log, sign: int = 1) -> Log:
    found = dict(a)
    for atom, factor in b.items():
        found[atom] = found.get(atom, 0) + sign * factor
    return {atom: factor for atom, factor in found.items() if factor}


def _joint(logs: Sequence[Log]) -> Log:
    """The logarithm of the sum of exponentials: of disjoint scores, with one shift for all."""
    sets: list[frozenset[str]] = []
    rests: list[Log] = []
    for log in logs:
        own = [a for a, factor in log.items() if isinstance(a, frozenset) and factor == 1]
        if len(own) != 1:
            raise Refusal("no sum of exponentials of scores")
        sets.append(own[0])
        rests.append(_plus(log, {own[0]: 1}, -1))
    whole = frozenset().union(*sets)
    if len(whole) != sum(map(len, sets)) or any(rest != rests[0] for rest in rests):
        raise Refusal("shifts differ")
    return _plus({whole: 1}, rests[0])
