"""A search for short plans of a `Problem`: list scheduling, then a genetic local search.

A plan is a task order and a choice of processors, made into times by serial schedule
generation. Each plan is improved forward and backward (Tormos, Lova: A competitive heuristic
solution technique for resource-constrained project scheduling, Ann. OR 102, 2001; Valls,
Ballestin, Quintanilla: Justification and RCPSP, EJOR 165, 2005). New orders are crossed from two
plans (Hartmann, A competitive genetic algorithm for RCPSP, NRL 45, 1998) and disturbed. Where
there are processors and no other resources, annealing (`annealing`) takes turns with that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gecompiler.passes.streams.annealing import Annealer
from gecompiler.passes.streams.list_schedule import ListScheduler, order_of
from gecompiler.passes.streams.parallel_schedule import parallel
from gecompiler.passes.streams.priorities import RULES
from gecompiler.passes.streams.problem import EPSILON, Plan, Problem
from gecompiler.passes.streams.problem_bounds import makespan_bound

POPULATION = 60
WALKS, FIRST_WALK = 4, 4_000
"""So many walks of annealing in a row, of so many steps at first; each time twice as many."""

STEPS_PER_PLAN = 4
"""A step of annealing takes about a quarter of the time of a plan."""

STALE = 30
"""After this many rounds a plan without a better one the population is made anew."""


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many plans, or seconds, whichever is first.

    With plans alone the result depends on nothing but the problem and the seed.
    """

    plans: int | None = 2_000
    seconds: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """The best plan, a lower bound of all makespans, and how many plans were made."""

    plan: Plan
    bound: float
    plans: int

    @property
    def is_optimal(self) -> bool:
        """Whether the bound proves the plan to be the best."""
        return self.plan.makespan <= self.bound + EPSILON


@dataclass(order=True)
class _Member:
    makespan: float
    order: tuple[int, ...] = field(compare=False)
    choice: tuple[int, ...] = field(compare=False)


def search(problem: Problem, budget: Budget) -> Found:
    """The shortest plan found within the budget; stops early when it is proven the best."""
    return _Search(problem, budget).run()


class _Search:
    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem = problem
        self.budget = budget
        self.random = random.Random(budget.seed)
        self.forward = ListScheduler(problem)
        self.backward = ListScheduler(problem.reversed)
        self.place = [0] * len(problem)
        for i, task in enumerate(problem.topological):
            self.place[task] = i
        self.bound = makespan_bound(problem)
        self.deadline = None if budget.seconds is None else time.monotonic() + budget.seconds
        self.annealer = Annealer(problem, self.random)
        self.walks = 0
        self.plans = 0
        self.best: Plan | None = None

    def run(self) -> Found:
        """Generations until the budget is spent."""
        first = True
        while first or not self._over():
            members = self._population(with_rules=first)
            first = False
            patience = STALE * POPULATION
            if self.problem.processors and not self.problem.capacities:
                self._anneal(members)
                patience = POPULATION
            stale = 0
            while members and stale < patience and not self._over():
                before = members[0].makespan
                self._generation(members)
                stale = stale + 1 if members[0].makespan >= before - EPSILON else 0
            if len(self.problem) < 2:
                break
        assert self.best is not None
        return Found(self.best, self.bound, self.plans)

    def _over(self) -> bool:
        if self.best is not None and self.best.makespan <= self.bound + EPSILON:
            return True
        if self.budget.plans is not None and self.plans >= self.budget.plans:
            return True
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _note(self, plan: Plan) -> Plan:
        self.plans += 1
        if self.best is None or plan.makespan < self.best.makespan - EPSILON:
            self.best = plan
        return plan

    # ---------------------------------------------------------------- population

    def _population(self, *, with_rules: bool) -> list[_Member]:
        """Plans by every rule, serial and parallel, then by the first rules with noise."""
        members: list[_Member] = []
        rules = [rule(self.problem) for rule in RULES]
        for priority in rules if with_rules else ():
            for plan in (self._serial(order_of(self.problem, priority)), self._parallel(priority)):
                members.append(self._improved(plan))
                if self._over():
                    return sorted(members)
        while len(members) < POPULATION and not self._over():
            rule = rules[self.random.randrange(len(rules))]
            spread = self.random.choice((0.1, 0.3, 1.0)) * (max(rule) - min(rule) or 1.0)
            noisy = [value + self.random.random() * spread for value in rule]
            members.append(self._improved(self._serial(order_of(self.problem, noisy))))
        return sorted(members)

    def _anneal(self, members: list[_Member]) -> None:
        """Longer and longer walks, each from the best plan so far or from another good one."""
        if self.best is not None and members and not self._over():
            members[-1] = self._member(self.best)
            members.sort()
        for walk in range(WALKS):
            if not members or self._over():
                return
            start = members[0] if walk % 2 else self._parent(members)
            runs = FIRST_WALK << self.walks
            if self.budget.plans is not None:
                runs = min(runs, (self.budget.plans - self.plans) * STEPS_PER_PLAN)
            if runs <= 0:
                return
            order, choice = self.annealer.anneal(start.order, start.choice, runs, self._over)
            self.plans += runs // STEPS_PER_PLAN
            found = self._improved(self._serial(order, choice))
            if found.makespan < members[-1].makespan - EPSILON:
                members[-1] = found
                members.sort()
        self.walks += 1

    def _serial(self, order: Sequence[int], choice: Sequence[int] = ()) -> Plan:
        return self._note(self.forward.serial(order, choice))

    def _parallel(self, priority: Sequence[float]) -> Plan:
        return self._note(parallel(self.problem, self.forward.packing, priority))

    def _improved(self, plan: Plan) -> _Member:
        """The plan pushed to the right and back to the left, as long as that shortens it."""
        problem = self.problem
        while True:
            keep = self.random.random() < 0.7
            choice = plan.processor if keep and problem.processors else ()
            late = sorted(
                range(len(problem)), key=lambda t: (-plan.end(problem, t), -self.place[t])
            )
            pushed = self._note_backward(self.backward.serial(late, choice))
            early = sorted(
                range(len(problem)), key=lambda t: (-pushed.end(problem, t), self.place[t])
            )
            choice = pushed.processor if choice else ()
            again = self._serial(early, choice)
            if again.makespan >= plan.makespan - EPSILON:
                shorter = again if again.makespan <= plan.makespan + EPSILON else plan
                return self._member(shorter)
            plan = again

    def _note_backward(self, plan: Plan) -> Plan:
        self.plans += 1
        return plan

    def _member(self, plan: Plan) -> _Member:
        order = sorted(range(len(plan.start)), key=lambda t: (plan.start[t], self.place[t]))
        return _Member(plan.makespan, tuple(order), plan.processor)

    # ---------------------------------------------------------------- generations

    def _generation(self, members: list[_Member]) -> None:
        """One child; it takes the worst one's place unless it is worse still or known."""
        mother, father = self._parent(members), self._parent(members)
        cross = self._crossed if self.random.random() < 0.5 else self._blended
        order = cross(mother.order, father.order)
        self._disturb(order)
        child = self._improved(self._serial(order, self._choice(mother, father)))
        if child.makespan > members[-1].makespan + EPSILON:
            return
        if any(
            m.order == child.order and m.choice == child.choice
            for m in members
            if abs(m.makespan - child.makespan) <= EPSILON
        ):
            return
        members[-1] = child
        members.sort()

    def _parent(self, members: list[_Member]) -> _Member:
        a, b = self.random.randrange(len(members)), self.random.randrange(len(members))
        return members[min(a, b)]

    def _crossed(self, mother: tuple[int, ...], father: tuple[int, ...]) -> list[int]:
        """The mother's order with a stretch in the father's (both keep predecessors first)."""
        a, b = sorted(self.random.randrange(len(mother) + 1) for _ in range(2))
        head = mother[:a]
        seen = set(head)
        middle: list[int] = []
        for task in father:
            if len(middle) == b - a:
                break
            if task not in seen:
                middle.append(task)
        seen.update(middle)
        return [*head, *middle, *(t for t in mother if t not in seen)]

    def _blended(self, mother: tuple[int, ...], father: tuple[int, ...]) -> list[int]:
        """By places between those that the parents give, a little noise added."""
        share = self.random.random()
        place = [0.0] * len(mother)
        for i, task in enumerate(mother):
            place[task] += share * i
        for i, task in enumerate(father):
            place[task] += (1 - share) * i
        return order_of(self.problem, [self.random.uniform(-2, 2) - at for at in place])

    def _disturb(self, order: list[int]) -> None:
        """Moves a few tasks within what their neighbours in the graph allow."""
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            i = self.random.randrange(len(order))
            task = order[i]
            before = {p for p, _ in self.problem.preds[task]}
            after = {s for s, _ in self.problem.succs[task]}
            low, high = i, i
            while low > 0 and order[low - 1] not in before:
                low -= 1
            while high < len(order) - 1 and order[high + 1] not in after:
                high += 1
            order.insert(self.random.randint(low, high), order.pop(i))

    def _choice(self, mother: _Member, father: _Member) -> list[int]:
        """Processors from both parents, some left open and some drawn anew."""
        if not self.problem.processors:
            return []
        loose = self.random.choice((0.02, 0.1, 0.5))
        found: list[int] = []
        for task, pair in enumerate(zip(mother.choice, father.choice, strict=True)):
            draw = self.random.random()
            if draw < loose:
                found.append(-1)
            elif draw < loose * 1.5:
                found.append(self.random.choice(self.problem.choices[task]))
            else:
                found.append(pair[self.random.random() < 0.3])
        return found
