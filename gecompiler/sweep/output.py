"""A sweep's table for people, as CSV, and as a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gecompiler.lang import say, translate
from gecompiler.plotting import check_plot, save_figure
from gecompiler.report_layout import bottleneck
from gecompiler.sweep.row import COLUMNS, Row, table
from gecompiler.units import duration, number


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
    head += ["tokens/s" if any(row.tokens for row in rows) else "samples/s"]
    head += ["speed-up", "bottleneck", "recommended"]
    print_table(
        [say(title) for title in head],
        [_cells(row, data, several) for row, data in zip(rows, found, strict=True)],
    )
    for row in rows:
        if row.error:
            text = say("failed: {point}: {error}", point=row.point, error=translate(row.error))
            console().print(text, markup=False)


def _cells(row: Row, data: dict[str, Any], several: bool) -> list[str]:
    first = [row.device] if several else []
    streams = f"{row.streams or 'auto'}"
    if row.used and row.used != row.streams:
        streams += say(" (uses {used})", used=row.used)
    chosen = f" ({row.chosen})" if row.chosen not in ("", row.strategy) else ""
    first += [
        *(str(data[size] or "-") for size in ("batch", "seq")),
        row.strategy + chosen,
        streams,
    ]
    if row.error:
        return [*first, say("failed"), "", "", "", ""]
    rate = row.tokens_per_s if row.tokens else row.samples_per_s
    best = data["recommended_streams"]
    advice = say("1 stream") if best == 1 else say("{count} streams", count=best)
    return [
        *first,
        duration(row.time_us),
        number(rate),
        f"{row.speedup:.2f}x",
        bottleneck(row.bottleneck),
        advice,
    ]


def write_plot(rows: Sequence[Row], title: str, path: str) -> None:
    """Time and speed-up over streams, a line per size, strategy and device; whole or not at all."""
    check_plot(path)
    from matplotlib.figure import Figure

    kept = [row for row in rows if not row.error]
    series: dict[str, list[tuple[int, Row]]] = {}
    by_streams = len({row.streams for row in rows}) > 1
    for row in kept:
        name, at = _series(row, rows, by_streams)
        series.setdefault(name, []).append((at, row))
    figure = Figure(figsize=(11, 5), layout="constrained")
    figure.suptitle(title, parse_math=False)
    time, speedup = figure.subplots(1, 2)
    for name, spots in series.items():
        spots.sort(key=lambda spot: (spot[0], spot[1].time_us))
        x = [at for at, _ in spots]
        time.plot(x, [row.time_us / 1000 for _, row in spots], marker="o", label=name)
        speedup.plot(x, [row.speedup for _, row in spots], marker="o", label=name)
    time.set(ylabel="time in ms", yscale="log")
    for of in (time.yaxis.set_major_formatter, time.yaxis.set_minor_formatter):
        of("{x:g}")
    speedup.set(ylabel="speed-up over one stream")
    speedup.axhline(1, color="black", linewidth=0.8, linestyle=":")
    for axes in (time, speedup):
        axes.set_xlabel("streams" if by_streams else "batch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True, which="both", alpha=0.3)
    if series:
        time.legend()
    save_figure(figure, path)


def _series(row: Row, rows: Sequence[Row], by_streams: bool) -> tuple[str, int]:
    """The line a row belongs to, and where on it."""
    names = []
    for name in ("device", "batch", "seq", "strategy"):
        varied = len({getattr(r, name) for r in rows}) > 1
        if varied and (by_streams or name != "batch"):
            value = getattr(row, name)
            names.append(str(value) if name in ("device", "strategy") else f"{name} {value}")
    return ", ".join(names) or "time", row.used if by_streams else row.batch


def write_roofline_plot(rows: Sequence[Row], title: str, path: str) -> None:
    """The points of a sweep under the roofs of its devices."""
    from gecompiler.backends.device import load_device
    from gecompiler.roofline_plot import Spot, roofs, write_roofline

    kept = [row for row in rows if not row.error]
    spots = []
    for row in kept:
        name, _ = _series(row, rows, True)
        label = f"{row.used} stream" + ("" if row.used == 1 else "s")
        spots.append(Spot(label, row.flops, row.hbm_bytes, row.time_us, name))
    lines = [
        roof for name in dict.fromkeys(r.device for r in kept) for roof in roofs(load_device(name))
    ]
    write_roofline(spots, lines, path, title)
