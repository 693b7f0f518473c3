"""A matrix product beside the all-reduce of its result, tile by tile, on eight cards.

    python -m benchmarks.overlap [--json]

The measured case is one row of hw-native-sys/pto-isa (kernels/manual/a2a3/gemm_ar): 5416 x 6144
by 6144 x 1408 in fp16 on 8 cards of the second generation; 371.6 us the product alone, 437.3 us
the all-reduce alone, 560.6 us with the tiles sent as they are done. Here the product is split
into the waves of its tiles; the all-reduce is split likewise, on a second stream, and each of
its parts waits for the wave that it sends. The simulator shares HBM and L2 between both.

It prints the overlapped time between the ideal one (the longer of both) and the serial one (both
added up), twice: with both times alone as the profile predicts them, and as they were measured.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace

from benchmarks.fidelity_rows import Collective, gemm
from gecompiler.backends.device import Device, load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.schedule import Demand, Event, Schedule, Task
from gecompiler.ir.types import DType

M, K, N, CARDS = 5416, 6144, 1408, 8
TILE = (128, 256)
MEASURED = {"product": 371.6, "all_reduce": 437.3, "serial": 808.9, "overlapped": 560.6}


@dataclass(frozen=True)
class Overlap:
    """Times in microseconds."""

    product: float
    all_reduce: float
    overlapped: float

    @property
    def ideal(self) -> float:
        """The longer of both."""
        return max(self.product, self.all_reduce)

    @property
    def serial(self) -> float:
        """One after the other."""
        return self.product + self.all_reduce


def parts_of(demand: Demand, count: int, again_us: float) -> list[Demand]:
    """The demand in equal parts; what is fixed belongs to the first, ``again_us`` to the others."""
    part = replace(
        demand,
        load_bytes=demand.load_bytes / count,
        store_bytes=demand.store_bytes / count,
        l2_bytes=demand.l2_bytes / count,
        cube_us=demand.cube_us / count,
        vector_us=demand.vector_us / count,
        least_us=demand.least_us / count,
        fixed_us=again_us,
        tiles=max(2, demand.tiles // count),
    )
    return [replace(part, fixed_us=demand.fixed_us), *[part] * (count - 1)]


def schedule(product: list[Demand], reduce: list[Demand], device: Device) -> Schedule:
    """The product's parts on stream 0, the all-reduce's on stream 1, each behind its own."""
    count = len(product)
    tasks = [Task(i, f"tiles{i}", "kernel", 0, i, demand=d) for i, d in enumerate(product)]
    tasks += [Task(count + i, f"send{i}", "kernel", 1, i, demand=d) for i, d in enumerate(reduce)]
    events = tuple(Event(i, count + i, "data") for i in range(count))
    return Schedule("overlap", device.name, "-", tuple(tasks), events, (), device.limits)


def run(device: Device, product: Demand, reduce: Demand) -> Overlap:
    """Both alone, and tile by tile side by side. The parts are one kernel's: no gap between."""
    count = -(-M // TILE[0]) * -(-N // TILE[1]) // device.cube_cores
    within = replace(device, task_gap_us=0.0)
    plan = schedule(
        parts_of(product, count, 0.0), parts_of(reduce, count, device.hccs_latency_us), within
    )
    return Overlap(
        device.alone_us(product), device.alone_us(reduce), Simulator(within)(plan).makespan_ns / 1e3
    )


def scaled(device: Device, demand: Demand, us: float) -> Demand:
    """The demand with as much more (or less) time on cores or links that it takes ``us``."""
    low, high = 0.0, 16.0
    for _ in range(60):
        factor = (low + high) / 2
        tried = replace(
            demand,
            cube_us=demand.cube_us * factor,
            least_us=demand.least_us * factor,
        )
        low, high = (factor, high) if device.alone_us(tried) < us else (low, factor)
    return tried


def compare() -> dict[str, Overlap]:
    """By where the times alone come from: ``predicted`` or ``measured``."""
    device = load_device("ascend910b2")
    product = gemm(M, N, K, DType.F16).kernels[0](device)
    reduce = Collective("AllReduce", 2.0 * M * N, tuple(range(CARDS))).demand(device)
    measured = (
        scaled(device, product, MEASURED["product"]),
        scaled(device, reduce, MEASURED["all_reduce"]),
    )
    return {
        "predicted": run(device, product, reduce),
        "measured": run(device, *measured),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = compare()
    names = ("product", "all_reduce", "ideal", "overlapped", "serial")
    rows = {k: {n: round(getattr(o, n), 1) for n in names} for k, o in found.items()}
    rows["published"] = {**MEASURED, "ideal": max(MEASURED["product"], MEASURED["all_reduce"])}
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'times alone (us)':<20}" + "".join(f"{n:>12}" for n in names))
    for kind, row in rows.items():
        print(f"{kind:<20}" + "".join(f"{row[n]:>12.1f}" for n in names))


if __name__ == "__main__":
    main()
