"""A sweep's table for people, as CSV, and as a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecompiler.lang import say, translate
from gecompiler.plotting import check_plot, label_language, save_figure
from gecompiler.report_layout import bottleneck
from gecompiler.sweep.row import Row, columns, table
from gecompiler.units import duration, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def csv_text(rows: Sequence[Row]) -> str:
    """The table as CSV: the same rows give the same bytes."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table(rows))
    return out.getvalue()


def print_rows(rows: Sequence[Row]) -> None:
    """The table in the terminal."""
    from gecompiler.console import console, print_table

    found = table(rows)
    several = len({row.device for row in rows}) > 1
    cards = any(row.cards.several for row in rows)
    head = [*(["device"] if several else []), "batch", "seq", *(["cards"] if cards else [])]
    head += ["strategy", "streams", "time"]
    head += ["tokens/s" if any(row.tokens for row in rows) else "samples/s"]
    head += ["speed-up", *(["exposed", "bubble"] if cards else []), "bottleneck", "recommended"]
    print_table(
        [say(title) for title in head],
        [_cells(row, data, several, cards) for row, data in zip(rows, found, strict=True)],
        one_line=True,
    )
    for row in rows:
        if row.error:
            text = say("failed: {point}: {error}", point=row.point, error=translate(row.error))
            console().print(text, markup=False)


def _cells(row: Row, data: dict[str, Any], several: bool, cards: bool) -> list[str]:
    first = [row.device] if several else []
    streams = f"{row.streams or 'auto'}"
    if row.used and row.used != row.streams:
        streams += say(" (uses {used})", used=row.used)
    chosen = f" ({row.chosen})" if row.chosen not in ("", row.strategy) else ""
    first += [
        *(str(data[size] or "-") for size in ("batch", "seq")),
        *([_cards(row)] if cards else []),
        row.strategy + chosen,
        streams,
    ]
    if row.error:
        return [*first, say("failed"), "", "", *(["", ""] if cards else []), "", ""]
    rate = row.tokens_per_s if row.tokens else row.samples_per_s
    best = data["recommended_streams"]
    advice = say("1 stream") if best == 1 else say("{count} streams", count=best)
    return [
        *first,
        duration(row.time_us),
        number(rate),
        f"{row.speedup:.2f}x",
        *([duration(row.exposed_us), f"{row.bubble:.0%}"] if cards else []),
        bottleneck(row.bottleneck),
        advice,
    ]


def _cards(row: Row) -> str:
    """The layout, with the number of micro-batches that was taken."""
    text = str(row.cards)
    if row.micro_batches > 1 and not row.cards.micro_batches:
        text += say(" (mb{count})", count=row.micro_batches)
    return text


def write_plot(rows: Sequence[Row], title: str, path: str) -> None:
    """Time and speed-up over streams, a line per size, strategy and device; whole or not at all."""
    check_plot(path)
    with label_language():
        save_figure(_figure(rows, title), path)


def _figure(rows: Sequence[Row], title: str) -> Figure:
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
    time.set(ylabel=say("time in {unit}", unit="ms"), yscale="log")
    for of in (time.yaxis.set_major_formatter, time.yaxis.set_minor_formatter):
        of("{x:g}")
    speedup.set(ylabel=say("speed-up over one stream"))
    speedup.axhline(1, color="black", linewidth=0.8, linestyle=":")
    for axes in (time, speedup):
        axes.set_xlabel(say("streams") if by_streams else say("batch"))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True, which="both", alpha=0.3)
    if series:
        time.legend()
    return figure


def _series(row: Row, rows: Sequence[Row], by_streams: bool) -> tuple[str, int]:
    """The line a row belongs to, and where on it."""
    names = []
    for name in ("device", "batch", "seq", "cards", "strategy"):
        varied = len({getattr(r, name) for r in rows}) > 1
        if varied and (by_streams or name != "batch"):
            value = getattr(row, name)
            plain = name in ("device", "cards", "strategy")
            names.append(str(value) if plain else f"{name} {value}")
    return ", ".join(names) or say("time"), row.used if by_streams else row.batch


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
