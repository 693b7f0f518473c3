"""How a rewrite takes effect on a graph: replacing ops, forwarding values, removing what dies.

Keeps the worklist of ops to look at again; `rewriting.Rewriter` drives it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Union

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.effects import has_side_effects
from gecompiler.passes.user_marks import with_marks

Target = Union[str, Constant, None]
"""What an output is to be replaced by; None leaves it alone."""

_POOLED = 64
"""Constants of at most so many elements are shared when a rule makes an equal one."""

_LAYOUTS = ("Cast", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass
class Edits:
    """A graph, what is known of its values, and the ops still to be looked at."""

    graph: Graph
    facts: ValueFacts

    def __post_init__(self) -> None:
        self._pinned = {name for pair in self.graph.controls for name in pair}
        self._queue: deque[str] = deque()
        self._queued: set[str] = set()
        self._pool = self._small_constants()

    def _small_constants(self) -> dict[str, str]:
        """The first constant of each small content, by digest."""
        pool: dict[str, str] = {}
        for name, constant in self.graph.constants.items():
            if constant.data is not None and constant.data.size <= _POOLED and constant.digest:
                pool.setdefault(constant.digest, name)
        return pool

    def is_pinned(self, op: Op) -> bool:
        """Whether an order of control holds the op in place, so that it may not be taken out."""
        return op.name in self._pinned

    def constant(self, value: Constant, stem: str) -> str:
        """The name of a constant with that content; small ones are shared."""
        digest = value.digest if value.data is not None and value.data.size <= _POOLED else None
        if digest in self._pool and self._pool[digest] not in self.graph.constants:
            self._pool = self._small_constants()  # merging took constants away
        if digest and digest in self._pool:
            return self._pool[digest]
        name = self.graph.add_constant(self.graph.fresh(stem), value)
        if digest:
            self._pool[digest] = name
        return name

    def push(self, op: Op) -> None:
        """Puts an op on the worklist."""
        if op.name not in self._queued:
            self._queued.add(op.name)
            self._queue.append(op.name)

    def replace(self, op: Op, new: Op) -> bool:
        """Puts ``new`` in the place of ``op``: same name, same outputs, the user's marks too."""
        info = with_marks(new.info, op.info)
        if info is not new.info:
            new = new.with_(info=info)
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
            name = self.constant(new, self._stem(op, old)) if isinstance(new, Constant) else new
            if self._agree(old, name):
                done |= self._forward_one(op, old, name)
        if done and op.name in self.graph:
            self._lost(self.graph.op(op.name).outputs)
        return done

    def _stem(self, op: Op, value: str) -> str:
        """What to call the constant that ``value`` becomes: a weight keeps its name in it."""
        if op.op_type in _LAYOUTS and op.inputs[0] in self.graph.constants:
            return f"{op.inputs[0]}_{op.op_type.lower()}"
        return f"{value}_value"

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
