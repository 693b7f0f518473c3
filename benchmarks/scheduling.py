"""The product's scheduler on published instances with known optima.

    python -m benchmarks.scheduling FILE.json --seconds 5 [--seed 0]

Prints one JSON object ``{instance: {makespan, bound, optimum, ratio}}``; ``ratio`` is makespan
over the optimum, or over the bound where no optimum is given. Instances with processors of
different speed also have ``heft``, the makespan of HEFT. Every plan is checked before it
counts. FILE holds instances, or groups of them by name, of three forms:

- heterogeneous processors: ``exec`` (per task, the time on each processor), ``edges`` (from, to,
  time between processors), ``processors``;
- resource-constrained projects: ``capacity`` and ``tasks_[dur,req,succ]``;
- identical processors: ``tasks_[dur,preds]``, with ``optimal`` by number of processors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gecompiler.passes.streams.list_schedule import heft
from gecompiler.passes.streams.problem import Plan, Problem
from gecompiler.passes.streams.search import Budget, search

PROCESSORS = (2, 4, 8)
"""Tried where an instance for identical processors does not say how many there are."""


class Instance(NamedTuple):
    """A problem, and the best makespan where it is known."""

    name: str
    problem: Problem
    optimum: float | None


def instances(data: Mapping[str, Any], prefix: str = "") -> Iterator[Instance]:
    """Every instance in the file's data, groups gone through."""
    for key, value in data.items():
        if not isinstance(value, Mapping):
            continue
        name = f"{prefix}{key}"
        if "exec" in value:
            yield Instance(name, heterogeneous(value), _best(value.get("optimal_makespan")))
        elif "tasks_[dur,req,succ]" in value:
            yield Instance(name, project(value), _best(value.get("optimal_makespan")))
        elif "tasks_[dur,preds]" in value:
            yield from _identical(name, value)
        else:
            yield from instances(value, f"{name}/")


def _best(value: Any) -> float | None:
    found = value.get("makespan") if isinstance(value, Mapping) else value
    return None if found is None else float(found)


def heterogeneous(value: Mapping[str, Any]) -> Problem:
    """Processors of different speed, with time between them."""
    return Problem(
        tuple(tuple(float(d) for d in row) for row in value["exec"]),
        tuple((int(a), int(b), float(c)) for a, b, c in value["edges"]),
        processors=int(value.get("processors", len(value["exec"][0]))),
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


def result(instance: Instance, seconds: float, seed: int) -> dict[str, float | None]:
    """What the search finds within so many seconds."""
    problem, optimum = instance.problem, instance.optimum
    found = search(problem, Budget(plans=None, seconds=seconds, seed=seed))
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
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    data = json.loads(options.file.read_text(encoding="utf-8"))
    rows = {i.name: result(i, options.seconds, options.seed) for i in instances(data)}
    print(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
