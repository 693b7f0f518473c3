"""Tables of a profile as records: operators, steps; and what names a card's rank."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from gecompiler.backends.trace.intervals import StepTime
from gecompiler.captures.cells import nanoseconds
from gecompiler.captures.columns import Columns, find_columns, split_name
from gecompiler.captures.tables import read_table
from gecompiler.files import read_text
from gecompiler.ir.errors import UsageError
from gecompiler.profiles.records import Card, Kernel

MAX_ROWS = 20_000_000
_TEXTS = (
    *("inputs", "input_types", "input_formats"),
    *("outputs", "output_types", "output_formats"),
)


def read_kernels(path: Path, card: Card) -> None:
    """Adds the rows of a table of operators; those that cannot be used are counted by reason."""
    header, rows = read_table(path)
    columns = find_columns(header, str(path), shapes=False)
    card.dialect = card.dialect or columns.dialect
    if "start" not in columns.at:
        raise UsageError(
            "has no column of start times, so that its operators have no place in time",
            where=str(path),
            hint="expected 'Start Time(us)' or 'Task Start Time(us)'",
        )
    for number, (_, row) in enumerate(rows):
        if number >= MAX_ROWS:
            raise UsageError(f"has more than {MAX_ROWS} rows", where=str(path))
        found = _kernel(columns, row)
        if isinstance(found, Kernel):
            card.kernels.append(found)
        elif found:
            card.left_out[found] += 1


def _kernel(columns: Columns, row: list[str]) -> Kernel | str:
    """The row, or why it is left out; '' for an empty one."""
    cell = columns.cell
    duration_text = cell(row, "duration")
    if not duration_text:
        if not any(c.strip() for c in row):
            return ""
        return "the row is cut off" if len(row) < columns.count else "no duration"
    duration = nanoseconds(duration_text, columns.unit_us["duration"])
    start = nanoseconds(cell(row, "start"), columns.unit_us["start"])
    if duration is None or duration < 0:
        return "the duration is no time"
    if start is None or start < 0:
        return "the start is no time"
    device, blocks = cell(row, "device"), cell(row, "blocks")
    kind = sys.intern(cell(row, "type"))
    return Kernel(
        name=cell(row, "name") or kind,
        op_type=kind.rstrip("_"),
        core=sys.intern(cell(row, "core").upper().replace(" ", "_")),
        device=int(device) if device.isdecimal() and len(device) < 10 else 0,
        stream=sys.intern(cell(row, "stream")),
        task=cell(row, "task"),
        step=sys.intern(cell(row, "step")),
        start_ns=start,
        duration_ns=duration,
        blocks=int(blocks) if blocks.isdecimal() and len(blocks) < 10 else 0,
        texts=_texts(columns, row),
    )


def _texts(columns: Columns, row: list[str]) -> tuple[str, str, str, str, str, str]:
    a, b, c, d, e, f = (sys.intern(columns.cell(row, name).strip('"')) for name in _TEXTS)
    return a, b, c, d, e, f


_STEP_PARTS = {
    "computing": "computing",
    "not_overlapped": "communication(not overlapped)",
    "communication": "communication",
    "free": "free",
    "stage": "stage",
    "bubble": "bubble",
    "preparing": "preparing",
}


def read_steps(path: Path, card: Card) -> None:
    """Adds the profiler's own sums of each step."""
    header, rows = read_table(path)
    plain = [cell.strip().lower() for cell in header]
    at = {name: plain.index(title) for name, title in _STEP_PARTS.items() if title in plain}
    if not {"computing", "communication", "free"} <= set(at):
        card.left_out[f"{path.name} has not the columns of steps"] += 1
        return
    names = [split_name(cell)[0] for cell in header]
    device_at = names.index("device id") if "device id" in names else None
    step_at = names.index("step") if "step" in names else None
    for number, (_, row) in enumerate(rows):
        if number >= MAX_ROWS:
            return
        values = {k: nanoseconds(row[i].strip()) for k, i in at.items() if i < len(row)}
        known = {k: v for k, v in values.items() if v is not None}
        if not {"computing", "communication", "free"} <= set(known):
            if any(c.strip() for c in row):
                card.left_out["a step's time is no time"] += 1
            continue
        device = _cell(row, device_at)
        step = _cell(row, step_at)
        card.vendor_steps.append(
            StepTime(
                device=int(device) if device.isdecimal() and len(device) < 10 else -1,
                step="" if step.lower() in ("none", "n/a", "nan") else step,
                computing=known["computing"],
                not_overlapped=known.get("not_overlapped", known["communication"]),
                communication=known["communication"],
                free=known["free"],
                stage=known.get("stage", 0),
                bubble=known.get("bubble", 0),
                preparing=known.get("preparing"),
            )
        )


def _cell(row: list[str], index: int | None) -> str:
    return row[index].strip() if index is not None and index < len(row) else ""


_TIMES = {
    "elapse": "Elapse Time(ms)",
    "transit": "Transit Time(ms)",
    "wait": "Wait Time(ms)",
    "idle": "Idle Time(ms)",
}


def read_communication(path: Path, card: Card) -> None:
    """Adds what each collective spent on transfer, waiting, and idle."""
    for step in _objects(_json(path, card)).values():
        for side in _objects(step).values():
            for name, info in _objects(side).items():
                times = _objects(info).get("Communication Time Info")
                if not name.startswith("Total") and isinstance(times, dict):
                    found = {k: _number(times.get(title)) for k, title in _TIMES.items()}
                    card.collectives[name] = found


def read_info(path: Path, card: Card) -> None:
    """The rank: ``profiler_info_3.json``, or the file's ``rank_id``."""
    named = re.fullmatch(r"profiler_info_(\d{1,9})\.json", path.name)
    if named is not None:
        card.rank = int(named[1])
        return
    rank = _objects(_json(path, card)).get("rank_id")
    if isinstance(rank, int) and 0 <= rank < 2**31:
        card.rank = rank


def _json(path: Path, card: Card) -> Any:
    try:
        return json.loads(read_text(path, "the profile"))
    except (ValueError, RecursionError):
        card.left_out[f"{path.name} is no JSON"] += 1
        return None


def _objects(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if ok and 0 <= value < 1e15 else 0.0
