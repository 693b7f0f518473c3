"""A device on which ops take the time that a profiler measured, where it measured them.

A measured op keeps the proportions that the model gives it: all of its work, on cores, memory
and links, and its start-up are scaled by measured / modelled. Alone it takes exactly the
measured time; beside others it presses on each resource as hard as before, only for longer or
shorter. Bounds, which add up work, scale with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gecompiler.backends.device import Device
from gecompiler.captures import read_capture
from gecompiler.captures.match import Durations
from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand

PART = "#mb"
"""What the name of an op of one micro-batch has after the whole op's name."""


@dataclass(frozen=True)
class MeasuredShare:
    """How much of a model goes by measured times."""

    file: str
    ops: int
    """Ops that take time on the device."""
    by_name: int
    by_shapes: int
    measured_us: float
    """Time of the measured ops, one after the other."""
    modelled_us: float
    """Time of the others."""

    @property
    def measured(self) -> int:
        """How many ops have a measured time."""
        return self.by_name + self.by_shapes

    @property
    def share(self) -> float:
        """The share of all time that is measured."""
        total = self.measured_us + self.modelled_us
        return self.measured_us / total if total else 0.0


class MeasuredTarget:
    """A `Target` that answers as the device does, but for the times of measured ops.

    A micro-batch of a measured op was not measured itself: its modelled time is scaled as the
    whole op's was.
    """

    def __init__(self, device: Device, ratios: Mapping[str, float]) -> None:
        self._device = device
        self._ratios = ratios

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def demand(self, graph: Graph, op: Op) -> Demand:
        """The device's demand, scaled to the measured time."""
        found = self._device.demand(graph, op)
        ratio = self._ratios.get(op.name)
        if ratio is None:
            ratio = self._ratios.get(op.name.rpartition(PART)[0], 1.0)
        return found if ratio == 1.0 else scaled(found, ratio)


def scaled(demand: Demand, ratio: float) -> Demand:
    """The demand with ``ratio`` times the work, which takes ``ratio`` times as long."""
    return replace(
        demand,
        load_bytes=demand.load_bytes * ratio,
        store_bytes=demand.store_bytes * ratio,
        l2_bytes=demand.l2_bytes * ratio,
        cube_us=demand.cube_us * ratio,
        vector_us=demand.vector_us * ratio,
        link_bytes=tuple((link, amount * ratio) for link, amount in demand.link_bytes),
        fixed_us=demand.fixed_us * ratio,
    )


def measured_target(
    device: Device, graph: Graph, path: str, diagnostics: Diagnostics
) -> tuple[MeasuredTarget, MeasuredShare]:
    """The target for a bound graph by the times of a capture, and how much they cover.

    Warns where no op is in the capture. UsageError for a file that is no capture.
    """
    durations = Durations(read_capture(path, shapes=False))
    ratios: dict[str, float] = {}
    found: Counter[str] = Counter()
    measured_us = modelled_us = 0.0
    for op in graph.topological():
        alone = 0.0 if is_collective_op(op) else device.alone_us(device.demand(graph, op))
        if alone <= 0:
            continue
        match = durations.find(graph, op)
        found[match.by if match is not None else ""] += 1
        if match is None:
            modelled_us += alone
        else:
            measured_us += match.us
            ratios[op.name] = match.us / alone
    share = MeasuredShare(
        durations.file_name,
        found.total(),
        found["name"],
        found["shapes"],
        measured_us,
        modelled_us,
    )
    if not share.measured:
        diagnostics.warn(
            "no-measured-ops",
            f"none of the {share.ops} ops is in {share.file}: all times are modelled",
            "were the sizes (--batch, --seq) and the model those of the profiled run?",
        )
    return MeasuredTarget(device, ratios), share
