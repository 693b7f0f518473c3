"""``gec diff``: two timelines compared op by op."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("before")
@click.argument("after")
@click.option("--top", type=click.IntRange(1, 100_000), default=15, show_default=True,
              metavar="N", help="Show the N largest differences.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="All of the comparison as JSON on stdout.")
def diff(before: str, after: str, top: int, as_json: bool) -> int:
    """Compare the timelines BEFORE and AFTER op by op.

    Either is a folder of 'gec compile -o', a trace.json or schedule.json, or what a profiler
    recorded (see 'gec profile --from'). Ops are matched by name, else by type, shapes and order.
    """
    from gecompiler.diff import compare, comparison_text, load_side

    report = compare(load_side(before), load_side(after))
    click.echo(json.dumps(report, indent=2) if as_json else comparison_text(report, top))
    return 0
