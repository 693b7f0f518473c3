"""Exact scheduling of a `Problem` by constraint programming (OR-tools CP-SAT).

Needs the extra ``solver``. One worker, a seed, and a limit in deterministic time, so that the
same problem gives the same plan on any machine that is not slower than the limit on wall time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gecompiler.ir.errors import UsageError
from gecompiler.passes.streams.list_schedule import ListScheduler
from gecompiler.passes.streams.priorities import tails
from gecompiler.passes.streams.problem import Plan, Problem
from gecompiler.passes.streams.problem_bounds import makespan_bound

SYMMETRY_TASKS = 150
"""Up to this many tasks equal processors are told apart by the order of their first tasks."""

WALL = 4.0
"""The limit on wall time, in units of the limit on deterministic time."""


@dataclass(frozen=True)
class Solved:
    """The best plan, the proven lower bound of all makespans, and whether they meet."""

    plan: Plan
    bound: float
    proven: bool

    @property
    def gap(self) -> float:
        """How far the plan may be from the best, as a share of the bound."""
        return self.plan.makespan / self.bound - 1 if self.bound else 0.0


def solve(
    problem: Problem, hint: Plan, *, seconds: float = 10.0, seed: int = 0, unit: float = 1.0
) -> Solved:
    """The shortest plan within the limit, never longer than ``hint``, a plan known before.

    ``unit`` is the grain of time: times are rounded up to it. UsageError without the extra.
    """
    if not len(problem):
        return Solved(hint, 0.0, proven=True)
    cp = load_cp_sat()
    model = _Model(cp, problem, hint, unit)
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = seconds
    solver.parameters.max_time_in_seconds = seconds * WALL
    status = solver.solve(model.model)
    bound = makespan_bound(problem)
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return Solved(hint, bound, proven=hint.makespan <= bound)
    # Times were rounded up: along a chain of tasks, by a unit for each and for each step.
    slack = 0.0 if model.exact else unit * 2 * len(problem)
    bound = max(bound, solver.best_objective_bound * unit - slack)
    plan = min(model.plan(solver), hint, key=lambda p: p.makespan)
    return Solved(plan, min(bound, plan.makespan), proven=status == cp.OPTIMAL)


def load_cp_sat() -> Any:
    """OR-tools' cp_model; UsageError that says how to install it."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        raise UsageError(
            "it needs OR-tools, which is not installed",
            where="strategy 'optimal'",
            hint="pip install 'gecompiler[solver]'",
        ) from None


class _Model:
    def __init__(self, cp: Any, problem: Problem, hint: Plan, unit: float) -> None:
        self.cp = cp
        self.problem = problem
        self.unit = unit
        self.model = cp.CpModel()
        times = [t for row in problem.durations for t in row] + [c for _, _, c in problem.edges]
        self.exact = all(float(t / unit).is_integer() for t in (*times, problem.gap))
        self.horizon = self._whole(hint.makespan) + (0 if self.exact else 2 * len(problem))
        self._tasks()
        self._edges()
        self._processors()
        self._resources()
        self._objective()
        self._hint(hint)

    def _whole(self, time: float) -> int:
        return math.ceil(time / self.unit - 1e-9)

    def _tasks(self) -> None:
        """Start, length and end of each task, within what paths leave; where it may be."""
        problem, model = self.problem, self.model
        head = [math.floor(t / self.unit) for t in _heads(problem)]
        tail = [math.floor(t / self.unit) for t in tails(problem)]
        self.start: list[Any] = []
        self.length: list[Any] = []
        self.on: list[dict[int, Any]] = []
        for t in range(len(problem)):
            rows = {p: self._whole(problem.durations[t][p]) for p in problem.choices[t] or (0,)}
            late = max(head[t], self.horizon - tail[t])
            self.start.append(model.new_int_var(head[t], late, f"start{t}"))
            self.on.append({p: model.new_bool_var(f"on{t},{p}") for p in problem.choices[t]})
            if self.on[t]:
                model.add_exactly_one(self.on[t].values())
            if len(set(rows.values())) == 1:
                self.length.append(next(iter(rows.values())))
            else:
                length = model.new_int_var(min(rows.values()), max(rows.values()), f"length{t}")
                model.add(length == sum(rows[p] * here for p, here in self.on[t].items()))
                self.length.append(length)
        self.end = [s + d for s, d in zip(self.start, self.length, strict=True)]

    def _edges(self) -> None:
        self.same: dict[tuple[int, int], Any] = {}
        for a, b, lag in self.problem.edges:
            whole = self._whole(lag)
            if not whole or not self.problem.processors:
                self.model.add(self.start[b] >= self.end[a])
                continue
            same = self.model.new_bool_var(f"same{a},{b}")
            self.same[a, b] = same
            for p in self.on[a].keys() | self.on[b].keys():
                here, there = self.on[a].get(p, 0), self.on[b].get(p, 0)
                self.model.add(here == there).only_enforce_if(same)
            least = min(whole, self._whole(self.problem.gap))
            self.model.add(self.start[b] >= self.end[a] + least + (whole - least) * (1 - same))

    def _processors(self) -> None:
        problem, model = self.problem, self.model
        gap = self._whole(problem.gap)
        for p in range(problem.processors):
            intervals = []
            for t, on in enumerate(self.on):
                if p in on:
                    size = self._whole(problem.durations[t][p]) + gap
                    fixed = model.new_optional_fixed_size_interval_var(
                        self.start[t], size, on[p], f"interval{t},{p}"
                    )
                    intervals.append(fixed)
            model.add_no_overlap(intervals)
        alike = all(len(set(row)) == 1 for row in problem.durations) and not any(
            len(c) < problem.processors for c in problem.choices
        )
        if problem.processors > 1 and alike:
            whole = [self._interval(t, gap) for t in range(len(problem))]
            model.add_cumulative(whole, [1] * len(whole), problem.processors)
            self._break_symmetry()

    def _break_symmetry(self) -> None:
        """A processor takes its first task only after the one before it has one."""
        order = self.problem.topological
        for i, task in enumerate(order):
            for p in range(1, self.problem.processors):
                if p > i:
                    self.model.add(self.on[task][p] == 0)
                elif len(order) <= SYMMETRY_TASKS:
                    earlier = [self.on[other][p - 1] for other in order[:i]]
                    self.model.add_bool_or([*earlier, self.on[task][p].negated()])

    def _interval(self, task: int, extra: int = 0) -> Any:
        size = self.length[task] + extra
        return self.model.new_interval_var(
            self.start[task], size, self.start[task] + size, f"span{task}"
        )

    def _resources(self) -> None:
        for r, capacity in enumerate(self.problem.capacities):
            users = [
                (t, amount)
                for t, demand in enumerate(self.problem.demands)
                for q, amount in demand
                if q == r and amount
            ]
            spans = [self._interval(t) for t, _ in users]
            self.model.add_cumulative(spans, [amount for _, amount in users], capacity)

    def _objective(self) -> None:
        least = math.floor(makespan_bound(self.problem) / self.unit)
        self.makespan = self.model.new_int_var(least, max(least, self.horizon), "makespan")
        for end in self.end:
            self.model.add(self.makespan >= end)
        self.model.minimize(self.makespan)

    def _hint(self, hint: Plan) -> None:
        for t, start in enumerate(hint.start):
            self.model.add_hint(self.start[t], self._whole(start))
        renamed = self._renamed(hint.processor)
        for t, on in enumerate(self.on):
            for p, here in on.items():
                self.model.add_hint(here, int(renamed[t] == p))

    def _renamed(self, processor: Sequence[int]) -> list[int]:
        """The hint's processors, numbered by their first tasks as symmetry breaking wants."""
        if any(len(c) < self.problem.processors for c in self.problem.choices) or any(
            len(set(row)) > 1 for row in self.problem.durations
        ):
            return list(processor)
        new: dict[int, int] = {}
        for task in self.problem.topological:
            new.setdefault(processor[task], len(new))
        return [new[p] for p in processor]

    def plan(self, solver: Any) -> Plan:
        """The solver's answer, each task moved as early as its order allows."""
        home = tuple(
            next((p for p, here in on.items() if solver.boolean_value(here)), -1) for on in self.on
        )
        place = {t: i for i, t in enumerate(self.problem.topological)}
        order = sorted(place, key=lambda t: (solver.value(self.start[t]), place[t]))
        return ListScheduler(self.problem).serial(order, home)


def _heads(problem: Problem) -> list[float]:
    """The longest path to each task's start, in shortest times."""
    back = problem.reversed
    return [t - d for t, d in zip(tails(back), problem.least, strict=True)]
