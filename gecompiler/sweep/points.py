"""The points of a sweep: every combination of what is varied, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

from gecompiler.ir.errors import UsageError
from gecompiler.option_table_parallel import MOST_RANKS

T = TypeVar("T")

MOST_POINTS = 100_000
_MOST = {
    **{"batch": 1 << 24, "seq": 1 << 24, "streams": 4096, "micro-batches": 4096},
    **dict.fromkeys(("tp", "sp", "dp", "pp", "ep"), MOST_RANKS),
}
_OR_AUTO = ("streams", "micro-batches")


class Cards(NamedTuple):
    """How many cards share the work, by what they share, and how. ``micro_batches`` 0 is auto."""

    tp: int = 1
    sp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    topology: str = ""
    """Empty for what is usual for the device."""
    micro_batches: int = 0

    @property
    def several(self) -> bool:
        """Whether it is said anything beyond one card."""
        return self != ONE_CARD

    def options(self) -> dict[str, object]:
        """As options of a compilation."""
        return {
            **self._asdict(),
            "topology": self.topology or "none",
            "micro_batches": self.micro_batches or "auto",
        }

    def __str__(self) -> str:
        sizes = [f"{axis}{getattr(self, axis)}" for axis in ("tp", "sp", "dp", "pp", "ep")]
        words = [size for size in sizes if not size.endswith("p1")] or ["1 card"]
        words += [f"mb{self.micro_batches}"] * bool(self.micro_batches)
        return " ".join([*words, *([f"on {self.topology}"] if self.topology else [])])


ONE_CARD = Cards()


class Point(NamedTuple):
    """One compilation. ``batch``, ``seq`` and ``streams`` of 0 are left to the compiler."""

    device: str
    batch: int
    seq: int
    strategy: str
    streams: int
    cards: Cards = ONE_CARD

    @property
    def group(self) -> tuple[str, int, int, Cards]:
        """What is compared with each other: all placements of one size on one device."""
        return (self.device, self.batch, self.seq, self.cards)

    def __str__(self) -> str:
        sizes = [f"{n} {v}" for n, v in (("batch", self.batch), ("seq", self.seq)) if v]
        count = self.streams or "auto"
        cards = [str(self.cards)] if self.cards.several else []
        return ", ".join([self.device, *sizes, *cards, self.strategy, f"streams {count}"])


def grid(
    devices: Sequence[str],
    batches: Sequence[int],
    seqs: Sequence[int],
    strategies: Sequence[str],
    streams: Sequence[int],
    cards: Sequence[Cards] = (ONE_CARD,),
) -> tuple[Point, ...]:
    """Every combination; devices vary slowest, streams fastest. UsageError for too many."""
    lists = (devices, batches or (0,), seqs or (0,), cards, strategies, streams)
    count = 1
    for values in lists:
        count *= len(values)
    if count > MOST_POINTS:
        raise UsageError(f"{count} points are more than {MOST_POINTS}", where="sweep")
    return tuple(
        Point(device, batch, seq, strategy, count, layout)
        for device, batch, seq, layout, strategy, count in product(
            devices, batches or (0,), seqs or (0,), cards, strategies, streams
        )
    )


def layouts(
    sizes: Sequence[Sequence[int]], topologies: Sequence[str], micro_batches: Sequence[int]
) -> tuple[Cards, ...]:
    """Every combination of sizes (tp, sp, dp, pp, ep), the last given varying fastest."""
    return tuple(
        Cards._make((*axes, topology, parts))
        for axes, topology, parts in product(product(*sizes), topologies, micro_batches)
    )


def numbers(text: str | None, name: str) -> tuple[int, ...]:
    """``1,8,32`` as numbers without repetition, ``auto`` as 0 where it is one; UsageError else."""
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
    if name in _OR_AUTO and part == "auto":
        return 0
    if not part.isascii() or not part.isdecimal() or not 1 <= int(part) <= _MOST[name]:
        auto = " or 'auto'" if name in _OR_AUTO else ""
        raise UsageError(
            f"{part!r} is no number from 1 to {_MOST[name]}{auto}",
            where=f"--{name}",
            hint="numbers separated by commas: 1,8,32",
        )
    return int(part)
