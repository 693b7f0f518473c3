"""What a calibration found, as tables for people and as data."""

from __future__ import annotations

from typing import Any

from gecompiler.calibration.calibrator import Calibration
from gecompiler.calibration.fit import Fitted
from gecompiler.lang import say, translate


def print_calibration(calibration: Calibration) -> None:
    """The errors by family, the fitted figures, and what the data do not determine."""
    from gecompiler.console import console, print_table

    capture, out = calibration.capture, console()
    rows, used = len(calibration.observed.rows), calibration.observed.used
    text = say(
        "{file} ({dialect}): {used} operators in {rows} sizes against {device}",
        file=capture.file_name, dialect=capture.dialect, used=used, rows=rows,
        device=calibration.device.name,
    )  # fmt: skip
    out.print(text)
    for reason, count in calibration.observed.left_out.items():
        out.print(
            "  " + say("left out: {count} rows, {reason}", count=count, reason=translate(reason))
        )
    out.print("\n" + say("Mean (median) absolute error per op family"))
    print_table(
        [say(title) for title in ("family", "sizes", "before", "after", "held out")],
        [
            (f, str(calibration.before[f].n), *(_error(e.get(f)) for e in _columns(calibration)))
            for f in calibration.before
        ],
    )
    note = say("held out: each half of the sizes, predicted by figures fitted to the other half")
    out.print(f"  {note}")
    out.print("\n" + say("Fitted"))
    print_table(
        [say(title) for title in ("figure", "before", "after", "standard error", "felt by")],
        [_fitted_row(f) for f in calibration.fit.fitted],
    )
    out.print("\n" + say("Not determined, left as they are"))
    for refused in calibration.fit.refused:
        out.print(f"  {refused.name}: {translate(refused.reason)}")
        out.print("    " + say("would tell: {wanted}", wanted=translate(refused.wanted)))
    if any(f.at_limit and f.value != f.before for f in calibration.fit.fitted):
        text = say(
            "A figure at its limit says that the card is faster than the profile's datasheet "
            "rates allow: is --device the right one?"
        )
        out.print(f"\n{text}")


def calibration_data(calibration: Calibration) -> dict[str, Any]:
    """The same as plain data, for ``--json``."""
    return {
        "profile": calibration.device.name,
        "capture": calibration.capture.file_name,
        "dialect": calibration.capture.dialect,
        "operators": calibration.observed.used,
        "sizes": len(calibration.observed.rows),
        "left_out": dict(calibration.observed.left_out),
        "families": {
            family: {
                "n": calibration.before[family].n,
                **{
                    f"{name}_mape_percent": None
                    if family not in errors
                    else round(100 * errors[family].mape, 3)
                    for name, errors in zip(
                        ("before", "after", "held_out"), _columns(calibration), strict=True
                    )
                },
            }
            for family in calibration.before
        },
        "fitted": [
            {
                "name": f.name,
                "before": f.before,
                "after": f.value,
                "standard_error": round(f.error, 6),
                "at_limit": f.at_limit,
                "rows": f.rows,
            }
            for f in calibration.fit.fitted
        ],
        "refused": [
            {"name": r.name, "reason": r.reason, "wanted": r.wanted}
            for r in calibration.fit.refused
        ],
    }


def _columns(calibration: Calibration) -> tuple[Any, ...]:
    return calibration.before, calibration.after, calibration.held_out


def _error(error: Any) -> str:
    return "-" if error is None else f"{error.mape:6.1%} ({error.median:.1%})"


def _fitted_row(f: Fitted) -> tuple[str, ...]:
    limit = say(", at its limit") if f.at_limit else ""
    error = "" if f.name == "task_gap_us" else f"{f.error:.1%}{limit}"
    return (f.name, f"{f.before:g}", f"{f.value:g}", error, say("{count} times", count=f.rows))
