"""Dims that are cut together: from one place, all that the signatures of ops tie to it.

A place is a region of a dim of a value. A walk goes from place to place over the labels of the
ops that touch them, in both directions, and ends where an op must have the dim whole, sums it
up, or has no signature. Constants are ends: each use of one has places of its own, since
exporters let layers share what is equal.

Source: the idea of named dimensions in TOAST (Alabed et al. 2025) and of colours in PartIR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Union

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes.parallel.dim_rules import signature
from gecompiler.passes.parallel.dim_site import NoSignatureError
from gecompiler.passes.parallel.signature import (
    Operand,
    Region,
    Signature,
    places_of,
    regions_of,
    spec_labels,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A region of a dim of a value."""

    value: str
    dim: int
    region: Region


@dataclass(frozen=True, slots=True)
class ConstantUse:
    """A region of a dim of a constant, as one op reads it."""

    op: str
    index: int
    dim: int
    region: Region


AnyPlace = Union[Place, ConstantUse]


@dataclass
class Component:
    """What a walk found.

    ``sources`` are places that no op hands on a cut to: graph inputs, outputs of ops that cannot,
    and dims that are made by broadcasting; ``stops`` are ops that must have the dim whole, with
    the value; ``sums`` are ops that sum over it, ``outputs`` the graph's that have it.
    """

    places: dict[Place, None] = field(default_factory=dict)
    constants: dict[ConstantUse, None] = field(default_factory=dict)
    sources: dict[Place, None] = field(default_factory=dict)
    stops: dict[tuple[str, str], None] = field(default_factory=dict)
    sums: dict[str, None] = field(default_factory=dict)
    outputs: dict[str, None] = field(default_factory=dict)


class Walker:
    """Walks over the dims of a graph; each place belongs to one component."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._outputs = frozenset(graph.outputs)
        self._inputs = frozenset(graph.inputs)
        self._signatures: dict[str, Signature | None] = {}
        self._of: dict[AnyPlace, Component] = {}

    def signature(self, op: Op) -> Signature | None:
        """The op's signature, None where it has none."""
        if op.name not in self._signatures:
            try:
                self._signatures[op.name] = signature(self._graph, op)
            except (NoSignatureError, GraphError):
                self._signatures[op.name] = None
        return self._signatures[op.name]

    def known(self, place: AnyPlace) -> Component | None:
        """The component that was found to hold the place."""
        return self._of.get(place)

    def label(self, op: Op, label: str) -> Component:
        """The component of a label of an op."""
        found = self.signature(op)
        assert found is not None
        start = list(self._places(op, found, label, Region.all_of(found.sizes[label])))
        return self.walk(start)

    def walk(self, start: Iterable[AnyPlace]) -> Component:
        """The component of those places."""
        start = list(start)
        for place in start:
            if place in self._of:
                return self._of[place]
        component = Component()
        todo: deque[AnyPlace] = deque()
        self._add(component, start, todo)
        while todo:
            place = todo.popleft()
            if isinstance(place, ConstantUse):
                op = self._graph.op(place.op)
                self._through(component, op, place.index, True, place, todo)
            else:
                self._around(component, place, todo)
        return component

    def _add(
        self,
        component: Component,
        places: Iterable[AnyPlace],
        todo: deque[AnyPlace],
    ) -> None:
        for place in places:
            if place.region.is_trivial or place in self._of:
                continue
            self._of[place] = component
            todo.append(place)
            if isinstance(place, ConstantUse):
                component.constants[place] = None
                continue
            component.places[place] = None
            if place.value in self._outputs:
                component.outputs[place.value] = None

    def _around(self, component: Component, place: Place, todo: deque[AnyPlace]) -> None:
        maker = self._graph.producer(place.value)
        if maker is None:
            component.sources[place] = None
        else:
            index = maker.outputs.index(place.value)
            found = self._through(component, maker, index, False, place, todo)
            if found is None or not self._is_read(maker, found):
                component.sources[place] = None
        for use in self._graph.uses(place.value):
            op = self._graph.op(use.op)
            inside = use.slot < 0
            if inside or self._through(component, op, use.slot, True, place, todo) is None:
                component.stops[(op.name, place.value)] = None

    def _is_read(self, op: Op, label: str) -> bool:
        found = self.signature(op)
        assert found is not None
        return any(label in spec_labels(spec) for o in found.inputs for spec in o or ())

    def _through(
        self,
        component: Component,
        op: Op,
        index: int,
        is_input: bool,
        place: AnyPlace,
        todo: deque[AnyPlace],
    ) -> str | None:
        """Goes on over an op, by the label that is returned; None where it cannot carry a cut."""
        found = self.signature(op)
        if found is None:
            return None
        operand = (found.inputs if is_input else found.outputs)[index]
        if operand is None:
            return None
        at = regions_of(operand[place.dim], place.region, found.sizes)
        if at is None or at[0] in found.whole:
            return None
        label, inner = at
        if label in found.reduced:
            component.sums[op.name] = None
        self._add(component, list(self._places(op, found, label, inner)), todo)
        return label

    def _places(self, op: Op, found: Signature, label: str, region: Region) -> Iterable[AnyPlace]:
        for values, operands, reads in (
            (op.inputs, found.inputs, True),
            (op.outputs, found.outputs, False),
        ):
            for i, (value, operand) in enumerate(zip(values, operands, strict=True)):
                if value and operand is not None:
                    yield from self._in_operand(op, i, value, operand, found, label, region, reads)

    def _in_operand(
        self,
        op: Op,
        index: int,
        value: str,
        operand: Operand,
        found: Signature,
        label: str,
        region: Region,
        reads: bool,
    ) -> Iterable[AnyPlace]:
        constant = reads and value in self._graph.constants
        for dim, spec in enumerate(operand):
            for at in places_of(spec, label, region, found.sizes):
                if constant:
                    yield ConstantUse(op.name, index, dim, at)
                else:
                    yield Place(value, dim, at)
