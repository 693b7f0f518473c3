"""What the report says of several cards: the mesh, each rank's time and memory, the links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gecompiler.cards.binding import binding

if TYPE_CHECKING:
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.ir.schedule import Buffer

MOST_LINKS = 8
"""So many of the busiest links are listed."""


def cards_part(found: CardsResult) -> dict[str, Any]:
    """The part ``parallel`` of the report. Times are in us, sizes in bytes.

    ``exposed_us`` and ``idle_us`` of the whole are those of the rank that has most;
    ``bubble`` is the mean share of the time in which ranks are idle.
    """
    mesh = found.program.mesh
    ranks = [_rank(found, place) for place in range(len(found.ranks))]
    makespan = found.timeline.makespan_ns / 1000
    idle = [f.idle_us for f in found.figures]
    bound = binding(found)
    return {
        "mesh": dict(mesh.axes),
        "ranks": mesh.size,
        "simulated_ranks": len(found.ranks),
        "topology": found.cluster.topology.name,
        "pipeline": _pipeline(found),
        "whole_batch": _whole(found),
        "uncut": found.uncut,
        "bubble": sum(idle) / len(idle) / makespan if makespan else 0.0,
        "exposed_us": max(f.exposed_us for f in found.figures),
        "communication_us": max(f.communication_us for f in found.figures),
        "sent_bytes": most_sent(found),
        "binding": {"kind": bound.kind, "name": bound.name, "share": bound.share},
        "links": [
            {"name": name, "utilisation": share} for name, share in busiest_links(found)
        ],
        "per_rank": ranks,
    }  # fmt: skip


def _pipeline(found: CardsResult) -> dict[str, Any] | None:
    shape = found.shape
    if shape is None:
        return None
    return {
        "stages": shape.stages,
        "micro_batches": shape.micro_batches,
        "schedule": shape.order,
        "chunks": shape.chunks,
        "abreast": shape.abreast,
        "lanes": found.lanes,
        "uniform_bubble": shape.bubble,
        "in_flight": [shape.peak_in_flight(stage) for stage in range(shape.stages)],
    }


def _whole(found: CardsResult) -> dict[str, float] | None:
    """What the batch in one piece takes, where it was tried; one rank of each kind simulated."""
    whole = next((t for t in found.tried if t.way.micro_batches == 1), None)
    if whole is None:
        return None
    return {"makespan_us": whole.makespan_us, "exposed_us": whole.exposed_us}


def _rank(found: CardsResult, place: int) -> dict[str, Any]:
    figures = found.figures[place]
    rank = figures.rank
    part = found.parts[found.program.template_of[rank]]
    memory = part.memory
    return {
        "rank": rank,
        "place": found.program.mesh.coordinates(rank),
        "template": found.program.template_of[rank],
        "compute_us": figures.compute_us,
        "communication_us": figures.communication_us,
        "exposed_us": figures.exposed_us,
        "exposed_by": dict(figures.exposed_by),
        "idle_us": figures.idle_us,
        "sent_bytes": found.volume(rank),
        "memory": memory_by_kind(memory.buffers, memory.arena_bytes) if memory else {},
    }


def memory_by_kind(buffers: tuple[Buffer, ...], arena_bytes: int) -> dict[str, int]:
    """Bytes of a rank's memory by what they are for."""
    kinds = dict.fromkeys(("weight", "state", "input"), 0)
    for buffer in buffers:
        if buffer.alias_of is None and buffer.kind in kinds:
            kinds[buffer.kind] += buffer.bytes
    return {**kinds, "activation": arena_bytes - sum(kinds.values()), "total": arena_bytes}


def most_sent(found: CardsResult) -> dict[str, float]:
    """Bytes that the rank sends that sends most, by axes."""
    volumes = [found.volume(rank) for rank in found.ranks]
    return max(volumes, key=lambda volume: sum(volume.values()), default={})


def busiest_links(found: CardsResult) -> list[tuple[str, float]]:
    """Links and their mean use, the busiest first; of equals by name."""
    tiers = found.cluster.topology.link_names
    until = found.timeline.makespan_ns
    shares = [
        (usage.resource, usage.mean(until))
        for usage in found.timeline.usage
        if usage.resource.split(":", 1)[0] in tiers
    ]
    return sorted(shares, key=lambda pair: (-pair[1], pair[0]))[:MOST_LINKS]
