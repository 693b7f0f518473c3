"""A capture and a profile in, the figures it determines and what they are worth out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gecompiler.backends.device import Device, load_device
from gecompiler.calibration.fit import Fit, Fitted, Refused, fit
from gecompiler.calibration.gaps import task_gap_us
from gecompiler.calibration.observations import (
    FamilyError,
    Observation,
    Observed,
    errors_of,
    family_errors,
    observe,
    with_figures,
)
from gecompiler.calibration.parameters import LINKS, TASK_GAP, UNFITTED, applicable
from gecompiler.captures import Capture, read_capture
from gecompiler.ir.activity import tell
from gecompiler.ir.errors import GecError

MOST_ROWS = 120
"""Rows of a family that a fit looks at, spread evenly; more take longer and move nothing."""


class CalibrationError(GecError):
    """A capture from which nothing can be fitted."""


@dataclass(frozen=True)
class Calibration:
    """What was fitted to which data, and how far off the model is before and after."""

    capture: Capture
    device: Device
    observed: Observed
    fit: Fit
    before: Mapping[str, FamilyError]
    after: Mapping[str, FamilyError]
    held_out: Mapping[str, FamilyError]
    """Each half of the operators predicted by figures fitted to the other half; empty where
    a half determines nothing."""

    @property
    def calibrated(self) -> Device:
        """The device with the fitted figures."""
        return with_figures(self.device, self.fit.values, "calibrated")


def calibrate(path: str | os.PathLike[str], device: str, *, causal: bool = False) -> Calibration:
    """Fits what ``path`` (op_summary or kernel_details) determines of the profile ``device``.

    ``causal``: whether its fused attentions are, which the file does not say. UsageError for a
    file that is none of these; CalibrationError when it determines nothing.
    """
    profile = load_device(device)
    tell("reading the capture")
    capture = read_capture(path)
    tell("fitting the figures")
    observed = observe(capture, profile, causal=causal)
    found = _with_gap(_fit(observed.rows, profile), capture, profile)
    if not found.fitted:
        raise CalibrationError(
            f"determines no figure of {profile.name}: {_why(observed, found)}",
            where=os.fspath(path),
            hint=f"measure {applicable(profile)[0].wanted}, and matrix products of several sizes",
        )
    tell("predicting each half of the sizes by the other")
    return Calibration(
        capture,
        profile,
        observed,
        found,
        family_errors(observed.rows, profile),
        family_errors(observed.rows, with_figures(profile, found.values)),
        held_out(observed.rows, profile),
    )


def held_out(rows: Sequence[Observation], device: Device) -> dict[str, FamilyError]:
    """The errors on rows that the figures used for them have not seen, in two halves."""
    halves = [[row for row in rows if row.half == side] for side in (0, 1)]
    predicted: list[tuple[Observation, float]] = []
    for seen, unseen in (halves, halves[::-1]):
        found = _fit(seen, device)
        if not found.fitted:
            return {}
        tuned = with_figures(device, found.values, "half")
        predicted += [(row, row.predicted_us(tuned)) for row in unseen]
    return errors_of(predicted)


def _fit(rows: Sequence[Observation], device: Device) -> Fit:
    families: dict[str, list[Observation]] = {}
    for row in rows:
        if row.family not in UNFITTED:
            families.setdefault(row.family, []).append(row)
    looked_at = [
        row for members in families.values() for row in members[:: -(-len(members) // MOST_ROWS)]
    ]
    return fit(looked_at, device, applicable(device)) if looked_at else _nothing(device)


def _nothing(device: Device) -> Fit:
    reason = "no operator of the file has a formula"
    return Fit((), tuple(Refused(p.name, reason, p.wanted) for p in applicable(device)))


def _with_gap(found: Fit, capture: Capture, device: Device) -> Fit:
    """The fit with what durations do not tell: gaps between tasks, and links."""
    gap = task_gap_us(capture.ops)
    links = Refused(LINKS.name, "the file does not give the sizes of collectives", LINKS.wanted)
    if isinstance(gap, str):
        refused = Refused(TASK_GAP.name, gap, TASK_GAP.wanted)
        return Fit(found.fitted, (*found.refused, refused, links))
    fitted = Fitted(
        TASK_GAP.name, device.task_gap_us, float(f"{gap:.4g}"), 0.0, False, len(capture.ops)
    )
    return Fit((*found.fitted, fitted), (*found.refused, links))


def _why(observed: Observed, found: Fit) -> str:
    if observed.rows:
        first = found.refused[0]
        return f"{observed.used} operators can be predicted; {first.name}: {first.reason}"
    said = "; ".join(f"{n} rows: {reason}" for reason, n in observed.left_out.items())
    return f"no operator can be used ({said})"
