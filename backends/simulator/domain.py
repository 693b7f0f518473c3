"""Resources that are shared together, and the steps of tasks that run on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gecompiler.backends.simulator.fluid_share import FULL, share
from gecompiler.backends.simulator.plan import Step

Curve = tuple[tuple[int, ...], tuple[float, ...]]
"""Whole nanoseconds, and the share of a resource in use from each on."""

EARLY = 1e-6
"""How far past a whole nanosecond still counts as that one: float noise, no more."""


def whole_ns(time: float) -> int:
    """An instant in whole nanoseconds, rounded up: never earlier than it was.

    Being monotone and the same for all instants, it keeps every order between them.
    """
    return math.ceil(time - EARLY)


class Slot:
    """A task that is running, at the step it is in."""

    __slots__ = (
        "bound",
        "finish",
        "index",
        "left",
        "rate",
        "since",
        "spent",
        "steps",
        "task",
        "use",
    )

    def __init__(self, task: int, steps: tuple[Step, ...], spent: dict[int, float]) -> None:
        self.task = task
        self.steps = steps
        self.spent = spent
        self.index = -1

    def next_step(self, now: float) -> bool:
        """Enters the next step, which has no rate yet; False when there is none."""
        self.index += 1
        if self.index == len(self.steps):
            return False
        self.left, self.use, self.bound = self.steps[self.index]
        self.rate = 0.0
        self.finish = math.inf
        self.since = now
        return True

    def account(self, now: float) -> None:
        """Books the time since the last booking on what has bound the task since."""
        spent, bound = self.spent, self.bound
        if bound in spent:
            spent[bound] += now - self.since
        else:
            spent[bound] = now - self.since
        self.since = now

    def set_rate(self, rate: float, bound: int, now: float) -> None:
        """Goes on at another rate from now."""
        old = self.rate
        left = (self.finish - now) * old if old else self.left
        self.finish = now + left / rate if left > 0.0 else now
        self.rate = rate
        if bound != self.bound:
            self.account(now)
            self.bound = bound


class Domain:
    """Resources that are shared together, and the tasks running on them."""

    __slots__ = ("changed", "next", "rows", "slots", "times", "wanted")

    def __init__(self, size: int) -> None:
        self.slots: list[Slot] = []
        self.wanted = [0.0] * size
        """What the running steps would use at their rates alone."""
        self.next = math.inf
        self.changed = False
        self.times = [0]
        self.rows: list[Sequence[float]] = [self.wanted.copy()]

    def start(self, slot: Slot, now: float) -> None:
        """Adds a task at its first step."""
        self.changed = True
        self.slots.append(slot)
        slot.next_step(now)
        for resource, part in slot.use:
            self.wanted[resource] += part

    def advance(self, now: float) -> list[int]:
        """Ends the steps that are over now; gives the tasks that ended with them."""
        self.changed = True
        wanted = self.wanted
        done: list[Slot] = []
        for slot in self.slots:
            if slot.finish > now:
                continue
            slot.account(now)
            for resource, part in slot.use:
                wanted[resource] -= part
            if slot.next_step(now):
                for resource, part in slot.use:
                    wanted[resource] += part
            else:
                done.append(slot)
        for slot in done:
            self.slots.remove(slot)
        return [slot.task for slot in done]

    def reshare(self, now: float) -> None:
        """Gives every running step its rate from now on, and finds the next one to end."""
        self.changed = False
        slots = self.slots
        if max(self.wanted) > FULL:
            usage = self._contend(now)
        else:
            usage = self.wanted.copy()
            for slot in slots:
                if slot.rate != 1.0:
                    slot.set_rate(1.0, slot.steps[slot.index].bound, now)
        self._note(usage, now)
        soonest = math.inf
        for slot in slots:
            soonest = min(soonest, slot.finish)
        self.next = soonest

    def _contend(self, now: float) -> list[float]:
        slots = self.slots
        rates, binding = share([s.use for s in slots], self.wanted)
        usage = self.wanted.copy()
        for i, slot in enumerate(slots):
            rate, bound = rates[i], binding[i]
            if bound < 0:
                if slot.rate != 1.0:
                    slot.set_rate(1.0, slot.steps[slot.index].bound, now)
                continue
            if rate != slot.rate or bound != slot.bound:
                slot.set_rate(rate, bound, now)
            for resource, part in slot.use:
                usage[resource] -= part * (1.0 - rate)
        return usage

    def _note(self, usage: Sequence[float], now: float) -> None:
        instant = math.ceil(now - EARLY)
        if self.times[-1] == instant:
            self.rows[-1] = usage
        else:
            self.times.append(instant)
            self.rows.append(usage)

    def curves(self) -> list[Curve]:
        """The share in use over time, of each resource."""
        times = tuple(self.times)
        return [
            (times, tuple([1.0 if u > 1.0 else u for u in column]))
            for column in zip(*self.rows, strict=True)
        ]
