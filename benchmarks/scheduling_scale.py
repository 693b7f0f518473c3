"""How scheduling time grows with the number of tasks.

    python -m benchmarks.scheduling_scale [--tasks 10000,100000] [--strategies auto,default]
        [--device ascend910]

Builds task graphs of a transformer's shape (layers of a chain with branches for q, k and v, a
gate and residuals) and schedules each on the device with each strategy: placement, syncs,
memory plan, bounds and simulation, all that `build_schedule` does but reading a model. Prints
the processor's seconds, the growth from one size to the next, and the peak of Python's memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import GecError
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import DType, TensorType, tensor
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)

STRATEGIES = (
    "auto",
    "single",
    "default",
    "compute_overlap",
    "pipeline",
    "cv",
    "critical_path",
    "heft",
    "load_balance",
    "main_stream",
)

BATCH, SEQ, WIDTH = 8, 128, 256


def layered(tasks: int) -> Graph:
    """A graph of about so many ops, 14 a layer."""
    graph = Graph(f"layers-{tasks}", {"": 18})
    x = graph.add_input("x", tensor("f16", (BATCH, SEQ, WIDTH)))
    type_ = tensor("f16", (BATCH, SEQ, WIDTH))
    for layer in range(max(1, tasks // 14)):
        x = _layer(graph, x, type_, layer)
    graph.set_outputs([x])
    return graph


def _layer(graph: Graph, x: str, type_: TensorType, layer: int) -> str:
    def matmul(value: str, name: str) -> str:
        weight = f"w{layer}.{name}"
        graph.add_constant(weight, Constant(TensorType(DType.F16, (WIDTH, WIDTH))))
        return graph.emit("MatMul", [value, weight], type_, stem=f"{layer}.{name}")

    def vector(kind: str, *values: str, name: str) -> str:
        return graph.emit(kind, list(values), type_, stem=f"{layer}.{name}")

    normal = vector("Softmax", x, name="norm")
    q, k, v = (matmul(normal, name) for name in "qkv")
    scores = vector("Mul", vector("Relu", q, name="rq"), vector("Relu", k, name="rk"), name="qk")
    mixed = vector("Mul", vector("Softmax", scores, name="soft"), v, name="av")
    x = vector("Add", x, matmul(mixed, "o"), name="residual")
    gate, up = matmul(x, "gate"), matmul(x, "up")
    return vector("Add", x, vector("Mul", gate, up, name="gated"), name="out")


def seconds(graph: Graph, device: str, strategy: str, streams: int | None) -> float:
    """How long scheduling takes, in seconds of the processor (there is one thread)."""
    target = load_device(device)
    options = ScheduleOptions(
        num_streams=streams, strategy=strategy, auto_micro_batches=True, samples=("x",)
    )
    start = time.process_time()
    build_schedule(graph, target, Simulator(target), options, UserControl(), Diagnostics())
    return time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling_scale")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tasks", default="10000,100000")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--device", default="ascend910")
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.tasks.split(",")]
    graphs = {size: layered(size) for size in sizes}
    heads = " ".join(f"{f'{size:,} tasks':>16}" for size in sizes)
    print(f"{'strategy':<18} {heads}   growth   peak memory")
    for strategy in options.strategies.split(","):
        cells: list[str] = []
        times: list[float] = []
        for size in sizes:
            try:
                times.append(seconds(graphs[size], options.device, strategy, None))
                cells.append(f"{times[-1]:>14.1f} s")
            except GecError as error:
                cells.append(f"{str(error)[:16]:>16}")
        growth = f"{times[-1] / times[0]:>6.1f}x" if len(times) == len(sizes) > 1 else " " * 7
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{strategy:<18} {' '.join(cells)}  {growth}   {peak:.1f} GiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
