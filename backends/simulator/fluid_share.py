"""Max-min fair rates of phases that run side by side, by progressive filling.

Shares of a resource are multiples of 2**-40, so that sums of them are exact in floats and can
be kept up to date by adding and taking away.
"""

from __future__ import annotations

from collections.abc import Sequence

SCALE, UNIT = 2.0**40, 2.0**-40
"""Shares are whole multiples of UNIT, SCALE of which make 1."""

FULL = 1.0 + 64 * UNIT
"""Sums above this contend; what lies between is the rounding of the shares, no more."""

Use = tuple[tuple[int, float], ...]
"""(resource, share of it) of a phase at its rate alone."""


def exact(share_: float) -> float:
    """The nearest multiple of 2**-40."""
    return round(share_ * SCALE) * UNIT


def share(uses: Sequence[Use], load: Sequence[float]) -> tuple[list[float], list[int]]:
    """Rates of phases that run side by side, as fractions of their rates alone; what binds them.

    ``uses[i]`` are the resources of phase i with the shares it uses alone, ``load`` their sums
    by resource. Progressive filling: all phases rise together, measured by their share of the
    contended resource they need most, until each has its rate alone or one of its resources is
    full. With one contended resource this is its max-min fair division. The second list says
    which resource holds a phase back, -1 where none does. Every phase that is held back uses a
    full resource, so nothing lies idle that could be used. O(phases^2 * uses) at worst.
    """
    rates = [1.0] * len(uses)
    binding = [-1] * len(uses)
    hot = [r for r, total in enumerate(load) if total > FULL]
    if len(hot) == 1:
        only = hot[0]
        asking = [(part, i) for i, use in enumerate(uses) for r, part in use if r == only]
        _divide(asking, only, rates, binding)
        return rates, binding
    rising: list[tuple[float, int]] = []
    for i, use in enumerate(uses):
        top = 0.0
        for resource, part in use:
            if part > top and load[resource] > FULL:
                top = part
        if top > 0.0:
            rising.append((top, i))
    if hot:
        _fill(rising, hot, uses, rates, binding)
    return rates, binding


def _divide(
    rising: list[tuple[float, int]], resource: int, rates: list[float], binding: list[int]
) -> None:
    """Max-min division of one resource: the modest get what they ask, the rest equal parts."""
    rising.sort()
    left, count = 1.0, len(rising)
    for part, i in rising:
        fair = left / count
        if part > fair:
            rates[i], binding[i] = fair / part, resource
            left -= fair
        else:
            left -= part
        count -= 1


def _fill(
    rising: list[tuple[float, int]],
    hot: list[int],
    uses: Sequence[Use],
    rates: list[float],
    binding: list[int],
) -> None:
    used = dict.fromkeys(hot, 0.0)
    while rising:
        level, filled = _next_stop(rising, uses, used)
        still: list[tuple[float, int]] = []
        for top, i in rising:
            stops = top <= level if filled < 0 else any(r == filled for r, _ in uses[i])
            if not stops:
                still.append((top, i))
                continue
            rates[i], binding[i] = (1.0 if filled < 0 else level / top), filled
            for resource, part in uses[i]:
                if resource in used:
                    used[resource] += part * rates[i]
        rising = still


def _next_stop(
    rising: list[tuple[float, int]], uses: Sequence[Use], used: dict[int, float]
) -> tuple[float, int]:
    """The level at which a rising phase reaches its rate alone (-1), or a resource is full."""
    slope = dict.fromkeys(used, 0.0)
    for top, i in rising:
        for resource, part in uses[i]:
            if resource in slope:
                slope[resource] += part / top
    level, filled = min(rising)[0], -1
    for resource, rise in slope.items():
        if rise > 0.0:
            reach = max(0.0, 1.0 - used[resource]) / rise
            if reach < level:
                level, filled = reach, resource
    return level, filled
