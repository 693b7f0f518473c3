"""A simulated device: its figures, and the answers that passes and the simulator need."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from gecompiler.backends.device_figures import DeviceFigures, Figure, FigureValue
from gecompiler.backends.device_load import device_names, read_profile
from gecompiler.ir.errors import ScheduleError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand, Limits
from gecompiler.ir.types import DType

__all__ = ["CORE_RESOURCES", "Device", "device_names", "load_device"]

CORE_RESOURCES = ("cube", "vector", "hbm", "l2")
"""What every card has of its own; links come after them and lie between cards."""


@dataclass(frozen=True, kw_only=True)
class Device(DeviceFigures):
    """A device profile; implements the `Target` protocol of gecompiler.ir.target.

    `figures` gives the source and kind of every figure. Equal profiles compare equal.
    """

    name: str
    description: str = ""
    version: int = 1
    provenance: tuple[Figure, ...] = field(default=(), repr=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def figures(self) -> tuple[Figure, ...]:
        """Every figure with its value, source and kind, in a fixed order."""
        return self.provenance

    @cached_property
    def limits(self) -> Limits:
        """Streams, events, memory and cores."""
        return Limits(
            max_streams=self.max_streams,
            max_events=self.max_events,
            max_tasks_per_stream=self.max_tasks_per_stream,
            memory_bytes=int(self.memory_gib * 2**30),
            cube_cores=self.cube_cores,
            vector_cores=self.vector_cores,
            prefetch_bytes=int(self.prefetch_budget_mib * 2**20),
            max_notifies=self.max_notifies,
            queue_entries=self.queue_entries,
        )

    @property
    def event_us(self) -> float:
        """From a task's end to the start of a task of another stream waiting for it."""
        return self.event_record_us + self.event_wait_us

    @cached_property
    def hbm_bytes_per_us(self) -> float:
        """What device memory delivers, reads and writes together."""
        return self.hbm_bandwidth_gb_per_s * self.hbm_efficiency_fraction * 1e3

    @cached_property
    def l2_bytes_per_us(self) -> float:
        """What L2 delivers to all cores, reads and writes together."""
        return self.core_l2_bytes_per_us * self.cube_cores * self.l2_efficiency_fraction

    @cached_property
    def core_l2_bytes_per_us(self) -> float:
        """What one core and its vector cores move to and from L2."""
        both = self.l2_read_bytes_per_cycle + self.l2_write_bytes_per_cycle
        return both * self.cube_frequency_mhz

    @cached_property
    def core_l2_read_bytes_per_us(self) -> float:
        """What one cube core reads from L2; its writes go another way and hardly count."""
        reached = self.l2_read_bytes_per_cycle * self.core_read_efficiency_fraction
        return reached * self.cube_frequency_mhz

    @cached_property
    def core_hbm_bytes_per_us(self) -> float:
        """What one core draws from device memory."""
        return self.core_hbm_bytes_per_cycle * self.cube_frequency_mhz

    @cached_property
    def vectors_per_core(self) -> float:
        """Vector cores that belong to one cube core."""
        return self.vector_cores / self.cube_cores

    @property
    def attention_start_us(self) -> float:
        """Start-up of the fused attention that `attention_kernel` names."""
        tuned = self.attention_kernel == "tuned"
        return self.tuned_attention_start_us if tuned else self.vendor_attention_start_us

    @property
    def attention_efficiency(self) -> float:
        """Share of its pipes' pace that the fused attention named so keeps."""
        if self.attention_kernel == "tuned":
            return self.tuned_attention_efficiency_fraction
        return self.vendor_attention_efficiency_fraction

    @property
    def attention_sync_us(self) -> float:
        """Hand-over between products and softmax per step, in the attention named so."""
        return self.tuned_block_sync_us if self.attention_kernel == "tuned" else self.block_sync_us

    @cached_property
    def tiles(self) -> tuple[tuple[int, int], ...]:
        """Output tiles of matrix kernels, (rows, columns); empty where any that fits will do."""
        return _tiles(self.cube_tiles)

    @cached_property
    def f8_shapes(self) -> tuple[tuple[int, int], ...]:
        """The same of kernels of 8-bit floats."""
        return _tiles(self.f8_tiles)

    def cube_flop_per_us(self, dtype: DType) -> float:
        """What one matrix core computes in that element type, 2 flop per multiply-add.

        Types the cube lacks run as the next wider one it has: 16-bit integers as f16, 32-bit
        ones as f32, f64 in pieces at a quarter of f32.
        """
        return _cube_rate(self, dtype) * self.cube_frequency_mhz

    def vector_lanes_per_us(self, bits: int) -> float:
        """Elements of that width one vector core takes through a full-rate instruction.

        64-bit elements have no lanes of their own and run as two passes of 32-bit halves.
        """
        lanes = self.vector_bytes_per_cycle * 8 / max(16, min(bits, 32))
        return lanes * self.vector_frequency_mhz / (2 if bits > 32 else 1)

    def link_bytes_per_us(self, link: str) -> float:
        """The bandwidth of a link, by its name's part before ``:`` (``hccs:0-1``, ``pcie:3``)."""
        found = self._links.get(link.split(":", 1)[0])
        if found is None:
            raise ScheduleError(
                f"no link {link!r}", where=self.name, hint=nearest(link, self._links)
            )
        return found

    @cached_property
    def _links(self) -> dict[str, float]:
        hccs = self.hccs_gb_per_s * self.hccs_efficiency_fraction
        return {"hccs": hccs * 1e3, "pcie": self.pcie_gb_per_s * 1e3}

    def capacities(self) -> dict[str, float]:
        """Units of work per microsecond: core-us of cube and vector, bytes of hbm, l2, links."""
        return {
            "cube": float(self.cube_cores),
            "vector": float(self.vector_cores),
            "hbm": self.hbm_bytes_per_us,
            "l2": self.l2_bytes_per_us,
            **self._links,
        }

    def work(self, demand: Demand) -> dict[str, float]:
        """The task's work on each resource, in the units of `capacities`; links by own name."""
        found = {
            "cube": demand.cube_us,
            "vector": demand.vector_us,
            "hbm": demand.load_bytes + demand.store_bytes,
            "l2": demand.l2_bytes,
        }
        for link, amount in demand.link_bytes:
            found[link] = found.get(link, 0.0) + amount
        return found

    def demand(self, graph: Graph, op: Op) -> Demand:
        """What the op asks of the device; sizes that are not bound count as 1."""
        from gecompiler.backends.cost.model import demand

        return demand(self, graph, op)

    def alone_us(self, demand: Demand) -> float:
        """How long a task takes with nothing beside it; what the simulator gives as well."""
        from gecompiler.backends.simulator.fluid import phases

        return demand.fixed_us + math.fsum(p.us for p in phases(self, demand))

    def engine(self, op: Op) -> str:
        """GE's engine for the op: ``AIcoreEngine``, ``VectorEngine``, ``DNN_VM_AICPU``, ..."""
        from gecompiler.backends.cost.engine import engine

        return engine(op)

    def capabilities(self) -> dict[str, FigureValue]:
        """Every figure and some derived ones by name, for ``ge.get_device_capability``."""
        peak = self.cube_flop_per_us(DType.F16) * self.cube_cores / 1e6
        return {
            **{f.name: f.value for f in self.provenance},
            "memory_bytes": self.limits.memory_bytes,
            "event_us": self.event_us,
            "peak_f16_tflops": round(peak, 3),
            "l2_bandwidth_gb_per_s": round(self.l2_bytes_per_us / 1e3, 3),
            "vector_f32_gop_per_s": round(
                self.vector_lanes_per_us(32) * self.vector_cores / 1e3, 3
            ),
        }


def _tiles(text: str) -> tuple[tuple[int, int], ...]:
    if text == "any":
        return ()
    pairs = [tile.split("x") for tile in text.split(" ")]
    return tuple([(int(rows), int(columns)) for rows, columns in pairs])


def _cube_rate(device: DeviceFigures, dtype: DType) -> float:
    if dtype is DType.BF16:
        return device.cube_bf16_flop_per_cycle
    if dtype is DType.F64:
        return device.cube_f32_flop_per_cycle / 4
    if dtype.bits > 16:
        return device.cube_f32_flop_per_cycle
    if dtype.is_float and dtype.bits <= 8:
        return device.cube_f8_flop_per_cycle
    if dtype.is_float or dtype.bits > 8:
        return device.cube_f16_flop_per_cycle
    return device.cube_i8_flop_per_cycle


def load_device(name_or_path: str) -> Device:
    """The profile of that name (see `device_names`), or of that YAML file.

    Names are taken without regard to case, and by their aliases (``Ascend910B1``). UsageError
    for an unknown name or a profile that is wrong, with the file, the line and what to try.
    """
    profile = read_profile(name_or_path)
    values = {figure.name: figure.value for figure in profile.figures}
    return Device(
        name=profile.name,
        description=profile.description,
        version=profile.version,
        provenance=profile.figures,
        **values,  # type: ignore[arg-type]
    )
