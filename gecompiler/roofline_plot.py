"""Roofline plots: how much is computed per byte moved, and how fast, under what the device can.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures" (CACM 52(4), 2009). Bytes are those between device memory and cores.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gecompiler.lang import say
from gecompiler.plotting import check_plot, label_language, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gecompiler.backends.device import Device
    from gecompiler.driver import Compilation
    from gecompiler.ir.graph import Graph

MARKERS = "osD^vP*X"
WHOLE = "the whole model"
"""The series of all ops together."""
_FLOP_PER_US = 1e6
"""In a TFLOP/s."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Work, the bytes it moves and the time it takes; ``series`` has one colour."""

    label: str
    flops: float
    hbm_bytes: float
    us: float
    series: str = ""

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.hbm_bytes

    @property
    def tflops(self) -> float:
        """TFLOP/s."""
        return self.flops / self.us / _FLOP_PER_US


@dataclass(frozen=True, slots=True)
class Roof:
    """The highest rates of a device: of its memory, and of its cube cores in one type."""

    label: str
    flop_per_us: float
    bytes_per_us: float

    def tflops(self, intensity: float) -> float:
        """The most that is to be had at so many FLOP per byte, in TFLOP/s."""
        return min(self.flop_per_us, intensity * self.bytes_per_us) / _FLOP_PER_US


def roofs(device: Device) -> list[Roof]:
    """The device's roofs in 16 and 32 bits; one where these are the same."""
    from gecompiler.ir.types import DType

    found: dict[float, Roof] = {}
    for dtype in (DType.F16, DType.F32):
        rate = device.cube_flop_per_us(dtype) * device.cube_cores
        name = f"{device.name} {dtype.name.lower()}"
        found.setdefault(rate, Roof(name, rate, device.capacities()["hbm"]))
    return list(found.values())


def graph_work(graph: Graph) -> float:
    """The arithmetic of a bound graph in FLOP."""
    from gecompiler.passes.streams.op_flops import flops

    return math.fsum(flops(graph, op) for op in graph.ops)


def op_spots(compilation: Compilation) -> list[Spot]:
    """The ops of a compiled model by type, and the whole; times as simulated."""
    from gecompiler.passes.streams.op_flops import flops

    graph, result = compilation.graph, compilation.result
    work: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for task, span in zip(result.schedule.tasks, result.timeline.spans, strict=True):
        row = work[task.op_type or task.kind]
        row[0] += math.fsum(flops(graph, graph.op(name)) for name in task.ops if name in graph)
        row[1] += task.demand.load_bytes + task.demand.store_bytes
        row[2] += span.duration_ns / 1000
    spots = [Spot(name, row[0], row[1], row[2], name) for name, row in work.items()]
    total = [math.fsum(column) for column in zip(*work.values(), strict=True)] or [0.0, 0.0, 0.0]
    whole = Spot(WHOLE, total[0], total[1], result.makespan_us, WHOLE)
    spots.sort(key=lambda spot: (-spot.us, spot.label))
    return [whole, *spots]


def write_roofline(spots: Iterable[Spot], lines: Sequence[Roof], path: str, title: str) -> None:
    """Draws the spots under the roofs to an .svg, .png or .pdf file; the same bytes each time.

    What computes or moves nothing has no place on the axes and is left out.
    """
    check_plot(path, "--roofline")
    with label_language():
        save_figure(_figure(list(spots), lines, title), path)


def _figure(spots: Sequence[Spot], lines: Sequence[Roof], title: str) -> Figure:
    from matplotlib.figure import Figure

    shown = [s for s in spots if s.flops > 0 and s.hbm_bytes > 0 and s.us > 0]
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    _roofs(axes, lines, shown)
    _spots(axes, shown)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel(say("FLOP per byte of device memory's traffic"))
    axes.set_ylabel("TFLOP/s")
    axes.set_title(title, parse_math=False)
    axes.grid(visible=True, which="major", alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def _roofs(axes: Axes, lines: Sequence[Roof], shown: Sequence[Spot]) -> None:
    at = [spot.intensity for spot in shown]
    at += [roof.flop_per_us / roof.bytes_per_us for roof in lines]
    low, high = min(at, default=1.0) / 2, max(at, default=1.0) * 4
    for roof, style in zip(lines, ("-", "--", "-.", ":") * len(lines), strict=False):
        knee = roof.flop_per_us / roof.bytes_per_us
        x = [low, knee, high]
        y = [roof.tflops(one) for one in x]
        axes.plot(x, y, color="#444444", linestyle=style, linewidth=1.2, label=_plain(roof.label))


def _spots(axes: Axes, shown: Sequence[Spot]) -> None:
    """A colour and a marker for each series, so that either tells them apart."""
    series = list(dict.fromkeys(spot.series for spot in shown))
    for i, name in enumerate(series):
        rows = [spot for spot in shown if spot.series == name]
        axes.plot(
            [spot.intensity for spot in rows], [spot.tflops for spot in rows],
            linestyle="", marker=MARKERS[i % len(MARKERS)], color=f"C{i % 10}",
            label=say("the whole model") if name == WHOLE else _plain(name),
        )  # fmt: skip
        for spot in rows:
            if spot.label != name:
                axes.annotate(
                    spot.label, (spot.intensity, spot.tflops), xytext=(5, 3), fontsize=7,
                    textcoords="offset points", parse_math=False,
                )  # fmt: skip


def _plain(text: str) -> str:
    """The text with what would begin a formula escaped."""
    return text.replace("$", r"\$")
