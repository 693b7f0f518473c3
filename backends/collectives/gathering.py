"""All-gather among some places, the heart of most collectives: by ring, directly, by doubling.

Each takes the places and, for each, the chunks that it has; in the end all have all of them. A
reduce-scatter is the same backwards, every transfer turned round and adding, and an all-reduce
is one after the other (Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
Operations in MPICH", 2005).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gecompiler.backends.collectives.steps import Steps, Transfer

Blocks = Sequence[tuple[int, ...]]
Gathering = Callable[[Sequence[int], Blocks], Steps]


def ring(places: Sequence[int], blocks: Blocks) -> Steps:
    """Everyone passes on to its neighbour what it got last: n - 1 steps, each link used once."""
    n = len(places)
    return tuple(
        tuple(Transfer(places[i], places[(i + 1) % n], blocks[(i - step) % n]) for i in range(n))
        for step in range(n - 1)
    )


def direct(places: Sequence[int], blocks: Blocks) -> Steps:
    """Everyone sends to all others: one step."""
    if len(places) < 2:
        return ()
    return (
        tuple(
            Transfer(source, target, block)
            for source, block in zip(places, blocks, strict=True)
            for target in places
            if source != target
        ),
    )


def doubling(places: Sequence[int], blocks: Blocks) -> Steps:
    """What everyone has doubles with each step: ceil(log2 n) of them.

    For powers of two partners exchange, the nearest last (recursive doubling run from far to
    near costs no more, and its large exchanges stay near); otherwise everyone sends round the
    ring (Bruck et al., "Efficient Algorithms for All-to-All Communications", 1997).
    """
    n = len(places)
    if n & (n - 1):
        return _dissemination(places, blocks)
    have = [[i] for i in range(n)]
    steps = []
    distance = n >> 1
    while distance:
        step = tuple(
            Transfer(places[i], places[i ^ distance], _joined(blocks, have[i])) for i in range(n)
        )
        have = [have[i] + have[i ^ distance] for i in range(n)]
        steps.append(step)
        distance >>= 1
    return tuple(steps)


def _dissemination(places: Sequence[int], blocks: Blocks) -> Steps:
    n, held, steps = len(places), 1, []
    while held < n:
        count = min(held, n - held)
        steps.append(
            tuple(
                Transfer(
                    places[i],
                    places[(i - held) % n],
                    _joined(blocks, [(i + k) % n for k in range(count)]),
                )
                for i in range(n)
            )
        )
        held += count
    return tuple(steps)


def _joined(blocks: Blocks, owners: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(chunk for owner in owners for chunk in blocks[owner]))
