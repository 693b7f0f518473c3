"""Sizes to try a region with: all small and different, 1, odd, long, and 0 where it may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gecompiler.ir.dims import Dim, Symbol, as_atom, symbols, terms
from gecompiler.ir.infer.facts import Assumption
from gecompiler.ir.types import TensorType

Binding = dict[str, int]

_SMALL = (3, 5, 2, 7, 4, 6)
_LONG = 131
"""Past one block of keys and of queries, and no multiple of any."""

_MAX_LONG = 3


def bindings(
    types: Iterable[TensorType], assumptions: Iterable[Assumption]
) -> Iterator[tuple[str, Binding]]:
    """Numbers for all symbols of the types, each with a few words; sizes assumed equal are."""
    shapes = [t.shape for t in types if t.shape is not None]
    names = list(dict.fromkeys(n for shape in shapes for d in shape for n in sorted(symbols(d))))
    if not names:
        yield "the model's sizes", {}
        return
    groups, fixed = _groups(names, assumptions)
    free = [g for g in dict.fromkeys(groups.values()) if g not in fixed]

    def bound(sizes: Mapping[str, int]) -> Binding:
        return {n: fixed.get(groups[n], sizes.get(groups[n], 1)) for n in names}

    yield "small sizes", bound({g: _SMALL[k % len(_SMALL)] for k, g in enumerate(free)})
    yield "sizes of 1", bound({})
    for parity in (0, 1) if len(free) > 1 else ():
        yield "some sizes of 1", bound({g: 1 if k % 2 == parity else 5 for k, g in enumerate(free)})
    for long in free[:_MAX_LONG]:
        yield f"{long} = {_LONG}", bound({**dict.fromkeys(free, 2), long: _LONG})
    summed = {groups[n] for shape in shapes for d in shape for n in _summed(d)}
    for empty in (g for g in free if g in summed):
        yield f"{empty} = 0", bound({**dict.fromkeys(free, 3), empty: 0})


def _groups(
    names: Iterable[str], assumptions: Iterable[Assumption]
) -> tuple[dict[str, str], dict[str, int]]:
    """The symbol that stands for each, and the numbers that some must be."""
    groups = {n: n for n in names}
    fixed: dict[str, int] = {}
    for known in assumptions:
        left, right = _symbol(known.left), _symbol(known.right)
        if left in groups and right in groups:
            keep, gone = groups[left], groups[right]
            groups.update((n, keep) for n, g in groups.items() if g == gone)
        else:
            for name, number in ((left, known.right), (right, known.left)):
                if name in groups and isinstance(number, int) and number > 1:
                    fixed[groups[name]] = number
    return groups, fixed


def _symbol(dim: Dim) -> str:
    atom = None if isinstance(dim, int) else as_atom(dim)
    return atom.name if isinstance(atom, Symbol) else ""


def _summed(dim: Dim) -> set[str]:
    """The symbols of a sum of several: one of them is the length of what went before."""
    plain = [m for m, _ in terms(dim) if m]
    return symbols(dim) if len(plain) > 1 else set()
