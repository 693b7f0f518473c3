"""The functions of a model: finding the one a node calls, and refusing those without an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import FunctionProto, ModelProto, NodeProto

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.counts import MAX_OPS
from gecompiler.ir.onnx_io.order import (
    node_definitions,
    subgraphs,
    unique_definitions,
)
from gecompiler.ir.onnx_io.schema import domain_of, read_opsets, schema

Key = tuple[str, str, str]


class Functions:
    """The functions of a model by (domain, name, overload)."""

    def __init__(self, model: ModelProto, where: str) -> None:
        self._where = where
        self._table: dict[Key, FunctionProto] = {}
        self._opsets: dict[Key, dict[str, int]] = {}
        for proto in model.functions:
            self._add(proto)
        if self._table:
            self._check_size(model)

    def _add(self, proto: FunctionProto) -> None:
        key = (domain_of(proto.domain), proto.name, proto.overload)
        where = f"{self._where}, function {title(proto)!r}"
        if key in self._table:
            raise ModelError("is defined twice", where=where)
        inputs = ((name, "an input") for name in proto.input)
        unique_definitions([*inputs, *node_definitions(proto.node)], where)
        self._table[key] = proto
        self._opsets[key] = read_opsets(proto.opset_import, where)

    def find(self, node: NodeProto) -> FunctionProto | None:
        """The function that the node calls, None when it is an ordinary op."""
        if not self._table:
            return None
        return self._table.get((domain_of(node.domain), node.op_type, node.overload))

    def opsets(self, function: FunctionProto) -> Mapping[str, int]:
        """The opsets that the function's body is written in."""
        return self._opsets[domain_of(function.domain), function.name, function.overload]

    def merged_opsets(self, model: Mapping[str, int]) -> dict[str, int]:
        """The model's opsets, and those that only functions import, at the newest version."""
        merged: dict[str, int] = {}
        for opsets in self._opsets.values():
            for domain, version in opsets.items():
                merged[domain] = max(version, merged.get(domain, 0))
        return {**merged, **model}

    def check_body(self, function: FunctionProto, model: Mapping[str, int]) -> None:
        """ModelError when an op of the body means something else in the model's opsets."""
        own = self.opsets(function)
        for _, node in every_node(function.node):
            domain = domain_of(node.domain)
            if self.find(node) is not None or own.get(domain) in (None, model.get(domain)):
                continue
            here = schema(node.op_type, domain, own[domain])
            there = schema(node.op_type, domain, model.get(domain, 0))
            if here is not None and (there is None or here.since_version != there.since_version):
                raise ModelError(
                    f"is written in {domain or 'ai.onnx'} {own[domain]}, the model in "
                    f"{model.get(domain)}, and {node.op_type} differs between the two",
                    where=f"{self._where}, function {title(function)!r}",
                    hint="export functions and model with one opset",
                )

    def _check_size(self, model: ModelProto) -> None:
        """ModelError for recursion, and for a model that expands beyond `MAX_OPS`.

        Functions that call functions can spell exponentially many ops in a small file.
        """
        sizes: dict[int, int] = {}
        total = 0
        for _, node in every_node(model.graph.node):
            called = self.find(node)
            total += 1 if called is None else self._expanded(called, sizes)
        if total > MAX_OPS:
            raise ModelError(
                f"its functions expand to {total} ops, more than {MAX_OPS}", where=self._where
            )

    def _expanded(self, root: FunctionProto, sizes: dict[int, int]) -> int:
        """How many ops a call of the function stands for, by an explicit stack."""
        path: list[FunctionProto] = []
        stack: list[tuple[FunctionProto, bool]] = [(root, False)]
        while stack:
            function, done = stack.pop()
            found = [self.find(node) for _, node in every_node(function.node)]
            calls = [f for f in found if f is not None]
            if done:
                path.pop()
                own = len(found) - len(calls)
                sizes[id(function)] = own + sum(sizes[id(f)] for f in calls)
            elif id(function) not in sizes:
                self._check_recursion(function, path)
                path.append(function)
                stack.append((function, True))
                stack.extend((f, False) for f in calls if id(f) not in sizes)
        return sizes[id(root)]

    def _check_recursion(self, function: FunctionProto, path: Sequence[FunctionProto]) -> None:
        names = [title(f) for f in path]
        if title(function) in names:
            loop = [*names[names.index(title(function)) :], title(function)]
            raise ModelError(
                f"functions call each other without end: {' -> '.join(loop)}",
                where=self._where,
                hint="use Loop or Scan instead of recursion",
            )
        if len(path) > MAX_CALLS:
            raise ModelError(f"functions call each other {len(path)} deep", where=self._where)


MAX_CALLS = 60
"""Calls within calls."""


def title(function: FunctionProto) -> str:
    """The function's qualified name."""
    name = f"{function.domain}.{function.name}" if function.domain else function.name
    return f"{name}:{function.overload}" if function.overload else name


def every_node(nodes: Sequence[NodeProto]) -> Iterator[tuple[int, NodeProto]]:
    """The nodes and those of their subgraphs, at every depth, each with its place in its graph."""
    pending = [nodes]
    while pending:
        for index, node in enumerate(pending.pop()):
            yield index, node
            if node.attribute:
                pending.extend(graph.node for graph in subgraphs(node))
