"""What a stream strategy is: tasks in, a `Placement` out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph


@dataclass(frozen=True, slots=True)
class SolverReport:
    """What a solver proved of its own model: the plan's time and a bound of all, in us."""

    makespan_us: float
    bound_us: float
    proven: bool
    """Whether nothing shorter exists in the model."""
    limit_seconds: float = 0.0
    """The limit it was given, in deterministic time."""
    seed: int = 0

    @property
    def gap(self) -> float:
        """How far the plan may be from the best, as a share of the bound."""
        return self.makespan_us / self.bound_us - 1 if self.bound_us else 0.0


@dataclass(frozen=True)
class Placement:
    """A stream for every task, and one order of all of them.

    ``sequence`` is a permutation of the task ids in which producers come first; the order on
    each stream is the sequence restricted to it. Every schedule without a deadlock can be
    written this way, and none with one. ``graph`` is the task graph that is placed: a strategy
    may have split tasks.
    """

    graph: TaskGraph
    stream: tuple[int, ...]
    sequence: tuple[int, ...]
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why a task is on its stream, by task id, for the log."""
    solver: SolverReport | None = None
    """What was proven, where a solver made the placement."""

    @property
    def used(self) -> int:
        """How many streams have a task."""
        return len(set(self.stream))


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy works with: the device, how many streams, and what the user fixed.

    ``streams`` is at most the device's maximum. ``fixed`` holds the streams the user chose, by
    task name, which the strategy must keep; ``parts`` the micro-batch of each task that belongs
    to one, by task name.
    """

    target: Target
    streams: int
    fixed: Mapping[str, int] = field(default_factory=dict)
    overlap_ratio: float = 0.7
    pipeline_depth: int = 2
    parts: Mapping[str, int] = field(default_factory=dict)
    engine_streams: Mapping[str, int] = field(default_factory=dict)
    """``default``: how many streams an engine may have, 1 where not given (GE's
    streamMaxParallelNum)."""
    solver_seconds: float = 10.0
    """``optimal``: the limit, in deterministic time, which is close to seconds."""
    seed: int = 0
    memory_priority: bool = False
    """``default``: a task may take its predecessor's stream whoever else waits for it."""

    def fixed_streams(self, graph: TaskGraph) -> dict[int, int]:
        """The user's choice by task id."""
        return {t.id: self.fixed[t.name] for t in graph.tasks if t.name in self.fixed}


class StreamStrategy(ABC):
    """Base of all strategies that the product has; a user derives from `StreamAssignStrategy`."""

    name: ClassVar[str]

    @abstractmethod
    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """Places every task, the user's where the user wants them."""


def in_topological_order(
    graph: TaskGraph, streams: tuple[int, ...], reasons: Mapping[int, str] | None = None
) -> Placement:
    """A placement that keeps the task graph's own order."""
    return Placement(graph, streams, tuple(range(len(graph))), reasons or {})
