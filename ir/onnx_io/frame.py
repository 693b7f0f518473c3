"""Where the importer stands: the graph it fills, and what names mean there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto

from gecompiler.ir.errors import ModelError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.order import MAX_NESTING
from gecompiler.ir.onnx_io.text import one_line
from gecompiler.ir.types import ValueType

MAX_DEPTH = 64
"""Subgraphs and function calls within each other."""


@dataclass
class Frame:
    """A graph being filled, from a GraphProto or from the body of a function it calls.

    ``names``: what names of the proto mean in ``graph`` (``""``: an argument left out);
    ``types``: what the file states, by names of the proto;
    ``constants``: values of ``graph`` that are constants here or around;
    ``arguments``: attributes of the function call, each with the frame it was written in;
    ``prefix``, ``scope``, ``sources``: of the call, for what its body becomes;
    ``wanted``: the caller's names for the function's outputs;
    ``reserved``, ``reserved_ops``: names of the proto that no made-up name may take;
    ``around``: what sets symbols for unknown sizes apart from those of other subgraphs;
    ``large``: raw data of the proto's initializers, by index, that the proto is without;
    ``depth``, ``nesting``: calls and subgraphs around, and subgraphs alone.
    """

    graph: Graph
    where: str
    names: dict[str, str] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    arguments: dict[str, tuple[AttributeProto, Frame]] | None = None
    prefix: str = ""
    scope: str = ""
    sources: tuple[str, ...] = ()
    wanted: dict[str, str] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()
    reserved_ops: frozenset[str] = frozenset()
    around: str = ""
    large: Mapping[int, memoryview] = field(default_factory=dict)
    depth: int = 0
    nesting: int = 0

    def __post_init__(self) -> None:
        if self.depth > MAX_DEPTH or self.nesting > MAX_NESTING:
            raise ModelError(
                f"subgraphs and functions nest more than {self.depth - 1} deep",
                where=self.where,
                hint="export the model with fewer nested If, Loop and Scan ops, or inline it first",
            )

    def resolve(self, name: str, reader: str) -> str:
        """The value that a name means; ModelError when nothing makes it."""
        if not name:
            return ""
        found = self.names.get(name)
        if found is None:
            raise ModelError(
                f"reads {name!r}, which nothing makes",
                where=f"{self.where}, {reader}",
                hint=nearest(name, self.names),
            )
        return found

    def define(self, name: str) -> str:
        """The graph's name for a value that the proto defines under ``name``."""
        if not name:
            return ""
        value = self.wanted.get(name) or self._value_name(name)
        self.names[name] = value
        return value

    def _value_name(self, name: str) -> str:
        if not self.prefix and not self.graph.has_value(name):
            return name
        return self.fresh_value(self.prefix + name)

    def fresh_value(self, stem: str) -> str:
        """A value name that neither the graph nor its proto has."""
        return _free(stem, lambda n: self.graph.has_value(n) or n in self.reserved)

    def op_name(self, name: str, op_type: str, index: int) -> str:
        """A unique op name: the proto's own if it can be, else ``<op_type>_<index>``."""
        name = one_line(name)
        if name and not self.prefix and name not in self.graph:
            return name
        stem = self.prefix + (name if name and self.prefix else f"{op_type}_{index}")
        return _free(stem, lambda n: n in self.graph or n in self.reserved_ops)

    def argument(self, proto: AttributeProto, reader: str) -> tuple[AttributeProto, Frame] | None:
        """The attribute that ``proto`` is or refers to, and the frame it was written in.

        None when it refers to an attribute that the function's caller left out.
        """
        if not proto.ref_attr_name:
            return proto, self
        where = f"{self.where}, {reader}"
        if self.arguments is None:
            raise ModelError(
                f"attribute {proto.name!r} refers to {proto.ref_attr_name!r} of a function, "
                "but this is no function",
                where=where,
                hint="only bodies of functions may refer to attributes of their caller",
            )
        found = self.arguments.get(proto.ref_attr_name)
        if found is not None and proto.type and found[0].type != proto.type:
            raise ModelError(
                f"attribute {proto.name!r} is of another kind than the {proto.ref_attr_name!r} "
                "it refers to",
                where=where,
            )
        return found


def _free(stem: str, taken: Callable[[str], bool]) -> str:
    name, count = stem, 0
    while taken(name):
        count += 1
        name = f"{stem}_{count}"
    return name
