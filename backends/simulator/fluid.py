"""The phases of a task, and how fast each goes when nothing runs beside it.

A task runs through phases, one after the other: its fixed start-up, which holds no shared
resource; the loads its computing cannot hide; the steady phase, in which loads, computing and
stores overlap; the stores that cannot be hidden. Each phase has one progress rate. Alone it is
as fast as its tightest resource lets it, or as fast as the cores it uses can be fed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device


class Phase(NamedTuple):
    """One phase: how long it takes alone, and what share of each resource it then uses."""

    us: float
    use: tuple[tuple[str, float], ...]
    bound: str
    """The resource that limits it when alone."""


class Load(NamedTuple):
    """Work on several resources at once, alone on the device."""

    busy: list[tuple[str, float]]
    """Per resource, the time for which it would be used in full."""
    us: float
    """How long the work takes: the longest of its times, some of which fewer cores stretch."""
    bound: str


LinkRate = Callable[[str], float]
"""Bytes per microsecond of a link, by its name."""


def phases(device: Device, demand: Demand, link_rate: LinkRate | None = None) -> tuple[Phase, ...]:
    """The phases after the fixed start-up, in order; empty ones are left out.

    Of loads and stores, ``hidden_fraction`` can hide behind computing, and with n tiles at
    most (n-1)/n of them: the first tile's load has nothing before it, the last one's store
    nothing after. A task that computes nothing has one phase: its moves are all it does. So has
    a collective, whose steps take ``least_us`` and spread all else over that time. ``link_rate``
    is the topology's where there is one.
    """
    computing = _computing(device, demand, link_rate or device.link_bytes_per_us)
    if demand.least_us > 0:
        return (_steady(demand.least_us, computing, _moves(device, demand, fed=False)),)
    moves = _moves(device, demand)
    moved = demand.load_bytes + demand.store_bytes
    if not moved or not computing.us or not moves.us:
        us, bound = max((computing.us, computing.bound), (moves.us, moves.bound))
        busy = computing.busy + moves.busy
        return (Phase(us, tuple([(r, t / us) for r, t in busy]), bound),) if us else ()
    tiles = demand.tiles if demand.tiles > 1 else 1
    shown = 1.0 - device.hidden_fraction * (tiles - 1) / tiles
    hidden = 1.0 - shown
    us, bound = computing.us, computing.bound
    if moves.us * hidden > us:
        us, bound = moves.us * hidden, moves.bound
    use = [(r, t / us) for r, t in computing.busy]
    if hidden:
        use += [(r, t * hidden / us) for r, t in moves.busy]
    edge = tuple([(r, t / moves.us) for r, t in moves.busy])
    first = moves.us * (demand.load_bytes / moved) * shown
    last = moves.us * (demand.store_bytes / moved) * shown
    found = (
        Phase(first, edge, moves.bound),
        Phase(us, tuple(use), bound),
        Phase(last, edge, moves.bound),
    )
    return found if first > 0 and last > 0 else tuple([p for p in found if p.us > 0])


def _steady(least_us: float, computing: Load, moves: Load) -> Phase:
    """One phase of that time at least, over which all is spread."""
    us, bound = max((computing.us, computing.bound), (moves.us, moves.bound))
    if least_us > us:
        us, bound = least_us, computing.bound or moves.bound
    return Phase(us, tuple([(r, t / us) for r, t in computing.busy + moves.busy]), bound)


def _computing(device: Device, demand: Demand, link_rate: LinkRate) -> Load:
    """What the steady phase does beside moving data: cores and links."""
    busy: list[tuple[str, float]] = []
    us, bound = 0.0, ""
    for name, work, cores, there in (
        ("cube", demand.cube_us, demand.cube_cores, device.cube_cores),
        ("vector", demand.vector_us, demand.vector_cores, device.vector_cores),
    ):
        if work > 0:
            busy.append((name, work / there))
            time = work / (there if cores > there else cores if cores > 1 else 1)
            if time > us:
                us, bound = time, name
    if demand.link_bytes:
        links: dict[str, float] = {}
        for link, amount in demand.link_bytes:
            time = amount / link_rate(link)
            links[link] = links.get(link, 0.0) + time
        busy += [(link, time) for link, time in links.items() if time > 0]
        for link, time in links.items():
            if time > us:
                us, bound = time, link
    return Load(busy, us, bound)


def _moves(device: Device, demand: Demand, *, fed: bool = True) -> Load:
    """HBM and L2, as fast as the task's cores can be fed.

    What one core can draw and pass on is limited; a move without cores (a copy engine's) is not,
    nor one whose pace is measured as a whole (not ``fed``).
    """
    moved = demand.load_bytes + demand.store_bytes
    hbm = hbm_feed = device.hbm_bytes_per_us
    l2 = l2_feed = device.l2_bytes_per_us
    if fed and (demand.cube_cores or demand.vector_cores):
        cubes = min(demand.cube_cores, device.cube_cores)
        groups = min(demand.vector_cores, device.vector_cores) / device.vectors_per_core
        most = cubes if cubes > groups else groups
        hbm_feed = min(hbm, most * device.core_hbm_bytes_per_us)
        both = device.core_l2_bytes_per_us
        if device.cube_vector_split:
            l2_feed = min(l2, cubes * device.core_l2_read_bytes_per_us + groups * both)
        else:
            l2_feed = min(l2, most * both)
    hbm_us, l2_us = moved / hbm_feed, demand.l2_bytes / l2_feed
    busy: list[tuple[str, float]] = []
    if moved > 0:
        busy.append(("hbm", moved / hbm))
    if demand.l2_bytes > 0:
        busy.append(("l2", demand.l2_bytes / l2))
    return Load(busy, hbm_us, "hbm") if hbm_us >= l2_us else Load(busy, l2_us, "l2")
