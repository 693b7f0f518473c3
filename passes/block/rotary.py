"""Rotary embedding in each spelling becomes one RotaryEmbedding.

The rule looks at the op that ends one: a sum (rotate_half), a concatenation (halves computed
apart, partial rotation) or a reshape (pairs stacked). What it computes is read as a form of
lanes (`lanes`), so that it does not matter how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.block_ops import ROTARY_EMBEDDING
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.block.lane_reader import LaneReader
from gecompiler.passes.block.lanes import Lanes
from gecompiler.passes.block.region import fused, is_closed, shared_info
from gecompiler.passes.block.rotary_form import Rotation, rotation_of
from gecompiler.passes.block.rotary_op import fits, is_rotary, rotary_op
from gecompiler.passes.block.rotary_tables import HalfTables
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_ARITHMETIC = ("Add", "Concat", "Mul", "Neg", "Sub")
_VIEWS = (
    *("Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice"),
    *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
_ENDS = (*_ARITHMETIC, "Reshape", "Unsqueeze")


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
        reader = LaneReader(r)
        forms = reader.forms(op.outputs[0])
        if reader.saw_heads and not any(form.terms == 2 for form in forms):
            forms = LaneReader(r, deep=True).forms(op.outputs[0])
        for rotation, members in _rotations(r, op, forms, op.outputs[0]):
            ops = [*members, op]
            if not is_closed(r, ops, op.outputs):
                continue
            if shared_info(r, op, ops, ROTARY_EMBEDDING) is None:
                continue
            made = rotary_op(r, self.tables, rotation, members, op.outputs[0])
            return fused(
                r, op, members, ROTARY_EMBEDDING, made.inputs, made.attrs, domain=made.domain
            )
        return None

    def part(self, r: Rewriter, op: Op) -> Result | None:
        """Some neighbouring operands of a concatenation are a rotation of another tensor."""
        shape, count = r.facts.shape(op.outputs[0]), len(op.inputs)
        if not shape or op.attr("axis") not in (-1, len(shape) - 1) or count < 3:
            return None
        turned = [any(f.terms == 2 for f in LaneReader(r).forms(v)) for v in op.inputs]
        for first in range(count):
            for end in range(count, first + 1, -1):
                if all(turned[first:end]) and (first, end) != (0, count):
                    found = self._run(r, op, first, end)
                    if found is not None:
                        return found
        return None

    def _run(self, r: Rewriter, op: Op, first: int, end: int) -> Op | None:
        """The concatenation with operands ``first`` to ``end - 1`` made by one rotation."""
        joined = op.with_(inputs=op.inputs[first:end])
        like = r.graph.tensor(joined.inputs[0])
        forms = LaneReader(r).forms_of_concat(joined)
        for rotation, members in _rotations(r, joined, forms, joined.inputs[0]):
            closed = is_closed(r, [*members, op], op.outputs)
            if not closed or like is None or like.shape is None:
                continue
            info = shared_info(r, op, members, ROTARY_EMBEDDING)
            if info is None:
                continue
            made = rotary_op(r, self.tables, rotation, members, joined.inputs[0])
            value = r.graph.emit(
                ROTARY_EMBEDDING,
                made.inputs,
                TensorType(like.dtype, (*like.shape[:-1], rotation.width)),
                attrs=made.attrs,
                domain=made.domain,
                info=info,
                stem=f"{op.name}_{ROTARY_EMBEDDING}",
            )
            return op.with_(inputs=(*op.inputs[:first], value, *op.inputs[end:]))
        return None


def _may_end_one(r: Rewriter, op: Op) -> bool:
    """A cheap look before forms are read: are the op's operands made by arithmetic at all."""
    shape = r.facts.shape(op.outputs[0])
    if not shape or not isinstance(shape[-1], int):
        return False
    makers = [r.graph.producer(v) for v in op.inputs]
    if op.op_type == "Add":
        return all(m is not None and m.is_("Concat", "Mul", "Neg") for m in makers)
    return any(m is not None and (m.is_(*_ENDS) or is_rotary(m)) for m in makers)


def _rotations(
    r: Rewriter, op: Op, forms: Sequence[Lanes], like: str
) -> Iterator[tuple[Rotation, list[Op]]]:
    """The rotations among the forms of what ``op`` makes, with the other ops that compute them."""
    for form in forms:
        rotation = rotation_of(form)
        if rotation is not None:
            members = _members(r, op, form)
            if fits(r, rotation, members, like):
                yield rotation, members


def _members(r: Rewriter, op: Op, form: Lanes) -> list[Op]:
    """The ops that compute the form from its root: arithmetic, and views of what that made."""
    works: dict[str, bool] = dict.fromkeys(("", form.root, *form.operands), False)
    found: dict[str, Op] = {}

    def visit(value: str) -> bool:
        """Whether the value is computed by arithmetic here; notes the ops that are members."""
        if value in works:
            return works[value]
        works[value] = False
        maker = r.graph.producer(value)
        if maker is None:
            return False
        view = maker.is_(*_VIEWS)
        if not view and not maker.is_(*_ARITHMETIC) and not is_rotary(maker):
            return False
        inner = [visit(v) for v in (maker.inputs[:1] if view else maker.inputs)]
        works[value] = not view or any(inner)
        if works[value]:
            found[maker.name] = maker
        return works[value]

    for value in op.inputs[:1] if op.is_("Reshape") else op.inputs:
        visit(value)
    return list(found.values())
