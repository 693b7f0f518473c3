"""The figures of a device: what each is, its unit (in its name), and what it may be.

This is the one list of them: the loader, `gec devices` and the cost model all read it.
Bandwidths are in GB/s = 1e9 bytes per second, memories in KiB, MiB or GiB, times in
microseconds. "Core" in a per-core figure is an AI core: one cube core with the vector cores
that belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, get_args, get_type_hints

FigureKind = Literal["vendor", "measured", "derived"]
FigureValue = int | float | bool | str

_TILES = r"any|[1-9]\d{0,3}x[1-9]\d{0,3}( [1-9]\d{0,3}x[1-9]\d{0,3}){0,31}"
"""Rows x columns of up to 32 output tiles."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a profile with where it comes from."""

    name: str
    value: FigureValue
    source: str
    kind: FigureKind


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a figure means and which values make sense: numbers in [low, high], or choices."""

    text: str
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """What text must match, where it is not one of a few choices."""


@dataclass(frozen=True, kw_only=True)
class DeviceFigures:
    """Every figure of a device, by name."""

    # cores
    cube_cores: Annotated[int, Allowed("matrix cores", 1, 4096)]
    vector_cores: Annotated[int, Allowed("vector cores, or vector units of fused cores", 1, 8192)]
    cube_vector_split: Annotated[
        bool, Allowed("whether cube and vector cores are apart and meet in L2")
    ]
    cube_frequency_mhz: Annotated[float, Allowed("clock of the matrix cores", 10, 10_000)]
    vector_frequency_mhz: Annotated[float, Allowed("clock of the vector cores", 10, 10_000)]
    cube_f16_flop_per_cycle: Annotated[float, Allowed("per matrix core", 1, 1 << 20)]
    cube_bf16_flop_per_cycle: Annotated[float, Allowed("per matrix core", 1, 1 << 20)]
    cube_f32_flop_per_cycle: Annotated[float, Allowed("per matrix core", 1, 1 << 20)]
    cube_i8_flop_per_cycle: Annotated[float, Allowed("per matrix core", 1, 1 << 20)]
    cube_f8_flop_per_cycle: Annotated[
        float, Allowed("per matrix core, 8-bit and narrower floats", 1, 1 << 20)
    ]
    vector_bytes_per_cycle: Annotated[
        float, Allowed("operand bytes one vector core takes in per cycle", 1, 1 << 16)
    ]
    cube_efficiency_fraction: Annotated[
        float, Allowed("share of its peak that a matrix core reaches inside a tile", 0.05, 1)
    ]
    cube_tiles: Annotated[
        str,
        Allowed(
            "output tiles that matrix kernels come in, rows x columns, or any that fits",
            pattern=_TILES,
        ),
    ]
    f8_efficiency_fraction: Annotated[
        float, Allowed("share of its peak inside a tile of 8-bit floats", 0.05, 1)
    ]
    f8_tiles: Annotated[
        str,
        Allowed(
            "the same as cube_tiles for 8-bit floats",
            pattern=_TILES,
        ),
    ]
    f8_cluster_cores: Annotated[
        int, Allowed("cores that share a read of L2 in kernels of 8-bit floats", 1, 64)
    ]
    # memory
    memory_gib: Annotated[float, Allowed("device memory", 0.001, 1 << 16)]
    hbm_bandwidth_gb_per_s: Annotated[float, Allowed("peak of the device memory", 0.1, 1e6)]
    hbm_efficiency_fraction: Annotated[float, Allowed("share of the peak in reach", 0.05, 1)]
    hbm_access_bytes: Annotated[int, Allowed("smallest access that wastes nothing", 1, 1 << 16)]
    core_hbm_bytes_per_cycle: Annotated[
        float, Allowed("what one core can draw from device memory", 0.1, 1 << 16)
    ]
    l2_mib: Annotated[float, Allowed("L2 cache", 0.01, 1 << 16)]
    l2_read_bytes_per_cycle: Annotated[float, Allowed("from L2, per core", 0.1, 1 << 16)]
    l2_write_bytes_per_cycle: Annotated[float, Allowed("into L2, per core", 0.1, 1 << 16)]
    l2_efficiency_fraction: Annotated[
        float, Allowed("share of that in reach when all cores draw at once", 0.05, 1)
    ]
    core_read_efficiency_fraction: Annotated[
        float, Allowed("share of its rate from L2 that one cube core's loads reach", 0.05, 1)
    ]
    l1_kib: Annotated[float, Allowed("L1 buffer per matrix core", 1, 1 << 20)]
    l0a_kib: Annotated[float, Allowed("left operand buffer per matrix core", 1, 1 << 20)]
    l0b_kib: Annotated[float, Allowed("right operand buffer per matrix core", 1, 1 << 20)]
    l0c_kib: Annotated[float, Allowed("accumulators per matrix core", 1, 1 << 20)]
    drain_bytes_per_cycle: Annotated[
        float, Allowed("results from the accumulators to memory, per matrix core", 0.1, 1 << 16)
    ]
    ub_kib: Annotated[float, Allowed("unified buffer per vector core", 1, 1 << 20)]
    prefetch_budget_mib: Annotated[
        float, Allowed("on-chip memory that loads issued ahead may fill", 0, 1 << 16)
    ]
    hidden_fraction: Annotated[
        float, Allowed("share of its loads and stores a kernel hides behind its computing", 0, 1)
    ]
    # how well the usual kernels do, as shares of the memory bandwidth in reach
    rms_norm_efficiency_fraction: Annotated[float, Allowed("RMS norms", 0.01, 1)]
    layer_norm_efficiency_fraction: Annotated[float, Allowed("layer and group norms", 0.01, 1)]
    softmax_efficiency_fraction: Annotated[float, Allowed("softmax", 0.01, 1)]
    elementwise_efficiency_fraction: Annotated[float, Allowed("plain elementwise", 0.01, 1)]
    broadcast_efficiency_fraction: Annotated[
        float, Allowed("elementwise with an operand that is spread over the others", 0.01, 1)
    ]
    gather_efficiency_fraction: Annotated[
        float, Allowed("kernels that pick rows of a table", 0.01, 1)
    ]
    gated_efficiency_fraction: Annotated[float, Allowed("activation times gate", 0.01, 1)]
    vector_l2_efficiency_fraction: Annotated[
        float, Allowed("share of what L2 delivers that vector kernels keep in flight", 0.01, 1)
    ]
    rows_in_flight: Annotated[
        int, Allowed("rows of a norm or softmax that one core works on at a time", 1, 1024)
    ]
    gated_rows_cut: Annotated[
        bool, Allowed("whether the kernel of activation times gate deals parts of a row to cores")
    ]
    rotary_efficiency_fraction: Annotated[float, Allowed("rotary embeddings", 0.01, 1)]
    attention_kernel: Annotated[
        str, Allowed("whose fused attention runs", choices=("vendor", "tuned"))
    ]
    vendor_attention_efficiency_fraction: Annotated[
        float, Allowed("share of its pipes' pace that the vendor's fused attention keeps", 0.05, 1)
    ]
    tuned_attention_efficiency_fraction: Annotated[
        float, Allowed("the same for the best hand-tuned one", 0.05, 1)
    ]
    attention_rows: Annotated[
        int,
        Allowed("query rows of fused attention at a time, if there are as many", 16, 1024),
    ]
    attention_keys: Annotated[
        int, Allowed("keys of fused attention at a time, at most", 16, 1 << 16)
    ]
    # time
    task_gap_us: Annotated[float, Allowed("between two tasks of a stream", 0, 1e4)]
    event_record_us: Annotated[float, Allowed("to record an event", 0, 1e4)]
    event_wait_us: Annotated[float, Allowed("to pass a wait whose event is recorded", 0, 1e4)]
    vector_kernel_start_us: Annotated[float, Allowed("start-up of a vector kernel", 0, 1e4)]
    cube_kernel_start_us: Annotated[float, Allowed("start-up of a matrix kernel", 0, 1e4)]
    core_dispatch_us: Annotated[float, Allowed("start-up added by each core in use", 0, 1e3)]
    tile_start_us: Annotated[
        float, Allowed("until the first operands of an output tile are there", 0, 1e3)
    ]
    f8_tile_start_us: Annotated[
        float, Allowed("start and end of an output tile of 8-bit floats", 0, 1e3)
    ]
    split_sync_us: Annotated[
        float, Allowed("to bring together what was split along the inner dimension", 0, 1e3)
    ]
    row_sync_us: Annotated[float, Allowed("a reduction across the lanes of a core", 0, 1e3)]
    vendor_attention_start_us: Annotated[
        float, Allowed("start-up of the vendor's fused attention", 0, 1e4)
    ]
    tuned_attention_start_us: Annotated[float, Allowed("of the hand-tuned one", 0, 1e4)]
    attention_block_us: Annotated[
        float, Allowed("start and end of one block of query rows in fused attention", 0, 1e3)
    ]
    decode_block_us: Annotated[
        float, Allowed("the same for the stacked heads of one sequence in decoding", 0, 1e3)
    ]
    decode_start_us: Annotated[float, Allowed("start-up of attention in decoding", 0, 1e4)]
    decode_join_us: Annotated[
        float, Allowed("to join what the parts of a cache that was split gave", 0, 1e3)
    ]
    decode_split_keys: Annotated[
        int, Allowed("fewest keys of a part, where decoding splits a cache", 16, 1 << 20)
    ]
    decode_split_tasks: Annotated[
        float, Allowed("parts a core, up to which decoding splits caches", 0.1, 1024)
    ]
    decode_tasks_per_core: Annotated[
        int, Allowed("heads that share a core in decoding, where none share their keys", 1, 64)
    ]
    block_sync_us: Annotated[
        float, Allowed("hand-over between cube and vector per step of a kernel on both", 0, 1e3)
    ]
    tuned_block_sync_us: Annotated[
        float, Allowed("the same in the hand-tuned fused attention", 0, 1e3)
    ]
    aicpu_start_us: Annotated[float, Allowed("start-up of an op on the control CPU", 0, 1e6)]
    launch_mode: Annotated[
        str, Allowed("who issues tasks: the device's graph, or the host", choices=("sunk", "host"))
    ]
    host_launch_us: Annotated[float, Allowed("host time per task, when the host issues", 0, 1e5)]
    host_event_us: Annotated[float, Allowed("host time per record or wait, likewise", 0, 1e5)]
    # countable things
    max_streams: Annotated[int, Allowed("hardware queues", 1, 1 << 16)]
    max_events: Annotated[int, Allowed("event ids", 1, 1 << 24)]
    max_notifies: Annotated[int, Allowed("notify ids", 1, 1 << 24)]
    max_tasks_per_stream: Annotated[int, Allowed("tasks a stream can hold", 1, 1 << 30)]
    queue_entries: Annotated[
        int, Allowed("tasks, records and waits that a physical stream holds", 64, 1 << 30)
    ]
    # links
    hccs_gb_per_s: Annotated[float, Allowed("one card's links to the others, one way", 0.01, 1e5)]
    hccs_efficiency_fraction: Annotated[float, Allowed("share of that in reach", 0.01, 1)]
    hccs_latency_us: Annotated[float, Allowed("of one step between cards", 0, 1e5)]
    collective_ring: Annotated[
        bool, Allowed("whether cards meet at a switch, or have a wire to each of the others")
    ]
    collective_start_us: Annotated[float, Allowed("start-up of a collective", 0, 1e5)]
    collective_copy_gb_per_s: Annotated[
        float, Allowed("a card's own part, from its input to its output", 0.01, 1e6)
    ]
    pcie_gb_per_s: Annotated[float, Allowed("host to device or back", 0.01, 1e5)]
    pcie_latency_us: Annotated[float, Allowed("of one copy between host and device", 0, 1e5)]


def _collect() -> dict[str, tuple[type, Allowed]]:
    found: dict[str, tuple[type, Allowed]] = {}
    for name, hint in get_type_hints(DeviceFigures, include_extras=True).items():
        kind, allowed = get_args(hint)
        found[name] = (kind, allowed)
    return found


FIGURES: Mapping[str, tuple[type, Allowed]] = MappingProxyType(_collect())
"""The Python type and the allowed values of every figure, in order."""
