"""A graph written as one rank runs it, where ranks differ by constants and by what they sum.

Some sharing out is no cut of a dim: experts that an exporter wrote one after the other, or whose
weights are looked up for each token. The graph is then rewritten to what one rank does. Its
constants may be a rank's own rows of a table, and a value may be the rank's part of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import Layout, Note, Sharding, Split
from gecompiler.ir.parallel.layout import product_of
from gecompiler.ir.types import TensorType

_WIDENS = ("Expand", "Tile", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Identity")


@dataclass(frozen=True)
class Stacked:
    """Constants of one shape below each other, read when they are asked for.

    ``names`` are those that the model has for them.
    """

    parts: tuple[Constant, ...]
    names: tuple[str, ...] = ()

    def load(self, type_: TensorType) -> np.ndarray:
        """The rows of all; MissingDataError where the model came without its weights."""
        arrays = [part.array() for part in self.parts]
        return np.concatenate([a.reshape(1) if a.ndim == 0 else a for a in arrays])

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return f"{len(self.parts)} constants below each other"


@dataclass(frozen=True)
class RankRows:
    """A constant of the rewritten graph that is a rank's rows of ``table``.

    Rows are cut over ``axes``. Where ``parts`` is given, the table is that many constants of one
    shape below each other, one for each rank; else ranks past the end hold copies of its last row.
    """

    table: Constant
    axes: str
    parts: int = 0

    def sharding(self, want: Sharding) -> Sharding:
        """How the table lies when the rank's rows are to lie as wanted."""
        first: Layout = Split(self.axes)
        if self.parts:
            rows = self.table.type.sizes[0] // self.parts
            first = product_of(((self.parts, first), (rows, want.dims[0])))
        else:
            assert want.dims[0] is None, "rows that are looked up are cut once"
        return Sharding((first, *want.dims[1:]), want.partial, want.once)


@dataclass
class RankGraph:
    """A graph as the first rank of the axes runs it, and what differs on the others.

    ``rows`` goes by constant; ``sums`` tells which values are parts of a sum, over which axes.
    """

    graph: Graph
    rows: dict[str, RankRows] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def take_rows(self, stem: str, rows: RankRows, own: Constant) -> str:
        """Adds a constant that is ``own`` on the first rank; returns its name."""
        name = self.graph.add_constant(self.graph.fresh(stem), own)
        self.rows[name] = rows
        return name

    def keep_name(self, name: str, table: str) -> None:
        """Calls rows as the table that they are of, where nothing uses that any more."""
        graph = self.graph
        if table in graph.constants and not graph.uses(table) and table not in graph.outputs:
            graph.remove_constant(table)
            graph.rename_value(name, table)
            self.rows[table] = self.rows.pop(name)

    def varying(self) -> dict[str, str]:
        """Which ops have other numbers on other ranks, over which axes, up to the sums over them.

        Such an op may not be cut over these axes as well: its parts would be of different wholes.
        """
        found: dict[str, str] = {}
        values = {name: rows.axes for name, rows in self.rows.items()}
        for op in self.graph.topological():
            axes = {a for v in self.graph.reads(op) if v in values for a in values[v].split("+")}
            if not axes:
                continue
            found[op.name] = "+".join(sorted(axes))
            for value in op.outputs:
                left = axes - set(self.sums.get(value, "").split("+"))
                if left:
                    values[value] = "+".join(sorted(left))
        self._also_before(found)
        return found

    def _also_before(self, found: dict[str, str]) -> None:
        """What only widens values for such ops does so after these are gathered, not before."""
        for op in reversed(self.graph.topological()):
            if op.name in found or not op.is_(*_WIDENS) or op.outputs[0] in self.graph.outputs:
                continue
            axes = {found.get(user.name) for user in self.graph.users(op.outputs[0])}
            (only,) = axes if len(axes) == 1 else (None,)
            if only is not None:
                found[op.name] = only
