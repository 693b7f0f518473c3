"""The engine under the rewriting passes: rules in tables, and a worklist that drives them.

A rule is a function ``(rewriter, op) -> Result | None`` for ops of one kind; None means no
match. It may only add to the graph (`Rewriter.emit`, `Rewriter.constant`) once it is sure to
match. What it returns takes the op's place:

- an `Op`: stands where the op stood, with the same outputs;
- a ``str``: a value that equals the op's only used output;
- a `Constant`: what the op's only used output always is;
- a tuple with one of the last two for each output (None: leave it alone).

Ops that an order of control holds in place are never taken out, only replaced.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import NO_ATTRS, NO_INFO, Attr, Op, OpInfo
from gecompiler.ir.types import TensorType, ValueType
from gecompiler.passes.effects import has_side_effects
from gecompiler.passes.value_facts import ValueFacts

Target = Union[str, Constant, None]
Result = Union[Op, str, Constant, tuple[Target, ...]]
Rule = Callable[["Rewriter", Op], Union[Result, None]]
RuleTable = Mapping[str, tuple[Rule, ...]]
"""Rules by kind of op (`Op.kind`); ``"*"`` are tried on every op, after its own."""

_MAX_REWRITES_PER_OP = 40
_POOLED = 64
"""Constants of at most so many elements are shared when a rule makes an equal one."""

_log = logging.getLogger("gecompiler.passes")


def merge_tables(*tables: RuleTable) -> RuleTable:
    """One table with the rules of all, in the order given."""
    merged: dict[str, tuple[Rule, ...]] = {}
    for table in tables:
        for kind, rules in table.items():
            merged[kind] = (*merged.get(kind, ()), *rules)
    return merged


@dataclass
class FoldingBudget:
    """How much folding may add to memory: elements of one constant, bytes of all together."""

    max_elements: int = 1 << 20
    total_bytes: int = 1 << 28

    def allows(self, elements: int, bits: int) -> bool:
        """Whether a new constant of that many elements may be made."""
        return elements <= self.max_elements and elements * bits // 8 <= self.total_bytes

    def spend(self, nbytes: int) -> None:
        """Takes the bytes of a constant that was made."""
        self.total_bytes -= nbytes


@dataclass
class Rewriter:
    """A graph being rewritten, what is known of its values, and the ops still to be looked at."""

    graph: Graph
    facts: ValueFacts
    budget: FoldingBudget = field(default_factory=FoldingBudget)
    diagnostics: Diagnostics | None = None
    is_body: bool = False
    changes: int = 0

    def __post_init__(self) -> None:
        self._pinned = {name for pair in self.graph.controls for name in pair}
        self._queue: deque[str] = deque()
        self._queued: set[str] = set()
        self._pool: dict[str, str] = {}
        for name, constant in self.graph.constants.items():
            if constant.data is not None and constant.data.size <= _POOLED and constant.digest:
                self._pool.setdefault(constant.digest, name)

    @property
    def opset(self) -> int:
        """The version of ai.onnx in this graph."""
        return self.graph.opsets.get("", 0)

    # ---------------------------------------------------------------- for rules

    def constant(self, value: Constant, stem: str) -> str:
        """The name of a constant with that content; small ones are shared."""
        digest = value.digest if value.data is not None and value.data.size <= _POOLED else None
        known = self._pool.get(digest, "") if digest else ""
        if known and known in self.graph.constants:
            return known
        name = self.graph.add_constant(self.graph.fresh(stem), value)
        if digest:
            self._pool[digest] = name
        return name

    def ints(self, values: Iterable[int], stem: str) -> str:
        """The name of a 1-D int64 constant."""
        import numpy as np

        return self.constant(Constant.of(np.array(list(values), dtype=np.int64)), stem)

    def emit(
        self,
        op_type: str,
        inputs: Iterable[str],
        type_: ValueType,
        *,
        attrs: Mapping[str, Attr] = NO_ATTRS,
        info: OpInfo = NO_INFO,
        stem: str = "",
    ) -> str:
        """Adds an op of ai.onnx and returns its output; the new op is looked at as well."""
        value = self.graph.emit(op_type, inputs, type_, attrs=attrs, info=info, stem=stem)
        maker = self.graph.producer(value)
        if maker is not None:
            self.push(maker)
        return value

    def emit_many(
        self,
        op_type: str,
        inputs: Iterable[str],
        types: Sequence[ValueType],
        *,
        attrs: Mapping[str, Attr] = NO_ATTRS,
        info: OpInfo = NO_INFO,
        stem: str = "",
    ) -> tuple[str, ...]:
        """`emit` for an op with one output for each of ``types``."""
        first = self.graph.emit(
            op_type, inputs, attrs=attrs, info=info, stem=stem, outputs=len(types), types=types
        )
        maker = self.graph.producer(first)
        assert maker is not None
        self.push(maker)
        return maker.outputs

    def warn(self, code: str, message: str, hint: str = "") -> None:
        """Tells the user something, once."""
        if self.diagnostics is not None:
            self.diagnostics.warn(code, message, hint)

    # ---------------------------------------------------------------- driving

    def push(self, op: Op) -> None:
        """Puts an op on the worklist."""
        if op.name not in self._queued:
            self._queued.add(op.name)
            self._queue.append(op.name)

    def run(self, rules: RuleTable) -> int:
        """Applies ``rules`` until none matches; returns the number of rewrites."""
        start = self.changes
        for op in self.graph.topological():
            self.push(op)
        limit = _MAX_REWRITES_PER_OP * (len(self.graph) + 25)
        general = rules.get("*", ())
        while self._queue:
            name = self._queue.popleft()
            self._queued.discard(name)
            if name not in self.graph:
                continue
            op = self.graph.op(name)
            for rule in (*rules.get(op.kind, ()), *general):
                result = rule(self, op)
                if result is not None and self._apply(op, result):
                    self.changes += 1
                    break
            if self.changes - start > limit:  # a bug: two rules that undo each other
                _log.warning("rewriting stopped after %d rewrites", limit)
                self._queue.clear()
                self._queued.clear()
        return self.changes - start

    def _apply(self, op: Op, result: Result) -> bool:
        if isinstance(result, Op):
            return self._replace(op, result)
        return self.forward(op, result if isinstance(result, tuple) else (result,))

    def _replace(self, op: Op, new: Op) -> bool:
        self.graph.replace_op(op.name, new)
        self.push(new)
        self._push_users(new.outputs)
        self._lost(op.inputs)
        return True

    def forward(self, op: Op, targets: tuple[Target, ...]) -> bool:
        """Makes everything that uses the op's outputs use ``targets``; whether that did anything.

        A graph output keeps its name: its new maker takes the name over; where it has none to
        give (an input, a constant, another output) an Identity stays.
        """
        if op.name in self._pinned:
            return False
        done = False
        for old, new in zip(op.outputs, targets, strict=False):
            if not old or new is None or not self._can_forward(op, old, new):
                continue
            name = self.constant(new, f"{old}_value") if isinstance(new, Constant) else new
            if self._agree(old, name):
                done |= self._forward_one(op, old, name)
        if done and op.name in self.graph:
            self._lost(self.graph.op(op.name).outputs)
        return done

    def _can_forward(self, op: Op, old: str, new: str | Constant) -> bool:
        """Whether the op's output can be replaced at all, decided before a constant is made."""
        if self.graph.uses(old) or not self.graph.is_output(old):
            return bool(self.graph.uses(old))
        if isinstance(new, str) and self._gives_name(new):
            return True
        return len(op.outputs) == 1 and not op.is_("Identity")

    def _gives_name(self, value: str) -> bool:
        """Whether the value may be renamed to a graph output that it is to be."""
        return self.graph.producer(value) is not None and not self.graph.is_output(value)

    def _agree(self, old: str, new: str) -> bool:
        """Whether ``new`` may stand for ``old``; it then knows all that was known of ``old``."""
        was, now = self.graph.type(old), self.graph.type(new)
        if isinstance(was, TensorType) and isinstance(now, TensorType):
            if was.dtype is not now.dtype:
                return False
            refined = now.shape is None or (not now.is_static and was.is_static)
            if refined and was.shape is not None and new not in self.graph.constants:
                self.graph.set_type(new, was)
        elif now is None and was is not None:
            self.graph.set_type(new, was)
        return True

    def _forward_one(self, op: Op, old: str, new: str) -> bool:
        users = self.graph.users(old)
        if self.graph.is_output(old) and self._gives_name(new):
            self.graph.replace_uses(old, new)
            self._push_users((old,))
            return True
        self.graph.replace_uses(old, new, outputs=False)
        self._push_all(users)
        if not self.graph.is_output(old) or len(op.outputs) > 1 or op.is_("Identity"):
            return bool(users)
        self.graph.replace_op(op.name, Op(op.name, "Identity", (new,), op.outputs, info=op.info))
        self._lost(op.inputs)
        return True

    def _push_all(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op.name in self.graph:
                self.push(self.graph.op(op.name))

    def _push_users(self, values: Iterable[str]) -> None:
        for value in values:
            if value and self.graph.has_value(value):
                self._push_all(self.graph.users(value))

    def _lost(self, values: Iterable[str]) -> None:
        """Values that lost a use: removes what died, looks again at what is left of the rest."""
        stack = [v for v in dict.fromkeys(values) if v]
        while stack:
            value = stack.pop()
            if not self.graph.has_value(value):
                continue
            maker = self.graph.producer(value)
            if maker is None:
                continue
            if self._removable(maker):
                self.graph.remove_op(maker.name)
                stack.extend(v for v in self._reads(maker) if v)
                continue
            self.push(maker)
            if len(self.graph.uses(value)) == 1:
                self._push_all(self.graph.users(value))

    def _reads(self, op: Op) -> tuple[str, ...]:
        return (*op.inputs, *self.graph.captures(op)) if op.attrs and op.bodies else op.inputs

    def _removable(self, op: Op) -> bool:
        used = any(v and (self.graph.uses(v) or self.graph.is_output(v)) for v in op.outputs)
        return not used and op.name not in self._pinned and not has_side_effects(op)

    def drop_dead(self) -> int:
        """Removes ops and constants that nothing uses; returns how many."""
        before = len(self.graph) + len(self.graph.constants)
        for op in reversed(self.graph.topological()):
            if self._removable(op):
                self.graph.remove_op(op.name)
        self.drop_unused_constants()
        return before - len(self.graph) - len(self.graph.constants)

    def drop_unused_constants(self) -> None:
        """Removes the constants that nothing uses."""
        outputs = set(self.graph.outputs)
        for name in list(self.graph.constants):
            if not self.graph.uses(name) and name not in outputs:
                self.graph.remove_constant(name)
