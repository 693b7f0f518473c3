"""What the backward pass reads of the forward pass: kept, or computed once more.

    none        everything is kept
    attention   the inside of attentions is computed again (Korthikanti et al. 2022, "selective")
    selective   all but the results of matrix products and attentions
    full        only what crosses from one block to the next is kept (Chen et al. 2016)

What is computed again waits, by an order of control, for the gradient that needs it: otherwise
a scheduler might compute it at once and keep it all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.training_ops import CROSS_ENTROPY, CROSS_ENTROPY_PART, RECOMPUTE
from gecompiler.passes.effects import is_pure
from gecompiler.passes.training.names import Recompute

_PRODUCTS = frozenset(("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"))
_VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))


def kept_values(
    graph: Graph, ops: Sequence[Op], active: Collection[str], mode: Recompute
) -> set[str] | None:
    """The active values that are kept; None for all of them. ``ops`` in topological order."""
    if mode == "none":
        return None
    if mode == "full":
        return _block_borders(graph, ops, active)
    again = _attention_insides(graph, ops, active) if mode == "attention" else None
    kept: set[str] = set()
    for op in ops:
        inside = op.name in again if again is not None else _is_cheap(op)
        if not inside or not is_pure(op):
            kept.update(op.outputs)
    return kept


def _is_attention(op: Op) -> bool:
    return op.is_(FLASH_ATTENTION, domain=GE_DOMAIN) or op.is_("Softmax")


def _is_cheap(op: Op) -> bool:
    product = not op.domain and op.op_type in _PRODUCTS
    loss = op.is_(CROSS_ENTROPY, CROSS_ENTROPY_PART, domain=GE_DOMAIN)
    return not (product or loss or op.is_(FLASH_ATTENTION, domain=GE_DOMAIN) or op.bodies)


def _attention_insides(graph: Graph, ops: Sequence[Op], active: Collection[str]) -> set[str]:
    """The ops from the projections to the product with the values, both left out."""
    found: set[str] = set()
    for op in ops:
        if not _is_attention(op):
            continue
        todo = [op]
        while todo:  # back to the ops that have parameters
            current = todo.pop()
            if current.name in found or (current is not op and _has_weight(graph, current)):
                continue
            found.add(current.name)
            makers = (graph.producer(v) for v in current.inputs if v in active)
            todo += [m for m in makers if m is not None]
    return found


def _has_weight(graph: Graph, op: Op) -> bool:
    """Whether the op has a parameter of its own, as projections and norms have."""
    if op.op_type in _VIEWS and not op.domain:
        return False
    floats = [v for v in op.inputs if v and graph.producer(v) is None]
    return any((k := graph.tensor(v)) is not None and k.dtype.is_float and k.rank for v in floats)


def _block_borders(graph: Graph, ops: Sequence[Op], active: Collection[str]) -> set[str]:
    """What is alive where the least is, once before every attention, and all after the last.

    Without attentions the ops are cut into as many parts as the root of their number.
    """
    lives = _live_bytes(graph, ops, active)
    marks = [i for i, op in enumerate(ops) if _is_attention(op)]
    if not marks:
        count = max(1, int(len(ops) ** 0.5))
        marks = [len(ops) * (i + 1) // count - 1 for i in range(count)]
    borders: list[int] = []
    first = 0
    for mark in marks:
        span = range(first, mark + 1)
        borders.append(min(span, key=lambda i: (lives[i], i)))
        first = mark + 1
    kept: set[str] = set()
    last_use = _last_uses(graph, ops, active)
    for i, op in enumerate(ops):
        for value in op.outputs:
            if value and value in active:
                end = last_use.get(value, i)
                if i >= borders[-1] or any(i < b <= end for b in borders):
                    kept.add(value)
        if not is_pure(op) or is_collective_op(op):
            kept.update(op.outputs)
    return kept


def _last_uses(graph: Graph, ops: Sequence[Op], active: Collection[str]) -> dict[str, int]:
    """The place of the last op that reads each active value."""
    found: dict[str, int] = {}
    for i, op in enumerate(ops):
        found.update((v, i) for v in graph.reads(op) if v in active)
    return found


def _live_bytes(graph: Graph, ops: Sequence[Op], active: Collection[str]) -> list[int]:
    """Bytes of the active values that ops before each one made and it or later ones read."""
    last_use = _last_uses(graph, ops, active)
    change = [0] * (len(ops) + 1)
    for i, op in enumerate(ops):
        for value in op.outputs:
            kind = graph.tensor(value) if value else None
            end = last_use.get(value, i)
            if value in active and kind is not None and kind.is_static and end > i:
                change[i + 1] += kind.bytes
                change[end + 1 if end < len(ops) else end] -= kind.bytes
    total, found = 0, []
    for step in change[:-1]:
        total += step
        found.append(total)
    return found


@dataclass
class Saved:
    """Finds, for backward ops, what the forward pass made.

    ``kept`` as `kept_values` says; ``waits_for`` is the value whose maker the ops that are
    computed again wait for, ``label`` their stream label.
    """

    graph: Graph
    active: Collection[str]
    kept: set[str] | None
    label: str | None = None
    waits_for: str = ""
    _copies: dict[str, str] = field(default_factory=dict)

    def __call__(self, value: str) -> str:
        """The value's name, or that of its copy; copies are made once."""
        if self._is_there(value):
            return value
        todo = [value]
        while todo:
            current = todo[-1]
            op = self.graph.producer(current)
            assert op is not None
            missing = [
                v for v in op.inputs if v and not self._is_there(v) and v not in self._copies
            ]
            if missing:
                todo += missing
                continue
            todo.pop()
            if current not in self._copies:
                self._copy(op)
        return self._copies[value]

    def wait_for(self, value: str) -> None:
        """From now on copies wait for that value."""
        self.waits_for = value

    def _is_there(self, value: str) -> bool:
        return (
            self.kept is None
            or value in self.kept
            or value not in self.active
            or self.graph.producer(value) is None
        )

    def _copy(self, op: Op) -> None:
        graph = self.graph
        outputs = tuple(graph.fresh(f"again/{v}") if v else "" for v in op.outputs)
        inputs = tuple(self._copies.get(v, v) for v in op.inputs)
        info = replace(op.info, phase=RECOMPUTE, label=self.label)
        twin = op.with_(
            name=graph.fresh(f"again/{op.name}"), inputs=inputs, outputs=outputs, info=info
        )
        graph.add_op(twin, [graph.type(v) if v else None for v in op.outputs])
        before = graph.producer(self.waits_for) if self.waits_for else None
        if before is not None and not any(v in self._copies for v in op.inputs):
            graph.add_control(before.name, twin.name)
        self._copies.update((v, o) for v, o in zip(op.outputs, outputs, strict=True) if v)
