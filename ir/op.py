"""One operation of a graph: a small frozen record, replaced and never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union

from gecompiler.ir.constants import Constant
from gecompiler.ir.types import OpaqueType

if TYPE_CHECKING:
    from gecompiler.ir.graph import Graph

GE_DOMAIN = "gecompiler"
"""The domain of the product's own ops; they never leave in an exported model."""

Attr = Union[
    int,
    float,
    str,
    bytes,
    Constant,
    OpaqueType,
    "Graph",
    tuple[int, ...],
    tuple[float, ...],
    tuple[Union[str, bytes], ...],
    tuple[Constant, ...],
    tuple["Graph", ...],
    tuple[OpaqueType, ...],
]
"""An attribute as plain Python: lists are tuples, strings are str where they decode as UTF-8."""


@dataclass(frozen=True, slots=True)
class OpInfo:
    """What is known of an op beyond its meaning. Rewrites pass it on to the op they make.

    ``scope``: module path from the exporter (``/model/layers.0/mlp/gate_proj``);
    ``group``: the name people use ("MLP gate");
    ``label``: the user's stream label, kept by every pass;
    ``priority``, ``cube_cores``, ``vector_cores``: user limits, None when not set;
    ``phase``: the part of a training step that it belongs to (`training_ops`), else ``""``;
    ``sources``: names of the source model's ops this op stands for;
    ``data_sized``: the types of what it reads or makes hold estimates of sizes that only a run
    can tell (`bind_estimates`).
    """

    scope: str = ""
    group: str = ""
    label: str | None = None
    priority: int = 0
    cube_cores: int | None = None
    vector_cores: int | None = None
    sources: tuple[str, ...] = ()
    phase: str = ""
    data_sized: bool = False


NO_ATTRS: Mapping[str, Attr] = MappingProxyType({})
NO_INFO = OpInfo()
_PLAIN = (int, float, str, bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operation. ``inputs`` holds value names, ``""`` for an optional input left out.

    ``domain`` is ``""`` for ai.onnx; the version comes from the graph's ``opsets``.
    ``outputs`` likewise may hold ``""``. Names are unique within a graph.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attr] = field(default_factory=lambda: NO_ATTRS)
    domain: str = ""
    info: OpInfo = NO_INFO

    @property
    def kind(self) -> str:
        """The qualified type: ``MatMul``, ``gecompiler.FlashAttention``."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    def is_(self, *op_types: str, domain: str = "") -> bool:
        """Whether this is one of those ops of that domain."""
        return self.op_type in op_types and self.domain == domain

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's value, or ``default``."""
        return self.attrs.get(name, default)

    def input(self, index: int) -> str:
        """The name of that input, ``""`` when it is left out or beyond the end."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """The subgraphs among the attributes, in attribute order."""
        if not self.attrs or all(isinstance(v, _PLAIN) for v in self.attrs.values()):
            return ()
        from gecompiler.ir.graph import Graph

        found: list[Graph] = []
        for value in self.attrs.values():
            if isinstance(value, Graph):
                found.append(value)
            elif isinstance(value, tuple) and value and not isinstance(value[0], _PLAIN):
                found.extend(v for v in value if isinstance(v, Graph))
        return tuple(found)

    def with_bodies(self, change: Callable[[Graph], Graph]) -> Op:
        """The op with every subgraph among the attributes replaced by what ``change`` gives."""
        if not self.bodies:
            return self
        from gecompiler.ir.graph import Graph

        def changed(value: Attr) -> Attr:
            if isinstance(value, Graph):
                return change(value)
            if isinstance(value, tuple) and value and not isinstance(value[0], _PLAIN):
                return tuple(change(v) for v in value if isinstance(v, Graph)) or value
            return value

        return self.with_(attrs={name: changed(value) for name, value in self.attrs.items()})

    def with_(self, **changes: Any) -> Op:
        """The same op with some fields replaced."""
        return replace(self, **changes)
