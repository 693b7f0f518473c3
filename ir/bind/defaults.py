"""Sizes that nobody gave: defaults that the model can run with, and the warnings about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gecompiler.ir.bind.roles import batch_symbols, input_symbols, seq_symbols
from gecompiler.ir.bind.solve import Contradiction, Equation, Solver
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.dims import Dim, DimError, substitute
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.facts import FreshSymbol, TypeFacts

DEFAULT_BATCH = 1
DEFAULT_SIZE = 128
_DEFAULT = "default"


def fill_inputs(graph: Graph, solver: Solver, facts: TypeFacts, diagnostics: Diagnostics) -> None:
    """Binds the open symbols of the inputs, and warns of them once."""
    places = input_symbols(graph)
    batches = batch_symbols(graph)
    wanted = {n: DEFAULT_BATCH if n in batches else DEFAULT_SIZE for n in places}
    # Batches first: with them known, more of the others follow from the model.
    order = [n for n in places if n in batches] + [n for n in places if n not in batches]
    postponed = [n for n in order if n not in solver.sizes and not _choose(solver, n, wanted[n])]
    for name in postponed:
        if name not in solver.sizes and not _choose(solver, name, wanted[name]):
            _take(solver, name, wanted[name])
    chosen = {n: solver.sizes[n] for n in places if solver.source.get(n) == _DEFAULT}
    if chosen:
        told = ", ".join(f"{n} = {size}{_reason(size, wanted[n])}" for n, size in chosen.items())
        diagnostics.warn(
            "unbound-sizes",
            f"sizes of inputs are not given and were taken to be {told}",
            "; ".join(_options(graph, chosen, places)),
        )


def _reason(size: int, wanted: int) -> str:
    return "" if size == wanted else f" (the model does not run with {wanted})"


def _options(
    graph: Graph, chosen: Iterable[str], places: dict[str, tuple[str, int]]
) -> Iterator[str]:
    """What to type for each symbol."""
    batches, lengths = batch_symbols(graph), seq_symbols(graph)
    for name in chosen:
        if name in batches or name in lengths:
            yield f"{name}: --{'batch' if name in batches else 'seq'} N"
            continue
        value, axis = places[name]
        rank = len(graph.shape(value) or ())
        spelt = ",".join("N" if i == axis else "?" for i in range(rank))
        yield f"{name}: --input-shape {value}:{spelt}"


def _choose(solver: Solver, name: str, wanted: int, limit: int | None = None) -> bool:
    """Binds a symbol to the first size that keeps all equations: what they suggest, else wanted.

    Below ``wanted`` smaller sizes are tried, largest first. Whether one was found.
    """
    for size in _candidates(solver, name, wanted, limit):
        trial = solver.copy()
        try:
            trial.fix(name, size, _DEFAULT)
        except Contradiction:
            continue
        solver.fix(name, size, _DEFAULT)
        return True
    return False


def _candidates(solver: Solver, name: str, wanted: int, limit: int | None) -> Iterator[int]:
    if not solver.waiting(name):
        yield wanted
        return
    for equation in solver.waiting(name):
        suggested = _suggestion(solver, equation, name)
        if suggested is not None and (limit is None or suggested <= limit):
            yield suggested
    yield wanted
    yield from range(min(wanted, DEFAULT_SIZE) - 1, 0, -1)


def _suggestion(solver: Solver, equation: Equation, name: str) -> int | None:
    """The size that makes both sides of an equation equal where that is more than 1 broadcast."""
    if not equation.broadcast:
        return None
    trial = Solver()
    trial.sizes = dict(solver.sizes)
    try:
        trial.add(Equation(equation.left, equation.right, ""))
    except Contradiction:
        return None
    return trial.sizes.get(name)


def _take(solver: Solver, name: str, size: int) -> None:
    """Binds a symbol though some equation is not kept; binding the graph then tells where."""
    solver.sizes[name] = size
    solver.source[name] = _DEFAULT


def fill_inside(graph: Graph, solver: Solver, facts: TypeFacts, diagnostics: Diagnostics) -> None:
    """Binds symbols that no input has to their upper bounds, and warns of them once."""
    told: list[str] = []
    for fresh in [*facts.fresh.values(), *_others(graph, facts)]:
        if fresh.name in solver.sizes:
            continue
        bound = _number(fresh.bound, solver)
        size = max(1, bound) if bound is not None else DEFAULT_SIZE
        if not _choose(solver, fresh.name, size, bound):
            _take(solver, fresh.name, size)
        if solver.source[fresh.name] == _DEFAULT:
            size = solver.sizes[fresh.name]
            told.append(f"{fresh.name} = {size}" + (" (its most)" if size == bound else ""))
    if told:
        diagnostics.warn(
            "data-dependent-size",
            f"sizes that only a run can tell were taken to be {', '.join(told[:6])}"
            + (f" and {len(told) - 6} more" if len(told) > 6 else ""),
            "the time of ops behind them is that of these sizes",
        )


def _number(bound: Dim | None, solver: Solver) -> int | None:
    if bound is None:
        return None
    try:
        found = substitute(bound, solver.sizes)
    except DimError:
        return None
    return found if isinstance(found, int) else None


def _others(graph: Graph, facts: TypeFacts) -> Iterator[FreshSymbol]:
    """Symbols in types here and in bodies that inference had no say in."""
    pending, seen = [graph], set(facts.fresh)
    while pending:
        current = pending.pop()
        for value in current.values:
            type_ = current.type(value)
            for name in sorted(type_.symbols() - seen) if type_ is not None else ():
                seen.add(name)
                yield FreshSymbol(name, value, 0, "")
        pending.extend(body for op in current.ops if op.attrs for body in op.bodies)
