"""``gec tune``: the options that a model is fastest with on a device."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("model")
@click.option(
    "--device", default="ascend910", show_default=True, metavar="NAME|FILE", help="The device."
)
@click.option("--batch", type=click.IntRange(1), help="Size of every input's leading symbol.")
@click.option("--seq", type=click.IntRange(1), help="Size of the sequence symbol.")
@click.option("-o", "--output", metavar="OPTIONS.yaml", help="Write the options there.")
@click.option("--workers", type=click.IntRange(1, 512), help="Processes (default: all cores).")
@click.option("--json", "as_json", is_flag=True, help="What was found as JSON on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def tune(
    model: str,
    device: str,
    batch: int | None,
    seq: int | None,
    output: str | None,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Search block sizes of attention, streams and strategy for MODEL on a device.

    Prints what each choice gains and writes the options as a file that --assign takes.
    """
    from gecompiler.cli_progress import progress_bar
    from gecompiler.files import write_text
    from gecompiler.lang import say
    from gecompiler.source import refuse_overwriting
    from gecompiler.tuning import options_text
    from gecompiler.tuning import tune as search
    from gecompiler.tuning.report import print_tuning, tuning_data

    refuse_overwriting(model, output)
    with progress_bar(quiet) as progress:
        found = search(model, device, batch=batch, seq=seq, workers=workers or 0, progress=progress)
    if output is not None:
        write_text(output, options_text(found))
    if as_json:
        click.echo(json.dumps(tuning_data(found), indent=2))
    elif not quiet:
        print_tuning(found)
        text = options_text(found).rstrip()
        if output:
            text = say("written to {file} (use it with --assign {file})", file=output)
        click.echo(f"\n{text}")
    return 0
