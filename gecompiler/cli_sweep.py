"""``gec sweep``: one model over many sizes, streams, strategies and devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gecompiler.lang import say, translate

if TYPE_CHECKING:
    from gecompiler.sweep import Row, Sweep

AXES = ("tp", "sp", "dp", "pp", "ep")


@click.command()
@click.argument("model")
@click.option("--batch", metavar="N,N,...", help="Sizes of the batch, as 1,8,32.")
@click.option("--seq", metavar="N,N,...", help="Lengths of the sequence.")
@click.option(
    "--streams", default="auto", show_default=True, metavar="N,N,...",
    help="Numbers of streams, 'auto' among them.",
)  # fmt: skip
@click.option(
    "--strategy", default="auto", show_default=True, metavar="S,S,...",
    help="Strategies (see 'gec strategies').",
)  # fmt: skip
@click.option(
    "--device", default="ascend910", show_default=True, metavar="D,D,...",
    help="Device profiles or files.",
)  # fmt: skip
@click.option("--tp", metavar="N,N,...", help="Cards that share each layer's heads.")
@click.option("--sp", metavar="N,N,...", help="Cards that share a sequence's tokens.")
@click.option("--dp", metavar="N,N,...", help="Cards that share the batch.")
@click.option("--pp", metavar="N,N,...", help="Stages of a pipeline.")
@click.option("--ep", metavar="N,N,...", help="Cards that share the experts.")
@click.option("--topology", metavar="T,T,...", help="How the cards are linked, by name or file.")
@click.option(
    "--micro-batches", metavar="N,N,...",
    help="Parts of the batch that follow each other, 'auto' among them.",
)  # fmt: skip
@click.option(
    "--assign", type=click.Path(dir_okay=False), metavar="FILE.yaml",
    help="Stream assignment, sync points and options for all points.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE.csv", help="Write the table there.")
@click.option(
    "--plot", metavar="FILE.svg|png", help="Draw time and speed-up over streams (extra 'plot')."
)
@click.option(
    "--roofline", metavar="FILE.svg|png", help="Draw a roofline plot of the points (extra 'plot')."
)
@click.option(
    "--journal", metavar="FILE",
    help="Where finished points are kept (default: MODEL.sweep-journal here, until all are).",
)  # fmt: skip
@click.option("--fresh", is_flag=True, help="Forget what the journal has.")
@click.option("--workers", type=click.IntRange(1, 512), help="Processes (default: all cores).")
@click.option("--cluster", metavar="tcp://HOST:PORT", help="A dask cluster (extra 'cluster').")
@click.option("--json", "as_json", is_flag=True, help="The rows as JSON on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def sweep(model: str, **given: Any) -> int:
    """Compile MODEL at every combination and print time, throughput and what limits it.

    An interrupted sweep goes on where it stopped: finished points are in the journal.
    """
    from gecompiler.plotting import check_plot
    from gecompiler.source import refuse_overwriting

    for name in ("output", "plot", "roofline", "journal"):
        refuse_overwriting(model, given[name])
    if given["workers"] is not None and given["cluster"] is not None:
        raise click.UsageError("--workers is of this machine; it does not go with --cluster")
    if given["plot"] is not None:
        check_plot(given["plot"])
    if given["roofline"] is not None:
        check_plot(given["roofline"], "--roofline")
    asked = _plan(model, given)
    rows = _run(asked, given["quiet"])
    _write(model, rows, given)
    failed = [row for row in rows if row.error]
    if not given["journal"] and not failed:
        asked.journal.unlink(missing_ok=True)
    if failed and (given["quiet"] or given["as_json"]):
        first = f"{failed[0].point}: {translate(failed[0].error)}"
        text = say("{count} points failed; {first}", count=len(failed), first=first)
        click.echo(say("gec: error: {message}", message=text), err=True)
    return 1 if failed else 0


def _write(model: str, rows: list[Row], given: dict[str, Any]) -> None:
    from gecompiler.files import write_text
    from gecompiler.sweep.output import csv_text, print_rows, write_plot, write_roofline_plot
    from gecompiler.sweep.row import table

    if given["output"] is not None:
        write_text(given["output"], csv_text(rows))
    if given["plot"] is not None:
        write_plot(rows, Path(model).name, given["plot"])
    if given["roofline"] is not None:
        write_roofline_plot(rows, Path(model).name, given["roofline"])
    if given["as_json"]:
        click.echo(json.dumps(table(rows), indent=2))
    elif not given["quiet"]:
        print_rows(rows)


def _plan(model: str, given: dict[str, Any]) -> Sweep:
    """The sweep that the options ask for; UsageError names the one at fault."""
    from gecompiler.assign_file import load_assignment
    from gecompiler.option_table import Options
    from gecompiler.passes.streams.registry import parse_strategy
    from gecompiler.request import Controls
    from gecompiler.sweep import Sweep, grid
    from gecompiler.sweep.job import make_job
    from gecompiler.sweep.points import layouts, numbers, words

    devices, strategies = words(given["device"], "device"), words(given["strategy"], "strategy")
    streams = numbers(given["streams"], "streams")
    for name in strategies:
        parse_strategy(name)
    batches, seqs = numbers(given["batch"], "batch"), numbers(given["seq"], "seq")
    options, controls = Options(), Controls()
    if given["assign"] is not None:
        options, controls = load_assignment(given["assign"])
    sizes = [numbers(given[axis], axis) or (options.get(axis),) for axis in AXES]
    topologies = words(given["topology"], "topology") or (options.get("topology") or "",)
    parts = numbers(given["micro_batches"], "micro-batches")
    cards = layouts(sizes, topologies, parts or (options.get("micro_batches") or 0,))
    points = grid(devices, batches, seqs, strategies, streams, cards)
    cluster = given["cluster"]
    job = make_job(model, devices, options, controls, topologies, send=cluster is not None)
    kept = given["journal"] or f"{Path(model).name.replace(':', '-')}.sweep-journal"
    return Sweep(job, points, Path(kept), given["workers"] or 0, cluster, given["fresh"])


def _run(asked: Sweep, quiet: bool) -> list[Row]:
    from gecompiler.cli_progress import progress_bar
    from gecompiler.sweep import run_sweep

    with progress_bar(quiet) as progress:
        try:
            return run_sweep(asked, progress)
        except (KeyboardInterrupt, SystemExit):
            if asked.journal.exists():
                text = "finished points are in {file}; the same command goes on"
                click.echo("\n" + say(text, file=asked.journal), err=True)
            raise
