"""Tasks that do the same in different layers or micro-batches."""

from __future__ import annotations

from gecompiler.passes.scheduling.task_graph import TaskGraph

ROUNDS = 2
"""How far around a task its role looks."""


def roles_of(graph: TaskGraph) -> list[list[int]]:
    """Groups of tasks of like type, time and surroundings, in the order of their first tasks.

    Surroundings are the types and times of what lies within `ROUNDS` edges (colour refinement of
    Weisfeiler and Leman, stopped early, so that first and last layers hardly differ from others).
    """
    colour = _numbered(
        [
            (task.op_type, engine, round(us, 1))
            for task, engine, us in zip(graph.tasks, graph.engines, graph.alone_us, strict=True)
        ]
    )
    for _ in range(ROUNDS):
        colour = _numbered(
            [
                (
                    colour[t],
                    tuple(sorted({colour[p] for p in graph.preds[t]})),
                    tuple(sorted({colour[s] for s in graph.succs[t]})),
                )
                for t in range(len(graph))
            ]
        )
    groups: list[list[int]] = [[] for _ in range(1 + max(colour, default=-1))]
    for task, number in enumerate(colour):
        groups[number].append(task)
    return groups


def _numbered(keys: list[tuple[object, ...]]) -> list[int]:
    """A number for each distinct key, by first appearance."""
    known: dict[tuple[object, ...], int] = {}
    return [known.setdefault(key, len(known)) for key in keys]
