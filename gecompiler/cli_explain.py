"""``gec explain``: why an op is where it is, why then, and what would make it start earlier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from gecompiler.cli_compile import compile_request
from gecompiler.cli_options import Common, make_request, set_up_logging, shared


@click.command()
@click.argument("model")
@click.argument("op")
@click.option("--json", "as_json", is_flag=True, help="The explanation as JSON on stdout.")
@shared
def explain(model: str, op: str, as_json: bool, **values: Any) -> int:
    """Explain OP's place in MODEL's schedule: why here, why then, what it waited for.

    OP is an op's name (also of one that was fused), a type, a group, or a glob; where it stands
    for several tasks these are listed.
    """
    from gecompiler.explain import Explainer, matches
    from gecompiler.explain_text import explanation_data, explanation_text, matches_rows

    common = Common.take(values)
    set_up_logging(common)
    if common.stop_after is not None:
        raise click.UsageError("--stop-after makes no schedule: there is nothing to explain")
    compiled = compile_request(make_request(model, common))
    assert compiled is not None
    found = matches(compiled.compilation, op)
    explainer = Explainer.of(compiled.compilation)
    if len(found) > 1:
        rows = matches_rows(found, explainer)
        if as_json:
            data = {"schema_version": 1, "pattern": op, "matches": rows}
            click.echo(json.dumps(data, indent=2))
        elif not common.quiet:
            _print_matches(op, rows)
        return 0
    one = explainer.explain(found[0])
    if as_json:
        click.echo(json.dumps(explanation_data(one, explainer), indent=2))
    elif not common.quiet:
        click.echo(explanation_text(one, explainer, op))
    return 0


def _print_matches(op: str, rows: Sequence[dict[str, Any]]) -> None:
    """The tasks in a table, and the name that is nearest to what was asked for."""
    from difflib import SequenceMatcher

    from gecompiler.explain_text import MOST_MATCHES
    from gecompiler.units import duration

    click.echo(f"{op!r} stands for {len(rows)} tasks, in the order in which they start:")
    click.echo(f"  {'start':>10}  {'takes':>10}  {'idle before':>11}  {'slack':>10}  stream  name")
    for row in rows[:MOST_MATCHES]:
        start, takes, idle, slack = (
            duration(row[f"{key}_us"]) for key in ("start", "duration", "stream_idle", "slack")
        )
        slack = "critical" if row["critical"] else slack
        stream = f"{row['stream']:>6}"
        click.echo(f"  {start:>10}  {takes:>10}  {idle:>11}  {slack:>10}  {stream}  {row['name']}")
    if len(rows) > MOST_MATCHES:
        click.echo(f"and {len(rows) - MOST_MATCHES} more (see --json)")
    likeness = [SequenceMatcher(None, op, row["name"]).ratio() for row in rows]
    nearest = rows[max(range(len(rows)), key=lambda i: (likeness[i], -i))]["name"]
    click.echo(f"name one of them to have it explained; the nearest is {nearest!r}")
