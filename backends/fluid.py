"""The phases of a task, and how fast each goes when nothing runs beside it.

A task runs through phases, one after the other: its fixed start-up, which holds no shared
resource; the loads its computing cannot hide; the steady phase, in which loads, computing and
stores overlap; the stores that cannot be hidden. Each phase has one progress rate. Alone it is
as fast as its tightest resource lets it, or as fast as the cores it uses can be fed.
"""

from __future__ import annotations

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


Part = tuple[str, float, float, float]
"""A resource, the work on it, the device's capacity, and the rate the task reaches alone."""


def phases(device: Device, demand: Demand) -> tuple[Phase, ...]:
    """The phases after the fixed start-up, in order; empty ones are left out.

    Of loads and stores, ``hidden_fraction`` can hide behind computing, and with n tiles at
    most (n-1)/n of them: the first tile's load has nothing before it, the last one's store
    nothing after. A task that computes nothing has one phase: its moves are all it does.
    """
    computing = _computing(device, demand)
    moved = demand.load_bytes + demand.store_bytes
    moves = _moves(device, demand, moved)
    if not moved or not computing:
        work = computing + moves
        return (_phase(work),) if work else ()
    tiles = max(1, demand.tiles)
    shown = 1.0 - device.hidden_fraction * (tiles - 1) / tiles
    steady = 1.0 - shown
    computing += [(r, amount * steady, cap, rate) for r, amount, cap, rate in moves if steady > 0]
    first, last = demand.load_bytes / moved * shown, demand.store_bytes / moved * shown
    us, use, bound = _phase(moves)
    found = (Phase(us * first, use, bound), _phase(computing), Phase(us * last, use, bound))
    return found if first > 0 and last > 0 else tuple([p for p in found if p.us > 0])


def _phase(work: list[Part]) -> Phase:
    us, bound = 0.0, ""
    for resource, amount, _, rate in work:
        time = amount / rate
        if time > us:
            us, bound = time, resource
    use = tuple([(r, min(1.0, amount / (us * cap))) for r, amount, cap, _ in work])
    return Phase(us, use, bound)


def _moves(device: Device, demand: Demand, moved: float) -> list[Part]:
    """HBM and L2, as fast as the task's cores can be fed.

    What one core can draw and pass on is limited; a move without cores (a copy engine's) is not.
    """
    hbm = hbm_feed = device.hbm_bytes_per_us
    l2 = l2_feed = device.l2_bytes_per_us
    if demand.cube_cores or demand.vector_cores:
        cubes = min(demand.cube_cores, device.cube_cores)
        groups = min(demand.vector_cores, device.vector_cores) / device.vectors_per_core
        most = cubes if cubes > groups else groups
        hbm_feed = min(hbm, most * device.core_hbm_bytes_per_us)
        both = device.core_l2_bytes_per_us
        if device.cube_vector_split:
            l2_feed = min(l2, cubes * device.core_l2_read_bytes_per_us + groups * both)
        else:
            l2_feed = min(l2, most * both)
    work: list[Part] = []
    if moved > 0:
        work.append(("hbm", moved, hbm, hbm_feed))
    if demand.l2_bytes > 0:
        work.append(("l2", demand.l2_bytes, l2, l2_feed))
    return work


def _computing(device: Device, demand: Demand) -> list[Part]:
    """The steady phase's work beside HBM and L2: cores and links."""
    work: list[Part] = []
    if demand.cube_us > 0:
        cubes = device.cube_cores
        work.append(("cube", demand.cube_us, cubes, min(max(1, demand.cube_cores), cubes)))
    if demand.vector_us > 0:
        vectors = device.vector_cores
        work.append(
            ("vector", demand.vector_us, vectors, min(max(1, demand.vector_cores), vectors))
        )
    links: dict[str, float] = {}
    for link, amount in demand.link_bytes:
        links[link] = links.get(link, 0.0) + amount
    for link, amount in links.items():
        capacity = device.link_bytes_per_us(link)
        if amount > 0:
            work.append((link, amount, capacity, capacity))
    return work
