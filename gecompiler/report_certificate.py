"""The certificate of a schedule as plain data, for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecompiler.passes.scheduling.schedule_records import ScheduleResult
    from gecompiler.passes.streams.strategy import SolverReport


def certificate_part(result: ScheduleResult) -> dict[str, Any]:
    """The gap, what more streams bring, every candidate, and what a solver proved."""
    from gecompiler.passes.scheduling.certificate import certificate

    found = certificate(result)
    more = found.next
    return {
        "gap": found.gap,
        "by_streams": [
            {"streams": row.streams, "makespan_us": row.makespan_us} for row in found.by_streams
        ],
        "next_stream": None
        if more is None
        else {
            "streams": more.streams,
            "makespan_us": more.makespan_us,
            "gain": found.next_gain,
        },
        "candidates": [
            {
                "strategy": row.strategy,
                "streams": row.streams,
                "makespan_us": row.makespan_us,
                "events": row.events,
                "chosen": row.chosen,
                "note": row.note,
            }
            for row in result.candidates
        ],
        "solver": None if result.solver is None else _solver(result.solver),
    }


def _solver(found: SolverReport) -> dict[str, Any]:
    return {
        "makespan_us": found.makespan_us,
        "bound_us": found.bound_us,
        "gap": found.gap,
        "proven": found.proven,
        "limit_seconds": found.limit_seconds,
        "seed": found.seed,
    }
