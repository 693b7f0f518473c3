"""Fits the few physical parameters of the profiles, on one half of the shapes.

Least mean absolute percentage error by coordinate search in the logarithm of each parameter, a
dozen rounds with shrinking steps: deterministic, without derivatives, and good enough for
functions with the steps that waves and tiles make.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from benchmarks.fidelity_rows import Host, Row, digest
from benchmarks.fidelity_score import METHODS, SEEN, device_for, hosts
from benchmarks.fidelity_steps import STEPS, Step
from gecompiler.backends.device import Device, load_device
from gecompiler.backends.device_figures import FIGURES

PROFILES = Path(__file__).resolve().parents[1] / "backends" / "devices"
MOST_ROWS = 160
"""Rows of a family that a fit looks at; more would take longer and move nothing."""


Changes = dict[str, float]


def search(
    loss: Callable[[Changes], float], start: Changes, bounds: Mapping[str, tuple[float, float]]
) -> Changes:
    """The values nearest a least loss, by steps up and down in each of them in turn."""
    values, best = dict(start), loss(start)
    steps = dict.fromkeys(values, 0.3)
    for _ in range(14):
        for name, step in steps.items():
            low, high = bounds[name]
            for factor in (1 + step, 1 / (1 + step)):
                changed = {**values, name: min(high, max(low, values[name] * factor))}
                error = loss(changed)
                if error < best - 1e-6:
                    best, values = error, changed
                    steps[name] = min(0.5, step * 1.3)
                    break
            else:
                steps[name] = step * 0.55
    return values


def fit_step(step: Step, rows: Sequence[Row]) -> tuple[Changes, float, float, list[str]]:
    """Fitted values, the error before and after, and the files that determined them."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if step.takes(row):
            groups.setdefault((row.data_set, row.device, row.family), []).append(row)
    seen = [members[:: -(-len(members) // MOST_ROWS)] for members in groups.values()]
    base = load_device(step.profile)
    start = {name: float(getattr(base, name)) for name in step.figures}
    bounds = {name: (FIGURES[name][1].low, FIGURES[name][1].high) for name in step.figures}
    known = hosts()
    for key in step.methods:
        data_set, _, method = key.partition("/")
        host = known.get(data_set, {}).get(method, Host())
        start[key], start[f"{key}/least"] = host.call_us or 20.0, host.least_us or 5.0
        bounds[key] = bounds[f"{key}/least"] = (0.0, 1e4)

    def loss(changes: Changes) -> float:
        figures = {name: changes[name] for name in step.figures}
        devices = {d: dataclasses.replace(device_for(d), **figures) for d in step.devices}
        errors = [_error(members, devices, changes, known) for members in seen]
        return sum(errors) / len(errors)

    if not seen:
        return {}, 0.0, 0.0, []
    before = loss(start)
    values = search(loss, start, bounds)
    return values, before, loss(values), sorted({members[0].data_set for members in seen})


def _error(
    rows: Sequence[Row],
    devices: Mapping[str, Device],
    changes: Changes,
    known: Mapping[str, Mapping[str, Host]],
) -> float:
    total = 0.0
    for row in rows:
        host = known.get(row.form, {}).get(row.method, Host())
        key = f"{row.form}/{row.method}"
        if key in changes:
            host = Host(changes[key], changes[f"{key}/least"])
        us = host.us(row.kernels_us(devices[row.device]))
        total += abs(us / row.measured_us - 1.0)
    return total / len(rows)


def fit_all(rows: Sequence[Row], only: Sequence[str] = ()) -> None:
    """Runs the steps, all or those named, and writes what they find into the profiles."""
    write_seen(rows)
    for name, step in STEPS.items():
        if only and name not in only:
            continue
        values, before, after, files = fit_step(step, rows)
        print(f"{name}: {before:.1%} -> {after:.1%} on the half that is fitted")
        for figure in step.figures:
            if figure in values:
                print(f"  {figure} = {values[figure]:.4g}")
        if files:
            write_figures(step.profile, {f: values[f] for f in step.figures}, files)
            write_methods(step.methods, values)
        device_for.cache_clear()
        _forget_profiles()


def write_seen(rows: Sequence[Row]) -> None:
    """Notes which shapes the fits may have seen, by the largest hash of each family."""
    largest: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.fitted:
            families = largest.setdefault(row.data_set, {})
            families[row.family] = max(families.get(row.family, ""), digest(row.shape).hex()[:16])
    SEEN.write_text(yaml.safe_dump(largest, sort_keys=True), encoding="utf-8")


def _forget_profiles() -> None:
    from gecompiler.backends import device_load

    device_load.PROFILES.forget()


def write_figures(profile: str, values: Changes, files: Sequence[str]) -> None:
    """Puts the values into the profile's file with their source."""
    path = PROFILES / f"{profile}.yaml"
    text = path.read_text(encoding="utf-8")
    source = f"fitted on half of {' and '.join(files)} (python -m benchmarks.fidelity --fit)"
    for name, value in values.items():
        line = f'  {name}: {{value: {value:.4g}, kind: measured, source: "{source}"}}'
        text, found = re.subn(rf"^  {name}: \{{.*\}}$", line, text, flags=re.MULTILINE)
        if not found:
            text = text.rstrip("\n") + "\n" + line + "\n"
    path.write_text(text, encoding="utf-8")


def write_methods(methods: Sequence[str], values: Changes) -> None:
    """Puts the constants of the host's timing into their file."""
    if not methods:
        return
    data = yaml.safe_load(METHODS.read_text(encoding="utf-8")) or {}
    for key in methods:
        data_set, _, method = key.partition("/")
        data.setdefault(data_set, {})[method] = {
            "call_us": round(values[key], 2),
            "least_us": round(values[f"{key}/least"], 2),
        }
    METHODS.write_text(yaml.safe_dump(data, sort_keys=True), encoding="utf-8")
