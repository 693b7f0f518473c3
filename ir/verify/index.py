"""Whether a graph's index says what its ops say."""

from __future__ import annotations

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.graph_values import CONTROL_KEY
from gecompiler.ir.op import Op


def check_index(graph: Graph) -> None:
    """Values, producers, uses and edges agree with the ops; what is read is made somewhere."""
    _check_values(graph)
    uses = edges = 0
    for name, op in graph._ops.items():
        if op.name != name:
            raise _broken(graph, f"op {op.name!r} is filed under {name!r}")
        op_uses, op_edges = _check_reads(graph, op)
        uses += op_uses
        edges += op_edges
    for before, after in graph.controls:
        if not graph._net.has_edge(before, after, key=CONTROL_KEY):
            raise _broken(graph, f"the control {before!r} -> {after!r} has no edge")
    edges += len(graph.controls)
    if sum(map(len, graph._uses.values())) != uses:
        raise _broken(graph, f"it counts other uses than the {uses} there are")
    if graph._net.number_of_edges() != edges or graph._net.number_of_nodes() != len(graph):
        raise _broken(graph, f"it has other edges than the {edges} between its {len(graph)} ops")


def _check_values(graph: Graph) -> None:
    sources = (*graph._inputs, *graph._outer, *graph._constants, *graph._producer)
    if len(set(sources)) < len(sources):
        twice = sorted({v for v in sources if sources.count(v) > 1})
        raise _broken(graph, f"value {twice[0]!r} comes from two places")
    if set(sources) != graph._uses.keys() or graph._types.keys() != graph._uses.keys():
        odd = sorted(set(sources) ^ graph._uses.keys() | graph._types.keys() ^ graph._uses.keys())
        raise _broken(graph, f"value {odd[0]!r} is not filed as it should be")
    if len(set(graph._outputs)) < len(graph._outputs):
        raise _broken(graph, "an output is named twice")
    for value in graph._outputs:
        if value not in graph._uses:
            raise _broken(graph, f"output {value!r} is no value")
    for state in graph.states:
        if state.input not in graph._inputs or state.output not in graph._outputs:
            raise _broken(graph, f"{state} must pair an input with an output")


def _check_reads(graph: Graph, op: Op) -> tuple[int, int]:
    """Checks one op's outputs and inputs; returns how many uses and edges its inputs make."""
    for value in op.outputs:
        if value and graph._producer.get(value) != op.name:
            raise _broken(graph, f"op {op.name!r} does not count as the maker of {value!r}")
    uses = edges = 0
    for value, use in graph._slots(op):
        if use not in graph._uses.get(value, ()):
            if value not in graph._uses:
                raise GraphError(
                    f"op {op.name!r} ({op.kind}) reads {value!r}, which nothing here makes",
                    where=graph.name,
                )
            raise _broken(graph, f"op {op.name!r} does not count as a user of {value!r}")
        uses += 1
        maker = graph._producer.get(value)
        if maker is not None:
            edges += 1
            if not graph._net.has_edge(maker, op.name, key=(value, use.slot)):
                raise _broken(graph, f"no edge for {value!r} from {maker!r} to {op.name!r}")
    return uses, edges


def _broken(graph: Graph, message: str) -> GraphError:
    return GraphError(
        f"the graph's index is wrong: {message}",
        where=graph.name,
        hint="a body was changed in place, or an edit has a bug; edit copies of bodies",
    )
