"""Reading the form of lanes (`lanes`) that a value of a graph has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Rotary
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import Shape
from gecompiler.passes.block.lane_moves import MAX_MOVED, Move, move_of, splits_an_axis
from gecompiler.passes.block.lanes import (
    Ints,
    Lanes,
    TableRoot,
    applied,
    negated,
    pair_columns,
    renumbered,
    rotation,
)
from gecompiler.passes.block.patterns import widened_from
from gecompiler.passes.rewriting import Rewriter

MAX_LANES = 1 << 15
_MAX_DEPTH = 24
_MAX_TERMS = 2


@dataclass
class LaneReader:
    """Reads the forms of values; a Cast to a wider type changes no number.

    ``deep`` looks also through axes that are split into heads, ``loose`` through ones that come
    and go among the other axes. ``saw_heads``: whether ``deep`` would have made a difference.
    """

    r: Rewriter
    deep: bool = False
    loose: bool = False

    def __post_init__(self) -> None:
        self._forms: dict[str, list[Lanes]] = {}
        self._moves: dict[str, Lanes | None] = {}
        self.saw_heads = False
        self._tables = self if self.loose else LaneReader(self.r, loose=True)

    # ---------------------------------------------------------------- moves alone

    def moves(self, value: str, depth: int = 0) -> Lanes | None:
        """The form of a value by moves and signs alone; None for lanes of unknown number."""
        if value not in self._moves:
            self._moves[value] = self._moved(value, depth) or self._opaque(value)
        return self._moves[value]

    def _moved(self, value: str, depth: int) -> Lanes | None:
        op = self.r.graph.producer(value)
        if op is None or op.domain or depth > _MAX_DEPTH:
            return None
        if op.op_type == "Neg":
            return negated(self.moves(op.inputs[0], depth + 1))
        if op.op_type == "Cast" and not self.loose:
            narrow = widened_from(self.r, value)
            return None if narrow is None else self.moves(narrow, depth + 1)
        move = self._move(op, value)
        if move is None:
            return None
        parts = [self.moves(v, depth + 1) for v in move.inputs]
        known = [p for p in parts if p is not None]
        return applied(move, known) if len(known) == len(parts) else None

    def _move(self, op: Op, value: str) -> Move | None:
        found = move_of(self.r, op, value, deep=self.deep, loose=self.loose)
        if found is None and op.op_type == "Reshape":
            shapes = [self.r.facts.shape(v) or () for v in (op.inputs[0], value)]
            self.saw_heads |= splits_an_axis(op, shapes[0], shapes[1])
        return found

    def _opaque(self, value: str) -> Lanes | None:
        shape = self.r.facts.shape(value)
        size = shape[-1] if shape else None
        if not isinstance(size, int) or not 1 <= size <= MAX_LANES:
            return None
        lane = np.arange(size, dtype=np.int32)[None]
        return Lanes(value, lane, np.ones_like(lane), np.full_like(lane, -1), np.zeros_like(lane))

    # ---------------------------------------------------------------- sums of products

    def forms(self, value: str, depth: int = 0) -> list[Lanes]:
        """Every form of a value: a product can be seen with either operand as the table."""
        if value not in self._forms:
            self._forms[value] = []  # for what leads back to itself
            self._forms[value] = self._read(value, depth)
        return self._forms[value]

    def _read(self, value: str, depth: int) -> list[Lanes]:
        op = self.r.graph.producer(value)
        found: list[Lanes] = []
        if op is not None and depth <= _MAX_DEPTH:
            if op.op_type == ROTARY_EMBEDDING and op.domain in ("", GE_DOMAIN):
                found = self._rotated(op)
            elif not op.domain:
                found = self._read_op(op, value, depth + 1)
        plain = self.moves(value)
        return found or ([] if plain is None else [plain])

    def _read_op(self, op: Op, value: str, depth: int) -> list[Lanes]:
        if op.op_type == "Mul":
            return self._product(op)
        if op.op_type in ("Add", "Sub"):
            return self._sum(op, depth)
        if op.op_type == "Neg":
            return _negated_all(self.forms(op.inputs[0], depth))
        move = self._move(op, value)
        return [] if move is None else self._moved_forms(move, depth)

    def _moved_forms(self, move: Move, depth: int) -> list[Lanes]:
        """The forms of what is moved, those of one root put together."""
        choices = [self.forms(v, depth) for v in move.inputs]
        found: list[Lanes] = []
        for first in choices[0]:
            parts = [next((f for f in c if f.root == first.root), None) for c in choices[1:]]
            known = [first, *(p for p in parts if p is not None)]
            moved = applied(move, known) if len(known) == len(choices) else None
            if moved is not None:
                found.append(moved)
        return found

    def forms_of_concat(self, op: Op) -> list[Lanes]:
        """The forms of what a concatenation along the last axis would make."""
        move = Move(op.inputs, lambda arrays, tail: np.concatenate(arrays, axis=-1))
        return self._moved_forms(move, 0)

    def _product(self, op: Op) -> list[Lanes]:
        found: list[Lanes] = []
        target = self.r.facts.shape(op.outputs[0])
        for value, table in (op.inputs, op.inputs[::-1]):
            form = None if target is None else self._stretched(value, target)
            read = None if form is None else self._across(table, form.tail)
            if form is None or read is None:
                continue
            root, lane, sign = read
            numbered = replace(form, sign=form.sign * sign, table=np.zeros_like(form.lane))
            found.append(replace(numbered, column=lane, tables=(root,), operands=(table,)))
        return found

    def _stretched(self, value: str, target: Shape) -> Lanes | None:
        """The moves of an operand, its last axes as they are in the product."""
        form, shape = self.moves(value), self.r.facts.shape(value)
        if form is None or shape == target or shape is None or len(shape) != len(target):
            return form if shape == target else None
        lead = len(target) - len(form.tail)
        tail = [d for d in target[lead:] if isinstance(d, int)]
        fits = all(a in (1, b) for a, b in zip(form.tail, tail, strict=False))
        if shape[:lead] != target[:lead] or len(tail) != len(form.tail) or not fits:
            return None
        if prod(tail) > MAX_MOVED:
            return None
        return form.with_arrays([np.broadcast_to(a, (len(a), *tail)) for a in form.arrays])

    def _across(self, table: str, tail: tuple[int, ...]) -> tuple[TableRoot, Ints, Ints] | None:
        """A table broadcast over the tail of what it multiplies: its root, columns and signs."""
        columns, shape = self._tables.moves(table), self.r.facts.shape(table) or ()
        if columns is None:
            return None
        lead, known, depth = shape[: max(0, len(shape) - len(tail))], len(columns.tail), 1
        lane, sign = columns.lane[0], columns.sign[0]
        beyond = shape[len(lead) : len(shape) - known]
        if columns.root == table and any(dim != 1 for dim in beyond):
            depth = len(shape) - len(lead)
            numbered = _numbered(shape[len(lead) :])
            if numbered is None:
                return None
            lane, sign = numbered, np.ones_like(numbered)
        elif known > len(tail) or any(dim != 1 for dim in beyond):
            return None
        try:
            lane, sign = (np.broadcast_to(a, tail)[None] for a in (lane, sign))
        except ValueError:
            return None
        return TableRoot(columns.root, lead, depth), lane, sign

    def _sum(self, op: Op, depth: int) -> list[Lanes]:
        shapes = {self.r.facts.shape(v) for v in (*op.inputs, op.outputs[0])}
        if len(shapes) != 1 or None in shapes:
            return []
        right = self.forms(op.inputs[1], depth)
        if op.op_type == "Sub":
            right = _negated_all(right)
        found: list[Lanes] = []
        for a in self.forms(op.inputs[0], depth):
            for b in right:
                if a.root == b.root and a.tail == b.tail and a.terms + b.terms <= _MAX_TERMS:
                    tables, arrays = renumbered((a, b))
                    joined = [np.concatenate(parts) for parts in zip(*arrays, strict=True)]
                    operands = tuple(dict.fromkeys((*a.operands, *b.operands)))
                    whole = replace(a, tables=tables, operands=operands)
                    found.append(whole.with_arrays(joined))
        return found

    def _rotated(self, op: Op) -> list[Lanes]:
        """What a RotaryEmbedding, ours or of ai.onnx, computes, in terms."""
        form, shape = self.moves(op.inputs[0]), self.r.facts.shape(op.inputs[0])
        spec = _spec_of(op, shape)
        widths = [(self.r.facts.shape(v) or (0,))[-1] for v in op.inputs[1:3]]
        if spec is None or form is None or len(form.tail) != 1:
            return []
        own, other, sign = rotation(spec.dim, spec.style)
        lanes = np.arange(form.tail[0], dtype=np.int32)
        turned = slice(spec.start, spec.start + spec.dim)
        reads = np.stack([lanes, lanes])
        reads[0, turned], reads[1, turned] = spec.start + own, spec.start + other
        signs = np.stack([np.ones_like(lanes), np.zeros_like(lanes)])
        signs[1, turned] = sign
        table = np.full_like(reads, -1)
        table[0, turned], table[1, turned] = 0, 1
        column = np.zeros_like(reads)
        for n, width in enumerate(widths):
            whole = np.arange(spec.dim, dtype=np.int32)
            column[n, turned] = whole if width == spec.dim else pair_columns(spec.dim, spec.style)
        operands = tuple(op.inputs[1:3])
        tables = tuple(TableRoot(v, (self.r.facts.shape(v) or (0,))[:-1]) for v in operands)
        lane, signs = form.lane[0][reads], signs * form.sign[0][reads]
        return [Lanes(form.root, lane, signs, table, column, tables, operands)]


def _numbered(dims: Shape) -> Ints | None:
    """The elements of the dims numbered in order; None when they are too many or unknown."""
    sizes = [d for d in dims if isinstance(d, int)]
    if len(sizes) != len(dims) or not 1 <= prod(sizes) <= MAX_LANES:
        return None
    return np.arange(prod(sizes), dtype=np.int32).reshape(sizes)


def _spec_of(op: Op, shape: Shape | None) -> Rotary | None:
    """The attributes of a RotaryEmbedding in our terms; None for what is not (B, N, S, D)."""
    if op.domain:
        return Rotary.of(op)
    last = shape[-1] if shape is not None and len(shape) == 4 else None
    dim = op.attr("rotary_embedding_dim", 0) or last
    if not isinstance(dim, int) or dim % 2 or len(op.inputs) < 3:
        return None
    return Rotary(dim, 0, "interleaved" if op.attr("interleaved", 0) else "half")


def _negated_all(forms: Iterable[Lanes]) -> list[Lanes]:
    return [found for found in map(negated, forms) if found is not None]
