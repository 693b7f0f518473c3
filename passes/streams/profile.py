"""What is free of each renewable resource over time."""

from __future__ import annotations

from bisect import bisect_right

from gecompiler.passes.streams.problem import EPSILON, Problem


class Packing:
    """Amounts of all resources in one integer, a field and a guard bit for each.

    With the guard bits set in what is free, a need fits where subtracting it leaves them set:
    one subtraction tells for all resources.
    """

    def __init__(self, problem: Problem) -> None:
        shift = 0
        self.guards = 0
        free = 0
        places: list[int] = []
        for capacity in problem.capacities:
            width = max(1, capacity.bit_length())
            places.append(shift)
            free |= capacity << shift
            self.guards |= 1 << (shift + width)
            shift += width + 1
        self.free = free | self.guards
        self.needs = tuple(
            sum(amount << places[r] for r, amount in demand) for demand in problem.demands
        ) or (0,) * len(problem)


class Profile:
    """Free amounts, piecewise constant from ``times[i]`` on; nothing is in use at the end."""

    __slots__ = ("free", "guards", "times")

    def __init__(self, packing: Packing) -> None:
        self.times = [0.0]
        self.free = [packing.free]
        self.guards = packing.guards

    def earliest(self, after: float, duration: float, need: int) -> float:
        """The first start from ``after`` on at which the need is free for the whole duration."""
        times, free, guards = self.times, self.free, self.guards
        last = len(times) - 1
        i = bisect_right(times, after + EPSILON) - 1
        start = after
        while i < last:
            if (free[i] - need) & guards != guards:
                i += 1
                start = times[i]
                continue
            end = start + duration - EPSILON
            j = i + 1
            while times[j] < end:
                if (free[j] - need) & guards != guards:
                    break
                if j == last:
                    return start
                j += 1
            else:
                return start
            i = j + 1
            start = times[i]
        return start

    def take(self, start: float, duration: float, need: int) -> None:
        """Books the need from ``start`` on."""
        if not need or duration <= EPSILON:
            return
        i = self._cut(start)
        j = self._cut(start + duration)
        free = self.free
        for k in range(i, j):
            free[k] -= need

    def _cut(self, at: float) -> int:
        """The index of the piece that begins at that time."""
        times = self.times
        i = bisect_right(times, at + EPSILON) - 1
        if times[i] < at - EPSILON:
            i += 1
            times.insert(i, at)
            self.free.insert(i, self.free[i - 1])
        return i
