"""Micro-batches take turns at the heavy tasks they have in common.

Side by side, two tasks that need the same resource take as long as one after the other, and both
end late. One after the other the first ends early, and what comes after it runs beside the
second: micro-batches that were in step get out of step. Which kinds of tasks should take turns,
and how closely, is found by trying: an order is kept where the simulated time falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Control
from gecompiler.ir.target import Evaluator, Target
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.evaluation import Evaluated, evaluate
from gecompiler.passes.streams.orders import with_orders

SYNC_TYPE = "turn"

MOST_KINDS = 8
"""So many kinds of tasks are tried, those that take the most time."""

Row = tuple[int, ...]
"""The same op's tasks, by micro-batch."""


@dataclass(frozen=True)
class Turn:
    """A task waits for its like in the micro-batch ``ahead`` places before its own.

    ``closed``: the first micro-batch also waits for the last one's task of the row before.
    """

    rows: tuple[Row, ...]
    ahead: int
    closed: bool = False

    def controls(self) -> Iterator[Control]:
        """The orders that make it so."""
        for row in self.rows:
            for before, after in zip(row, row[self.ahead :], strict=False):
                yield Control(before, after, "graph", SYNC_TYPE)
        if self.closed:
            for row, following in zip(self.rows, self.rows[1:], strict=False):
                yield Control(row[-1], following[0], "graph", SYNC_TYPE)


def kinds(graph: TaskGraph, parts: Mapping[str, Sequence[str]]) -> list[tuple[Row, ...]]:
    """Rows of tasks of one kind, the kinds that take the most time first.

    ``parts`` are the names of each op's tasks in the micro-batches. Of a kind are tasks of one
    type that take about as long.
    """
    number = {task.name: task.id for task in graph.tasks}
    found: dict[tuple[str, float], list[Row]] = {}
    for names in parts.values():
        row = tuple(number[name] for name in names if name in number)
        if len(row) == len(names) > 1:
            first = graph.tasks[row[0]]
            size = graph.alone_us[first.id]
            found.setdefault((first.op_type, round(size, 1)), []).append(row)
    groups = [tuple(sorted(rows)) for rows in found.values()]
    groups.sort(key=lambda rows: (-math.fsum(graph.alone_us[r[0]] for r in rows), rows))
    return [rows for rows in groups[:MOST_KINDS] if graph.alone_us[rows[0][0]] > 0]


def turns_of(graph: TaskGraph, parts: Mapping[str, Sequence[str]]) -> list[Turn]:
    """What is worth trying: each kind one by one, closed, or with one micro-batch between."""
    found: list[Turn] = []
    for rows in kinds(graph, parts):
        found += [Turn(rows, 1), Turn(rows, 1, closed=True)]
        if len(rows[0]) > 2:
            found.append(Turn(rows, 2))
    return found


def take_turns(
    start: Evaluated,
    parts: Mapping[str, Sequence[str]],
    target: Target,
    evaluator: Evaluator,
    runs: int,
) -> tuple[Evaluated, int]:
    """The best found from ``start`` on, never slower, and how many simulations it took."""
    base = start.placement
    moves = turns_of(base.graph, parts)
    best, chosen, used = start, list[Turn](), 0
    gained = True
    while gained:
        gained = False
        for move in moves:
            if used >= runs:
                return best, used
            tried = [t for t in chosen if t.rows != move.rows]
            if move not in chosen:
                tried.append(move)
            found = _evaluated(start, tried, target, evaluator)
            used += 1
            if found is not None and found.makespan_ns < best.makespan_ns:
                best, chosen, gained = found, tried, True
    return best, used


def _evaluated(
    start: Evaluated, turns: Sequence[Turn], target: Target, evaluator: Evaluator
) -> Evaluated | None:
    """The placement with these turns; None where they contradict the orders there are."""
    extra = [control for turn in turns for control in turn.controls()]
    try:
        turned = with_orders(start.placement, extra)
        return evaluate(start.strategy, turned, target, evaluator, start.synced.primitive)
    except ScheduleError:  # a cycle, or more event ids than the device has
        return None
