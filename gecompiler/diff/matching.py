"""Which ops of two timelines are the same: by name, else by type and shapes, else by type."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from gecompiler.captures.ge_types import KINDS, plain_type
from gecompiler.diff.sides import Op

_PART = re.compile(r"^\d+:(mb\d+/)?|#mb\d+$")
"""``0:mb1/`` before a name, as of several cards; ``#mb1`` behind it, as of one."""


class Pair(NamedTuple):
    """The same op on both sides; several where they run a different number of times."""

    before: tuple[Op, ...]
    after: tuple[Op, ...]
    by: str
    """``name``, ``shapes`` or ``type``."""

    @property
    def mean_ns(self) -> tuple[float, float]:
        """The mean duration of a run on either side."""
        return _mean(self.before), _mean(self.after)

    @property
    def difference_ns(self) -> float:
        """How much longer a run takes after than before."""
        before, after = self.mean_ns
        return after - before


class Matching(NamedTuple):
    """Pairs in the order of the first timeline, and what is on one side alone."""

    pairs: tuple[Pair, ...]
    removed: tuple[Op, ...]
    added: tuple[Op, ...]


def match(before: Sequence[Op], after: Sequence[Op]) -> Matching:
    """Matches in rounds, each over what the one before left. O(n).

    By name (on ranks in the same place), where an op that runs several times on one side and
    another number of times on the other is compared by its means; by name without rank and
    micro-batch, as of layouts that cut the model in other ways; then by type, shapes and
    order; then, where one side says no shapes, by type and order.
    """
    ranks = _places(before), _places(after)
    pairs: list[Pair] = []
    left, right = list(before), list(after)
    rounds: tuple[tuple[str, Callable[[Op, dict[int, int]], Hashable], bool], ...] = (
        ("name", lambda op, places: (places[op.rank], op.name), True),
        ("name", lambda op, places: base_name(op.name), True),
        ("shapes", _typed, False),
        ("type", lambda op, places: (places[op.rank], canonical(op.op_type)), False),
    )
    for by, key_of, means in rounds:
        found, left, right = _round(left, right, by, key_of, ranks, means)
        pairs += found
    pairs.sort(key=lambda pair: (pair.before[0].start_ns, pair.before[0].rank))
    return Matching(tuple(pairs), tuple(left), tuple(right))


def base_name(name: str) -> str:
    """An op's name without the rank and the micro-batch that it is the op of."""
    return _PART.sub("", name)


def canonical(op_type: str) -> str:
    """One name for the types that compute the same: MatMulV2, MatMul, Gemm."""
    plain = plain_type(op_type)
    kind = KINDS.get(plain)
    return kind.op_type if kind is not None else plain


def _typed(op: Op, places: dict[int, int]) -> Hashable:
    if not op.shapes:
        return None
    before, _, after = op.shapes.partition("->")
    return places[op.rank], canonical(op.op_type), _sizes(before), _sizes(after)


def _sizes(shapes: str) -> tuple[str, ...]:
    """Shapes without sizes of 1, which are written or not; inputs stand in any order."""
    plain = (",".join(n for n in one.split(",") if n != "1") for one in shapes.split(";"))
    return tuple(sorted(one for one in plain if one))


def _all_shaped(ops: Sequence[Op], indices: Sequence[int]) -> bool:
    return all(ops[i].shapes for i in indices)


def _places(ops: Sequence[Op]) -> dict[int, int]:
    return {rank: place for place, rank in enumerate(sorted({op.rank for op in ops}))}


def _round(
    left: list[Op],
    right: list[Op],
    by: str,
    key_of: Callable[[Op, dict[int, int]], Hashable],
    ranks: tuple[dict[int, int], dict[int, int]],
    means: bool,
) -> tuple[list[Pair], list[Op], list[Op]]:
    """The pairs of one round, and what it leaves on either side, in order."""
    ours = _grouped(left, key_of, ranks[0])
    theirs = _grouped(right, key_of, ranks[1])
    pairs: list[Pair] = []
    used: tuple[set[int], set[int]] = (set(), set())
    for key, mine in ours.items():
        yours = theirs.get(key, [])
        if not yours or (by == "type" and _all_shaped(left, mine) and _all_shaped(right, yours)):
            # Shapes that are known on both sides and differ are of different ops.
            continue
        count = min(len(mine), len(yours))
        if means and len(mine) != len(yours):
            used[0].update(mine)
            used[1].update(yours)
            pairs.append(Pair(tuple(left[i] for i in mine), tuple(right[i] for i in yours), by))
            continue
        used[0].update(mine[:count])
        used[1].update(yours[:count])
        pairs += [
            Pair((left[i],), (right[j],), by) for i, j in zip(mine[:count], yours, strict=False)
        ]
    return (
        pairs,
        [op for i, op in enumerate(left) if i not in used[0]],
        [op for i, op in enumerate(right) if i not in used[1]],
    )


def _grouped(
    ops: Sequence[Op],
    key_of: Callable[[Op, dict[int, int]], Hashable],
    places: dict[int, int],
) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for index, op in enumerate(ops):
        key = key_of(op, places)
        if key is not None:
            found[key].append(index)
    return found


def _mean(ops: Sequence[Op]) -> float:
    return sum(op.duration_ns for op in ops) / len(ops)
