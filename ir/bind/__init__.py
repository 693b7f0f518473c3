"""Numbers for the symbols of a graph: chosen from the user's options, and put in.

``--batch`` binds the leading symbol of every input, ``--seq`` the second symbol of the token
inputs (in a decode step, one token long, the length of the cache); ``--input-shape`` wins over
both. Sizes of inputs that are expressions, and sizes that a valid program makes equal, are
solved for. What is left open gets defaults, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gecompiler.ir.bind.apply import bind, bind_estimates, mark_data_sized
from gecompiler.ir.bind.defaults import fill_inputs, fill_inside
from gecompiler.ir.bind.roles import (
    batch_symbols,
    cache_symbols,
    input_symbols,
    lone_symbol,
    seq_symbols,
    shaped_inputs,
    token_inputs,
)
from gecompiler.ir.bind.shapes import MAX_SIZE, parse_input_shape
from gecompiler.ir.bind.solve import Contradiction, Equation, Solver
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.infer.facts import TypeFacts
from gecompiler.ir.types import OpaqueType, TensorType

if TYPE_CHECKING:
    from gecompiler.ir.constants import Array

__all__ = [
    "Binding",
    "bind",
    "bind_estimates",
    "choose_binding",
    "choose_sizes",
    "declare_empty",
    "declare_ranks",
    "empty_symbols",
    "mark_data_sized",
    "parse_input_shape",
]


class Binding(NamedTuple):
    """Numbers for symbols, in order of the inputs, then of the ops."""

    sizes: dict[str, int]
    """Of the inputs, and what follows from them."""
    estimates: dict[str, int]
    """Of sizes that only a run can tell: good for planning, not for computing with."""

    @property
    def every(self) -> dict[str, int]:
        """Both."""
        return {**self.sizes, **self.estimates}


def choose_binding(graph: Graph, **given: Any) -> dict[str, int]:
    """What `choose_sizes` chooses, estimates and all, in one table."""
    return choose_sizes(graph, **given).every


def choose_sizes(
    graph: Graph,
    *,
    batch: int | None = None,
    seq: int | None = None,
    input_shapes: Mapping[str, Sequence[int | None]] | None = None,
    arrays: Mapping[str, Array] | None = None,
    diagnostics: Diagnostics,
    facts: TypeFacts | None = None,
) -> Binding:
    """A number for every symbol of the graph, in order of the inputs, then of the ops.

    ``input_shapes`` may leave sizes open (None); ``arrays`` are inputs whose sizes are facts.
    ``facts`` are what `infer_types` found of this graph; it is asked (of a copy) when not given.

    UsageError, naming option and input, for an unknown input, a wrong rank, a size below 1,
    sizes that contradict each other or the model, and for ``batch`` or ``seq`` where the model
    has nothing to bind. Warnings: ``unbound-sizes`` for symbols of inputs that got defaults
    (1 for batches, else 128, or the nearest below that the model can run with), and
    ``data-dependent-size`` for sizes only known at run time (their upper bound, else 128).
    """
    solver = Solver()
    for name, sizes, source in _given(graph, input_shapes or {}, arrays or {}):
        _equate_input(graph, solver, name, sizes, source)
    _bind_role(graph, solver, batch, "--batch", 0, given=bool(arrays))
    _bind_role(graph, solver, seq, "--seq", 1, given=bool(arrays))
    if facts is None:
        graph = graph.copy()
        facts = infer_types(graph) if _has_symbols(graph) else TypeFacts()
    try:
        for assumption in facts.assumptions:
            solver.add(Equation.of(assumption))
    except Contradiction as problem:
        raise _refusal(problem) from None
    fill_inputs(graph, solver, facts, diagnostics)
    certain = set(solver.sizes)
    fill_inside(graph, solver, facts, diagnostics)
    order = dict.fromkeys([*input_symbols(graph), *facts.fresh, *sorted(solver.sizes)])
    found = {name: solver.sizes[name] for name in order if name in solver.sizes}
    return Binding(
        {name: size for name, size in found.items() if name in certain},
        {name: size for name, size in found.items() if name not in certain},
    )


def _has_symbols(graph: Graph) -> bool:
    return any(t is not None and t.symbols() for t in map(graph.type, graph.values)) or any(
        op.bodies for op in graph.ops if op.attrs
    )


def _given(
    graph: Graph,
    input_shapes: Mapping[str, Sequence[int | None]],
    arrays: Mapping[str, Array],
) -> Iterator[tuple[str, Sequence[int | None], str]]:
    """Sizes that the user states, each with how; names are checked."""
    for name, sizes in input_shapes.items():
        _check_name(graph, name, "--input-shape")
        shown = ",".join("?" if s is None else str(s) for s in sizes)
        yield name, sizes, f"--input-shape {name}:{shown}"
    for name, array in arrays.items():
        _check_name(graph, name, "inputs")
        if isinstance(graph.type(name), OpaqueType) or not hasattr(array, "shape"):
            continue
        yield name, array.shape, f"the array for {name!r} of shape {tuple(array.shape)}"


def _check_name(graph: Graph, name: str, where: str) -> None:
    if name not in graph.inputs:
        raise UsageError(
            f"the model has no input {name!r}", where=where, hint=nearest(name, graph.inputs)
        )


def _equate_input(
    graph: Graph, solver: Solver, name: str, sizes: Sequence[int | None], source: str
) -> None:
    type_ = graph.type(name)
    if not isinstance(type_, TensorType) or type_.shape is None:
        raise UsageError(
            f"input {name!r} is {type_ or 'of unknown type'}; it has no sizes to bind",
            where=source,
            hint="declare the shape of that input in the model",
        )
    if len(sizes) != len(type_.shape):
        raise UsageError(
            f"input {name!r} is {type_}, of rank {len(type_.shape)}; {len(sizes)} sizes are given",
            where=source,
            hint=f"give {len(type_.shape)} sizes",
        )
    for axis, (dim, size) in enumerate(zip(type_.shape, sizes, strict=True)):
        if size is None or (size == 0 and dim == 0):
            continue
        if not 1 <= size <= MAX_SIZE:
            raise UsageError(
                f"size {size} of axis {axis} of input {name!r} is not between 1 and {MAX_SIZE}",
                where=source,
                hint="a size of 0 must be stated by the model, or come with an array of that size",
            )
        try:
            solver.add(Equation(dim, size, source))
        except Contradiction as problem:
            raise _refusal(problem, f"axis {axis} of input {name!r} is {dim}") from None


def _bind_role(
    graph: Graph, solver: Solver, size: int | None, option: str, axis: int, *, given: bool
) -> None:
    """Binds the symbols that ``--batch`` (axis 0) or ``--seq`` (axis 1) speaks of.

    Arrays that are ``given`` are facts, which an option may repeat and not contradict.
    """
    if size is None:
        return
    source = f"{option} {size}"
    if not 1 <= size <= MAX_SIZE:
        raise UsageError(f"{size} is not between 1 and {MAX_SIZE}", where=option)
    names = batch_symbols(graph) if axis == 0 else seq_symbols(graph) or cache_symbols(graph)
    if not names:
        _check_fixed(graph, size, source, axis)
    for name in names:
        if name in solver.sizes:
            if given and solver.sizes[name] != size:
                raise UsageError(f"the arrays have {solver.sizes[name]} there", where=source)
            continue  # --input-shape wins
        try:
            solver.fix(name, size, source)
        except Contradiction as problem:
            raise _refusal(problem) from None


def _check_fixed(graph: Graph, size: int, source: str, axis: int) -> None:
    """UsageError unless some input has that very size already."""
    shapes = {n: t.shape or () for n, t in shaped_inputs(graph).items()}
    inputs = shapes if axis == 0 else token_inputs(graph)
    fixed = {n: s[axis] for n, s in inputs.items() if len(s) > axis}
    if size in fixed.values():
        return
    what = "leading" if axis == 0 else "second"
    kind = "input" if axis == 0 else "token input"
    if not fixed:
        message = f"no {kind} has a {what} size to bind"
    else:
        name, found = next(iter(fixed.items()))
        message = f"the {what} size of {kind} {name!r} is fixed at {found}"
    raise UsageError(
        message,
        where=source,
        hint="export the model with that axis dynamic; other sizes are bound by --input-shape",
    )


def _refusal(problem: Contradiction, place: str = "") -> UsageError:
    message = f"{place}: {problem.reason}" if place else problem.reason
    return UsageError(
        message,
        where="; ".join(problem.demands),
        hint="change or leave out one of these sizes",
    )


def declare_ranks(graph: Graph, input_shapes: Mapping[str, Sequence[int | None]]) -> None:
    """Gives inputs whose rank the model does not declare a symbol for each size the user names.

    To be called before types are inferred; `choose_binding` then binds those symbols.
    """
    from gecompiler.ir.dims import symbol

    for name, sizes in input_shapes.items():
        type_ = graph.tensor(name) if name in graph.inputs else None
        if type_ is not None and type_.shape is None:
            dims = tuple(symbol(f"{name}_dim{axis}") for axis in range(len(sizes)))
            graph.set_type(name, TensorType(type_.dtype, dims))


def empty_symbols(graph: Graph, arrays: Mapping[str, Any]) -> tuple[str, ...]:
    """The symbols of inputs that are 0 in the arrays given for them.

    Symbols stand for at least one element; what is proven with them need not hold for none.
    """
    found: dict[str, None] = {}
    for name, type_ in shaped_inputs(graph).items():
        sizes = getattr(arrays.get(name), "shape", ())
        if 0 in sizes and len(sizes) == len(type_.shape or ()):
            pairs = zip(type_.shape or (), sizes, strict=True)
            lone = (lone_symbol(dim) for dim, size in pairs if size == 0)
            found.update(dict.fromkeys(s for s in lone if s is not None))
    return tuple(found)


def declare_empty(graph: Graph, arrays: Mapping[str, Any]) -> Graph:
    """The graph with 0 for its `empty_symbols`; itself where there are none.

    To be called before types are inferred and anything is proven of symbols.
    """
    names = empty_symbols(graph, arrays)
    return bind(graph, dict.fromkeys(names, 0)) if names else graph
