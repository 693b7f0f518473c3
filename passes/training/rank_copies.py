"""Gradients of parameters that ranks hold parts of in uneven ways.

A rank may hold elements that others hold as well (KV heads that are fewer than the ranks, the
last element again where a size does not divide): these take the sum over all that hold them.
Others are there on one rank and zeros on the rest, as a sum over ranks needs: zeros they stay.
What a rank holds is told to its graph, which all ranks share, by constants that are cut as the
parameter is: the numbers of the elements along a dim, and ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.collective_ops import ALL_REDUCE
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr, OpInfo
from gecompiler.ir.parallel import Mesh, Sharding
from gecompiler.ir.parallel.layout import Layout, axes_in, held_first
from gecompiler.ir.training_ops import GRADIENT_SYNC, SYNC, is_optimizer
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.buckets import is_late
from gecompiler.passes.training.tape import Tape

CutConstant = tuple[Constant, Sharding]


@dataclass
class CopySums:
    """Writes what the optimisers' gradients need, in a step that one kind of rank runs."""

    graph: Graph
    mesh: Mesh
    phase: str = SYNC
    """BACKWARD where each micro-batch's gradients are to be summed, and not their sum."""
    constants: dict[str, CutConstant] = field(default_factory=dict)
    """Those that were added, with how they are cut."""

    def __post_init__(self) -> None:
        self.tape = Tape(self.graph)

    def write(self, name: str, whole: Constant, sharding: Sharding) -> None:
        """Makes the gradient of the parameter what its holders update alike."""
        steps = [op for op in self.graph.users(name) if is_optimizer(op) and op.inputs[0] == name]
        if not steps:
            return
        grad, sizes = steps[0].inputs[1], whole.type.sizes
        self.tape.stem = f"sync/{name}"
        phase = SYNC if is_late(self.graph, grad) else self.phase
        self.tape.info = OpInfo(phase=phase, group=GRADIENT_SYNC)
        made = grad
        for dim, layout in enumerate(sharding.dims):
            if dim not in sharding.once and has_copies(layout, sizes[dim], self.mesh):
                made = self._summed(name, made, dim, sizes[dim], layout)
        made = self._owned(name, made, sizes, sharding)
        if made != grad:
            self.graph.set_input(steps[0].name, 1, made)

    def write_twins(self, twins: Mapping[str, CutConstant], axes: str) -> None:
        """Makes the gradients of one parameter that ranks hold in several cuts what all add up to.

        ``axes`` are those of the mesh over which ranks have other parts or other terms.
        """
        tape, graph, total, index = self.tape, self.graph, "", dict[str, dict[int, str]]()
        steps = {n: op for n in twins for op in graph.users(n) if is_optimizer(op)}
        steps = {n: op for n, op in steps.items() if op.inputs[0] == n}
        late = any(is_late(graph, op.inputs[1]) for op in steps.values())
        tape.info = OpInfo(phase=SYNC if late else self.phase, group=GRADIENT_SYNC)
        for name, op in steps.items():
            whole, sharding = twins[name]
            tape.stem = f"sync/{name}"
            grad = self._owned(name, op.inputs[1], whole.type.sizes, sharding)
            index[name] = {}
            for dim, layout in enumerate(sharding.dims):
                if layout is not None:
                    size = whole.type.sizes[dim]
                    where = self._held(name, grad, dim, size, layout)
                    grad, index[name][dim] = self._spread(grad, where, dim, size), where
            total = tape.add(total, grad) if total else grad
        if not steps:
            return
        group: dict[str, Attr] = {"communicator": axes, "group_size": self.mesh.axis_size(axes)}
        group["reduction"] = "sum"
        total = tape.own(ALL_REDUCE, [total], tape.type(total), attrs=group)[0]
        for name, op in steps.items():
            whole, sharding = twins[name]
            tape.stem, made = f"sync/{name}", total
            for dim, where in index[name].items():
                shape = list(tape.shape(made))
                shape[dim] = tape.shape(where)[0]
                kind = TensorType(tape.dtype(made), tuple(shape))
                made = tape.emit("Gather", [made, where], kind, attrs={"axis": dim})[0]
            made = self._owned(name, made, whole.type.sizes, sharding)
            graph.set_input(op.name, 1, made)

    def _owned(self, name: str, grad: str, sizes: tuple[int, ...], sharding: Sharding) -> str:
        """The gradient, 0 where the rank holds zeros in the place of a copy."""
        if not (sharding.partial or sharding.once):
            return grad
        return self._masked(name, grad, sizes, sharding)

    def _held(self, name: str, grad: str, dim: int, size: int, layout: Layout) -> str:
        """The numbers of the elements that the rank holds along a dim."""
        index, local = Constant.of(np.arange(size)), self.tape.shape(grad)[dim]
        return self._constant(f"{name}/held{dim}", index, Sharding((layout,)), local)

    def _spread(self, grad: str, where: str, dim: int, size: int) -> str:
        """The gradient over the whole dim, 0 where the rank holds nothing."""
        kind = self.tape.type(grad)
        shape = (*kind.sizes[:dim], size, *kind.sizes[dim + 1 :])
        attrs: dict[str, Attr] = {"axis": dim, "shape": shape}
        whole = TensorType(kind.dtype, shape)
        return self.tape.own("GatherGrad", [grad, where], whole, attrs=attrs)[0]

    def _summed(self, name: str, grad: str, dim: int, size: int, layout: Layout) -> str:
        """The sum over the holders: spread to the whole dim, added up, picked again."""
        tape, kind = self.tape, self.tape.type(grad)
        where = self._held(name, grad, dim, size, layout)
        spread = self._spread(grad, where, dim, size)
        whole = tape.type(spread)
        axes = "+".join(a for a, _ in self.mesh.axes if a in axes_in(layout))
        group: dict[str, Attr] = {"communicator": axes, "group_size": self.mesh.axis_size(axes)}
        total = tape.own(ALL_REDUCE, [spread], whole, attrs={**group, "reduction": "sum"})[0]
        return tape.emit("Gather", [total, where], kind, attrs={"axis": dim})[0]

    def _masked(self, name: str, grad: str, sizes: tuple[int, ...], sharding: Sharding) -> str:
        """0 where the rank holds zeros in the place of a copy."""
        kind = self.tape.type(grad)
        once = tuple(i for i in range(len(sizes)) if i in sharding.once)
        shape = tuple(sizes[i] if i in once else 1 for i in range(len(sizes)))
        dims = tuple(sharding.dims[i] if i in once else None for i in range(len(sizes)))
        ones = Constant.of(np.ones(shape, kind.dtype.numpy))
        local = tuple(kind.sizes[i] if i in once else 1 for i in range(len(sizes)))
        cut = Sharding(dims, sharding.partial, once)
        return self.tape.mul(grad, self._constant(f"{name}/owned", ones, cut, *local))

    def _constant(self, name: str, whole: Constant, cut: Sharding, *local: int) -> str:
        """A constant of which each rank has its own part."""
        made = self.graph.fresh(f"sync/{name}")
        self.graph.add_constant(made, Constant.absent(TensorType(whole.type.dtype, local)))
        self.constants[made] = (whole, cut)
        return made


def has_copies(layout: Layout, size: int, mesh: Mesh) -> bool:
    """Whether some rank holds an element of the dim that is a copy of another's."""
    axes = axes_in(layout)
    if not axes:
        return False
    ranks = mesh.group("+".join(axes), 0)
    return not all(bool(held_first(layout, size, mesh, rank).all()) for rank in ranks)
