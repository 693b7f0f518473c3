"""The product's scheduler on published instances with known optima.

    python -m benchmarks.scheduling FILE.json --seconds 5 [--plans 2000] [--seed 0]

Prints one JSON object ``{instance: {makespan, bound, optimum, ratio}}``; ``ratio`` is makespan
over the optimum, or over the bound where no optimum is given. Instances with processors of
different speed also have ``heft``, the makespan of HEFT. Every plan is checked before it
counts. FILE holds instances, or groups of them by name, of three forms:

- heterogeneous processors: ``exec`` (per task, the time on each processor), ``edges`` (from, to,
  and the time between processors, 0 where it is left out), ``processors``;
- resource-constrained projects: ``capacity`` and ``tasks_[dur,req,succ]``;
- identical processors: ``tasks_[dur,preds]``, with ``optimal`` by number of processors.

A file may also be one instance. Fields that are not named here are passed over. An instance that
makes no sense (a cycle, more of a resource than there is) ends it with a sentence and exit 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gecompiler.ir.errors import GecError
from gecompiler.passes.streams.list_schedule import heft
from gecompiler.passes.streams.problem import Plan, Problem
from gecompiler.passes.streams.search import Budget, search

FORMS = frozenset({"exec", "tasks_[dur,req,succ]", "tasks_[dur,preds]"})
"""The fields by which an instance is known."""

PROCESSORS = (2, 4, 8)
"""Tried where an instance for identical processors does not say how many there are."""


class Instance(NamedTuple):
    """A problem, and the best makespan where it is known."""

    name: str
    problem: Problem
    optimum: float | None


def instances(data: Mapping[str, Any], prefix: str = "") -> Iterator[Instance]:
    """Every instance in the file's data, groups gone through; ValueError names a wrong one."""
    if not FORMS.isdisjoint(data):
        data = {"instance": data}
    for key, value in data.items():
        if not isinstance(value, Mapping):
            continue
        name = f"{prefix}{key}"
        if FORMS.isdisjoint(value):
            yield from instances(value, f"{name}/")
            continue
        try:
            yield from _instances(name, value)
        except (GecError, TypeError, ValueError, LookupError) as error:
            raise ValueError(f"instance {name!r}: {error}") from error


def _instances(name: str, value: Mapping[str, Any]) -> list[Instance]:
    if "exec" in value:
        return [Instance(name, heterogeneous(value), _best(value.get("optimal_makespan")))]
    if "tasks_[dur,req,succ]" in value:
        return [Instance(name, project(value), _best(value.get("optimal_makespan")))]
    return list(_identical(name, value))


def _best(value: Any) -> float | None:
    found = value.get("makespan") if isinstance(value, Mapping) else value
    return None if found is None else float(found)


def heterogeneous(value: Mapping[str, Any]) -> Problem:
    """Processors of different speed, with time between them."""
    rows = tuple(tuple(float(d) for d in row) for row in value["exec"])
    edges = [(*edge, 0)[:3] for edge in value.get("edges") or ()]
    return Problem(
        rows,
        tuple((int(a), int(b), float(c)) for a, b, c in edges),
        processors=int(value.get("processors", len(rows[0]) if rows else 1)),
    )


def project(value: Mapping[str, Any]) -> Problem:
    """Renewable resources."""
    tasks = value["tasks_[dur,req,succ]"]
    return Problem(
        tuple((float(duration),) for duration, _, _ in tasks),
        tuple((t, int(s), 0.0) for t, (_, _, after) in enumerate(tasks) for s in after),
        demands=tuple(
            tuple((r, int(amount)) for r, amount in enumerate(request) if amount)
            for _, request, _ in tasks
        ),
        capacities=tuple(int(c) for c in value["capacity"]),
    )


def identical(value: Mapping[str, Any], processors: int) -> Problem:
    """Identical processors: one resource of which each task takes one unit."""
    tasks = value["tasks_[dur,preds]"]
    return Problem(
        tuple((float(duration),) for duration, _ in tasks),
        tuple((int(p), t, 0.0) for t, (_, before) in enumerate(tasks) for p in before),
        demands=tuple(((0, 1),) if duration else () for duration, _ in tasks),
        capacities=(processors,),
    )


def _identical(name: str, value: Mapping[str, Any]) -> Iterator[Instance]:
    known = value.get("optimal") or {}
    given = value.get("processors", PROCESSORS)
    counts = [int(c) for c in known] or ([given] if isinstance(given, int) else list(given))
    for count in counts:
        optimum = _best(known.get(str(count), known.get(count)))
        yield Instance(f"{name}/{count}", identical(value, count), optimum)


def result(instance: Instance, budget: Budget) -> dict[str, float | None]:
    """What the search finds within the budget."""
    problem, optimum = instance.problem, instance.optimum
    found = search(problem, budget)
    _check(instance, found.plan)
    makespan, base = found.plan.makespan, optimum or found.bound
    row = {
        "makespan": _tidy(makespan),
        "bound": _tidy(found.bound),
        "optimum": None if optimum is None else _tidy(optimum),
        "ratio": round(makespan / base, 6) if base else 1.0,
    }
    if problem.processors:
        plan = heft(problem)
        _check(instance, plan)
        row["heft"] = _tidy(plan.makespan)
    return row


def _tidy(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _check(instance: Instance, plan: Plan) -> None:
    faults = plan.faults(instance.problem)
    if faults:
        raise AssertionError(f"{instance.name}: {'; '.join(faults[:3])}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each instance")
    parser.add_argument("--plans", type=int, help="so many for each instance, in any time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    data = json.loads(options.file.read_text(encoding="utf-8"))
    try:
        found = list(instances(data))
    except ValueError as error:
        parser.error(str(error))
    seconds = options.seconds if options.plans is None else None
    budget = Budget(options.plans, seconds, options.seed)
    rows = {i.name: result(i, budget) for i in found}
    print(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
