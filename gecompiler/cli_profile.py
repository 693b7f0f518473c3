"""``gec profile``: the timeline of a model, or of a run that a profiler recorded."""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gecompiler.cli_cards import cards_options, take_cards
from gecompiler.cli_compile import compile_request, plot_option, target_opset_option, verdict
from gecompiler.cli_options import Common, make_request, set_up_logging, shared
from gecompiler.lang import language, say

if TYPE_CHECKING:
    from gecompiler.backends.trace import Recording
    from gecompiler.backends.trace.recording import Tensors
    from gecompiler.profiles import Profile

FORMATS = ("chrome", "msprof", "kineto")


@click.command()
@click.argument("model", required=False)
@click.option(
    "--from", "source", metavar="PROF_DIR",
    help="Open msprof's or torch_npu's output instead: a folder, a .csv or a .json.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), metavar="DIR",
    help="Folder for the traces; of a model also schedule.json, report.json and model.onnx "
    "(default: 'profile'; with --from nothing is written).",
)  # fmt: skip
@click.option(
    "--format", "formats", type=click.Choice([*FORMATS, "all"]), multiple=True,
    help="Traces to write, repeatable: chrome (trace.json, for Perfetto), msprof (a PROF_* "
    "folder, for MindStudio Insight), kineto (for HolisticTraceAnalysis). Default: chrome.",
)  # fmt: skip
@click.option("--html", "html_file", type=click.Path(dir_okay=False), metavar="FILE.html",
              help="Write the timeline as a page for a browser.")  # fmt: skip
@plot_option
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@target_opset_option
@cards_options
@shared
def profile(
    model: str | None,
    source: str | None,
    output: str | None,
    formats: tuple[str, ...],
    html_file: str | None,
    plot_file: str | None,
    as_json: bool,
    target_opset: str | None,
    **values: Any,
) -> int:
    """Show MODEL's timeline in the terminal and write traces that other tools open.

    With --from, the timeline is that of a run on a real card.
    """
    common, cards = Common.take(values), take_cards(values)
    set_up_logging(common)
    if (model is None) == (source is None):
        raise click.UsageError("give a MODEL, or --from PROF_DIR for a recorded run")
    chosen = tuple(f for f in FORMATS if f in formats or "all" in formats)
    if source is not None:
        _refuse_compile_options(common, target_opset, cards)
        pages = (html_file, plot_file)
        return _recorded(source, output, chosen, pages, as_json, quiet=common.quiet)
    assert model is not None
    if common.stop_after is not None and (as_json or html_file or plot_file or output or chosen):
        raise click.UsageError("--stop-after prints the graph and ends there: nothing else")
    request = make_request(model, common, target_opset=target_opset, **cards)
    compiled = compile_request(request, common)
    if compiled is None:
        return 0
    from gecompiler.report_text import print_profile

    folder = Path(output or "profile")
    extra = tuple(f for f in chosen if f != "chrome")
    compiled.save(folder, traces=extra)
    if html_file is not None:
        compiled.save_html(html_file, lang=language())
    if plot_file is not None:
        compiled.save_plot(plot_file)
    if as_json:
        click.echo(json.dumps(compiled.as_dict(), indent=2))
    elif not common.quiet:
        print_profile(compiled.compilation)
        _say_written(folder, ("chrome", *extra), html_file, plot_file)
    return verdict(compiled, said=False)


def _refuse_compile_options(
    common: Common, target_opset: str | None, cards: dict[str, Any]
) -> None:
    """UsageError for options that say how a model is compiled: a recorded run was not."""
    given = {**{name: getattr(common, name) for name in Common.__slots__}, **cards}
    given["target_opset"] = target_opset
    said = [n for n, value in given.items() if value and n not in ("quiet", "verbose")]
    if said:
        names = {"shapes": "input-shape", "disabled": "disable-pass"}
        option = names.get(said[0], said[0].replace("_", "-"))
        raise click.UsageError(f"--from opens a recorded run; --{option} is for compiling a model")


def _recorded(
    source: str,
    output: str | None,
    formats: tuple[str, ...],
    pages: tuple[str | None, str | None],
    as_json: bool,
    *,
    quiet: bool,
) -> int:
    from gecompiler.files import whole_folder
    from gecompiler.profiles import open_profile
    from gecompiler.profiles.report import profile_report
    from gecompiler.profiles.report_text import profile_text
    from gecompiler.screen import show
    from gecompiler.timeline_plot import write_timeline_plot

    if formats and output is None:
        raise click.UsageError("--format needs -o DIR for the traces")
    html_file, plot_file = pages
    found = open_profile(source)
    written = formats or ("chrome",)
    if output is not None:
        with whole_folder(Path(output)) as stage:
            _write(found.recording, stage, written)
            text = json.dumps(profile_report(found), indent=2) + "\n"
            _write_text(stage / "report.json", text)
    if html_file is not None:
        _write_text(Path(html_file), _page(found))
    if plot_file is not None:
        write_timeline_plot(found.timeline, plot_file, names=found.stream_names)
    if as_json:
        click.echo(json.dumps(profile_report(found), indent=2))
    elif not quiet:
        show(profile_text(found))
        if output is not None:
            click.echo(say("written to {file}: {what}", file=output, what="report.json"))
        _say_written(Path(output or ""), written if output else (), html_file, plot_file)
    return 0


def _page(found: Profile) -> str:
    from gecompiler.html_report import Subject, page_data, render_page

    facts = found.facts.items()
    subject = Subject(
        found.timeline,
        found.schedule,
        title=found.timeline.model,
        operands={task: (_operands(f.inputs), _operands(f.outputs)) for task, f in facts},
        stream_names=found.stream_names,
    )
    return render_page(page_data(subject), language())


def _operands(found: Tensors) -> list[str]:
    """Each operand's shape, type and format, as far as they were recorded."""
    return [" ".join(filter(None, parts)) for parts in zip_longest(*found, fillvalue="")]


def _write(recording: Recording, folder: Path, formats: tuple[str, ...]) -> None:
    from gecompiler.backends.trace import trace_files

    for name in formats:
        for path, text in trace_files(recording, name).items():
            _write_text(folder / path, text)


def _write_text(path: Path, text: str) -> None:
    from gecompiler.files import write_text

    write_text(path, text)


def _say_written(
    folder: Path, formats: tuple[str, ...], html_file: str | None, plot_file: str | None
) -> None:
    places = {
        "chrome": ("trace.json", "open it in Perfetto"),
        "msprof": ("PROF_*/mindstudio_profiler_output", "open the folder in MindStudio Insight"),
        "kineto": ("kineto", "for HolisticTraceAnalysis"),
    }
    for name in formats:
        where, what = places[name]
        click.echo(say("trace written to {file} ({what})", file=folder / where, what=say(what)))
    found = {html_file: "the timeline for a browser", plot_file: "the timeline as a picture"}
    for file, what in found.items():
        if file is not None:
            click.echo(say("written to {file}: {what}", file=file, what=say(what)))
