"""``gec check``: whether a schedule, perhaps edited by hand, is safe to run."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("schedule", type=click.Path(dir_okay=False), metavar="SCHEDULE.json")
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON on stdout.")
def check(schedule: str, as_json: bool) -> int:
    """Verify SCHEDULE.json: races, deadlocks, limits; exit 1 when something is wrong."""
    from gecompiler.ir.schedule_json import load_schedule
    from gecompiler.ir.schedule_verify import verify_schedule
    from gecompiler.lang import say, translate

    loaded = load_schedule(schedule)
    findings = verify_schedule(loaded)
    if as_json:
        click.echo(json.dumps([f.as_dict() for f in findings], indent=2))
    elif findings:
        for finding in findings:
            click.echo(f"{finding.code}: {translate(finding.message)}")
            for name in ("missing", "fix"):
                if text := getattr(finding, name):
                    click.echo(f"  {say(name)}: {translate(text)}")
        click.echo(say("{file}: {count} finding(s)", file=schedule, count=len(findings)))
    else:
        text = say(
            "{file}: {tasks} tasks on {streams} streams, {events} events: race-free, "
            "deadlock-free, within limits",
            file=schedule, tasks=len(loaded.tasks), streams=len(loaded.streams),
            events=len(loaded.events),
        )  # fmt: skip
        click.echo(text)
    return 1 if findings else 0
