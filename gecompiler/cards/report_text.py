"""The report's lines on several cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gecompiler.lang import say
from gecompiler.like_ranks import ranks_text
from gecompiler.report_layout import resource_name
from gecompiler.units import duration, size

MOST_RANKS = 16
"""So many lines; ranks of which the same is to be said share one."""


def cards_lines(report: dict[str, Any]) -> Iterator[str]:
    """The mesh, what is sent and what of it shows, the pipeline, and a line a rank."""
    found = report.get("parallel")
    if found is None:
        return
    makespan = report["schedule"]["makespan_us"]
    mesh = " x ".join(f"{axis} {count}" for axis, count in found["mesh"].items())
    yield say("Cards: {ranks} ({mesh}) on {topology}", ranks=found["ranks"], mesh=mesh or "1",
              topology=found["topology"])  # fmt: skip
    if found["simulated_ranks"] < found["ranks"]:
        yield "  " + say(
            "simulated         {count} of {ranks} ranks, one of each kind; the others run the same",
            count=found["simulated_ranks"],
            ranks=found["ranks"],
        )
    sent = ", ".join(f"{axes} {size(round(n))}" for axes, n in found["sent_bytes"].items())
    yield "  " + say("sent by a card    {sent}", sent=sent or "-")
    exposed = found["exposed_us"]
    yield "  " + say(
        "communication     {time}, of which {exposed} exposed ({share:.1%} of the time)",
        time=duration(found["communication_us"]),
        exposed=duration(exposed),
        share=exposed / makespan if makespan else 0.0,
    )
    yield from _pipeline(found)
    bound = found["binding"]
    yield "  " + say("bound by          {name}, {share:.0%} of the time", **_bound(bound))
    yield from _ranks(found)


def _bound(bound: dict[str, Any]) -> dict[str, Any]:
    waits = bound["kind"] == "bubble"
    name = say("waiting for other ranks") if waits else resource_name(bound["name"])
    return {"name": name, "share": bound["share"]}


def _pipeline(found: dict[str, Any]) -> Iterator[str]:
    pipeline = found["pipeline"]
    if pipeline is None:
        if found["mesh"].get("pp", 1) > 1:
            yield "  " + say("idle              {share:.1%} of the time", share=found["bubble"])
        return
    if pipeline["stages"] == 1:
        yield from _side_by_side(found)
        return
    yield "  " + say(
        "pipeline          {stages} stages, {count} micro-batches, {order}; bubble {bubble:.1%} "
        "({uniform:.1%} if stages were alike and links free)",
        stages=pipeline["stages"],
        count=pipeline["micro_batches"],
        order=pipeline["schedule"],
        bubble=found["bubble"],
        uniform=pipeline["uniform_bubble"],
    )


def _side_by_side(found: dict[str, Any]) -> Iterator[str]:
    """Micro-batches on cards that have no stages, and what the batch in one piece takes."""
    pipeline, whole = found["pipeline"], found["whole_batch"]
    count, abreast = pipeline["micro_batches"], pipeline["abreast"]
    if abreast > 1:
        yield "  " + say(
            "micro-batches     {count}, {abreast} side by side: one communicates while another "
            "computes",
            count=count,
            abreast=abreast,
        )
    else:
        yield "  " + say("micro-batches     {count}, one after the other", count=count)
    if whole is not None:
        yield "  " + say(
            "in one piece      {time}, of which {exposed} exposed",
            time=duration(whole["makespan_us"]),
            exposed=duration(whole["exposed_us"]),
        )


def _ranks(found: dict[str, Any]) -> Iterator[str]:
    """A line a rank; ranks of which the same is to be said have one."""
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in found["per_rank"]:
        kinds.setdefault(_figures(row), []).append(row)
    for (compute, exposed, idle, memory), rows in list(kinds.items())[:MOST_RANKS]:
        yield "  " + say(
            "rank {rank:<4} {place:<14} computes {compute:>9}, exposed {exposed:>9}, "
            "idle {idle:>9}; {memory}",
            rank=ranks_text([row["rank"] for row in rows]),
            place=_place([row["place"] for row in rows]),
            compute=compute, exposed=exposed, idle=idle, memory=memory,
        )  # fmt: skip
    if len(kinds) > MOST_RANKS:
        count = sum(map(len, list(kinds.values())[MOST_RANKS:]))
        yield "  " + say("and {count} more ranks (see --json)", count=count)


def _place(places: list[dict[str, int]]) -> str:
    """``pp0 tp0-1``: where ranks are on every axis."""
    return " ".join(f"{axis}{ranks_text(sorted({p[axis] for p in places}))}" for axis in places[0])


def _figures(row: dict[str, Any]) -> tuple[str, ...]:
    times = (duration(row[f"{key}_us"]) for key in ("compute", "exposed", "idle"))
    return (*times, size(row["memory"].get("total", 0)))
