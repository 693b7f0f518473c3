"""The graph that a rank runs, while it is made: local values and the moves between layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.collective_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    Reduction,
)
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Attr, Op, OpInfo
from gecompiler.ir.parallel import Layout, Mesh, Sharding, Split
from gecompiler.ir.parallel.layout import (
    axes_in,
    factors_of,
    held_indices,
    is_exact,
    local_size,
)
from gecompiler.ir.types import DType, TensorType


@dataclass
class LocalGraph:
    """A graph of local shapes under construction.

    ``constants`` learns which of the graph's constants are cut, and from what.
    """

    graph: Graph
    mesh: Mesh
    constants: dict[str, tuple[Constant, Sharding]] = field(default_factory=dict)
    phase: str = ""
    """The part of a training step that ops are emitted for."""
    _tags: int = 0
    _tables: dict[tuple[object, ...], str] = field(default_factory=dict)

    def share(self, name: str, whole: Constant, sharding: Sharding) -> str:
        """A constant of which every rank holds its share; returns the name it got."""
        name = self.graph.fresh(name)
        if sharding.is_whole:
            return self.graph.add_constant(name, whole)
        sizes = sharding.local_shape(whole.type.sizes, self.mesh)
        self.constants[name] = (whole, sharding)
        local = Constant(TensorType(whole.type.dtype, sizes), computed=whole.computed)
        return self.graph.add_constant(name, local)

    def numbers(self, values: Sequence[int], stem: str) -> str:
        """An int64 constant, the same on every rank; equal ones are one."""
        key = ("numbers", tuple(values))
        if key not in self._tables:
            self._tables[key] = self.graph.constant_of(stem, np.asarray(values, np.int64))
        return self._tables[key]

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attrs: Mapping[str, Attr],
        *,
        like: str,
        stem: str,
        domain: str = "",
    ) -> str:
        """An op of one output, of the element type of ``like`` and in the scope of its maker."""
        maker = self.graph.producer(like)
        info = OpInfo(scope=maker.info.scope if maker is not None else "", phase=self.phase)
        name, value = self.graph.fresh(f"{stem}_{op_type}"), self.graph.fresh(stem)
        type_ = self.graph.tensor(like)
        assert type_ is not None
        op = Op(name, op_type, tuple(inputs), (value,), dict(attrs), domain, info)
        self.graph.add_op(op, [TensorType(type_.dtype, tuple(shape))])
        return value

    @property
    def opset(self) -> int:
        """The version of ONNX's own ops, on which some take a number as input or attribute."""
        return self.graph.opsets.get("", 13)

    def next_tag(self) -> int:
        """A number for a Send and its Recv that no others here have."""
        self._tags += 1
        return self._tags

    def shape(self, value: str) -> tuple[int, ...]:
        """The local sizes of a value."""
        type_ = self.graph.tensor(value)
        assert type_ is not None
        return type_.sizes

    # ------------------------------------------------------------ moves

    def reduce(self, value: str, axes: str, reduction: Reduction = "sum") -> str:
        """All-reduce over the axes."""
        attrs = self._collective(axes) | {"reduction": reduction}
        return self.emit(
            ALL_REDUCE,
            [value],
            self.shape(value),
            attrs,
            like=value,
            stem=f"{value}_reduced",
            domain=GE_DOMAIN,
        )

    def reduce_scatter(self, value: str, axes: str, axis: int) -> str:
        """Sums over the axes; each rank gets its part of dim ``axis``, by place in the group."""
        shape = list(self.shape(value))
        shape[axis] //= self.mesh.axis_size(axes)
        return self.emit(
            REDUCE_SCATTER,
            [value],
            shape,
            self._collective(axes) | {"axis": axis, "reduction": "sum"},
            like=value,
            stem=f"{value}_scattered",
            domain=GE_DOMAIN,
        )

    def all_to_all(self, value: str, axes: str, split: int, concat: int) -> str:
        """Cuts dim ``split`` over the axes and puts dim ``concat`` together."""
        count, shape = self.mesh.axis_size(axes), list(self.shape(value))
        shape[split] //= count
        shape[concat] *= count
        attrs = self._collective(axes) | {"split_axis": split, "concat_axis": concat}
        return self.emit(
            ALL_TO_ALL,
            [value],
            shape,
            attrs,
            like=value,
            stem=f"{value}_exchanged",
            domain=GE_DOMAIN,
        )

    def all_gather(self, value: str, axes: str, axis: int) -> str:
        """Puts the parts along ``axis`` one after the other, by place in the group."""
        shape = list(self.shape(value))
        shape[axis] *= self.mesh.axis_size(axes)
        return self.emit(
            ALL_GATHER,
            [value],
            shape,
            self._collective(axes) | {"axis": axis},
            like=value,
            stem=f"{value}_gathered",
            domain=GE_DOMAIN,
        )

    def _collective(self, axes: str) -> dict[str, Attr]:
        return {"communicator": axes, "group_size": self.mesh.axis_size(axes)}

    def gather(self, value: str, dim: int, size: int, layout: Layout, keep: Layout = None) -> str:
        """Makes a dim of ``size`` elements lie as ``keep``, whose cuts are some of its own."""
        have, want = factors_of(layout, size), factors_of(keep, size)
        if keep is None:
            want = tuple((n, None) for n, _ in have)
        assert [n for n, _ in have] == [n for n, _ in want]
        if len(have) == 1:
            return self._gather_factor(value, dim, size, layout)
        around = self.shape(value)
        local = [local_size(sub, n, self.mesh) for n, sub in have]
        value = self.reshape(value, (*around[:dim], *local, *around[dim + 1 :]))
        for at, ((n, sub), (_, wanted)) in enumerate(zip(have, want, strict=True)):
            if sub != wanted:
                value = self._gather_factor(value, dim + at, n, sub)
        local = [local_size(sub, n, self.mesh) for n, sub in want]
        return self.reshape(value, (*around[:dim], math.prod(local), *around[dim + 1 :]))

    def _gather_factor(self, value: str, dim: int, size: int, layout: Layout) -> str:
        axes = self.joined(axes_in(layout))
        value = self.all_gather(value, axes, dim)
        if isinstance(layout, Split) and is_exact(layout, size, self.mesh):
            return value
        group = self.mesh.group(axes, 0)
        held = np.concatenate([held_indices(layout, size, self.mesh, rank) for rank in group])
        found, first = np.unique(held, return_index=True)
        assert len(found) == size
        if (first == np.arange(size)).all():
            return self._first(value, dim, size) if len(held) > size else value
        return self.pick(value, dim, self.numbers(first.tolist(), f"order_{axes}"), size)

    def joined(self, axes: Sequence[str]) -> str:
        """The axes as one, in the mesh's order."""
        return "+".join(name for name, _ in self.mesh.axes if name in axes)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Reshape to local sizes."""
        sizes = self.numbers(shape, "sizes")
        return self.emit("Reshape", [value, sizes], shape, {}, like=value, stem=f"{value}_seen")

    def _first(self, value: str, dim: int, size: int) -> str:
        return self.slice(value, dim, 0, size)

    def slice(self, value: str, dim: int, start: int, stop: int) -> str:
        """Elements ``start`` to ``stop`` of a dim."""
        shape = list(self.shape(value))
        shape[dim] = stop - start
        if self.opset < 10:
            attrs: dict[str, Attr] = {"starts": (start,), "ends": (stop,), "axes": (dim,)}
            return self.emit("Slice", [value], shape, attrs, like=value, stem=f"{value}_part")
        bounds = [self.numbers([n], "bound") for n in (start, stop, dim)]
        return self.emit("Slice", [value, *bounds], shape, {}, like=value, stem=f"{value}_part")

    def along(
        self, op_type: str, value: str, dim: int, *, since: int = 18, keep: bool = True
    ) -> str:
        """A reduction along a dim, which stays with one element or goes.

        ``since`` is the version of ONNX's ops from which its axes are an input.
        """
        shape = list(self.shape(value))
        shape[dim : dim + 1] = [1] if keep else []
        stem, attrs = f"{value}_{op_type.removeprefix('Reduce').lower()}", {"keepdims": int(keep)}
        if self.opset < since:
            old: dict[str, Attr] = {"axes": (dim,), **attrs}
            return self.emit(op_type, [value], shape, old, like=value, stem=stem)
        inputs = [value, self.numbers([dim], "axis")]
        return self.emit(op_type, inputs, shape, attrs, like=value, stem=stem)

    def pick(self, value: str, dim: int, indices: str, count: int) -> str:
        """Gather of ``count`` elements of a dim."""
        shape = list(self.shape(value))
        shape[dim] = count
        return self.emit(
            "Gather", [value, indices], shape, {"axis": dim}, like=value, stem=f"{value}_own"
        )

    def take(self, value: str, dim: int, size: int, layout: Layout) -> str:
        """Each rank's own part of a dim that it holds whole: a table of indices says which."""
        whole = Constant(TensorType(DType.I64, (size,)), source=_Counted(size))
        stem = f"own_{self.joined(axes_in(layout)).replace('+', '_')}"
        table = self.table(("own", size, layout), stem, whole, Sharding((layout,)))
        return self.pick(value, dim, table, local_size(layout, size, self.mesh))

    def table(self, key: tuple[object, ...], stem: str, whole: Constant, sharding: Sharding) -> str:
        """A constant as `share` makes it; one for every key."""
        if key not in self._tables:
            self._tables[key] = self.share(stem, whole, sharding)
        return self._tables[key]


@dataclass(frozen=True)
class _Counted:
    """0, 1, 2, ...: of which a cut is a rank's own indices."""

    size: int

    def load(self, type_: TensorType) -> np.ndarray:
        """The numbers."""
        return np.arange(self.size)

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return f"0 to {self.size - 1}"
