"""A sweep's table for people, as CSV, and as a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gecompiler.files import whole_file
from gecompiler.ir.errors import UsageError
from gecompiler.sweep.row import COLUMNS, Row, table
from gecompiler.units import duration, number

PLOT_SUFFIXES = (".svg", ".png", ".pdf")


def csv_text(rows: Sequence[Row]) -> str:
    """The table as CSV: the same rows give the same bytes."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table(rows))
    return out.getvalue()


def print_rows(rows: Sequence[Row]) -> None:
    """The table in the terminal."""
    from gecompiler.console import console, print_table

    found = table(rows)
    several = len({row.device for row in rows}) > 1
    head = [*(["device"] if several else []), "batch", "seq", "strategy", "streams", "time"]
    head += ["tokens/s" if any(row.seq for row in rows) else "samples/s"]
    head += ["speed-up", "bottleneck", "recommended"]
    print_table(head, [_cells(row, data, several) for row, data in zip(rows, found, strict=True)])
    for row in rows:
        if row.error:
            console().print(f"failed: {row.point}: {row.error}", markup=False)


def _cells(row: Row, data: dict[str, Any], several: bool) -> list[str]:
    first = [row.device] if several else []
    streams = f"{row.streams or 'auto'}"
    if row.used and row.used != row.streams:
        streams += f" (uses {row.used})"
    chosen = f" ({row.chosen})" if row.chosen not in ("", row.strategy) else ""
    first += [str(row.batch or "-"), str(row.seq or "-"), row.strategy + chosen, streams]
    if row.error:
        return [*first, "failed", "", "", "", ""]
    rate = row.tokens_per_s if row.seq else row.samples_per_s
    best = data["recommended_streams"]
    advice = f"{best} stream" + ("" if best == 1 else "s")
    return [
        *first,
        duration(row.time_us),
        number(rate),
        f"{row.speedup:.2f}x",
        row.bottleneck,
        advice,
    ]


def check_plot(path: str) -> None:
    """UsageError where a plot could not be written there: kind of file, or no matplotlib."""
    if Path(path).suffix.lower() not in PLOT_SUFFIXES:
        raise UsageError(
            f"{path!r} is no kind of plot", where="--plot", hint=f"end it in {PLOT_SUFFIXES}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(
            "needs matplotlib, which is not installed",
            where="--plot",
            hint="pip install 'gecompiler[plot]'",
        ) from None


def write_plot(rows: Sequence[Row], title: str, path: str) -> None:
    """Time over streams, a line per size, strategy and device; whole or not at all."""
    check_plot(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    kept = [row for row in rows if not row.error]
    series: dict[str, list[tuple[int, float]]] = {}
    by_streams = len({row.streams for row in rows}) > 1
    for row in kept:
        name, at = _series(row, rows, by_streams)
        series.setdefault(name, []).append((at, row.time_us / 1000))
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, spots in series.items():
        axes.plot(*zip(*sorted(spots), strict=True), marker="o", label=name)
    axes.set(title=title, xlabel="streams" if by_streams else "batch", ylabel="time in ms")
    axes.set_yscale("log")
    axes.grid(visible=True, which="both", alpha=0.3)
    if series:
        axes.legend()
    suffix = Path(path).suffix.lower()
    # No date and no random ids: the same rows give the same file.
    metadata = {"Date": None} if suffix == ".svg" else {}
    with mpl.rc_context({"svg.hashsalt": "gecompiler"}), whole_file(Path(path)) as part:
        figure.savefig(part, format=suffix[1:], metadata=metadata)


def _series(row: Row, rows: Sequence[Row], by_streams: bool) -> tuple[str, int]:
    """The line a row belongs to, and where on it."""
    names = []
    for name in ("device", "batch", "seq", "strategy"):
        varied = len({getattr(r, name) for r in rows}) > 1
        if varied and (by_streams or name != "batch"):
            value = getattr(row, name)
            names.append(str(value) if name in ("device", "strategy") else f"{name} {value}")
    return ", ".join(names) or "time", row.used if by_streams else row.batch
