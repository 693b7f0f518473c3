"""The distinct operators of a capture, each with its median time and its prediction."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gecompiler.backends.device import Device
from gecompiler.captures import Capture, MeasuredOp, Modelled, modelled


@dataclass(frozen=True)
class Observation:
    """One type on one set of shapes: what it takes, and the op that stands for it."""

    key: str
    measured_us: float
    """The median of all rows that are alike."""
    count: int
    case: Modelled

    @property
    def family(self) -> str:
        """What its error counts to."""
        return self.case.family

    def predicted_us(self, device: Device) -> float:
        """How long the cost model says it takes alone, from cold caches."""
        return device.alone_us(device.demand(self.case.graph, self.case.op))

    @property
    def half(self) -> int:
        """0 or 1, by the key's hash: halves that do not depend on the file's order."""
        return hashlib.sha256(self.key.encode()).digest()[0] & 1


@dataclass(frozen=True)
class Observed:
    """The observations of a capture, and how many rows were left out for which reason."""

    rows: tuple[Observation, ...]
    used: int
    """How many rows of the file they stand for."""
    left_out: Mapping[str, int]


def observe(capture: Capture, device: Device, *, causal: bool = False) -> Observed:
    """What a fit can use of a capture.

    A row that is faster than memory allows when every byte crosses it once was served from L2;
    it says nothing of memory and is left out, since costs take caches as cold.
    """
    groups: dict[str, list[MeasuredOp]] = {}
    for op in capture.ops:
        groups.setdefault(_key(op), []).append(op)
    rows: list[Observation] = []
    reasons: Counter[str] = Counter(dict(capture.left_out))
    for key, members in groups.items():
        case = modelled(members[0], causal=causal)
        if isinstance(case, str):
            reasons[case] += len(members)
            continue
        time = statistics.median(m.duration_us for m in members)
        if time < least_us(device, case):
            reasons["faster than memory allows: its data came from L2"] += len(members)
            continue
        row = Observation(key, time, len(members), case)
        if row.predicted_us(device) > 0:
            rows.append(row)
    rows.sort(key=lambda row: row.key)
    return Observed(tuple(rows), sum(r.count for r in rows), dict(sorted(reasons.items())))


def least_us(device: Device, case: Modelled) -> float:
    """The op's traffic at the datasheet's bandwidth."""
    demand = device.demand(case.graph, case.op)
    return (demand.load_bytes + demand.store_bytes) / (device.hbm_bandwidth_gb_per_s * 1e3)


def _key(op: MeasuredOp) -> str:
    operands = [
        "-" if o is None else f"{o.dtype.short}{list(o.shape)}{o.layout}"
        for o in (*op.inputs, *op.outputs)
    ]
    return f"{op.op_type} {' '.join(operands)}"


def with_figures(device: Device, values: Mapping[str, float], tag: str = "fit") -> Device:
    """The device with other figures, under a name of its own.

    Costs are remembered by device; one name for all would make each look-up compare them all.
    """
    name = f"{device.name}:{tag}:{hash(tuple(sorted(values.items())))}"
    return replace(device, name=name, **values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FamilyError:
    """Mean and median absolute percentage error of one family."""

    family: str
    n: int
    mape: float
    median: float


def family_errors(rows: Sequence[Observation], device: Device) -> dict[str, FamilyError]:
    """The errors of a device's predictions, as `errors_of` gives them."""
    return errors_of([(row, row.predicted_us(device)) for row in rows])


def errors_of(predicted: Sequence[tuple[Observation, float]]) -> dict[str, FamilyError]:
    """The errors of rows and their predicted times: by family in alphabetical order, ``all``."""
    errors: dict[str, list[float]] = {}
    for row, us in predicted:
        error = abs(us / row.measured_us - 1.0)
        errors.setdefault(row.family, []).append(error)
        errors.setdefault("all", []).append(error)
    names = sorted(errors, key=lambda f: (f == "all", f))
    return {
        f: FamilyError(f, len(errors[f]), statistics.fmean(errors[f]), statistics.median(errors[f]))
        for f in names
    }
