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
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.op import NO_ATTRS, NO_INFO, Attr, Op, OpInfo
from gecompiler.ir.types import ValueType
from gecompiler.passes.rewrite_edits import Edits, Target
from gecompiler.passes.user_marks import with_marks

Result = Union[Op, str, Constant, tuple[Target, ...]]
Rule = Callable[["Rewriter", Op], Union[Result, None]]
RuleTable = Mapping[str, tuple[Rule, ...]]
"""Rules by kind of op (`Op.kind`); ``"*"`` are tried on every op, after its own."""

_MAX_REWRITES_PER_OP = 40
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
    """How much folding may add to memory: elements of one constant, bytes of all together.

    ``weights``: whether also what is trained otherwise may be folded (`constant_folding`).
    """

    max_elements: int = 1 << 20
    total_bytes: int = 1 << 28
    weights: bool = True

    def allows(self, elements: int, bits: int) -> bool:
        """Whether a new constant of that many elements may be made."""
        return elements <= self.max_elements and elements * bits // 8 <= self.total_bytes

    def spend(self, nbytes: int) -> None:
        """Takes the bytes of a constant that was made."""
        self.total_bytes -= nbytes


@dataclass
class Rewriter(Edits):
    """A graph being rewritten by rules, and what they may use."""

    budget: FoldingBudget = field(default_factory=FoldingBudget)
    diagnostics: Diagnostics | None = None
    left_alone: Container[str] = ()
    """Names of ops that no rule may touch."""
    changes: int = 0
    current: OpInfo = NO_INFO
    """What is known of the op that a rule looks at."""

    @property
    def opset(self) -> int:
        """The version of ai.onnx in this graph."""
        return self.graph.opsets.get("", 0)

    # ---------------------------------------------------------------- for rules

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
        """Adds an op of ai.onnx and returns its output; the new op is looked at as well.

        It has the user's marks of the op that is being rewritten, unless ``info`` has its own.
        """
        info = with_marks(info, self.current)
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
        info = with_marks(info, self.current)
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

    def run(self, rules: RuleTable, *, everywhere: bool = True) -> int:
        """Applies ``rules`` until none matches; returns the number of rewrites.

        Without ``everywhere`` only what was touched since the last run is looked at.
        """
        start = self.changes
        for op in self.graph.topological() if everywhere else ():
            self.push(op)
        limit = _MAX_REWRITES_PER_OP * (len(self.graph) + 25)
        general = rules.get("*", ())
        while self._queue:
            name = self._queue.popleft()
            self._queued.discard(name)
            if name not in self.graph or name in self.left_alone:
                continue
            op = self.graph.op(name)
            if op.outputs and not any(self._is_read(v) for v in op.outputs):
                continue  # what would stand for it stood for nothing
            self.current = op.info
            for rule in (*rules.get(op.kind, ()), *general):
                result = rule(self, op)
                if result is not None and self._apply(op, result):
                    self.changes += 1
                    break
            if self.changes - start > limit:  # a bug: two rules that undo each other
                _log.warning("rewriting stopped after %d rewrites", limit)
                self._queue.clear()
                self._queued.clear()
        self.current = NO_INFO
        return self.changes - start

    def _is_read(self, value: str) -> bool:
        return bool(value) and (bool(self.graph.uses(value)) or self.graph.is_output(value))

    def _apply(self, op: Op, result: Result) -> bool:
        if isinstance(result, Op):
            return self.replace(op, result)
        return self.forward(op, result if isinstance(result, tuple) else (result,))
