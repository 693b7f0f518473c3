"""What tuning found, as tables and as data."""

from __future__ import annotations

from typing import Any

from gecompiler.lang import say
from gecompiler.tuning.tune import Tuning
from gecompiler.units import duration

SHOWN = 8


def print_tuning(tuning: Tuning) -> None:
    """The blocks and placements tried, and the gain of each choice."""
    from gecompiler.console import console, print_table

    out = console()
    if tuning.blocks:
        out.print(say("Block sizes of fused attention (time of all attentions)"))
        print_table(
            (say("queries x keys"), say("time"), say("buffers")),
            [
                (
                    f"{row.blocks.queries} x {row.blocks.keys}",
                    duration(row.us),
                    say("fit") if row.fits else say("overflow: slower pieces"),
                )
                for row in tuning.blocks[:SHOWN]
            ],
        )
    title = say("Streams and strategy, with those blocks") if tuning.blocks else None
    out.print("\n" + (title or say("Streams and strategy")))
    ordered = sorted(tuning.placements, key=lambda row: (row.time_us, row.streams))
    # More streams asked for than used give the same schedule again.
    distinct = {(row.strategy, row.used, row.time_us): row for row in reversed(ordered)}
    rows = sorted(distinct.values(), key=lambda row: row.time_us)[:SHOWN]
    print_table(
        (say("strategy"), say("streams"), say("time"), say("over one stream")),
        [(r.strategy, f"{r.used}", duration(r.time_us), f"{r.speedup:.3f}x") for r in rows],
    )
    out.print("\n" + say("Choices"))
    print_table(
        (say("choice"), say("value"), say("before"), say("after"), say("gain")),
        [
            (c.name, c.value, duration(c.before_us), duration(c.after_us), f"{c.gain:.1%}")
            for c in tuning.choices
        ],
    )


def tuning_data(tuning: Tuning) -> dict[str, Any]:
    """The same as plain data, for ``--json``."""
    return {
        "model": tuning.model,
        "device": tuning.device,
        "sizes": dict(sorted(tuning.sizes.items())),
        "options": tuning.options,
        "choices": [
            {
                "name": c.name,
                "value": c.value,
                "before_us": c.before_us,
                "after_us": c.after_us,
                "gain": c.gain,
            }
            for c in tuning.choices
        ],
        "blocks": [
            {"q": r.blocks.queries, "k": r.blocks.keys, "us": r.us, "fits": r.fits}
            for r in tuning.blocks
        ],
        "placements": [
            {"strategy": r.strategy, "streams": r.streams, "used": r.used, "time_us": r.time_us}
            for r in tuning.placements
        ],
    }
