"""What inference learns of a graph besides the types it sets."""

from __future__ import annotations

from dataclasses import dataclass, field

from gecompiler.ir.dims import Dim
from gecompiler.ir.infer.arrays import SymbolicArray


@dataclass(frozen=True, slots=True)
class FreshSymbol:
    """A size that inputs do not determine: the symbol, where it first occurs, what limits it.

    ``bound`` is an upper bound where one is known (NonZero: the number of elements), as a dim
    of input symbols and earlier fresh ones.
    """

    name: str
    value: str
    axis: int
    op: str
    bound: Dim | None = None


@dataclass(frozen=True, slots=True)
class Assumption:
    """Two sizes that a valid program makes equal, though nothing proves it.

    With ``broadcast`` one of them may be 1 instead. ``op`` is where it first was needed.
    """

    left: Dim
    right: Dim
    op: str
    broadcast: bool


@dataclass
class TypeFacts:
    """Facts about one graph (not the bodies within it).

    ``values``: contents of small tensors, constants among them;
    ``fresh``: symbols made up for sizes that stay unknown, bodies included, in topological order;
    ``assumptions``: equalities that a valid program keeps, in the order found;
    ``unknown``: values of which not even the rank is known.
    """

    values: dict[str, SymbolicArray] = field(default_factory=dict)
    fresh: dict[str, FreshSymbol] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    unknown: tuple[str, ...] = ()
