"""Within the units of the nearest links first, then across them, each link kind for what it is.

The place j of every unit stands for the j-th part of the data across units: the slow links
carry each byte once (Cho et al., "BlueConnect", 2019). Within a unit everyone sends to everyone,
across units the distances halve and double.
"""

from __future__ import annotations

from gecompiler.backends.collectives import gathering
from gecompiler.backends.collectives.steps import (
    Group,
    Plan,
    Steps,
    Transfer,
    reversed_in_time,
    together,
)
from gecompiler.backends.collectives.tree import spread
from gecompiler.ir.collective_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    REDUCE_SCATTER,
)


def hierarchical(kind: str, group: Group, root: int) -> Plan | None:
    """For groups of several units that have as many places each, two or more."""
    if group.even < 2:
        return None
    n = group.size
    if kind == ALL_TO_ALL:
        return Plan(_exchange(group), n)
    across = list(zip(*group.units, strict=True))
    if kind == BROADCAST:
        return Plan(_broadcast(group, across, root), n)
    outer = together(
        gathering.doubling(places, [(place,) for place in places]) for places in across
    )
    inner = together(gathering.direct(unit, across) for unit in group.units)
    if kind == ALL_GATHER:
        return Plan(outer + inner, n)
    if kind == REDUCE_SCATTER:
        return Plan(reversed_in_time(outer + inner), n)
    if kind == ALL_REDUCE:
        return Plan(reversed_in_time(outer + inner) + outer + inner, n)
    return None


def _broadcast(group: Group, across: list[tuple[int, ...]], root: int) -> Steps:
    """The root deals to its unit, each place passes its part to its like, units gather."""
    own = next(unit for unit in group.units if root in unit)
    deal = tuple(
        Transfer(root, place, part)
        for place, part in zip(own, across, strict=True)
        if place != root
    )
    outer = together(
        spread(places, place, places) for place, places in zip(own, across, strict=True)
    )
    inner = together(gathering.direct(unit, across) for unit in group.units)
    return (deal, *outer, *inner)


def _exchange(group: Group) -> Steps:
    """What goes to the places j of all units goes to the own unit's place j first."""
    n = group.size
    across = list(zip(*group.units, strict=True))
    first = tuple(
        Transfer(source, via, tuple(source * n + target for target in across[j]))
        for unit in group.units
        for source in unit
        for j, via in enumerate(unit)
        if via != source
    )
    second = tuple(
        Transfer(via, target, tuple(source * n + target for source in unit))
        for unit in group.units
        for j, via in enumerate(unit)
        for target in across[j]
        if via != target
    )
    return first, second
