"""The state of an inference: one `Scope` for each graph or body, one `Shared` for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim, Expr, symbol, symbols
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.arrays import SymbolicArray, contents
from gecompiler.ir.infer.facts import Assumption, FreshSymbol
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType

DEEPEST = 50
"""How deep bodies may be nested."""


class Shared:
    """What all scopes of one inference share."""

    def __init__(self, root: Graph) -> None:
        self.root = root
        self.opsets: Mapping[str, int] = root.opsets
        self.input_symbols = _input_symbols(root)
        """In order of the inputs."""
        self.known = frozenset(self.input_symbols)
        """The inputs' symbols as a set."""
        self.fresh: dict[str, FreshSymbol] = {}
        self.assumptions: dict[tuple[Dim, Dim, bool], Assumption] = {}
        self.stale: list[str] = []
        """Values whose declared numbers gave way to what the inputs imply."""
        self._taken: set[str] | None = None

    def new_symbol(self, stem: str) -> str:
        """A symbol name that nothing in the model uses yet: ``stem``, else ``stem_1``, ..."""
        if self._taken is None:
            self._taken = set(self.known)
            for graph in _graphs(self.root):
                for value in graph.values:
                    self._taken |= _type_symbols(graph, value)
        name, count = stem, 0
        while name in self._taken or name in self.fresh:
            count += 1
            name = f"{stem}_{count}"
        return name

    def is_settled(self, dim: Dim) -> bool:
        """Whether the dim follows from the inputs' symbols alone."""
        return isinstance(dim, int) or symbols(dim) <= self.known


def _input_symbols(graph: Graph) -> tuple[str, ...]:
    """The symbols of inputs and outer values, in order of first occurrence."""
    found: dict[str, None] = {}
    for value in (*graph.inputs, *graph.outer):
        for dim in graph.shape(value) or ():
            found.update(dict.fromkeys(sorted(symbols(dim))))
    return tuple(found)


def _graphs(graph: Graph) -> Iterator[Graph]:
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for op in current.ops:
            if op.attrs:
                pending.extend(op.bodies)


def _type_symbols(graph: Graph, value: str) -> set[str]:
    found = graph.type(value)
    return set() if found is None else found.symbols()


class Scope:
    """One graph or body while its types are inferred."""

    def __init__(self, graph: Graph, shared: Shared, parent: Scope | None = None) -> None:
        self.graph = graph
        self.shared = shared
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        if self.depth > DEEPEST:
            raise ModelError(
                f"bodies are nested deeper than {DEEPEST}",
                where=shared.root.name,
                hint="no exporter nests If, Loop or Scan this deep; the file may be malformed",
            )
        self._outer = frozenset(graph.outer)
        self.bounded: set[str] = set()
        """Values whose size depends on data, or on such a value: a number in their type may be
        no more than its upper bound, so that shapes are not to be read off it."""
        self.values: dict[str, SymbolicArray] = {}
        for name, constant in graph.constants.items():
            if not constant.type.dtype.is_float:
                found = contents(constant)
                if found is not None:
                    self.values[name] = found

    def opset(self, domain: str) -> int:
        """The version of that domain's ops."""
        return self.shared.opsets.get(domain, 1)

    def constant(self, name: str) -> Constant | None:
        """The constant of that name here or in the graphs around."""
        found = self.graph.constant(name)
        if found is None and self.parent is not None and name in self._outer:
            return self.parent.constant(name)
        return found

    def assume(self, left: Dim, right: Dim, op: Op, *, broadcast: bool) -> None:
        """Notes an equality that nothing proves."""
        key = (left, right, broadcast)
        if key not in self.shared.assumptions:
            self.shared.assumptions[key] = Assumption(left, right, op.name, broadcast)

    def fresh(self, op: Op, output: int, axis: int, bound: Dim | None = None) -> Dim:
        """A size that nothing here determines: what the model declares, else a new symbol."""
        value = op.outputs[output] if output < len(op.outputs) else ""
        declared = self.graph.shape(value) if value else None
        if declared is not None and axis < len(declared):
            self.note(declared[axis], value, axis, op, bound)
            if isinstance(declared[axis], int):
                self.bounded.add(value)
            return declared[axis]
        name = self.shared.new_symbol(f"{value or op.name}_dim{axis}")
        self.shared.fresh[name] = FreshSymbol(name, value, axis, op.name, bound)
        return symbol(name)

    def note(self, dim: Dim, value: str, axis: int, op: Op, bound: Dim | None = None) -> None:
        """Notes the symbols of a declared size that come from no input."""
        if not isinstance(dim, Expr):
            return
        for name in sorted(symbols(dim)):
            if name not in self.shared.known and name not in self.shared.fresh:
                alone = bound if dim == symbol(name) else None
                self.shared.fresh[name] = FreshSymbol(name, value, axis, op.name, alone)

    def tensor(self, value: str) -> TensorType | None:
        """The type of a value if it is a tensor's and known."""
        return self.graph.tensor(value)
