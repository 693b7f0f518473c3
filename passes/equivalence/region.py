"""What a change replaced, and by what, as two graphs that read the same inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr
from gecompiler.ir.types import TensorType


@dataclass(frozen=True)
class Region:
    """What a change replaced, and by what: graphs that read ``inputs`` and have one output.

    ``data`` are inputs that carry activations, ``masks`` those that the fused op takes as masks.
    """

    before: Graph
    after: Graph
    inputs: Mapping[str, TensorType]
    data: frozenset[str]
    masks: frozenset[str]
    replaced: tuple[str, ...]
    """The ops of the source that the change replaced, by name."""

    @property
    def fingerprint(self) -> str:
        """The same for regions that differ only by names."""
        numbers = {name: n for n, name in enumerate(self.inputs)}
        roles = [(n in self.data, n in self.masks) for n in self.inputs]
        told = repr((list(map(str, self.inputs.values())), roles))
        for graph in (self.before, self.after):
            told += _told(graph, dict(numbers))
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def _told(graph: Graph, numbers: dict[str, int]) -> str:
    """The graph as text in which values are numbers."""
    lines: list[str] = []
    for name, constant in graph.constants.items():
        numbers[name] = len(numbers)
        lines.append(f"{numbers[name]} {constant.type} {constant.digest}")
    for op in graph.topological():
        for value in op.outputs:
            numbers.setdefault(value, len(numbers))
        bodies = [str(body) for body in op.bodies]
        attrs = sorted((k, _attr(v)) for k, v in op.attrs.items())
        reads = (
            [numbers.get(v, -1) for v in graph.reads(op)],
            [numbers.get(v, -1) for v in op.inputs],
        )
        types = [str(graph.type(v)) for v in op.outputs if v]
        lines.append(f"{op.kind} {attrs} {bodies} {reads} {types}")
    return "\n".join(lines)


def _attr(value: Attr) -> str:
    if isinstance(value, Graph):
        return ""
    return str(value.digest) if isinstance(value, Constant) else repr(value)
