"""Names in the graphs of an ONNX file: who defines them, who reads them, in which order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from gecompiler.ir.errors import ModelError

MAX_NESTING = 30
"""Subgraphs in each other. protobuf stops at 100 messages in each other, three for a subgraph."""


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among the node's attributes, in order."""
    for attr in node.attribute:
        if attr.type == AttributeProto.GRAPH or attr.HasField("g"):
            yield attr.g
        elif attr.graphs:
            yield from attr.graphs


def check_nesting(nodes: Iterable[NodeProto], where: str) -> None:
    """ModelError when subgraphs nest deeper than `MAX_NESTING`."""
    stack: list[tuple[NodeProto, int]] = [(n, 0) for n in nodes if n.attribute]
    while stack:
        node, depth = stack.pop()
        for graph in subgraphs(node):
            if depth >= MAX_NESTING:
                raise ModelError(
                    f"subgraphs nest more than {MAX_NESTING} deep",
                    where=f"{where}, node {node.name!r} ({node.op_type})",
                    hint="export the model with fewer nested If, Loop and Scan ops",
                )
            stack.extend((n, depth + 1) for n in graph.node if n.attribute)


def node_title(node: NodeProto, index: int) -> str:
    """How messages call a node: by its name, else by its place."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"node {index} ({node.op_type})"


def node_definitions(nodes: Sequence[NodeProto]) -> Iterator[tuple[str, str]]:
    """Every name that a node defines, and the node's title."""
    for index, node in enumerate(nodes):
        for value in node.output:
            if value:
                yield value, node_title(node, index)


def graph_definitions(graph: GraphProto) -> Iterator[tuple[str, str]]:
    """Every name that the graph defines, and by what; an input that has an initializer, once."""
    stored = {t.name: None for t in graph.initializer}
    for proto in graph.initializer:
        yield proto.name, "an initializer"
    for sparse in graph.sparse_initializer:
        stored[sparse.values.name] = None
        yield sparse.values.name, "a sparse initializer"
    for value in graph.input:
        if value.name not in stored:
            yield value.name, "an input"
    yield from node_definitions(graph.node)


def unique_definitions(pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    """The definitions as a mapping; ModelError when a name is empty or defined twice."""
    found: dict[str, str] = {}
    for name, maker in pairs:
        if not name:
            raise ModelError(f"{maker} has no name", where=where)
        if name in found:
            raise ModelError(
                f"value {name!r} is made twice, by {found[name]} and by {maker}",
                where=where,
                hint="every value has one producer; rename one of the two",
            )
        found[name] = maker
    return found


def free_values(graph: GraphProto) -> dict[str, None]:
    """The names that the graph takes from around it, in order of first use."""
    local = {name for name, _ in graph_definitions(graph)}
    found = {v: None for node in graph.node for v in reads(node) if v not in local}
    found.update((o.name, None) for o in graph.output if o.name not in local)
    return found


def reads(node: NodeProto) -> list[str]:
    """Every name that the node depends on, through its subgraphs too."""
    found = [v for v in node.input if v]
    if node.attribute:
        for graph in subgraphs(node):
            found += free_values(graph)
    return found


def ordered(nodes: Sequence[NodeProto], where: str) -> tuple[list[int], bool]:
    """The indices of the nodes, producers first, and whether that is the order they stand in.

    Among ready nodes the earlier one comes first. ModelError when there is a cycle.
    """
    maker = {v: i for i, node in enumerate(nodes) for v in node.output if v}
    needs: list[list[int]] = []
    sorted_already = True
    for i, node in enumerate(nodes):
        need = [maker[v] for v in reads(node) if v in maker]
        sorted_already = sorted_already and all(m < i for m in need)
        needs.append(need)
    if sorted_already:
        return list(range(len(nodes))), True
    return _sorted(nodes, needs, where), False


def _sorted(nodes: Sequence[NodeProto], needs: Sequence[Sequence[int]], where: str) -> list[int]:
    waiting = [len(set(need)) for need in needs]
    users: dict[int, list[int]] = {}
    for i, need in enumerate(needs):
        for m in dict.fromkeys(need):
            users.setdefault(m, []).append(i)
    ready = [i for i, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for user in users.get(i, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        left = {i: needs[i] for i, count in enumerate(waiting) if count}
        raise ModelError(
            f"the nodes form a cycle: {_cycle(nodes, left)}",
            where=where,
            hint="a value must not depend on itself; use Loop or Scan for recurrence",
        )
    return order


def _cycle(nodes: Sequence[NodeProto], left: Mapping[int, Sequence[int]]) -> str:
    """Some cycle among the nodes left over, each of which needs another one of them."""
    seen: dict[int, int] = {}
    at = min(left)
    while at not in seen:
        seen[at] = len(seen)
        at = next(m for m in left[at] if m in left)
    loop = list(seen)[seen[at] :]
    titles = [nodes[i].name or f"{nodes[i].op_type} {i}" for i in [*reversed(loop), loop[-1]]]
    shown = titles if len(titles) <= 8 else [*titles[:4], "...", *titles[-3:]]
    return " -> ".join(shown)
