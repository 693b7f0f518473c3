"""The points of a sweep: every combination of what is varied, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

from gecompiler.ir.errors import UsageError

T = TypeVar("T")

MOST_POINTS = 100_000
_MOST = {"batch": 1 << 24, "seq": 1 << 24, "streams": 4096}


class Point(NamedTuple):
    """One compilation. ``batch``, ``seq`` and ``streams`` of 0 are left to the compiler."""

    device: str
    batch: int
    seq: int
    strategy: str
    streams: int

    @property
    def group(self) -> tuple[str, int, int]:
        """What is compared with each other: all placements of one size on one device."""
        return (self.device, self.batch, self.seq)

    def __str__(self) -> str:
        sizes = [f"{n} {v}" for n, v in (("batch", self.batch), ("seq", self.seq)) if v]
        count = self.streams or "auto"
        return ", ".join([self.device, *sizes, self.strategy, f"streams {count}"])


def grid(
    devices: Sequence[str],
    batches: Sequence[int],
    seqs: Sequence[int],
    strategies: Sequence[str],
    streams: Sequence[int],
) -> tuple[Point, ...]:
    """Every combination; devices vary slowest, streams fastest. UsageError for too many."""
    lists = (devices, batches or (0,), seqs or (0,), strategies, streams)
    count = 1
    for values in lists:
        count *= len(values)
    if count > MOST_POINTS:
        raise UsageError(f"{count} points are more than {MOST_POINTS}", where="sweep")
    return tuple(Point(*values) for values in product(*lists))


def numbers(text: str | None, name: str) -> tuple[int, ...]:
    """``1,8,32`` as numbers without repetition, ``auto`` as 0 for streams; UsageError else."""
    return _list(text, lambda part: _number(part, name))


def words(text: str | None, name: str) -> tuple[str, ...]:
    """``a,b`` as names without repetition; UsageError where there is none between commas."""
    return _list(text, lambda part: _word(part, name))


def _list(text: str | None, read: Callable[[str], T]) -> tuple[T, ...]:
    if text is None:
        return ()
    return tuple(dict.fromkeys(read(part.strip()) for part in text.split(",")))


def _word(part: str, name: str) -> str:
    if not part:
        raise UsageError("nothing between commas", where=f"--{name}", hint="names as in a,b")
    return part


def _number(part: str, name: str) -> int:
    if name == "streams" and part == "auto":
        return 0
    if not part.isascii() or not part.isdecimal() or not 1 <= int(part) <= _MOST[name]:
        auto = " or 'auto'" if name == "streams" else ""
        raise UsageError(
            f"{part!r} is no number from 1 to {_MOST[name]}{auto}",
            where=f"--{name}",
            hint="numbers separated by commas: 1,8,32",
        )
    return int(part)
