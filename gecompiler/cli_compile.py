"""``gec compile`` and ``gec run``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gecompiler.cli_cards import cards_options, take_cards
from gecompiler.cli_options import (
    MAX_SHOWN_BYTES,
    Common,
    as_typed,
    make_request,
    set_up_logging,
    shared,
)
from gecompiler.cli_train import take_train, train_options
from gecompiler.lang import language, say, translate

if TYPE_CHECKING:
    from gecompiler.compiled import CompiledModel
    from gecompiler.request import Request


def compile_request(request: Request, common: Common) -> CompiledModel | None:
    """The compiled model; None after ``--stop-after`` printed the graph.

    On a terminal stderr shows how far it has come, unless -q or -v is given.
    """
    from gecompiler.cli_progress import activity
    from gecompiler.compiled import CompiledModel
    from gecompiler.driver import compile_source, optimise
    from gecompiler.ir.text import print_graph

    quiet = common.quiet or common.verbose > 0
    # Strategies of the user's own may print.
    with activity(quiet), redirect_stdout(sys.stderr):
        source = optimise(request)
        if not source.stopped:
            return CompiledModel(request, source, compile_source(source, request))
    click.echo(print_graph(source.graph, max_data_bytes=MAX_SHOWN_BYTES), nl=False)
    return None


def _refuse_with_stop(common: Common, **options: object) -> None:
    """UsageError for an option that asks for what --stop-after leaves out."""
    given = [f"-{n}" if len(n) == 1 else f"--{n}" for n, value in options.items() if value]
    if common.stop_after is not None and given:
        raise click.UsageError(
            f"--stop-after prints the graph and ends there; it does not go with {given[0]}"
        )


def verdict(compiled: CompiledModel, *, said: bool) -> int:
    """The exit code; a schedule at fault is named on stderr unless the report said it."""
    findings = compiled.compilation.findings
    if findings and not said:
        message = translate(findings[0].message)
        click.echo(say("gec: error: {message}", message=message), err=True)
    return 1 if findings else 0


def _tolerance(_context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise click.BadParameter(f"expected a number from 0, found {value}", param=parameter)
    return value


def _plot_file(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """The path, once it is known that a plot could be written there."""
    if value is not None:
        from gecompiler.plotting import check_plot

        check_plot(value, parameter.opts[0])
    return value


plot_option = click.option(
    "--plot", "plot_file", metavar="FILE.svg|png|pdf", callback=_plot_file,
    help="Draw the timeline there, for papers and slides (extra 'plot').",
)  # fmt: skip
target_opset_option = click.option(
    "--target-opset", metavar="N", help="Opset of model.onnx (default: the source's)."
)


@click.command("compile")
@click.argument("model")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), metavar="DIR",
    help="Write model.onnx, schedule.json, trace.json and report.json there.",
)  # fmt: skip
@click.option(
    "--html", "html_file", type=click.Path(dir_okay=False), metavar="FILE.html",
    help="Write the report as one HTML file: timeline, curves, table, advice.",
)  # fmt: skip
@plot_option
@click.option(
    "--roofline", "roofline_file", metavar="FILE.svg|png|pdf", callback=_plot_file,
    help="Draw a roofline plot of the model's ops there (extra 'plot').",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option(
    "--emit", type=click.Choice(["torchair", "atc"]),
    help="Print what asks the real graph engine for the same placement, and no report.",
)  # fmt: skip
@target_opset_option
@cards_options
@train_options
@shared
def compile_command(
    model: str,
    output: str | None,
    html_file: str | None,
    plot_file: str | None,
    roofline_file: str | None,
    as_json: bool,
    emit: str | None,
    target_opset: str | None,
    **values: Any,
) -> int:
    """Compile MODEL and report what overlaps, what waits and why.

    MODEL is an .onnx file or the name of a built-in model ('gec models').
    """
    common = Common.take(values)
    set_up_logging(common)
    files = {"o": output, "html": html_file, "plot": plot_file, "roofline": roofline_file}
    _refuse_with_stop(common, json=as_json, emit=emit, **files)
    if emit and as_json:
        raise click.UsageError("--emit prints a placement, --json the report: choose one")
    more = {**take_cards(values), **take_train(values)}
    request = make_request(model, common, target_opset=target_opset, **more)
    compiled = compile_request(request, common)
    if compiled is None:
        return 0
    text = _emitted(compiled, request, emit)
    written = _written(compiled, files)
    if text is not None:
        click.echo(text, nl=False)
    elif as_json:
        click.echo(json.dumps(compiled.as_dict(), indent=2))
    elif not common.quiet:
        compiled.report()
        if compiled.timeline.spans:
            click.echo("\n" + _next_steps(model, common, compiled, bool(more.get("train"))))
        for line in written:
            click.echo(line)
    return verdict(compiled, said=not (as_json or common.quiet or emit))


def _next_steps(model: str, common: Common, compiled: CompiledModel, train: bool) -> str:
    """Commands that tell more, of this very compilation; those for one card only where it is."""
    from gecompiler.lang.width import wrap
    from gecompiler.screen import width

    sizes = {"batch": common.batch, "seq": common.seq}
    more = {name: getattr(common, name) for name in ("device", "assign")}
    one = {name: getattr(common, name) for name in ("launch", "streams", "strategy", "durations")}
    cards = compiled.compilation.cards
    if cards is not None:
        text = say(
            "Look closer: gec explain with these options and OP (why there and then, which card "
            "came last), --html FILE (the timeline of every card), gec plan {model} --cards "
            "{cards} (other layouts)",
            model=as_typed(model, {**sizes, "device": common.device}) + " --train" * train,
            cards=cards.program.mesh.size,
        )
    elif train:
        text = say("Look closer: --html FILE (the timeline)")
    else:
        text = say(
            "Look closer: gec explain {asked} OP (why there and then), --html FILE (the "
            "timeline), gec sweep {model} --streams 1,2,4",
            asked=as_typed(model, {**sizes, **more, **one}),
            model=as_typed(model, {**sizes, **more}),
        )
    return "\n".join(wrap(text, width(), "", "  "))


def _written(compiled: CompiledModel, files: Mapping[str, str | None]) -> list[str]:
    """Writes the files asked for, by their options; says a line for each."""
    writers: dict[str, tuple[Callable[[str], None], str]] = {
        "o": (compiled.save, "model.onnx schedule.json trace.json report.json"),
        "html": (partial(compiled.save_html, lang=language()), "the report for a browser"),
        "plot": (compiled.save_plot, "the timeline as a picture"),
        "roofline": (compiled.save_roofline, "the ops under the device's roofs"),
    }
    lines = []
    for option, (write, what) in writers.items():
        path = files[option]
        if path is not None:
            write(path)
            lines.append(say("written to {file}: {what}", file=path, what=say(what)))
    return lines


def _emitted(compiled: CompiledModel, request: Request, emit: str | None) -> str | None:
    if emit == "torchair":
        from gecompiler.emit_torchair import emit_torchair

        return emit_torchair(compiled.compilation)
    if emit == "atc":
        from gecompiler.emit_atc import emit_atc

        return emit_atc(compiled.compilation, str(request.source), request.controls)
    return None


@click.command()
@click.argument("model")
@click.option("--inputs", "inputs_file", required=True, metavar="IN.npz", help="Arrays by name.")
@click.option("--expect", "expect_file", metavar="OUT.npz", help="Outputs to compare with.")
@click.option("--save", "save_file", metavar="OUT.npz", help="Write the outputs there.")
@click.option(
    "--rtol", default=1e-3, show_default=True, callback=_tolerance, help="Relative tolerance."
)
@click.option(
    "--atol", default=1e-4, show_default=True, callback=_tolerance, help="Absolute tolerance."
)
@click.option(
    "--host-memory",
    metavar="8GiB",
    help="What the run may take (default: 512 MiB, or what weights and inputs account for).",
)
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@cards_options
@train_options
@shared
def run(
    model: str,
    inputs_file: str,
    expect_file: str | None,
    save_file: str | None,
    rtol: float,
    atol: float,
    host_memory: str | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Execute MODEL on the simulated device with real numbers; exit 3 if they differ."""
    from gecompiler.arrays import load_arrays, save_arrays
    from gecompiler.comparison import compare_outputs, comparison_text
    from gecompiler.source import refuse_overwriting

    refuse_overwriting(model, save_file)
    common = Common.take(values)
    set_up_logging(common)
    _refuse_with_stop(common, json=as_json, expect=expect_file, save=save_file)
    inputs = load_arrays(inputs_file)
    expected = None if expect_file is None else load_arrays(expect_file)
    more = {**take_cards(values), **take_train(values), "host_memory": host_memory}
    # Of a training step labels are given too, of which the model itself knows nothing.
    given = {n: a for n, a in inputs.items() if not more["train"] or n != "labels"}
    compiled = compile_request(make_request(model, common, given, **more), common)
    if compiled is None:
        return 0
    outputs = compiled.run(inputs)
    if save_file is not None:
        save_arrays(save_file, outputs)
    rows = compare_outputs(outputs, expected, rtol, atol)
    if as_json:
        click.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    elif not common.quiet:
        click.echo(comparison_text(rows, rtol, atol))
    return 0 if all(row.ok for row in rows) else 3
