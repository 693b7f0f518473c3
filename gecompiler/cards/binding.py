"""What limits a parallel program: a resource of the cards, a link, or waiting for each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.passes.rank_schedules import RankFigures


@dataclass(frozen=True)
class Bound:
    """The largest part of the time of the rank that is busy longest."""

    kind: Literal["resource", "link", "bubble"]
    name: str
    """``cube``; ``hccs (tp)``; ``waiting for other ranks``."""
    share: float
    """Of the makespan."""

    def __str__(self) -> str:
        return f"{self.name} {self.share:.0%}"


def binding(found: CardsResult) -> Bound:
    """What binds: what most of the time of the busiest rank goes into.

    Computing counts for the resource that limits most of it, exposed communication for the kind
    of link and the axes that show most, the rest is waiting.
    """
    rank = max(found.figures, key=lambda f: (f.compute_us + f.exposed_us, -f.rank))
    return bound_of(found, rank, found.timeline.makespan_ns / 1000)


def bound_of(found: CardsResult, rank: RankFigures, makespan_us: float) -> Bound:
    """The same for one rank, whose figures may be of several runs of ``found``."""
    makespan = makespan_us or 1.0
    parts = [
        Bound("resource", _resource(found, rank.rank), rank.compute_us / makespan),
        Bound("link", _link(found, rank), rank.exposed_us / makespan),
        Bound("bubble", "waiting for other ranks", rank.idle_us / makespan),
    ]
    return max(parts, key=lambda part: part.share)


def _resource(found: CardsResult, rank: int) -> str:
    """What limits the rank's computing most of the time."""
    times: dict[str, int] = defaultdict(int)
    for span in found.timeline.spans:
        if span.rank == rank and found.schedule.tasks[span.task].kind != "collective":
            times[span.bound_by] += span.duration_ns
    return max(sorted(times), key=lambda name: times[name], default="")


def _link(found: CardsResult, figures: RankFigures) -> str:
    """The kind of link and the axes of the communication that shows most."""
    axes = max(
        sorted(figures.exposed_by), key=lambda name: figures.exposed_by[name], default=""
    )  # fmt: skip
    tiers: dict[str, float] = defaultdict(float)
    for task in found.schedule.tasks:
        if task.rank == figures.rank and task.communicator.partition(":")[0] == axes:
            for link, amount in task.demand.link_bytes:
                rate = found.cluster.topology.link_bytes_per_us(link)
                tiers[link.split(":", 1)[0]] += amount / rate
    tier = max(sorted(tiers), key=lambda name: tiers[name], default="links")
    return f"{tier} ({axes})" if axes else tier
