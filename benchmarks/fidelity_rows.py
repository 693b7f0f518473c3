"""One measured row, and how each kind of op is predicted: by the product's own cost formulas."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.cost.attention import Attention, attention_demand
from gecompiler.backends.cost.base import L2_SHARE, vector_demand
from gecompiler.backends.cost.gemm import Gemm, gemm_demand
from gecompiler.backends.device import Device
from gecompiler.backends.topology import Topology, default_topology, load_topology
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType, TensorType, tensor

Kernel = Callable[[Device], Demand]


@dataclass(frozen=True)
class Work:
    """What an op needs at least: the plain roofline's input."""

    flop: float = 0.0
    bytes: float = 0.0
    link_bytes: float = 0.0
    dtype: DType = DType.F16

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flop + other.flop,
            self.bytes + other.bytes,
            self.link_bytes + other.link_bytes,
            self.dtype,
        )


@dataclass(frozen=True)
class Case:
    """Kernels that run one after the other, and the work in them."""

    kernels: tuple[Kernel, ...]
    work: Work
    collective: Collective | None = None

    def __add__(self, other: Case) -> Case:
        return Case(self.kernels + other.kernels, self.work + other.work)


@dataclass(frozen=True)
class Row:
    """A measured time with the case that is said to take it."""

    data_set: str
    family: str
    device: str
    shape: str
    measured_us: float
    case: Case
    method: str = ""
    """How it was timed, where the time includes more than the kernels: see `Host`."""
    form: str = ""
    """The form of the file, by which `Host` constants are found."""
    warm: bool = False
    """Whether it was timed right after the kernel whose output it reads, again and again."""
    fitted: bool = False
    """Whether a fit may see it: see `halved`."""

    def kernels_us(self, device: Device) -> float:
        """The kernels' times alone, one after the other."""
        return sum(self.kernel_us(device, kernel(device)) for kernel in self.case.kernels)

    def kernel_us(self, device: Device, demand: Demand) -> float:
        """One kernel's time; where it finds what the last one left in L2, without HBM."""
        moved = demand.load_bytes + demand.store_bytes
        if self.warm and moved <= L2_SHARE * device.l2_mib * 2**20:
            demand = replace(demand, load_bytes=0.0, store_bytes=0.0)
        return device.alone_us(demand)


def digest(shape: str) -> bytes:
    """By which a shape belongs to one half or the other."""
    return hashlib.sha256(shape.encode()).digest()


def halved(rows: Sequence[Row]) -> list[Row]:
    """The rows of one data set, those marked that a fit may see.

    A shape is seen or held back as a whole, by its hash, and in no family are more than half of the
    shapes seen.
    """
    hashes = {row.shape: digest(row.shape) for row in rows}
    held = {shape for shape, found in hashes.items() if found[0] >= 128}
    families: dict[str, set[str]] = {}
    for row in rows:
        families.setdefault(row.family, set()).add(row.shape)
    for shapes in families.values():
        order = sorted(shapes, key=lambda shape: (hashes[shape], shape))
        held.update(order[len(order) // 2 :])
    return [replace(row, fitted=row.shape not in held) for row in rows]


@dataclass(frozen=True)
class Host:
    """What timing on the host adds: a constant, and what a call takes at least."""

    call_us: float = 0.0
    least_us: float = 0.0

    def us(self, kernels_us: float) -> float:
        """The time that the host sees."""
        return max(kernels_us, self.least_us) + self.call_us


def serial(cases: Iterable[Case]) -> Case:
    """One after the other."""
    first, *rest = cases
    for case in rest:
        first = first + case
    return first


def gemm(
    m: int, n: int, k: int, dtype: DType = DType.BF16, out: DType | None = None, batch: int = 1
) -> Case:
    """``batch`` products of (m, k) by (k, n)."""
    element, result = dtype.bits / 8, (out or dtype).bits / 8
    a, b, c = batch * m * k * element, batch * n * k * element, batch * m * n * result
    product = Gemm(batch, m, n, k, dtype, a, b, 0.0, c)
    work = Work(2.0 * batch * m * n * k, a + b + c, 0.0, dtype)
    return Case((lambda device: gemm_demand(device, product),), work)


def attention(a: Attention) -> Case:
    """One fused attention."""
    element = a.dtype.bits / 8
    seen = a.kv_len if a.right < 0 else a.offset + (a.q_len + 1) / 2
    flop = 2.0 * a.batch * a.q_heads * a.q_len * seen * (a.head_dim + a.v_dim)
    keys = a.kv_heads * a.kv_len * (a.head_dim + (0 if a.v_in_k else a.v_dim))
    moved = element * a.batch * (a.q_heads * a.q_len * (a.head_dim + a.v_dim) + keys)
    return Case((lambda device: attention_demand(device, a),), Work(flop, moved, 0.0, a.dtype))


def op(
    op_type: str,
    inputs: Iterable[TensorType],
    output: TensorType,
    domain: str = "",
    **attrs: object,
) -> Case:
    """One op of a graph of its own, by the path that a compiled model's ops take."""
    graph = Graph("row")
    names = [graph.add_input(f"x{i}", kind) for i, kind in enumerate(inputs)]
    node = graph.add_op(
        Op("row", op_type, tuple(names), ("y",), attrs, domain),  # type: ignore[arg-type]
        [output],
    )
    kinds = [graph.tensor(name) for name in (*names, "y")]
    moved = sum(_bytes(kind) for kind in kinds if kind is not None)
    if op_type == "Gather":  # no more of the table than the rows that are taken
        moved = _bytes(kinds[1]) + 2 * _bytes(kinds[-1])
    work = Work(0.0, moved)
    return Case((lambda device: device.demand(graph, node),), work)


def pass_over(elements: int, passes: float = 6.0) -> Case:
    """One kernel that reads and writes each fp16 element once, with a little arithmetic."""
    moved = 2.0 * elements
    work = Work(0.0, 2 * moved)
    return Case((lambda d: vector_demand(d, moved, moved, passes * elements, 16),), work)


def _bytes(kind: TensorType) -> float:
    count = 1
    for size in kind.shape or ():
        count *= size if isinstance(size, int) else 1
    return count * kind.dtype.bits / 8


def elementwise(op_type: str, shape: tuple[int, ...], inputs: int = 1, dtype: str = "f16") -> Case:
    """A plain elementwise op on tensors of one shape."""
    kind = tensor(dtype, shape)
    return op(op_type, [kind] * inputs, kind)


@dataclass(frozen=True)
class Collective:
    """A measured collective: among which cards of which topology (that of the device if empty)."""

    op_type: str
    size_bytes: float
    """What is reduced, gathered in all, scattered in all, or sent."""
    cards: tuple[int, ...]
    topology: str = ""

    def topology_of(self, device: Device) -> Topology:
        """The links of that device's cards."""
        if self.topology:
            return load_topology(self.topology, device)
        return default_topology(device, len(self.cards))

    def demand(self, device: Device) -> Demand:
        """One card's part. Its time holds all that its links take, which lie between cards."""
        found = collective_cost(self.topology_of(device), self.op_type, self.cards, self.size_bytes)
        return replace(found.demand(0), link_bytes=())


def collective(case: Collective) -> Case:
    """A collective; of the plain roofline each card sends what it must at least."""
    n = len(case.cards)
    share = {"AllReduce": 2 * (n - 1) / n, "Send": 1.0}.get(case.op_type, (n - 1) / n)
    return Case((case.demand,), Work(link_bytes=case.size_bytes * share), case)
