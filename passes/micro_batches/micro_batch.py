"""Splits the batch of a bound graph into micro-batches that are computed one by one.

Every op that works on samples is made once per part of the batch, on its part of the data;
what does not depend on the batch (masks, tables, weights) is shared. Inputs are cut by Slice
ops and outputs put together by Concat ops, so that the graph has the same inputs and outputs
and gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.micro_batches.batch_rules import find_rule
from gecompiler.passes.micro_batches.batch_site import MixedSamplesError, Rule, Site

_SHAPED = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


@dataclass(frozen=True)
class MicroBatched:
    """The graph in parts, and the names of the parts of each op of the graph it was made from."""

    graph: Graph
    sizes: tuple[int, ...]
    """Samples in each part."""
    parts: Mapping[str, tuple[str, ...]]
    """The op that each micro-batch has of an op that works on samples."""
    part_of: Mapping[str, int]
    """The micro-batch of every op that belongs to one, the cuts that feed it included."""


def micro_batch(graph: Graph, count: int, samples: Sequence[str] = ()) -> MicroBatched:
    """The graph with its batch in ``count`` parts, as equal as they can be (fewer if it is small).

    ``samples`` names inputs known to have the batch first, if any are; otherwise it is the first
    dim of some input: where that of the first input cannot be split, that of another. The graph
    given stays as it is. MixedSamplesError says which op mixes samples when nothing can be split.
    """
    if count < 2:
        raise MixedSamplesError("one part was asked for")
    refusal: MixedSamplesError | None = None
    for batch, inputs in _batches(graph, samples):
        try:
            axes, rules = _analyse(graph, batch, inputs)
        except MixedSamplesError as error:
            refusal = refusal or error
            continue
        parts = min(count, batch)
        sizes = tuple(batch // parts + (i < batch % parts) for i in range(parts))
        return _Splitter(graph, batch, sizes, axes, rules).run()
    raise refusal or MixedSamplesError("the batch is 1")


def batch_axes(graph: Graph, samples: Sequence[str]) -> dict[str, int]:
    """The axis of every value that has parts of its own for parts of the batch.

    ``samples`` are the inputs that have it first, all of one size. MixedSamplesError says which
    op mixes samples.
    """
    sizes = {t.sizes[0] if t.sizes else 0 for v in samples if (t := graph.tensor(v)) is not None}
    if len(sizes) != 1:
        raise MixedSamplesError("inputs have batches of different sizes")
    return _analyse(graph, sizes.pop(), samples)[0]


def _batches(graph: Graph, samples: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """What the batch may be: its size, and the inputs that have it first.

    Inputs that are as large by chance are left out at a second try. State is cut where it is
    used.
    """
    shapes = {v: t.sizes for v in graph.inputs if (t := graph.tensor(v)) is not None}
    first = {v: s[0] for v, s in shapes.items() if s and s[0] > 1}
    found: dict[tuple[int, tuple[str, ...]], None] = {}
    for size in dict.fromkeys(first[v] for v in (*samples, *first) if v in first):
        all_inputs = tuple(v for v in first if first[v] == size)
        known = tuple(v for v in samples if first.get(v) == size)
        for inputs in (known, all_inputs, all_inputs[:1]):
            if inputs:
                found[size, inputs] = None
    yield from found


def _analyse(
    graph: Graph, batch: int, inputs: Sequence[str]
) -> tuple[dict[str, int], dict[str, Rule]]:
    """The axis of every value that is split, and the rule of every op that splits."""
    axes = dict.fromkeys(inputs, 0)
    rules: dict[str, Rule] = {}
    for op in graph.topological():
        if not any(v in axes for v in graph.reads(op)):
            continue
        site = Site(graph, op, tuple(axes.get(v) if v else None for v in op.inputs))
        site.require(not any(v in axes for v in graph.captures(op)), "its body takes a sample")
        rule = rules[op.name] = find_rule(site)
        for i, (value, axis) in enumerate(zip(op.outputs, rule.outputs, strict=True)):
            if value:
                site.require(site.made(i)[axis] % batch == 0, "its parts are not whole samples")
                axes[value] = axis
    if not rules:
        raise MixedSamplesError("no op works on samples")
    return axes, rules


class _Splitter:
    """Builds the graph in parts."""

    def __init__(
        self,
        graph: Graph,
        batch: int,
        sizes: tuple[int, ...],
        axes: dict[str, int],
        rules: dict[str, Rule],
    ) -> None:
        self.old = graph
        self.batch = batch
        self.sizes = sizes
        self.axes = axes
        self.rules = rules
        self.new = Graph(graph.name, graph.opsets)
        self.new.metadata = dict(graph.metadata)
        self.piece: dict[tuple[str, int, int], str] = {}
        """The part of a value: (value, axis, number) to its name."""
        self.parts: dict[str, tuple[str, ...]] = {}
        self.part_of: dict[str, int] = {}
        self.constants: dict[tuple[int, ...], str] = {}

    def run(self) -> MicroBatched:
        old, new = self.old, self.new
        for value in old.inputs:
            new.add_input(value, old.type(value))
        for name, constant in old.constants.items():
            new.add_constant(name, constant)
        order = old.topological()
        for op in order:
            if op.name not in self.rules:
                new.add_op(op, [old.type(v) if v else None for v in op.outputs])
        for part in range(len(self.sizes)):
            for op in order:
                if op.name in self.rules:
                    self._add_part(op, part)
        self._close()
        return MicroBatched(new, self.sizes, self.parts, self.part_of)

    def _close(self) -> None:
        """Outputs under their own names, state, and orders between ops."""
        for value in self.old.outputs:
            if not self.new.has_value(value):
                self._join(value)
        self.new.set_outputs(self.old.outputs)
        self.new.set_states(self.old.states)
        for before, after in self.old.controls:
            self._control(before, after)

    def _add_part(self, op: Op, part: int) -> None:
        rule = self.rules[op.name]
        inputs = list(op.inputs)
        for i, value in enumerate(op.inputs):
            axis = self.axes.get(value, rule.cut.get(i)) if value else None
            if axis is not None:
                inputs[i] = self._part(value, axis, part)
        types = [
            self._type(v, axis, part) if v else None
            for v, axis in zip(op.outputs, rule.outputs, strict=True)
        ]
        outputs = tuple(self.new.fresh(f"{v}#mb{part}") if v else "" for v in op.outputs)
        name = self.new.fresh(f"{op.name}#mb{part}")
        made = op.with_(name=name, inputs=tuple(inputs), outputs=outputs)
        if op.is_(*_SHAPED):
            shape = self._sizes(types[0])
            made = Op(name, "Reshape", (inputs[0], shape), outputs, info=op.info)
        elif op.is_("Expand"):
            made = made.with_(inputs=(inputs[0], self._sizes(types[0])))
        self.new.add_op(made, types)
        self.parts[op.name] = (*self.parts.get(op.name, ()), name)
        self.part_of[name] = part
        for value, axis, new in zip(op.outputs, rule.outputs, outputs, strict=True):
            if value:
                self.piece[value, axis, part] = new

    def _part(self, value: str, axis: int, part: int) -> str:
        """A part of a value: made as such, or cut out of the whole."""
        key = (value, axis, part)
        if key not in self.piece:
            scale = self._scale(value, axis)
            start = sum(self.sizes[:part]) * scale
            bounds = [[start], [start + self.sizes[part] * scale], [axis]]
            type_ = self._type(value, axis, part)
            cut = self.piece[key] = self._cut(value, bounds, type_, part)
            maker = self.new.producer(cut)
            assert maker is not None
            self.part_of[maker.name] = part
        return self.piece[key]

    def _cut(self, value: str, bounds: list[list[int]], type_: TensorType, part: int) -> str:
        stem = f"{value}#mb{part}"
        if self.new.opsets.get("", 20) >= 10:
            given = [self._numbers(numbers) for numbers in bounds]
            return self.new.emit("Slice", [value, *given], type_, stem=stem)
        names = zip(("starts", "ends", "axes"), map(tuple, bounds), strict=True)
        return self.new.emit("Slice", [value], type_, attrs=dict(names), stem=stem)

    def _join(self, value: str) -> None:
        """Puts an output together from its parts, under its own name."""
        axis = self.axes[value]
        pieces = tuple(self.piece[value, axis, part] for part in range(len(self.sizes)))
        name = self.new.fresh(f"{value}/join")
        self.new.add_op(
            Op(name, "Concat", pieces, (value,), {"axis": axis}), [self.old.type(value)]
        )

    def _control(self, before: str, after: str) -> None:
        """An order between ops holds within each part, and between shared ops and all parts."""
        firsts, thens = self.parts.get(before), self.parts.get(after)
        if firsts is not None and thens is not None:
            for pair in zip(firsts, thens, strict=True):
                self.new.add_control(*pair)
            return
        for first in firsts or (before,):
            for then in thens or (after,):
                self.new.add_control(first, then)

    # ---------------------------------------------------------------- sizes

    def _scale(self, value: str, axis: int) -> int:
        """How many entries along the axis one sample has."""
        found = self.old.tensor(value)
        assert found is not None
        return found.sizes[axis] // self.batch

    def _type(self, value: str, axis: int, part: int) -> TensorType:
        found = self.old.tensor(value)
        assert found is not None
        sizes = list(found.sizes)
        sizes[axis] = sizes[axis] // self.batch * self.sizes[part]
        return TensorType(found.dtype, tuple(sizes))

    def _sizes(self, type_: TensorType | None) -> str:
        assert type_ is not None
        return self._numbers(type_.sizes)

    def _numbers(self, numbers: Sequence[int]) -> str:
        """A constant with these numbers; one for all who need it."""
        key = tuple(numbers)
        if key not in self.constants:
            array = np.array(key, np.int64)
            self.constants[key] = self.new.constant_of("numbers", array)
        return self.constants[key]
