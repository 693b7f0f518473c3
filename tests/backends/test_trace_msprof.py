"""The msprof dialect: names and headers that MindStudio Insight accepts, sums that agree."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from trace_help import (
    INSIGHT,
    INSIGHT_COLUMNS,
    check_flows,
    check_ids,
    check_nesting,
    empty,
    ns,
    parse,
    recording,
    table,
)

from gecompiler.backends.trace import Recording, msprof_files
from gecompiler.backends.trace.recording import Tensors


def files(found: Recording, rank: int = 0) -> dict[str, str]:
    """One card's files by name."""
    every = msprof_files(found)
    folder = sorted({path.rpartition("/")[0] for path in every})[rank]
    return {p.rpartition("/")[2]: t for p, t in every.items() if p.startswith(folder + "/")}


def one(found: dict[str, str], start: str) -> str:
    (name,) = [name for name in found if name.startswith(start)]
    return found[name]


def test_names_and_headers_are_those_that_insight_accepts() -> None:
    found = msprof_files(recording(2))
    folders = {path.rpartition("/")[0] for path in found}
    assert len(folders) == 2
    assert all(f.startswith("PROF_") and f.endswith("/mindstudio_profiler_output") for f in folders)
    names = {path.rpartition("/")[2] for path in found}
    assert all(any(p.fullmatch(n) for n in names) for p in INSIGHT.values())
    summary = one(files(recording(2)), "op_summary_")
    assert set(table(summary)[0]) >= INSIGHT_COLUMNS


def test_headers_are_those_of_the_real_files(corpus: Path) -> None:
    real = corpus / "measured" / "msprof"
    found = files(recording(2))
    header = one(found, "step_trace_time").splitlines()[0]
    assert header == (real / "step_trace_time.csv").read_text().splitlines()[0]
    statistic = one(found, "op_statistic_").splitlines()[0]
    assert statistic == "Device_id," + (real / "op_statistic.csv").read_text().splitlines()[0]
    known = json.loads((real / "communication.json").read_text())["step50"]["collective"]
    written = json.loads(one(found, "communication.json"))["step1"]["collective"]
    theirs_one, ours_one = next(iter(known.values())), next(iter(written.values()))
    for part, fields in theirs_one.items():
        assert set(fields) == set(ours_one[part])
    for link, info in theirs_one["Communication Bandwidth Info"].items():
        assert set(ours_one["Communication Bandwidth Info"][link]) == set(info)


@pytest.mark.parametrize(("ranks", "streams"), [(1, 1), (1, 4), (3, 2)])
def test_timelines_nest_and_arrows_pair(ranks: int, streams: int) -> None:
    found = recording(ranks, streams)
    for rank in range(ranks):
        events = parse(one(files(found, rank), "msprof_"))
        assert isinstance(events, list), "the root is an array"
        assert {e["ph"] for e in events} <= set("MXsfC")
        assert all(isinstance(e["ts"], str) for e in events if e["ph"] != "M")
        check_nesting(events)
        check_flows(events)
        check_ids(events)
        kernels = [e for e in events if e["ph"] == "X" and "Task Id" in e.get("args", {})]
        tasks = [e for e in kernels if not e["name"].startswith("EVENT_")]
        assert len(tasks) == sum(s.rank == rank for s in found.timeline.spans)


def test_a_wait_lasts_until_the_producer_ends() -> None:
    found = recording(1, 2)
    events = parse(one(files(found), "msprof_"))
    waits = [e for e in events if e["name"] == "EVENT_WAIT"]
    records = [e for e in events if e["name"] == "EVENT_RECORD"]
    assert len(waits) == len(found.timeline.events)
    assert len(records) == len({p for p, _ in found.timeline.events})
    spans = found.timeline.spans
    ends = {}
    for wait in waits:
        ends[wait["args"]["Task Id"]] = ns(wait["ts"]) + ns(wait["dur"])
    for producer, consumer in found.timeline.events:
        assert spans[producer].end_ns + 1000 <= ends[consumer] <= spans[consumer].start_ns + 1000


@pytest.mark.parametrize("ranks", [1, 2])
def test_identities_hold_exactly(ranks: int) -> None:
    found = files(recording(ranks))
    (step,) = table(one(found, "step_trace_time"))
    value = {k: Decimal(v) for k, v in step.items() if k != "Step"}
    hidden = value["Overlapped"]
    bare = value["Communication(Not Overlapped)"]
    assert value["Communication"] == hidden + bare
    assert value["Stage"] == value["Computing"] + bare + value["Free"]
    assert value["Communication(Not Overlapped and Exclude Receive)"] == bare - value["Bubble"]
    events = parse(one(found, "msprof_"))
    pid = next(
        e["pid"] for e in events if e["ph"] == "M" and e["args"].get("name") == "Overlap Analysis"
    )
    sums: dict[str, int] = defaultdict(int)
    for event in events:
        if event["ph"] == "X" and event["pid"] == pid:
            sums[event["name"]] += ns(event["dur"])
    for lane in ("Computing", "Communication", "Communication(Not Overlapped)", "Free"):
        assert sums[lane] == ns(value[lane])
    assert (value["Communication"] > 0) == (ranks > 1)


def test_statistics_are_the_sums_of_the_summary() -> None:
    found = files(recording(2))
    sums: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
    for row in table(one(found, "op_summary_")):
        sums[row["OP Type"], row["Task Type"]].append(Decimal(row["Task Duration(us)"]))
    rows = table(one(found, "op_statistic_"))
    assert {(r["OP Type"], r["Core Type"]) for r in rows} == {
        key for key in sums if key[1] != "COMMUNICATION"
    }
    for row in rows:
        times = sums[row["OP Type"], row["Core Type"]]
        assert Decimal(row["Total Time(us)"]) == sum(times)
        assert int(row["Count"]) == len(times)
        assert Decimal(row["Min Time(us)"]) == min(times)
        assert Decimal(row["Max Time(us)"]) == max(times)
    totals = [Decimal(r["Total Time(us)"]) for r in rows]
    assert totals == sorted(totals, reverse=True)
    assert sum(Decimal(r["Ratio(%)"]) for r in rows) == pytest.approx(100, abs=0.01)
    talk = table(one(found, "communication_statistic_"))
    assert sum(Decimal(r["Total Time(us)"]) for r in talk) == sum(
        sums["AllReduce", "COMMUNICATION"]
    )


def test_collectives_have_no_stream_in_the_summary_and_all_tasks_a_time() -> None:
    found = files(recording(2))
    rows = table(one(found, "op_summary_"))
    talks = [r for r in rows if r["Task Type"] == "COMMUNICATION"]
    assert talks
    assert all(r["Stream ID"] == r["Task ID"] == r["Input Shapes"] == "N/A" for r in talks)
    times = table(one(found, "task_time_"))
    assert len(times) == 12
    for row in times:
        assert Decimal(row["task_stop(us)"]) - Decimal(row["task_start(us)"]) == Decimal(
            row["task_time(us)"]
        )


def test_communication_adds_up_and_names_the_step_of_the_table() -> None:
    found = files(recording(2))
    (step,) = table(one(found, "step_trace_time"))
    document = json.loads(one(found, "communication.json"))
    sides = document[f"step{step['Step']}"]
    for info in sides["collective"].values():
        times = info["Communication Time Info"]
        parts = times["Transit Time(ms)"] + times["Wait Time(ms)"] + times["Idle Time(ms)"]
        assert times["Elapse Time(ms)"] == pytest.approx(parts)
    total = sides["collective"]["Total Op Info"]["Communication Time Info"]["Elapse Time(ms)"]
    assert total * 1000 == pytest.approx(float(step["Communication"]))


def test_the_same_run_gives_the_same_files_and_nothing_is_a_run_too() -> None:
    assert msprof_files(recording(2)) == msprof_files(recording(2))
    found = files(empty())
    assert parse(one(found, "msprof_")) is not None
    (step,) = table(one(found, "step_trace_time"))
    assert step["Stage"] == "0"


def test_a_collective_names_its_elements_as_the_profiler_does() -> None:
    found = recording(2)
    collectives = [t for t in found.schedule.tasks if t.kind == "collective"]
    half = Tensors(("4,1,128",), ("FLOAT16",), ("ND",))
    known = {t.id: replace(found.facts_of(t), inputs=half) for t in collectives}
    facts = {t.id: known.get(t.id, found.facts_of(t)) for t in found.schedule.tasks}
    told = Recording(found.timeline, found.schedule, facts)
    events = json.loads(one(files(told), "msprof_"))
    args = [e["args"] for e in events if e["ph"] == "X" and "group" in e.get("args", {})]
    assert args
    assert all((a["data_type"], a["count"]) == ("FP16", 512) for a in args)
