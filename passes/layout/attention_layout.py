"""Attention that reads and writes rows before heads, so that no Transpose stands around it.

Models split (B, S, N * D) into heads and transpose to (B, N, S, D) before an attention, and
back after it. The kernels do that on the way, by strides: their ``input_layout`` says how the
tensors lie (see `gecompiler.ir.flash_attention`). So the Transposes go

- at Q, K and V together, and at the output, where all three can be had with rows first: layout
  ``BSND``. A Transpose may stand before ops that work within rows (`row_ops`), which then do so
  with rows first. What else uses their results, such as a cache in BNSD, gets a Transpose of
  its own, so this is done where it moves fewer elements in all;
- at the output alone, if it is used in no other way: layout ``BNSD_BSND``.

A Transpose that the user marked for another place than the attention stays.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import ClassVar

from gecompiler.ir.flash_attention import (
    FLASH_ATTENTION,
    AttentionLayout,
    FlashAttention,
    exchanged,
)
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.bodies import MAX_DEPTH, rewrite_bodies
from gecompiler.passes.layout.attention_rows import (
    PERM,
    Operands,
    Saving,
    is_exchange,
    is_view,
    may_go,
    minus,
    outside,
    view_source,
    weight,
)
from gecompiler.passes.layout.row_ops import row_inputs, row_tables, turned_table
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.user_marks import placed

_MAX_ROUNDS = 8
"""Attentions that share an operand may become worth it one by one."""


@dataclass(frozen=True)
class AbsorbLayout(Pass):
    """Takes the Transposes around every FlashAttention into it, bodies of ops included."""

    name: ClassVar[str] = "attention-layout"

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns how many attentions changed their layout."""
        infer_types(graph)
        count = 0
        for _ in range(_MAX_ROUNDS):
            found = _absorb(graph, 0)
            count += found
            if not found:
                break
        return count


def _absorb(graph: Graph, depth: int) -> int:
    run = _Run(graph, {name for pair in graph.controls for name in pair})
    count = 0
    for name in [op.name for op in graph.topological()]:
        if name not in graph:
            continue
        op = graph.op(name)
        if op.is_(FLASH_ATTENTION, domain=GE_DOMAIN):
            count += run.absorb(op)
    if depth < MAX_DEPTH:
        count += rewrite_bodies(graph, lambda body: _absorb(body, depth + 1))
    return count


@dataclass
class _Run:
    """One graph, and the tables of positions that have been turned in it."""

    graph: Graph
    pinned: Container[str]
    tables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.build = Builder(self.graph)

    def absorb(self, op: Op) -> bool:
        """Chooses the attention's layout and puts it in place; whether it is another."""
        out = op.outputs[0]
        captured = any(use.slot < 0 for use in self.graph.uses(out))
        if FlashAttention.of(op).layout != "BNSD" or captured or not self.graph.shape(out):
            return False
        after = self._exchanges_after(op)
        operands = Operands(self.graph, op, self.pinned)
        if operands.all_reached() and self._whole_saving(operands, after) > (0, 0):
            gone = self._read_rows_first(operands)
            self._write_rows_first(op.name, "BSND", after, gone)
            return True
        if after and not self._used_otherwise(op, after):
            self._write_rows_first(op.name, "BNSD_BSND", after, [])
            return True
        return False

    def _exchanges_after(self, op: Op) -> list[Op]:
        """The Transposes of the output that may go."""
        users = self.graph.users(op.outputs[0])
        return [u for u in users if is_exchange(u) and may_go(u, op, self.pinned)]

    def _used_otherwise(self, op: Op, after: list[Op]) -> bool:
        return outside(self.graph, op.outputs[0], frozenset(u.name for u in after))

    def _whole_saving(self, operands: Operands, after: list[Op]) -> Saving:
        """What all tensors with rows first save."""
        op, graph = operands.attention, self.graph
        again = self._used_otherwise(op, after) and not is_view(graph, op.outputs[0])
        at_output = minus(
            weight(graph, op.outputs if again else ()),
            weight(graph, (u.outputs[0] for u in after)),
        )
        return minus(operands.saving(), at_output)

    # ---------------------------------------------------------------- operands

    def _read_rows_first(self, operands: Operands) -> list[Op]:
        """Makes the attention and the ops before it read rows first; its output stays.

        Returns the Transposes that are no more.
        """
        graph, op = self.graph, operands.attention
        inside, idle = operands.inside(), operands.idle_roots()
        left = {value: operands.root_of(value) for value in operands.left()}
        rows = {t.outputs[0]: t.inputs[0] for t in operands.roots.values()}
        rows.update({value: self._view(value, op) for value in operands.views})
        for name in operands.turned:
            self._turn(graph.op(name), rows)
        inputs = tuple(rows.get(v, v) for v in op.inputs[:3])
        graph.replace_op(op.name, op.with_(inputs=(*inputs, *op.inputs[3:])))
        for value, root in left.items():
            self._restore(value, inside, idle.pop(root, None))
        remove_dead(graph, [*operands.views, *idle])
        return list(idle.values())

    def _view(self, value: str, reader: Op) -> str:
        shape = self.build.shape(value)
        self._inherit(self.graph.producer(value) or reader)
        return self.build.reshape(view_source(self.graph, value), exchanged(shape))

    def _turn(self, op: Op, rows: dict[str, str]) -> None:
        """The op works on rows first under its own name; its outputs keep theirs."""
        inputs, data = list(op.inputs), row_inputs(self.graph, op) or ()
        for n in data:
            inputs[n] = rows.get(inputs[n], inputs[n])
        for n in row_tables(op):
            inputs[n] = self._table(inputs[n], op)
        if op.is_("Expand"):
            inputs[1] = self.build.runtime_shape(exchanged(self.build.shape(op.outputs[0])))
        self.graph.replace_op(op.name, op.with_(inputs=tuple(inputs)))
        remove_dead(self.graph, (op.inputs[n] for n in row_tables(op)))
        for value in op.outputs:
            if value:
                self._exchange_type(value)

    def _table(self, value: str, reader: Op) -> str:
        """A table by position for rows first; each is turned once, a constant one for good."""
        if value not in self.tables or not self.graph.has_value(self.tables[value]):
            shape = turned_table(self.build.shape(value))
            constant = self.graph.constant(value)
            assert shape is not None
            self._inherit(self.graph.producer(value) or reader)
            if constant is not None and constant.data is not None:
                data = constant.data.reshape([d for d in shape if isinstance(d, int)])
                self.tables[value] = self.build.constant(data, constant.type.dtype, "table")
            else:
                self.tables[value] = self.build.reshape(value, shape)
        return self.tables[value]

    # ---------------------------------------------------------------- output

    def _write_rows_first(
        self, name: str, layout: AttentionLayout, after: list[Op], gone: list[Op]
    ) -> None:
        """Sets the layout; the attention stands for the Transposes that go, also by name.

        Those without its marks (see `may_go`) have nothing left that could be found by name.
        """
        graph, op = self.graph, self.graph.op(name)
        alike = [o for o in (op, *gone, *after) if placed(o.info) == placed(op.info)]
        sources = [s for o in alike for s in (o.info.sources or (o.name,))]
        info = replace(op.info, sources=tuple(dict.fromkeys(sources)))
        attrs = replace(FlashAttention.of(op), layout=layout).attrs()
        graph.replace_op(name, op.with_(attrs=attrs, info=info))
        self._exchange_type(op.outputs[0])
        inside = frozenset(u.name for u in after)
        if outside(graph, op.outputs[0], inside):
            self._restore(op.outputs[0], inside, None)
        for user in after:
            graph.replace_uses(graph.op(user.name).outputs[0], graph.op(name).outputs[0])
            remove_dead(graph, graph.op(user.name).outputs)

    def _restore(self, value: str, inside: Container[str], idle: Op | None) -> None:
        """Gives those outside ``inside`` the value with heads first again.

        An idle Transpose does it, if there is one, in its old place in the order of ops.
        """
        graph = self.graph
        others = [use for use in graph.uses(value) if use.op not in inside]
        shape = exchanged(self.build.shape(value))
        maker = graph.producer(value)
        assert maker is not None
        self._inherit(maker)
        if is_view(graph, value):
            back = self.build.reshape(value, shape)
        elif idle is not None:
            graph.replace_op(idle.name, idle.with_(inputs=(value,)))
            back = idle.outputs[0]
            graph.set_type(back, TensorType(self.build.dtype(value), shape))
        else:
            back = self.build.transpose(value, PERM)
        for use in others:
            graph.set_input(use.op, use.slot, back)
        if graph.is_output(value):
            graph.rename_output(value, back)

    def _exchange_type(self, value: str) -> None:
        dtype, shape = self.build.dtype(value), self.build.shape(value)
        self.graph.set_type(value, TensorType(dtype, exchanged(shape)))

    def _inherit(self, maker: Op) -> None:
        """What is made next belongs where ``maker`` does, with its marks."""
        self.build.info = replace(maker.info, sources=())
        self.build.scope = f"{maker.info.scope}/" if maker.info.scope else ""
