"""How running tasks share a device: phases of a task, and max-min fair rates among phases.

A task runs through phases, one after the other: its fixed start-up, which holds no shared
resource; the loads its computing cannot hide; the steady phase, in which loads, computing and
stores overlap; the stores that cannot be hidden. Each phase has one progress rate. Alone it is
as fast as its tightest resource lets it, or as fast as the cores it uses can be fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

SLACK = 1e-9
"""Shares may exceed 1 by this much before a resource counts as full: float noise, no more."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase: how long it takes alone, and what share of each resource it then uses."""

    us: float
    use: tuple[tuple[str, float], ...]
    bound: str
    """The resource that limits it when alone."""


def phases(device: Device, demand: Demand) -> tuple[Phase, ...]:
    """The phases after the fixed start-up, in order; empty ones are left out.

    Of loads and stores, ``hidden_fraction`` can hide behind computing, and with n tiles at
    most (n-1)/n of them: the first tile's load has nothing before it, the last one's store
    nothing after. A task that computes nothing has one phase: its moves are all it does.
    """
    computes = demand.cube_us > 0 or demand.vector_us > 0 or bool(demand.link_bytes)
    tiles = max(1, demand.tiles)
    shown = 1.0 - device.hidden_fraction * (tiles - 1) / tiles if computes else 0.0
    moved = demand.load_bytes + demand.store_bytes
    per_byte = demand.l2_bytes / moved if moved else 0.0
    first, last = demand.load_bytes * shown, demand.store_bytes * shown
    middle = moved - first - last
    steady_l2 = middle * per_byte if moved else demand.l2_bytes
    found = (
        _phase(device, demand, first, first * per_byte, steady=False),
        _phase(device, demand, middle, steady_l2, steady=True),
        _phase(device, demand, last, last * per_byte, steady=False),
    )
    return tuple(p for p in found if p is not None)


def _phase(
    device: Device, demand: Demand, hbm: float, l2: float, *, steady: bool
) -> Phase | None:
    hbm_feed, l2_feed = _feeds(device, demand)
    work: list[tuple[str, float, float, float]] = []  # resource, work, capacity, rate alone
    if steady and demand.cube_us > 0:
        cores = min(max(1, demand.cube_cores), device.cube_cores)
        work.append(("cube", demand.cube_us, device.cube_cores, cores))
    if steady and demand.vector_us > 0:
        cores = min(max(1, demand.vector_cores), device.vector_cores)
        work.append(("vector", demand.vector_us, device.vector_cores, cores))
    if hbm > 0:
        work.append(("hbm", hbm, device.hbm_bytes_per_us, hbm_feed))
    if l2 > 0:
        work.append(("l2", l2, device.l2_bytes_per_us, l2_feed))
    if steady:
        links: dict[str, float] = {}
        for link, amount in demand.link_bytes:
            links[link] = links.get(link, 0.0) + amount
        for link, amount in links.items():
            if amount > 0:
                capacity = device.link_bytes_per_us(link)
                work.append((link, amount, capacity, capacity))
    us, bound = 0.0, ""
    for resource, amount, _, rate in work:
        if amount / rate > us:
            us, bound = amount / rate, resource
    if us <= 0:
        return None
    use = tuple((r, min(1.0, amount / (us * cap))) for r, amount, cap, _ in work)
    return Phase(us, use, bound)


def _feeds(device: Device, demand: Demand) -> tuple[float, float]:
    """Bytes per us that the task's cores can draw from HBM, and move to and from L2."""
    if not demand.cube_cores and not demand.vector_cores:
        return device.hbm_bytes_per_us, device.l2_bytes_per_us
    cubes = min(demand.cube_cores, device.cube_cores)
    groups = min(demand.vector_cores, device.vector_cores) / device.vectors_per_core
    clock = device.cube_frequency_mhz
    hbm = max(cubes, groups) * device.core_hbm_bytes_per_cycle * clock
    both = device.l2_read_bytes_per_cycle + device.l2_write_bytes_per_cycle
    if device.cube_vector_split:
        l2 = (cubes * device.l2_read_bytes_per_cycle + groups * both) * clock
    else:
        l2 = max(cubes, groups) * both * clock
    return min(hbm, device.hbm_bytes_per_us), min(l2, device.l2_bytes_per_us)


Use = tuple[tuple[int, float], ...]


def share(uses: Sequence[Use], load: Sequence[float]) -> tuple[list[float], list[int]]:
    """Rates of phases that run side by side, as fractions of their rates alone; what binds them.

    ``uses[i]`` are the resources of phase i with the shares it uses alone, ``load`` their sums
    by resource. Progressive filling: all phases rise together, measured by their share of the
    contended resource they need most, until each has its rate alone or one of its resources is
    full. With one contended resource this is its max-min fair division. The second list says
    which resource holds a phase back, -1 where none does. Every phase that is held back uses a
    full resource, so nothing lies idle that could be used. O(phases^2 * uses) at worst.
    """
    full = 1.0 + SLACK
    rates = [1.0] * len(uses)
    binding = [-1] * len(uses)
    rising: list[tuple[float, int]] = []
    for i, use in enumerate(uses):
        top = 0.0
        for resource, part in use:
            if part > top and load[resource] > full:
                top = part
        if top > 0.0:
            rising.append((top, i))
    hot = [r for r, total in enumerate(load) if total > full]
    if len(hot) == 1:
        _divide(rising, hot[0], rates, binding)
    elif hot:
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
        slope = dict.fromkeys(hot, 0.0)
        for top, i in rising:
            for resource, part in uses[i]:
                if resource in slope:
                    slope[resource] += part / top
        level, filled = min(top for top, _ in rising), -1
        for resource in hot:
            if slope[resource] > 0.0:
                reach = max(0.0, 1.0 - used[resource]) / slope[resource]
                if reach < level:
                    level, filled = reach, resource
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
