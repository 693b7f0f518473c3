"""The graph verifier: what must hold of every graph between passes.

Each rule is one small function that raises GraphError naming op and value, what was expected
and what was found; the first that fails ends it. O(ops + uses). Shapes are not judged here
(but for our own ops): inference does that.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.ir.verify.block_ops import check_block_op
from gecompiler.ir.verify.bodies import BODY_RULES, check_captures
from gecompiler.ir.verify.flash_attention import check_flash_attention, differ
from gecompiler.ir.verify.index import check_index
from gecompiler.ir.verify.ops import check_op

MAX_NESTING = 64
"""Most graphs within graphs."""


def verify_graph(graph: Graph, *, around: Graph | None = None, depth: int = 1) -> None:
    """Raises GraphError, naming op and value, when an invariant does not hold.

    ``around`` is the graph whose op has this one as a body, ``depth`` how deep it lies.
    """
    if depth > MAX_NESTING:
        raise GraphError(f"graphs nest deeper than {MAX_NESTING}", where=graph.name)
    check_index(graph)
    check_surroundings(graph, around)
    for rule in RULES:
        rule(graph)
    for op in graph.ops:
        for body in op.bodies if op.attrs else ():
            try:
                verify_graph(body, around=graph, depth=depth + 1)
            except GraphError as error:
                place = f"{graph.name}, op {op.name!r}"
                raise GraphError(
                    error.message, where=f"{place}, body {error.where}", hint=error.hint
                ) from None


def check_surroundings(graph: Graph, around: Graph | None) -> None:
    """A body fits the graph around it; a graph that is no body takes nothing from outside."""
    if around is not None:
        check_captures(graph, around)
    elif graph.outer:
        raise GraphError(
            f"value {graph.outer[0]!r} is taken from a graph around this one, and there is none",
            where=graph.name,
        )


def check_acyclic(graph: Graph) -> None:
    """Data and control order the ops; a cycle is named."""
    graph.topological()


def check_types(graph: Graph) -> None:
    """Sizes are not negative."""
    for value, type_ in graph.types.items():
        if isinstance(type_, TensorType) and type_.shape:
            for dim in type_.shape:
                if isinstance(dim, int) and dim < 0:
                    raise GraphError(
                        f"value {value!r} has the type {type_}, with a negative size",
                        where=graph.name,
                    )


def check_constants(graph: Graph) -> None:
    """A constant's type is static, and its data, where it is there, has that type."""
    for name, constant in graph.constants.items():
        type_, data = constant.type, constant.data
        if not type_.is_static:
            raise GraphError(
                f"constant {name!r} has the type {type_}, whose sizes must be numbers",
                where=graph.name,
            )
        if graph.type(name) != type_:
            raise GraphError(
                f"constant {name!r} is a {type_}, and its value says {graph.type(name)}",
                where=graph.name,
            )
        if data is not None and (data.shape != type_.shape or data.dtype != type_.dtype.numpy):
            raise GraphError(
                f"constant {name!r} is a {type_}, and its data {data.dtype}{list(data.shape)}",
                where=graph.name,
            )


def check_ops(graph: Graph) -> None:
    """Every op fits its schema, and has bodies that fit it.

    What was found right stays right while op, types and version are the same objects.
    """
    verified = graph._verified
    for op in graph.ops:
        facts = _facts(graph, op)
        known = verified.get(op.name)
        if known is not None and len(known) == len(facts) and all(map(is_, known, facts)):
            continue
        check_op(graph, op)
        rule = BODY_RULES.get(op.op_type) if op.attrs and not op.domain else None
        if rule is not None:
            rule(graph, op)
        check_flash_attention(graph, op)
        check_block_op(graph, op)
        if not op.attrs or not op.bodies:
            verified[op.name] = facts


def _facts(graph: Graph, op: Op) -> tuple[object, ...]:
    """All that the rules of a single op look at."""
    types = graph.types
    return (
        op,
        graph.opsets.get(op.domain),
        *map(types.get, op.inputs),
        *map(types.get, op.outputs),
    )


def check_states(graph: Graph) -> None:
    """A state's input and output have one element type, and one shape but for the axis."""
    for state in graph.states:
        before, after = graph.tensor(state.input), graph.tensor(state.output)
        if before is None or after is None:
            continue
        pair = f"state {state.input!r} ({before}) -> {state.output!r} ({after})"
        if before.dtype is not after.dtype:
            raise GraphError(f"{pair} changes its element type", where=graph.name)
        if before.shape is None or after.shape is None:
            continue
        if len(before.shape) != len(after.shape):
            raise GraphError(f"{pair} changes its rank", where=graph.name)
        if state.axis is not None and not -len(before.shape) <= state.axis < len(before.shape):
            raise GraphError(f"{pair} has no axis {state.axis}", where=graph.name)
        grows = None if state.axis is None else state.axis % len(before.shape)
        for axis, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)):
            if axis != grows and differ(a, b):
                raise GraphError(f"{pair} changes along axis {axis}", where=graph.name)


RULES: tuple[Callable[[Graph], None], ...] = (
    check_acyclic,
    check_types,
    check_constants,
    check_ops,
    check_states,
)
"""What is checked of every graph, in order, once its index is known to be true."""
