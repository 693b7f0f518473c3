"""Errors of the model, of a plain roofline and of a fitted baseline, per data set and family."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from benchmarks.fidelity_rows import Host, Row, Work, digest
from gecompiler.backends.device import Device, load_device

METHODS = Path(__file__).resolve().parent / "data" / "methods.yaml"

SEEN = METHODS.with_name("seen.yaml")


@cache
def device_for(name: str) -> Device:
    """The profile, ``:tuned`` or ``:vendor`` naming the attention kernel."""
    profile, _, kernel = name.partition(":")
    device = load_device(profile)
    return dataclasses.replace(device, attention_kernel=kernel) if kernel else device


def hosts() -> dict[str, dict[str, Host]]:
    """What each data set's way of timing adds, by data set and method."""
    data = yaml.safe_load(METHODS.read_text(encoding="utf-8")) or {}
    return {name: {m: Host(**given) for m, given in kinds.items()} for name, kinds in data.items()}


def was_seen(row: Row, seen: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a fit to the whole data saw the shape, which may be held back in a part of it."""
    largest = seen.get(row.data_set, {}).get(row.family, "")
    return digest(row.shape).hex()[:16] <= largest


def seen_by_fits() -> dict[str, dict[str, str]]:
    """The largest hash of a shape that a fit has seen, by data set and family."""
    return yaml.safe_load(SEEN.read_text(encoding="utf-8")) or {}


@dataclass(frozen=True)
class Score:
    """Absolute percentage errors on the rows held back from every fit."""

    n: int
    mape_percent: float
    median_ape_percent: float
    roofline_mape_percent: float
    baseline_mape_percent: float
    worst: tuple[tuple[float, Row], ...]
    """(signed error, row), the largest first."""


def predict(row: Row, device: Device, methods: Mapping[str, Mapping[str, Host]]) -> float:
    """Microseconds."""
    host = methods.get(row.form or row.data_set, {}).get(row.method, Host())
    return host.us(row.kernels_us(device))


def roofline_us(work: Work, device: Device) -> float:
    """The longest of computing, moving and sending at the datasheet's rates, in microseconds."""
    peak = device.cube_flop_per_us(work.dtype) * device.cube_cores
    return max(
        work.flop / peak,
        work.bytes / (device.hbm_bandwidth_gb_per_s * 1e3),
        work.link_bytes / (device.hccs_gb_per_s * 1e3),
    )


def baseline(fit: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(factor, constant) so that factor * roofline + constant is nearest the measured times.

    Least mean absolute percentage error, by a search over constants that lie among the times;
    for each, the best factor is a weighted median of the ratios.
    """
    if not fit:
        return 1.0, 0.0
    times = sorted(us for _, us in fit)
    shortest = times[: max(1, len(times) // 2)]
    constants = {
        0.0,
        *(f * us for us in shortest[:: max(1, len(shortest) // 12)] for f in (0.5, 1.0)),
    }
    best = (float("inf"), 1.0, 0.0)
    for constant in sorted(constants):
        ratios = sorted(((us - constant) / roof, roof / us) for roof, us in fit if roof > 0)
        factor = max(0.0, _weighted_median(ratios))
        error = statistics.fmean(abs(factor * roof + constant - us) / us for roof, us in fit)
        best = min(best, (error, factor, constant))
    return best[1], best[2]


def _weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    half, total = sum(w for _, w in pairs) / 2, 0.0
    for value, weight in pairs:
        total += weight
        if total >= half:
            return value
    return 1.0


def scores(rows: Sequence[Row], worst: int = 3) -> dict[str, dict[str, Score]]:
    """By data set and family, on the rows that no fit has seen."""
    methods = hosts()
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.data_set, row.family), []).append(row)
    found: dict[str, dict[str, Score]] = {}
    for (data_set, family), members in sorted(groups.items()):
        score = _score(members, methods, worst)
        if score is not None:
            found.setdefault(data_set, {})[family] = score
    return found


def _score(
    rows: Sequence[Row], methods: Mapping[str, Mapping[str, Host]], worst: int
) -> Score | None:
    held = [r for r in rows if not r.fitted]
    if not held:
        return None
    roofs = {id(r): roofline_us(r.case.work, device_for(r.device)) for r in rows}
    factor, constant = baseline([(roofs[id(r)], r.measured_us) for r in rows if r.fitted])
    errors = [(predict(r, device_for(r.device), methods) / r.measured_us - 1.0, r) for r in held]
    sizes = [abs(e) for e, _ in errors]
    errors.sort(key=lambda pair: (-abs(pair[0]), pair[1].shape))

    def mape(times: Sequence[float]) -> float:
        pairs = zip(times, held, strict=True)
        return 100 * statistics.fmean(abs(us / r.measured_us - 1.0) for us, r in pairs)

    return Score(
        n=len(held),
        mape_percent=100 * statistics.fmean(sizes),
        median_ape_percent=100 * statistics.median(sizes),
        roofline_mape_percent=mape([roofs[id(r)] for r in held]),
        baseline_mape_percent=mape([factor * roofs[id(r)] + constant for r in held]),
        worst=tuple(errors[:worst]),
    )
