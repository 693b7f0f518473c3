"""``gec plan``: which parallel layout is best on a number of cards."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from gecompiler.option_checks import memory_size

if TYPE_CHECKING:
    from gecompiler.planning.plan import PlanRequest


def _memory(_context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return memory_size(value)
    except ValueError:
        raise click.BadParameter(
            f"expected a size such as 64GiB, found {value!r}", param=parameter
        ) from None


@click.command()
@click.argument("model")
@click.option("--cards", type=click.IntRange(1, 65536), required=True, help="How many there are.")
@click.option("--device", metavar="NAME|FILE", help="Device profile (default: ascend910b).")
@click.option(
    "--topology",
    metavar="NAME|FILE",
    help="How the cards are linked (see 'gec topologies'; default: the device's).",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=_memory,
    help="Memory of a card, as 64GiB (default: the device's).",
)
@click.option("--batch", type=click.IntRange(1), help="Samples of one run (default: one a card).")
@click.option(
    "--seq",
    type=click.IntRange(1),
    help="Tokens of a sample, or of its cache (default, of a built-in model: 2048).",
)
@click.option(
    "--input-shape",
    "shapes",
    multiple=True,
    metavar="NAME:1,128",
    help="Sizes of one input; repeatable; '?' leaves a size open.",
)
@click.option(
    "--phase",
    type=click.Choice(["prefill", "decode"]),
    help="Of a built-in model: tokens in, or one token behind a cache (default: prefill).",
)
@click.option("--train", is_flag=True, help="Plan a training step.")
@click.option(
    "--top", type=click.IntRange(1), default=12, show_default=True, help="Layouts that are shown."
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=48,
    show_default=True,
    help="Layouts that are simulated, the most promising first.",
)
@click.option("-o", "--output", metavar="FILE.json", help="Write the plan there, all of it.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def plan(model: str, **given: Any) -> int:
    """Search the parallel layouts of MODEL on some cards: which fit, how fast, what binds.

    Layouts that fit the memory are simulated and ranked by time, with what a card sends, how much
    of it shows, the bubble of the pipeline and the memory a card.
    """
    from gecompiler.cli_progress import progress_bar
    from gecompiler.files import write_text
    from gecompiler.planning.plan import plan as search
    from gecompiler.planning.report import plan_as_dict, plan_text
    from gecompiler.screen import show
    from gecompiler.source import refuse_overwriting

    refuse_overwriting(model, given["output"])
    asked = _asked(model, given)
    with progress_bar(given["quiet"] or given["as_json"]) as progress:
        found = search(asked, progress)
    text = json.dumps(plan_as_dict(found), indent=2)
    if given["output"] is not None:
        write_text(given["output"], text + "\n")
    if given["as_json"]:
        click.echo(text)
    elif not given["quiet"]:
        show(plan_text(found, given["top"], _to_compile(asked, given, found.topology)))
    return 0


def _to_compile(asked: PlanRequest, given: dict[str, Any], topology: str) -> str:
    """The model and the options with which ``gec compile`` is asked for the same."""
    from gecompiler.cli_options import as_typed

    request = asked.request
    options = {
        "batch": request.batch,
        "seq": request.seq,
        "device": request.options.get("device"),
        "topology": given["topology"] or topology,
    }
    shapes = "".join(f" --input-shape {shlex.quote(shape)}" for shape in given["shapes"])
    return as_typed(str(request.source), options) + shapes + " --train" * asked.training


def _asked(model: str, given: dict[str, Any]) -> PlanRequest:
    """The plan that the options ask for; UsageError names the one at fault."""
    from gecompiler.cli_options import shapes_of
    from gecompiler.option_table import Options
    from gecompiler.planning.plan import PlanRequest
    from gecompiler.request import Request

    options = Options({"device": given["device"] or "ascend910b", "topology": given["topology"]})
    name = _phased(model, given["phase"])
    request = Request(
        name,
        given["batch"],
        given["seq"] or _usual_seq(name, given["shapes"]),
        shapes_of(given["shapes"]),
        options=options,
    )
    return PlanRequest(request, given["cards"], given["memory"], given["train"], given["most"])


def _usual_seq(name: str, shapes: tuple[str, ...]) -> int | None:
    """2048 tokens of a built-in model, or as many as it has positions."""
    from gecompiler.models import names, spec

    stem, _, phase = name.partition(":")
    if shapes or stem not in names():
        return None
    return min(2048, spec(stem).max_positions - (phase == "decode"))


def _phased(model: str, phase: str | None) -> str:
    """The name of the model in that phase; UsageError where it is a file, or names another."""
    from gecompiler.ir.errors import UsageError

    if phase is None:
        return model
    if model.endswith(".onnx"):
        raise UsageError(
            "a file is of one phase, that in which it was exported",
            where="--phase",
            hint="export the other phase, or name a built-in model ('gec models')",
        )
    stem, _, named = model.partition(":")
    if named and named != phase:
        raise UsageError(f"{model} is of phase {named!r}", where=f"--phase {phase}")
    return stem if phase == "prefill" else f"{stem}:{phase}"
