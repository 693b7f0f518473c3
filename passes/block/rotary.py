"""Rotary embedding in each spelling becomes one RotaryEmbedding.

The rule looks at the op that ends one: a sum (rotate_half), a concatenation (halves computed
apart, partial rotation) or a reshape (pairs stacked). What it computes is read as a form of
lanes (`lanes`), so that it does not matter how.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gecompiler.ir.block_ops import ROTARY_EMBEDDING
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import Shape, TensorType
from gecompiler.passes.block.lane_reader import LaneReader
from gecompiler.passes.block.lanes import Lanes
from gecompiler.passes.block.region import fused, is_closed, shared_info
from gecompiler.passes.block.rotary_form import Rotation, rotation_of
from gecompiler.passes.block.rotary_tables import HalfTables, last_axis
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_ARITHMETIC = ("Add", "Concat", "Mul", "Neg", "Sub")
_ENDS = (*_ARITHMETIC, "Reshape", "Unsqueeze")
_VIEWS = (
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)


@dataclass
class RotaryFusion:
    """The rules, and the tables made so far, which layers share."""

    tables: HalfTables = field(default_factory=HalfTables)

    @property
    def rules(self) -> RuleTable:
        """The rules by kind of op."""
        return {"Add": (self.whole,), "Concat": (self.whole, self.part), "Reshape": (self.whole,)}

    def whole(self, r: Rewriter, op: Op) -> Result | None:
        """The op ends a rotation of all that it makes, maybe with lanes that pass through."""
        if not _may_end_one(r, op):
            return None
        for deep in (False, True):
            reader = LaneReader(r, deep)
            for form in reader.forms(op.outputs[0]):
                rotation = rotation_of(form)
                if rotation is None or not _tables_fit(r, rotation, op.outputs[0]):
                    continue
                members = _members(r, op, form, reader)
                if not _may_fuse(r, op, members):
                    continue
                inputs = self._inputs(r, rotation)
                return fused(r, op, members, ROTARY_EMBEDDING, inputs, rotation.spec.attrs())
        return None

    def part(self, r: Rewriter, op: Op) -> Result | None:
        """Neighbouring operands of a concatenation are a rotation, others are not of its root."""
        shape = r.facts.shape(op.outputs[0])
        if not shape or op.attr("axis") not in (-1, len(shape) - 1) or len(op.inputs) < 3:
            return None
        turned = [self._turned(r, value) for value in op.inputs]
        for first in range(len(op.inputs)):
            for end in range(len(op.inputs) - (first == 0), first + 1, -1):
                if all(turned[first:end]):
                    found = self._run(r, op, first, end)
                    if found is not None:
                        return found
        return None

    def _turned(self, r: Rewriter, value: str) -> bool:
        return any(form.terms == 2 for form in LaneReader(r).forms(value))

    def _run(self, r: Rewriter, op: Op, first: int, end: int) -> Op | None:
        """The concatenation with operands ``first`` to ``end - 1`` made by one rotation."""
        kinds = [r.graph.tensor(v) for v in op.inputs[first:end]]
        types = [k for k in kinds if k is not None and k.shape]
        widths = [k.shape[-1] for k in types if k.shape]
        if len(widths) != len(kinds):
            return None
        reader = LaneReader(r)
        joined = op.with_(inputs=op.inputs[first:end])
        for form in reader.forms_of_concat(joined):
            rotation = rotation_of(form)
            if rotation is None or not _tables_fit(r, rotation, op.inputs[first]):
                continue
            members = _members(r, joined, form, reader)
            info = shared_info(op, members)
            if info is None or not is_closed(r, [*members, op], op.outputs):
                continue
            assert types[0].shape is not None
            kind = TensorType(types[0].dtype, (*types[0].shape[:-1], rotation.width))
            value = r.graph.emit(
                ROTARY_EMBEDDING,
                self._inputs(r, rotation),
                kind,
                attrs=rotation.spec.attrs(),
                domain=GE_DOMAIN,
                info=info,
                stem=f"{op.name}_{ROTARY_EMBEDDING}",
            )
            return op.with_(inputs=(*op.inputs[:first], value, *op.inputs[end:]))
        return None

    def _inputs(self, r: Rewriter, rotation: Rotation) -> tuple[str, str, str]:
        shape = r.facts.shape(rotation.root)
        x = rotation.root
        if not shape or shape[-1] != rotation.width:
            x = last_axis(r, x, rotation.window, rotation.width)
        style = rotation.spec.style
        cos, sin = (self.tables.operand(r, t, style) for t in (rotation.cos, rotation.sin))
        return x, cos, sin


def _may_end_one(r: Rewriter, op: Op) -> bool:
    """A cheap look before forms are read: are the op's operands made by arithmetic at all."""
    shape = r.facts.shape(op.outputs[0])
    if not shape or not isinstance(shape[-1], int):
        return False
    makers = [r.graph.producer(v) for v in op.inputs]
    if op.op_type == "Add":
        return all(m is not None and m.is_("Mul", "Neg") for m in makers)
    return any(m is not None and (m.is_(*_ENDS) or _is_rotary(m)) for m in makers)


def _is_rotary(op: Op) -> bool:
    return op.is_(ROTARY_EMBEDDING, domain=GE_DOMAIN)


def _may_fuse(r: Rewriter, op: Op, members: list[Op]) -> bool:
    """Whether `fused` will not refuse, asked before anything is emitted."""
    ops = [*members, op]
    return shared_info(op, ops) is not None and is_closed(r, ops, op.outputs)


def _tables_fit(r: Rewriter, rotation: Rotation, like: str) -> bool:
    """Whether the tables broadcast to what is turned without making it larger."""
    target = r.facts.shape(like)
    if target is None or r.facts.dtype(rotation.root) is not r.facts.dtype(like):
        return False
    root = r.facts.shape(rotation.root)
    if root is None or root[:-1] != target[:-1]:
        return False
    return all(
        _broadcasts(r.facts.shape(t.root), target[:-1]) for t in (rotation.cos, rotation.sin)
    )


def _broadcasts(shape: Shape | None, target: Shape) -> bool:
    if shape is None or len(shape) - 1 > len(target):
        return False
    pairs = zip(reversed(shape[:-1]), reversed(target), strict=False)
    return all(a in (b, 1) for a, b in pairs)


def _members(r: Rewriter, op: Op, form: Lanes, reader: LaneReader) -> list[Op]:
    """The ops that compute the form from its root: arithmetic, and views of what that made."""
    stops = {form.root, *form.operands}
    works: dict[str, bool] = {}
    found: dict[str, Op] = {}

    def visit(value: str) -> bool:
        """Whether the value is computed by arithmetic here; notes the ops that are members."""
        if value in stops or not value:
            return False
        if value in works:
            return works[value]
        works[value] = False
        maker = r.graph.producer(value)
        if maker is None:
            return False
        own = maker.is_(*_ARITHMETIC) or _is_rotary(maker)
        if not own and not maker.is_(*_VIEWS):
            return False
        data = maker.inputs[:1] if maker.is_(*_VIEWS) else maker.inputs
        inner = [visit(v) for v in data]
        works[value] = own or any(inner)
        if works[value]:
            found[maker.name] = maker
        return works[value]

    for value in op.inputs[:1] if op.is_("Reshape") else op.inputs:
        visit(value)
    return list(found.values())
