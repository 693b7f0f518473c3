"""The csv files of Ascend's profiler, with the headers of its present version."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from gecompiler.backends.trace.intervals import StepTime
from gecompiler.backends.trace.msprof_rows import CardRows, Row, length, stamp
from gecompiler.backends.trace.recording import COMMUNICATION, COPY, Tensors

OP_SUMMARY = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,"
    "Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Num,Mix Block Num,"
    "HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID,aicore_time(us),aic_mac_time(us),"
    "aic_mac_ratio,aiv_time(us),aiv_vec_time(us),aiv_vec_ratio,cube_utilization(%)"
)
OP_STATISTIC = (
    "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),"
    "Ratio(%)"
)
COMMUNICATION_STATISTIC = OP_STATISTIC.replace("Core Type,", "")
TASK_TIME = (
    "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
)
STEP_TRACE_TIME = (
    "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)

NO_MODEL = 4294967295
"""The id of no model."""


def op_summary(rows: CardRows) -> str:
    """``op_summary_*.csv``: a line per operator and collective, in the order of time."""
    listed = [r for r in rows.rows if r.facts.task_type != COPY]
    return _csv(OP_SUMMARY, (_operator(row) for row in listed))


def _operator(row: Row) -> list[object]:
    span, facts = row.span, row.facts
    times = [stamp(span.start_ns), length(span.duration_ns), length(span.wait_ns)]
    if facts.task_type == COMMUNICATION:
        known: list[object] = [
            span.rank, NO_MODEL, "N/A", "N/A", span.name, span.op_type, "N/A", COMMUNICATION,
            *times, 0,
        ]  # fmt: skip
        return [*known, *["N/A"] * (OP_SUMMARY.count(",") + 1 - len(known))]
    return [
        span.rank, NO_MODEL, span.task, span.stream, span.name, span.op_type, "static",
        facts.task_type, *times, facts.blocks, 0, "NO",
        *_tensors(facts.inputs), *_tensors(facts.outputs), "N/A", *_counters(row),
    ]  # fmt: skip


def _tensors(found: Tensors) -> tuple[str, str, str]:
    """Shapes stand in quotes of their own, also where there are none."""
    shapes = ";".join(found.shapes)
    return f'"{shapes}"', ";".join(found.types), ";".join(found.formats)


def _counters(row: Row) -> list[object]:
    """Times of the cores; of the cube's, the share of the task's time in which it computes."""
    whole, facts = row.span.duration_ns / 1000, row.facts
    cube, vector = min(facts.cube_us, whole), min(facts.vector_us, whole)
    mac, vec = (cube / whole, vector / whole) if whole else (0.0, 0.0)
    on_cube = length(row.span.duration_ns) if cube else "0"
    on_vector = length(row.span.duration_ns) if vector else "0"
    return [
        on_cube, round(cube, 3), round(mac, 3), on_vector, round(vector, 3), round(vec, 3),
        round(100 * mac, 3),
    ]  # fmt: skip


def op_statistic(rows: CardRows) -> str:
    """``op_statistic_*.csv``: operators summed by type and core, the longest first."""
    found = _sums(rows.computing, lambda r: (r.span.op_type, r.facts.task_type))
    return _csv(OP_STATISTIC, ([rows.rank, *key, *sums] for key, sums in found))


def communication_statistic(rows: CardRows) -> str:
    """``communication_statistic_*.csv``: the same of collectives."""
    found = _sums(rows.collectives, lambda r: (r.span.op_type,))
    return _csv(COMMUNICATION_STATISTIC, ([rows.rank, *key, *sums] for key, sums in found))


def _sums(
    rows: Sequence[Row], key_of: Callable[[Row], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], list[object]]]:
    times: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in rows:
        times[key_of(row)].append(row.span.duration_ns)
    whole = sum(map(sum, times.values()))
    ranked = sorted(times.items(), key=lambda item: (-sum(item[1]), item[0]))
    return [
        (
            key,
            [
                len(found), length(sum(found)), length(min(found)),
                _mean(sum(found), len(found)), length(max(found)),
                round(100 * sum(found) / whole, 3) if whole else 0,
            ],
        )
        for key, found in ranked
    ]  # fmt: skip


def _mean(ns: int, count: int) -> str:
    return format(round(Decimal(ns) / 1000 / count, 3).normalize(), "f")


def task_time(rows: CardRows) -> str:
    """``task_time_*.csv``: every task of every stream."""
    return _csv(TASK_TIME, (_timed(row) for row in rows.rows))


def _timed(row: Row) -> list[object]:
    span = row.span
    kind = row.facts.task_type
    name: str = "N/A" if kind in (COMMUNICATION, COPY) else span.name
    shown = {"AI_CPU": "KERNEL_AICPU", COMMUNICATION: "COMMUNICATION", COPY: "MEMCPY_ASYNC"}
    return [
        span.rank, name, shown.get(kind, "KERNEL_AICORE"), span.stream, span.task,
        length(span.duration_ns), stamp(span.start_ns), stamp(span.end_ns),
    ]  # fmt: skip


def step_trace_time(rows: CardRows, step: str) -> str:
    """``step_trace_time.csv``: one step; its identities hold exactly."""
    return _csv(STEP_TRACE_TIME, [step_row(rows.step_time(step))])


def step_row(found: StepTime) -> list[object]:
    """A step as its row."""
    parts = (
        *(found.computing, found.not_overlapped, found.overlapped, found.communication),
        *(found.free, found.stage, found.bubble, found.not_overlapped_without_receive),
        found.preparing or 0,
    )
    return [found.step, *(length(ns) for ns in parts)]


def _csv(header: str, rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header.split(","))
    writer.writerows(rows)
    return out.getvalue()
