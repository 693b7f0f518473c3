"""What a rule of dims looks at: an op of static shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op

Labels = tuple[tuple[str, ...], ...]
"""Dims of at most one label each."""


class NoSignatureError(Exception):
    """An op that cannot be described by labels; the message says why."""


@dataclass
class DimSite:
    """An op, and the labels that a rule gives to its dims."""

    graph: Graph
    op: Op
    sizes: dict[str, int] = field(default_factory=dict)

    def shape(self, index: int) -> tuple[int, ...]:
        """The sizes of an input; empty for one left out."""
        return self._sizes(self.op.input(index))

    def made(self, index: int = 0) -> tuple[int, ...]:
        """The sizes of an output."""
        return self._sizes(self.op.outputs[index])

    def _sizes(self, value: str) -> tuple[int, ...]:
        if not value:
            return ()
        found = self.graph.tensor(value)
        self.require(found is not None and found.is_static, f"{value!r} has no static shape")
        assert found is not None
        return found.sizes

    def ints(self, index: int, name: str) -> tuple[int, ...] | None:
        """Numbers given as a constant input or, in older opsets, as an attribute."""
        if self.op.input(index):
            constant = self.graph.constant(self.op.input(index))
            array = constant.small_array(65536) if constant is not None else None
            self.require(array is not None, f"its {name} are not constant")
            return tuple(int(n) for n in np.asarray(array).reshape(-1))
        given = self.op.attr(name)
        return None if given is None else tuple(given)

    def axis(self, default: int, rank: int) -> int:
        """The attribute ``axis``, counted from the front."""
        found = int(self.op.attr("axis", default))
        self.require(-rank <= found < max(rank, 1), f"axis {found} of {rank} dims")
        return found % rank if rank else 0

    def label(self, name: str, size: int) -> tuple[str, ...]:
        """A dim of one label; no label where there is one element only."""
        if size == 1:
            return ()
        self.require(self.sizes.setdefault(name, size) == size, f"two sizes of {name}")
        return (name,)

    def run(self, name: str, size: int) -> tuple[str]:
        """A label for a run of a dim, be it of one element."""
        self.sizes[name] = size
        return (name,)

    def labels(self, prefix: str, shape: Sequence[int]) -> Labels:
        """A label of its own for every dim: ``prefix`` and its number."""
        return tuple(self.label(f"{prefix}{n}", size) for n, size in enumerate(shape))

    def aligned(self, shape: Sequence[int], out: Labels, out_shape: Sequence[int]) -> Labels:
        """The labels of what broadcasts, right-aligned, to ``out``."""
        first = len(out) - len(shape)
        self.require(first >= 0, "an input has more dims than the output")
        spec = []
        for n, size in enumerate(shape):
            fits = size in (1, out_shape[first + n])
            self.require(fits, f"{size} does not broadcast to {out_shape[first + n]}")
            spec.append(out[first + n] if size == out_shape[first + n] else ())
        return tuple(spec)

    def others(self, count: int) -> tuple[None, ...]:
        """Inputs from there on, that must be whole."""
        return (None,) * max(0, len(self.op.inputs) - count)

    def require(self, holds: bool, why: str) -> None:
        """Gives up the op unless ``holds``."""
        if not holds:
            raise NoSignatureError(why)
