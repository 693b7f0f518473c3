"""``gec devices``, ``models``, ``options``, ``passes`` and ``strategies``: what there is."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

import click

Row = Sequence[str]


def show(columns: Sequence[str], rows: Sequence[Row], as_json: bool) -> None:
    """A table for people, in their language, or a list of objects for programs."""
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
        return
    from gecompiler.console import print_table
    from gecompiler.lang import say

    print_table([say(column) for column in columns], rows)


_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|PROFILE.yaml]...")
@click.option("--all", "everything", is_flag=True, help="Compare also figures that are equal.")
@_json
def devices(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """List the device profiles, every figure of one with its source, or compare several.

    A profile of one's own is given as its YAML file, which is checked on the way.
    """
    from gecompiler.backends.device import device_names, load_device

    if len(names) > 1:
        _compare(names, everything, as_json)
        return
    if names:
        figures = load_device(names[0]).figures()
        rows: list[Row] = [
            (f.name, str(f.value), in_language(f.kind, as_json), f.source) for f in figures
        ]
        show(("figure", "value", "kind", "source"), rows, as_json)
        return
    found = [load_device(n) for n in device_names()]
    rows = [
        (
            d.name,
            in_language(d.description, as_json),
            str(d.limits.max_streams),
            f"{d.limits.cube_cores}/{d.limits.vector_cores}",
            f"{d.limits.memory_bytes / 2**30:.0f} GiB",
        )
        for d in found
    ]
    show(("device", "what", "streams", "cube/vector cores", "memory"), rows, as_json)


def _compare(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """A row a figure, a column a device; at the end what follows from the figures."""
    from gecompiler.backends.device import load_device

    found = [load_device(n).capabilities() for n in names]
    rows: list[Row] = []
    for figure in found[0]:
        values = [str(d[figure]) for d in found]
        if everything or len(set(values)) > 1:
            rows.append((figure, *values))
    columns = [f"{n} ({i})" if names.count(n) > 1 else n for i, n in enumerate(names, 1)]
    show(("figure", *columns), rows, as_json)


@click.command()
@_json
def options(as_json: bool) -> None:
    """List the options of --assign files and of set_option: their defaults and what they do."""
    from gecompiler.option_table import TABLE

    rows = [
        (
            option.name,
            "auto" if option.default is None else json.dumps(option.default),
            in_language(option.accepts, as_json),
            in_language(option.doc, as_json),
        )
        for option in TABLE
    ]
    show(("option", "default", "accepts", "what it does"), rows, as_json)


@click.command()
@_json
def passes(as_json: bool) -> None:
    """List the passes, in the words of their first line."""
    from gecompiler.passes import pass_table

    with redirect_stdout(sys.stderr):  # stdout is the table's; packages may print
        found = sorted(pass_table().items())
    rows = [(name, _first_line(kind, as_json)) for name, kind in found]
    show(("pass", "what it does"), rows, as_json)


@click.command()
@_json
def models(as_json: bool) -> None:
    """List the built-in models; they have real sizes and no weights."""
    from gecompiler.models import names, spec

    rows = []
    for name in names():
        phases = [name, *(f"{name}:{phase}" for phase in spec(name).phases if phase != "prefill")]
        rows.append((name, in_language(spec(name).description, as_json), " ".join(phases)))
    show(("model", "what it is", "give as"), rows, as_json)


@click.command()
@_json
def strategies(as_json: bool) -> None:
    """List the stream strategies."""
    from gecompiler.passes.streams import strategy_table

    with redirect_stdout(sys.stderr):
        found = list(strategy_table().items())
    rows = [(name, _first_line(kind, as_json)) for name, kind in found]
    show(("strategy", "what it does"), rows, as_json)


def in_language(text: str, as_json: bool) -> str:
    """Data stay English: they are for programs."""
    from gecompiler.lang import translate

    return text if as_json else translate(text)


def _first_line(kind: object, as_json: bool) -> str:
    text = kind.__doc__
    return in_language(text.strip().split("\n", 1)[0] if isinstance(text, str) else "", as_json)
