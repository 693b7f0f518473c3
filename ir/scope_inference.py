"""Scopes for nodes that do not carry one, from the parameters they read and from neighbours.

torch.export names its nodes ``node_linear_3`` and keeps the modules' paths in the names of the
parameters only. So a node that reads ``model.layers.0.mlp.up_proj.weight``, directly or through
a Transpose of it, belongs to that module, and what lies between two modules belongs to the
innermost one that holds both: the activation between ``gate_proj`` and ``down_proj`` is part of
``mlp``, the softmax between ``q_proj`` and ``o_proj`` of ``self_attn``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from gecompiler.ir.scope import common_scope, group_of, scope_of_parameter

_NORM_OPS = frozenset(
    ("Pow", "Mul", "ReduceMean", "Add", "Sub", "Sqrt", "Reciprocal", "Div", "Cast", "Rsqrt")
)
_NORMS = frozenset(("LayerNorm", "MLP norm"))
_LINEAR_OPS = frozenset(("MatMul", "Gemm", "Conv"))


class ScopeNode(NamedTuple):
    """A node as far as scopes are concerned; ``scope`` is ``""`` where it is to be found."""

    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    scope: str


class Place(NamedTuple):
    """The scope and group of a node."""

    scope: str
    group: str


def infer_places(nodes: Sequence[ScopeNode], constants: Collection[str]) -> list[Place]:
    """The place of every node. ``nodes`` stand in topological order.

    A parameter that several modules share (tied or deduplicated weights) gives its readers
    their group but no scope. Near-linear in the number of nodes and edges.
    """
    places = [Place(n.scope, group_of(n.scope, n.op_type)) for n in nodes]
    if all(n.scope for n in nodes):
        return places
    flow = _Flow(nodes, constants)
    weights = _place_by_parameter(flow, places)
    _place_parts(flow, places)
    _place_between(flow, places, weights)
    return places


class _Flow:
    """Who makes what and who reads it, by index."""

    def __init__(self, nodes: Sequence[ScopeNode], constants: Collection[str]) -> None:
        self.nodes = nodes
        self.constants = constants
        self.maker = {v: i for i, n in enumerate(nodes) for v in n.outputs if v}
        self.users: list[list[int]] = [[] for _ in nodes]
        for i, node in enumerate(nodes):
            for m in dict.fromkeys(self.maker.get(v, -1) for v in node.inputs):
                if m >= 0:
                    self.users[m].append(i)

    def makers(self, index: int) -> list[int]:
        """The nodes whose outputs the node reads."""
        return [self.maker[v] for v in self.nodes[index].inputs if v in self.maker]

    def reads_constant(self, index: int) -> bool:
        return any(v in self.constants for v in self.nodes[index].inputs)


def _place_by_parameter(flow: _Flow, places: list[Place]) -> set[int]:
    """Places readers of parameters; returns the nodes that compute on parameters alone."""
    origin: dict[str, str] = {}
    readers: dict[str, int] = {}
    found: dict[int, str] = {}
    weights: set[int] = set()
    for i, node in enumerate(flow.nodes):
        named = [v for v in node.inputs if v]
        parameter = next((p for v in named if (p := _parameter(v, flow, origin))), "")
        if not parameter:
            continue
        found[i] = parameter
        if all(v in flow.constants or v in origin for v in named):
            weights.add(i)
            origin.update((v, parameter) for v in node.outputs if v)
        else:
            readers[parameter] = readers.get(parameter, 0) + 1
    for i, parameter in found.items():
        node, scope = flow.nodes[i], scope_of_parameter(parameter)
        if not node.scope:
            group = group_of(scope, node.op_type)
            if readers.get(parameter, 0) > 1 and i not in weights:
                places[i] = _shared_place(scope, group, node.op_type)
            else:
                places[i] = Place(scope, group)
    for i in sorted(weights, reverse=True):  # a weight is prepared where it is used
        users = {places[u] for u in flow.users[i]}
        if len(users) == 1 and not flow.nodes[i].scope:
            places[i] = users.pop()
    return weights


def _shared_place(scope: str, group: str, op_type: str) -> Place:
    """The place of one of several readers of a parameter.

    Exporters merge equal tensors, such as the zero biases of a fresh model, so only norms and
    embeddings are believed.
    """
    if group == "Embedding":
        return Place(scope, group)
    if group == "LM head" or (group in _NORMS and op_type != "Add"):
        return Place("", group)
    return Place("", "")


def _parameter(value: str, flow: _Flow, origin: dict[str, str]) -> str:
    if value in origin:
        return origin[value]
    return value if value in flow.constants and scope_of_parameter(value) else ""


def _place_parts(flow: _Flow, places: list[Place]) -> None:
    """Places what only feeds one module: the steps of a norm written out, a MatMul by its bias."""
    for i in range(len(flow.nodes) - 1, -1, -1):
        users = {places[u] for u in flow.users[i]}
        if places[i] != ("", "") or len(users) != 1:
            continue
        place = next(iter(users))
        op_type = flow.nodes[i].op_type
        if place.group in _NORMS:
            if op_type in _NORM_OPS and (op_type != "Add" or flow.reads_constant(i)):
                places[i] = place
        elif op_type in _LINEAR_OPS and place.scope and flow.reads_constant(i):
            user = flow.nodes[flow.users[i][0]]
            if user.op_type == "Add" and any(scope_of_parameter(v) for v in user.inputs):
                places[i] = place


def _place_between(flow: _Flow, places: list[Place], weights: set[int]) -> None:
    """Places the rest in the innermost module around their latest source and earliest user."""
    count = len(places)
    before = _spread(range(count), places, flow.makers, max)
    after = _spread(range(count - 1, -1, -1), places, lambda i: flow.users[i], min)
    for i, place in enumerate(places):
        if place.scope or i in weights:
            continue
        source, user = before[i], after[i]
        scope = common_scope(source, user) if source and user else ""
        places[i] = Place(scope, place.group or group_of(scope, flow.nodes[i].op_type))


def _spread(
    order: Sequence[int],
    places: Sequence[Place],
    neighbours: Callable[[int], list[int]],
    pick: Callable[[list[int]], int],
) -> list[str]:
    """For every node its own scope, else that of the neighbour ``pick`` chooses among the known."""
    found = [""] * len(places)
    for i in order:
        known = [n for n in neighbours(i) if found[n]]
        found[i] = places[i].scope or (found[pick(known)] if known else "")
    return found
