"""The options that several commands share, and the request they make."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gecompiler.ir.graph import Graph
    from gecompiler.request import Request

F = TypeVar("F", bound=Callable[..., Any])

MAX_SHOWN_BYTES = 64 * 1024
"""Larger constants are shown without their data in a graph's text."""

SHARED = (
    click.option("--device", metavar="NAME|FILE", help="Device profile (default: ascend910)."),
    click.option(
        "--launch", metavar="sunk|host",
        help="Who issues tasks: the device or the host (default: as the profile says).",
    ),
    click.option(
        "--input-shape", "shapes", multiple=True, metavar="NAME:1,128",
        help="Sizes of one input; repeatable; '?' leaves a size open.",
    ),
    click.option("--batch", type=click.IntRange(1), help="Size of every input's leading symbol."),
    click.option("--seq", type=click.IntRange(1), help="Size of the sequence symbol."),
    click.option("--streams", metavar="N|auto", help="How many streams (default: auto)."),
    click.option(
        "--strategy", metavar="S|FILE.py[:CLASS]",
        help="How tasks are placed (see 'gec strategies'), or a strategy of your own.",
    ),
    click.option(
        "--assign", type=click.Path(dir_okay=False), metavar="FILE.yaml",
        help="Stream assignment, sync points and options.",
    ),
    click.option(
        "--durations", type=click.Path(dir_okay=False), metavar="PROFILE.csv",
        help="Measured times (op_summary, kernel_details) instead of modelled ones.",
    ),
    click.option("--stop-after", metavar="PASS", help="Stop there and print the graph's text."),
    click.option(
        "--dump-ir", type=click.Path(file_okay=False), metavar="DIR",
        help="Write the graph's text after every pass.",
    ),
    click.option("--disable-pass", "disabled", multiple=True, metavar="P", help="Leave one out."),
    click.option(
        "--check", "check_fusions", is_flag=True,
        help="Run every fusion against the ops it replaced; undo one that differs.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors."),
    click.option("-v", "--verbose", count=True, help="Log decisions (-vv: everything)."),
)  # fmt: skip


def with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """The command with a family of options, shown in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def shared(command: F) -> F:
    """Adds the options that compile, run and profile have in common."""
    return with_options(command, SHARED)


@dataclass(frozen=True, slots=True)
class Common:
    """The values of the shared options."""

    device: str | None
    launch: str | None
    shapes: tuple[str, ...]
    batch: int | None
    seq: int | None
    streams: str | None
    strategy: str | None
    assign: str | None
    durations: str | None
    stop_after: str | None
    dump_ir: str | None
    disabled: tuple[str, ...]
    check_fusions: bool
    quiet: bool
    verbose: int

    @staticmethod
    def take(values: dict[str, Any]) -> Common:
        """Takes the shared options out of a command's keyword arguments."""
        return Common(**{name: values.pop(name) for name in Common.__slots__})


def set_up_logging(common: Common) -> None:
    """Sends the package's log to stderr at the level that -q and -v ask for."""
    levels = {0: logging.WARNING, 1: logging.INFO}
    level = logging.ERROR if common.quiet else levels.get(common.verbose, logging.DEBUG)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("gecompiler")
    logger.handlers[:] = [handler]
    logger.setLevel(level)


def make_request(
    model: str, common: Common, arrays: Mapping[str, Any] | None = None, **more: Any
) -> Request:
    """The compilation that the options ask for; UsageError names the one at fault.

    Options on the command line (``more`` are those of one command, None where not given) win
    over those of the ``--assign`` file.
    """
    from gecompiler.assign_file import load_assignment
    from gecompiler.option_table import Options
    from gecompiler.passes.streams.custom_sources import is_strategy_file, load_strategy_file
    from gecompiler.request import Controls, Request

    options, controls = Options(), Controls()
    if common.assign is not None:
        options, controls = load_assignment(common.assign)
    strategy = common.strategy
    if strategy is not None and is_strategy_file(strategy):
        with redirect_stdout(sys.stderr):  # stdout is the report's
            controls = replace(controls, strategy=load_strategy_file(strategy))
        strategy = None
    given = {
        "device": common.device,
        "launch_mode": common.launch,
        "num_streams": common.streams,
        "durations": common.durations,
        "stream_strategy": strategy,
        "disable_passes": common.disabled or None,
        "check_fusions": common.check_fusions or None,
        **more,
    }
    options.update({name: value for name, value in given.items() if value is not None})
    return Request(
        model,
        common.batch,
        common.seq,
        shapes_of(common.shapes),
        arrays=arrays,
        options=options,
        controls=controls,
        stop_after=common.stop_after,
        dump=None if common.dump_ir is None else _dumper(Path(common.dump_ir)),
    )


def shapes_of(texts: Sequence[str]) -> dict[str, Any]:
    """The sizes that ``--input-shape`` gives, by input; UsageError where two contradict."""
    from gecompiler.ir.bind import parse_input_shape

    found: dict[str, Any] = {}
    for text in texts:
        name, sizes = parse_input_shape(text)
        if found.setdefault(name, sizes) != sizes:
            raise click.UsageError(f"--input-shape gives {name!r} two different shapes")
    return found


def _dumper(folder: Path) -> Callable[[str, Graph], None]:
    from gecompiler.files import write_text
    from gecompiler.ir.text import print_graph

    count = iter(range(10_000))

    def dump(name: str, graph: Graph) -> None:
        text = print_graph(graph, max_data_bytes=MAX_SHOWN_BYTES)
        write_text(folder / f"{next(count):02d}-{name}.txt", text)

    return dump


def as_typed(model: str, options: Mapping[str, object]) -> str:
    """The model and the options given with it, as one types them; those of None are left out."""
    texts = (f" --{n} {shlex.quote(str(v))}" for n, v in options.items() if v is not None)
    return shlex.quote(model) + "".join(texts)
