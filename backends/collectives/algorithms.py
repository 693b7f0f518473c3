"""The algorithms: for each the steps of every collective that it makes.

``ring``, ``mesh`` (everyone to everyone), ``halving_doubling``, ``tree`` and ``hierarchical``
(within the units of the nearest links, then across them). An algorithm that does not make a
collective, or not for that group, gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gecompiler.backends.collectives import gathering
from gecompiler.backends.collectives.hierarchical import hierarchical
from gecompiler.backends.collectives.steps import (
    Group,
    Plan,
    Step,
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
    SEND,
)

Algorithm = Callable[[str, Group, int], "Plan | None"]
"""The plan of a collective by its op type in a group, from a root where it has one."""

PIECES = 4
"""Pieces a rank, in which a ring broadcast follows itself."""


def _gathered(kind: str, gather: Steps) -> Steps | None:
    """All-gather, and what is made of it by running it backwards."""
    if kind == ALL_GATHER:
        return gather
    if kind == REDUCE_SCATTER:
        return reversed_in_time(gather)
    if kind == ALL_REDUCE:
        return reversed_in_time(gather) + gather
    return None


def _rings(group: Group) -> list[list[int]]:
    """The orders of as many rings as there are places in a unit: each leaves it by another.

    What crosses between units is then spread evenly over the links of their cards.
    """
    width = group.even or 1
    if width < 2:
        return [[place for unit in group.units for place in unit]]
    return [
        [unit[(shift + i) % width] for unit in group.units for i in range(width)]
        for shift in range(width)
    ]


def ring(kind: str, group: Group, root: int) -> Plan | None:
    """Round a ring, or as many as a unit has places (Patarasu, Yuan 2009)."""
    n, rings = group.size, _rings(group)
    width = len(rings)
    if kind == BROADCAST:
        count = PIECES * (n - 1)
        return Plan(
            together(
                _chain(order, root, range(j * count, (j + 1) * count))
                for j, order in enumerate(rings)
            ),
            width * count,
        )
    gather = together(
        gathering.ring(order, [(place * width + j,) for place in order])
        for j, order in enumerate(rings)
    )
    steps = _gathered(kind, gather)
    return None if steps is None else Plan(steps, n * width)


def _chain(order: list[int], root: int, pieces: range) -> Steps:
    """The pieces follow each other from the root to the last place before it."""
    at = order.index(root)
    chain = order[at:] + order[:at]
    links = len(chain) - 1
    found: list[Step] = []
    for step in range(links + len(pieces) - 1):
        first = max(0, step - len(pieces) + 1)
        found.append(
            tuple(
                Transfer(chain[i], chain[i + 1], (pieces[step - i],))
                for i in range(first, min(links, step + 1))
            )
        )
    return tuple(found)


def mesh(kind: str, group: Group, root: int) -> Plan | None:
    """Everyone to everyone: one step, or two where parts are reduced or spread first."""
    n = group.size
    places = range(n)
    if kind == SEND:
        return Plan(((Transfer(0, 1, (0,)),),), 1) if n == 2 else None
    if kind == ALL_TO_ALL:
        step = tuple(Transfer(s, d, (s * n + d,)) for s in places for d in places if s != d)
        return Plan((step,), n)
    gather = gathering.direct(places, [(place,) for place in places])
    if kind == BROADCAST:
        deal = tuple(Transfer(root, place, (place,)) for place in places if place != root)
        return Plan((deal, *gather), n)
    steps = _gathered(kind, gather)
    return None if steps is None else Plan(steps, n)


def halving_doubling(kind: str, group: Group, root: int) -> Plan | None:
    """Halving distances with half the data, and back (Rabenseifner 2004; Bruck 1997)."""
    n = group.size
    steps = _gathered(kind, gathering.doubling(range(n), [(place,) for place in range(n)]))
    return None if steps is None else Plan(steps, n)


def tree(kind: str, group: Group, root: int) -> Plan | None:
    """A binomial tree that carries the whole message: few steps, for what is small."""
    down = spread(range(group.size), root, (0,))
    if kind == BROADCAST:
        return Plan(down, 1)
    return Plan(reversed_in_time(down) + down, 1) if kind == ALL_REDUCE else None


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "ring": ring,
        "mesh": mesh,
        "halving_doubling": halving_doubling,
        "tree": tree,
        "hierarchical": hierarchical,
    }
)
"""By name, in the order in which equally good ones are preferred."""
