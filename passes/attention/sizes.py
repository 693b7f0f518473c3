"""Which sizes are the same in every valid run, though nothing proves them equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gecompiler.ir.dims import Call, Dim, as_atom
from gecompiler.ir.infer.facts import Assumption

Agreement = Callable[[Dim, Dim], bool]
"""Whether two sizes count as equal."""


def agreement(assumptions: Iterable[Assumption]) -> Agreement:
    """Whether two sizes are equal, or must be for the model to run.

    Two symbolic sizes that meet in a broadcast count as equal: a model whose keys come in one
    number for the scores and another for their mask runs only where the two agree (or the mask
    holds a single key, which no mask of more than one key's scores does).
    """
    parent: dict[Dim, Dim] = {}

    def root(dim: Dim) -> Dim:
        while dim in parent:
            dim = parent[dim]
        return dim

    for known in assumptions:
        a, b = root(known.left), root(known.right)
        if a != b:
            # A number stays the root, so that it is never taken for another.
            a, b = (b, a) if isinstance(a, int) else (a, b)
            if not isinstance(a, int):
                parent[a] = b

    def agree(a: Dim, b: Dim) -> bool:
        if a == b or root(a) == root(b):
            return True
        return any(
            isinstance(atom, Call)
            and atom.function == "bcast"
            and all(agree(other, part) for part in atom.args)
            for atom, other in ((as_atom(a), b), (as_atom(b), a))
        )

    return agree
