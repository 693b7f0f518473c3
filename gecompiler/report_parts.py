"""Parts of the report: who waits for whom, how the device holds the streams, what fills memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecompiler.driver import Compilation
    from gecompiler.ir.schedule import Schedule


def sync_part(compilation: Compilation) -> dict[str, Any]:
    """The waits: how many there are and would be, and each with the ops at its ends."""
    result, schedule = compilation.result, compilation.result.schedule
    notify = schedule.sync_primitive == "notify"
    limits = schedule.limits
    return {
        "cross_stream_dependencies": result.cross_stream_dependencies,
        "events": len(schedule.events),
        "ge_rule_events": result.ge_rule_events,
        "event_ids": result.event_ids,
        "event_ids_available": limits.max_notifies if notify else limits.max_events,
        "primitive": schedule.sync_primitive,
        "user_points": result.user_points,
        "waits": _waits(compilation),
    }


def _waits(compilation: Compilation) -> list[dict[str, Any]]:
    schedule = compilation.result.schedule
    spans = {span.task: span for span in compilation.result.timeline.spans}
    found = []
    for event in schedule.events:
        span = spans.get(event.consumer)
        held = span is not None and span.waited_for == event.producer
        found.append(
            {
                "event_id": event.event_id,
                "producer": event.producer_op,
                "producer_stream": schedule.tasks[event.producer].stream,
                "consumer": event.consumer_op,
                "consumer_stream": schedule.tasks[event.consumer].stream,
                "kind": event.kind,
                "tensors": list(event.tensors),
                "wait_us": span.wait_ns / 1000 if span is not None and held else 0.0,
            }
        )
    return found


def physical_part(compilation: Compilation) -> dict[str, Any]:
    """The device's task queues that hold the streams."""
    schedule = compilation.result.schedule
    return {
        "queue_entries": schedule.limits.queue_entries,
        "streams": [
            {
                "id": part.id,
                "stream": part.stream,
                "tasks": part.last - part.first + 1,
                "entries": part.entries,
            }
            for part in schedule.physical_streams
        ],
    }


def memory_part(compilation: Compilation) -> dict[str, Any]:
    """Peak memory, the least that any plan needs, and what it is for, in bytes.

    Of several cards, of the one that needs most.
    """
    result, schedule = compilation.result, compilation.result.schedule
    kinds = dict.fromkeys(("weight", "state", "input", "workspace"), 0)
    rank = _fullest_rank(schedule)
    for buffer in schedule.buffers:
        if buffer.alias_of is None and buffer.kind in kinds and buffer.rank == rank:
            kinds[buffer.kind] += buffer.bytes
    return {
        "peak_memory_bytes": schedule.arena_bytes,
        "live_memory_bytes": result.live_memory_bytes,
        "memory_planner": result.memory_planner,
        "weight_bytes": kinds["weight"],
        "state_bytes": kinds["state"],
        "input_bytes": kinds["input"],
        "workspace_bytes": kinds["workspace"],
        "activation_bytes": schedule.arena_bytes - sum(kinds.values()),
    }


def _fullest_rank(schedule: Schedule) -> int:
    """The rank whose buffers reach furthest, the first of equals."""
    ends: dict[int, int] = {}
    for buffer in schedule.buffers:
        ends[buffer.rank] = max(ends.get(buffer.rank, 0), buffer.offset + buffer.bytes)
    return max(sorted(ends), key=lambda rank: ends[rank], default=0)
