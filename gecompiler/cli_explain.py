"""``gec explain``: why an op is where it is, why then, and what would make it start earlier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from gecompiler.cli_cards import cards_options, take_cards
from gecompiler.cli_compile import compile_request
from gecompiler.cli_options import Common, make_request, set_up_logging, shared
from gecompiler.cli_train import take_train, train_options


@click.command()
@click.argument("model")
@click.argument("op")
@click.option("--json", "as_json", is_flag=True, help="The explanation as JSON on stdout.")
@click.option(
    "--rank", type=click.IntRange(0), metavar="N",
    help="Of several cards the one to look at (default: where the op ends last).",
)  # fmt: skip
@cards_options
@train_options
@shared
def explain(model: str, op: str, as_json: bool, rank: int | None, **values: Any) -> int:
    """Explain OP's place in MODEL's schedule: why here, why then, what it waited for.

    OP is an op's name (also of one that was fused), a type, a group, or a glob; where it stands
    for several tasks these are listed. With several cards (--tp and the like) collectives are
    named by their type (AllReduce) or by the names that the list gives.
    """
    from gecompiler.explain import Explainer, like_elsewhere, matches
    from gecompiler.explain_data import explanation_data, matches_rows
    from gecompiler.explain_text import explanation_text
    from gecompiler.screen import show

    common = Common.take(values)
    set_up_logging(common)
    if common.stop_after is not None:
        raise click.UsageError("--stop-after makes no schedule: there is nothing to explain")
    more = {**take_cards(values), **take_train(values)}
    compiled = compile_request(make_request(model, common, **more), common)
    assert compiled is not None
    found = matches(compiled.compilation, op, rank)
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
    like = like_elsewhere(compiled.compilation, found[0])
    if as_json:
        click.echo(json.dumps(explanation_data(one, explainer, like), indent=2))
    elif not common.quiet:
        show(explanation_text(one, explainer, op, like))
    return 0


def _print_matches(op: str, rows: Sequence[dict[str, Any]]) -> None:
    """The tasks in a table, and the name that is nearest to what was asked for."""
    from difflib import SequenceMatcher

    from gecompiler.explain_text import MOST_MATCHES
    from gecompiler.lang import say
    from gecompiler.lang.width import pad_left
    from gecompiler.screen import fit
    from gecompiler.units import duration

    count = len(rows)
    click.echo(
        say(
            "{op!r} stands for {count} tasks, in the order in which they start:", op=op, count=count
        )
    )
    places = ((say("start"), 10), (say("takes"), 10), (say("idle before"), 11), (say("slack"), 10))
    head = "".join(f"  {pad_left(title, wide)}" for title, wide in places)
    click.echo(fit(f"{head}  {say('stream')}  {say('name')}"))
    for row in rows[:MOST_MATCHES]:
        start, takes, idle, slack = (
            duration(row[f"{key}_us"]) for key in ("start", "duration", "stream_idle", "slack")
        )
        slack = pad_left(say("critical") if row["critical"] else slack, 10)
        stream = f"{row['stream']:>6}"
        figures = f"  {start:>10}  {takes:>10}  {idle:>11}  {slack}  {stream}"
        click.echo(fit(f"{figures}  {row['name']}"))
    if len(rows) > MOST_MATCHES:
        click.echo(say("and {count} more (see --json)", count=len(rows) - MOST_MATCHES))
    likeness = [SequenceMatcher(None, op, row["name"]).ratio() for row in rows]
    nearest = rows[max(range(len(rows)), key=lambda i: (likeness[i], -i))]["name"]
    click.echo(
        say("name one of them to have it explained; the nearest is {nearest!r}", nearest=nearest)
    )
