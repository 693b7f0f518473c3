"""A calibrated profile as the YAML file that ``--device`` takes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from gecompiler.backends.device import device_names
from gecompiler.backends.device_figures import Figure
from gecompiler.calibration.calibrator import Calibration
from gecompiler.files import write_text


def write_profile(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Writes the profile, whole or not at all; OutputError where that cannot be.

    Of a built-in profile only what changed is written, the rest by ``extends``; of a user's
    own file every figure is, since a profile can extend built-in ones only.
    """
    write_text(path, profile_text(calibration, Path(path).stem))


def profile_text(calibration: Calibration, name: str) -> str:
    """The YAML text. The same capture and device give the same bytes."""
    device, fitted = calibration.device, calibration.fit.fitted
    changed = {
        f.name: {"value": f.value, "kind": "measured", "source": _source(calibration, f.name)}
        for f in fitted
        if f.value != f.before
    }
    built_in = device.name in device_names()
    kept = {} if built_in else {f.name: _entry(f) for f in device.figures()}
    lines = [
        f"# {device.name}, calibrated by gec calibrate with {calibration.capture.file_name}.",
        "# Figures that the capture does not determine are as before.",
        "version: 1",
        f"name: {_scalar(name)}",
        f"description: {_scalar(f'{device.description}, calibrated')}",
    ]
    if built_in:
        lines.append(f"extends: {device.name}")
    lines.append("figures:" if kept or changed else "figures: {}")
    for key, entry in (kept | changed).items():
        inner = ", ".join(f"{k}: {_scalar(v)}" for k, v in entry.items())
        lines.append(f"  {key}: {{{inner}}}")
    return "\n".join(lines) + "\n"


def _entry(figure: Figure) -> dict[str, object]:
    return {"value": figure.value, "kind": figure.kind, "source": figure.source}


def _scalar(value: object) -> str:
    """One value as JSON, which YAML takes; quotes keep names that look like numbers text."""
    return json.dumps(value, ensure_ascii=False)


def _source(calibration: Calibration, name: str) -> str:
    found = next(f for f in calibration.fit.fitted if f.name == name)
    rows, before = calibration.observed.used, f"before: {found.before:g}"
    file = calibration.capture.file_name
    if name == "task_gap_us":
        return f"shortest gaps between the tasks of {file} (gec calibrate; {before})"
    error = f"standard error {found.error:.1%}" + (", at its limit" if found.at_limit else "")
    return f"fitted to {rows} operators of {file} (gec calibrate; {error}; {before})"
