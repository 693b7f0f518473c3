"""The strategy ``cv``: the graph engine's mode of that name, cube and vector on two streams."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.passes.reachability import Reachability
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.default import DefaultStreams
from gecompiler.passes.streams.strategy import Placement, StrategyContext, StreamStrategy

CUBE, VECTOR = "AIcoreEngine", "VectorEngine"


class CubeAndVector(StreamStrategy):
    """Vector work off the cube's stream, unless the cubes just before and after need it (GE's cv).

    CANN GE, ``engine_partitioner.cc``, MarkCvParallelAivNodes (behaviour only): vector tasks
    share the cube's engine but for those that do not depend on the nearest cube task before
    them, or on which the nearest one after does not depend. The ladder of ``default`` follows.
    """

    name = "cv"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        marked = replace(graph, engines=tuple(_engines(graph)))
        return replace(DefaultStreams().assign(marked, context), graph=graph)


def _engines(graph: TaskGraph) -> list[str]:
    reach = Reachability(graph.preds)
    before, after = _nearest_cubes(graph.engines)
    found = list(graph.engines)
    for task, engine in enumerate(graph.engines):
        if engine != VECTOR:
            continue
        left, right = before[task], after[task]
        bound = (left < 0 or reach.reaches(left, task)) and (
            right < 0 or reach.reaches(task, right)
        )
        if bound:
            found[task] = CUBE
    return found


def _nearest_cubes(engines: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """The nearest cube task before each task and after it, -1 where there is none."""
    before, after = [-1] * len(engines), [-1] * len(engines)
    last = -1
    for task, engine in enumerate(engines):
        before[task] = last
        last = task if engine == CUBE else last
    last = -1
    for task in range(len(engines) - 1, -1, -1):
        after[task] = last
        last = task if engines[task] == CUBE else last
    return before, after
