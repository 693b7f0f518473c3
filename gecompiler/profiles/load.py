"""Opening a profile: which files say what, and what of them counts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gecompiler.ir.errors import UsageError
from gecompiler.profiles.discover import Source, find_sources
from gecompiler.profiles.records import Card, Kernel, is_communication
from gecompiler.profiles.table_read import (
    read_communication,
    read_info,
    read_kernels,
    read_steps,
)
from gecompiler.profiles.trace_read import read_trace

TABLES = ("kernel_details", "op_summary", "task_time")
"""Tables of operators, the richest first: one kind is read, for they list the same tasks."""

_BESIDES: dict[str, Callable[[Path, Card], None]] = {
    "steps": read_steps,
    "communication": read_communication,
    "info": read_info,
}
"""What stands beside the operators: a broken file of these is told, and no more."""


def load_cards(path: str | os.PathLike[str]) -> list[Card]:
    """The cards of a profile, each with its rank; UsageError where nothing can be used."""
    root = Path(path)
    cards = [_load(source, root) for source in find_sources(root)]
    usable = [card for card in cards if card.kernels]
    if not usable:
        reasons = sum((card.left_out for card in cards), cards[0].left_out.__class__())
        said = "; ".join(f"{n} x {reason}" for reason, n in reasons.most_common(3))
        raise UsageError(
            f"no operator in it can be used ({said or 'no row names one'})", where=str(path)
        )
    _number(usable)
    return usable


def _load(source: Source, root: Path) -> Card:
    card = Card(str(source.folder))
    table = next((kind for kind in TABLES if source.of(kind)), "")
    for kind in TABLES:
        if kind != table:
            card.set_aside += [_name(p, root) for p in source.of(kind)]
    for path in source.of(table):
        read_kernels(path, card)
    traced = Card(card.folder)
    for path in source.of("trace"):
        read_trace(path, traced)
    _merge(card, traced)
    for kind, read in _BESIDES.items():
        for path in source.of(kind):
            try:
                read(path, card)
            except UsageError as error:
                card.left_out[f"{path.name}: {error.message}"] += 1
    named = re.fullmatch(r"device_(\d{1,9})", source.folder.name)
    if card.rank is None and named is not None:
        card.rank = int(named[1])
    kinds = (table, "trace", "steps", "communication")
    card.sources += [_name(p, root) for kind in kinds for p in source.of(kind)]
    card.dialect = card.dialect or _dialect(source)
    return card


def _name(path: Path, root: Path) -> str:
    return os.path.relpath(path, root) if path != root else path.name


def _dialect(source: Source) -> str:
    names = [path.name for path in source.of("trace")]
    return "torch_npu" if any(n.startswith("trace_view") for n in names) else "msprof"


def _merge(card: Card, traced: Card) -> None:
    """Adds what only the timeline says: waits, copies, launches; kernels where no table has any.

    The same task may stand in two exports of a table; it counts once.
    """
    card.left_out += traced.left_out
    card.copies, card.waits, card.records = traced.copies, traced.waits, traced.records
    card.launches, card.host_steps = traced.launches, traced.host_steps
    if not card.kernels:
        card.kernels = _once(traced.kernels, card)
        return
    streams = {(k.start_ns, k.name): k.stream for k in traced.kernels if k.stream}
    kernels = [
        k if k.stream else k._replace(stream=streams.get((k.start_ns, k.name), ""))
        for k in _once(card.kernels, card)
    ]
    devices = {k.device for k in kernels}
    talks = {k.device for k in kernels if is_communication(k.core, k.op_type)}
    first, last = kernels[0].start_ns, max(k.end_ns for k in kernels)
    card.kernels = kernels + [
        k
        for k in _once(traced.kernels, card)
        if k.device not in talks
        and k.device in devices
        and is_communication(k.core)
        and first <= k.end_ns
        and k.start_ns <= last
    ]
    card.kernels.sort(key=_place)


def _once(kernels: Iterable[Kernel], card: Card) -> list[Kernel]:
    found: list[Kernel] = []
    keys: set[tuple[object, ...]] = set()
    for kernel in sorted(kernels, key=_place):
        key = (kernel.device, kernel.stream, kernel.task, kernel.start_ns, kernel.name)
        if key in keys:
            card.left_out["the same task stands in it twice"] += 1
        else:
            keys.add(key)
            found.append(kernel)
    return found


def _place(kernel: Kernel) -> tuple[int, int, str, str]:
    return kernel.start_ns, kernel.device, kernel.stream, kernel.name


def _number(cards: list[Card]) -> None:
    """Gives every card a rank: the one its files name, else its device's or its place."""
    if len(cards) == 1:
        return
    devices = [{k.device for k in card.kernels} for card in cards]
    apart = sum(map(len, devices)) == len(set().union(*devices))
    taken: set[int] = set()
    for place, (card, found) in enumerate(zip(cards, devices, strict=True)):
        rank = card.rank
        if rank is None and apart and len(found) == 1:
            rank = min(found)
        if rank is None or rank in taken:
            rank = place
        while rank in taken:
            rank += 1
        taken.add(rank)
        card.rank = rank
