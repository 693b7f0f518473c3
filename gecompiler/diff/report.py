"""The comparison as data and as text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gecompiler.diff.matching import Matching, Pair, base_name, canonical, match
from gecompiler.diff.sides import Op, Side
from gecompiler.lang import say
from gecompiler.lang.width import cut, fitted, pad, pad_left, tail
from gecompiler.screen import fit
from gecompiler.screen import width as terminal_width
from gecompiler.units import duration

_NUMBER = re.compile(r"\d+")

SCHEMA_VERSION = 1
SHOWN_US = 0.005
"""Smaller differences are of rounding: the data has them, the table does not."""


def compare(before: Side, after: Side) -> dict[str, Any]:
    """The comparison of two timelines as plain data; differences are after minus before."""
    found = match(before.ops, after.ops)
    ranked = sorted(found.pairs, key=lambda p: -abs(p.difference_ns))
    return {
        "schema_version": SCHEMA_VERSION,
        "before": _side(before),
        "after": _side(after),
        "matched": {
            by: sum(pair.by == by for pair in found.pairs) for by in ("name", "shapes", "type")
        },
        "ops": [_row(pair) for pair in ranked],
        "types": _types(before, after),
        "removed": [_alone(op) for op in _longest(found.removed)],
        "added": [_alone(op) for op in _longest(found.added)],
        **_sums(found),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "path": side.path,
        "kind": side.kind,
        "ops": len(side.ops),
        "makespan_us": side.makespan_ns / 1000,
        "busy_us": sum(op.duration_ns for op in side.ops) / 1000,
    }


def _row(pair: Pair) -> dict[str, Any]:
    before, after = (round(ns / 1000, 3) for ns in pair.mean_ns)
    return {
        "name": pair.before[0].name,
        "name_after": pair.after[0].name,
        "type": canonical(pair.before[0].op_type),
        "matched_by": pair.by,
        "count_before": len(pair.before),
        "count_after": len(pair.after),
        "before_us": before,
        "after_us": after,
        "difference_us": round(pair.difference_ns / 1000, 3),
        "ratio": round(after / before, 4) if before else None,
    }


def _types(before: Side, after: Side) -> list[dict[str, Any]]:
    times: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for place, side in enumerate((before, after)):
        for op in side.ops:
            entry = times[canonical(op.op_type)]
            entry[2 * place] += 1
            entry[2 * place + 1] += op.duration_ns
    rows = [
        {
            "type": op_type,
            "count_before": found[0],
            "count_after": found[2],
            "before_us": found[1] / 1000,
            "after_us": found[3] / 1000,
            "difference_us": (found[3] - found[1]) / 1000,
        }
        for op_type, found in times.items()
    ]
    return sorted(rows, key=lambda row: (-abs(float(str(row["difference_us"]))), str(row["type"])))


def _longest(ops: Sequence[Op]) -> list[Op]:
    return sorted(ops, key=lambda op: (-op.duration_ns, op.start_ns, op.name))


def _alone(op: Op) -> dict[str, Any]:
    kind = canonical(op.op_type)
    return {"name": op.name, "type": kind, "rank": op.rank, "us": op.duration_ns / 1000}


def _sums(found: Matching) -> dict[str, float]:
    return {
        "removed_us": sum(op.duration_ns for op in found.removed) / 1000,
        "added_us": sum(op.duration_ns for op in found.added) / 1000,
    }


def comparison_text(report: dict[str, Any], top: int, width: int | None = None) -> str:
    """The comparison in the terminal; of each list the ``top`` largest.

    ``width`` is that of the terminal, 96 columns where there is none.
    """
    wide = terminal_width() if width is None else width
    blocks = (
        _head(report),
        _ops(report, top, wide),
        _by_type(report, top, wide),
        _alone_text(report, top, wide),
    )
    text = "\n\n".join(text for text in ("\n".join(lines) for lines in blocks) if text)
    return "\n".join(fitted(text.split("\n"), wide)) if width else fit(text)


def _head(report: dict[str, Any]) -> Iterator[str]:
    for title in ("before", "after"):
        side = report[title]
        facts = say(
            "{busy:>11} busy  {ops:>6} ops  {kind}  {path}",
            busy=duration(side["busy_us"]), ops=side["ops"], kind=say(side["kind"]),
            path=side["path"],
        )  # fmt: skip
        yield f"{pad(say(title), 7)} {duration(side['makespan_us']):>11}  {facts}"
    first, second = report["before"]["makespan_us"], report["after"]["makespan_us"]
    matched = report["matched"]
    ways = [
        say("{count} by {by}", count=count, by=say(by)) for by, count in matched.items() if count
    ]
    share = second / first if first else 0.0
    yield say(
        "makespan {change} ({share}); ops matched: {ways}",
        change=_signed(second - first),
        share=say("{share:.3f} of before", share=share) if first else say("before is empty"),
        ways=say(", ").join(ways) or say("none"),
    )


def _signed(us: float) -> str:
    return ("-" if us <= -SHOWN_US else "+") + duration(abs(us))


def _ops(report: dict[str, Any], top: int, width: int) -> Iterator[str]:
    rows = [row for row in report["ops"] if abs(row["difference_us"]) >= SHOWN_US]
    if not any(report["matched"].values()):
        yield say("No op is on both sides.")
        return
    if not rows:
        yield say("No op that is on both sides takes another time.")
        return
    titles = _titles((say("before"), 11), (say("after"), 11), (say("difference"), 12))
    wide = _name_width(width, 54)
    yield f"{pad(say('Largest differences'), wide + 2)}{titles}  {say('ratio')}"
    for row, alike in list(_alike(rows, ("before_us", "after_us")))[:top]:
        name, other = row["name"], row["name_after"]
        if base_name(name) == base_name(other):
            name = other
        half = (wide - 3) // 2
        shown = tail(name, wide) if name == other else f"{tail(name, half)} = {tail(other, half)}"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}x"
        counts = {"before": row["count_before"], "after": row["count_after"]}
        times = ""
        if row["count_before"] != row["count_after"]:
            times = "  " + say("(mean of {before} and {after})", **counts)
        yield (
            f"  {pad(shown, wide)} {duration(row['before_us']):>11} "
            f"{duration(row['after_us']):>11} "
            f"{_signed(row['difference_us']):>12}  {ratio}{times}{_times(alike)}"
        )


def _alike(
    rows: Iterable[dict[str, Any]], keys: Sequence[str]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows that say the same of an op in several layers, micro-batches or cards, once.

    What differs by numbers alone is said with ``#`` for them.
    """
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        told = (row["type"], *(duration(row[key]) for key in keys))
        found.setdefault((*_plain(row).values(), *told), []).append(row)
    for first, *others in found.values():
        yield {**first, **_plain(first)} if others else first, 1 + len(others)


def _plain(row: dict[str, Any]) -> dict[str, str]:
    """Its names without cards, micro-batches and numbers."""
    keys = ("name", "name_after")
    return {key: _NUMBER.sub("#", base_name(row[key])) for key in keys if key in row}


def _times(alike: int) -> str:
    return f"  {alike} x" if alike > 1 else ""


def _name_width(width: int, others: int) -> int:
    """Columns of a row's name, whose end tells most of it."""
    return max(16, min(60, width - others))


def _titles(*columns: tuple[str, int]) -> str:
    return "".join(f" {pad_left(title, wide)}" for title, wide in columns)


def _by_type(report: dict[str, Any], top: int, width: int) -> Iterator[str]:
    if not report["types"]:
        return
    titles = _titles(
        (say("count"), 15), (say("before"), 11), (say("after"), 11), (say("difference"), 12)
    )
    wide = max(12, min(26, width - 55))
    yield f"{pad(say('By type (all runs)'), wide + 2)}{titles}"
    for row in report["types"][:top]:
        counts = f"{row['count_before']} -> {row['count_after']}"
        yield (
            f"  {pad(cut(row['type'], wide), wide)} {counts:>15} {duration(row['before_us']):>11} "
            f"{duration(row['after_us']):>11} {_signed(row['difference_us']):>12}"
        )


def _alone_text(report: dict[str, Any], top: int, width: int) -> Iterator[str]:
    for key, title in (("removed", "Only before"), ("added", "Only after")):
        rows = report[key]
        if rows:
            total = duration(report[f"{key}_us"])
            yield say(
                "{title}: {count} ops, {total}", title=say(title), count=len(rows), total=total
            )
            for row, alike in list(_alike(rows, ("us",)))[: max(1, top // 2)]:
                shown = tail(row["name"], _name_width(width, 43 if alike > 1 else 36))
                yield f"  {duration(row['us']):>11}  {row['type']:<20.20} {shown}{_times(alike)}"
