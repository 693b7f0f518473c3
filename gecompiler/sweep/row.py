"""What one point of a sweep found, and the columns of the table made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from gecompiler.sweep.points import ONE_CARD, Cards, Point

ENOUGH = 0.05
"""Fewer streams are recommended while they are within this of the fastest (auto_min_gain)."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result at one point; ``error`` says why there is none."""

    device: str
    batch: int
    seq: int
    strategy: str
    streams: int
    chosen: str = ""
    """The strategy that made the schedule."""
    used: int = 0
    """Streams that have tasks."""
    time_us: float = 0.0
    period_us: float = 0.0
    """Between iterations that follow each other."""
    single_stream_us: float = 0.0
    lower_bound_us: float = 0.0
    bottleneck: str = ""
    memory_bytes: int = 0
    flops: float = 0.0
    """Arithmetic of one run, a multiply-add counted as two."""
    hbm_bytes: float = 0.0
    """Bytes that one run moves between device memory and cores."""
    tokens: int = 0
    """Tokens of each sample that one run takes: the sequence, but one in a decode step."""
    warnings: tuple[str, ...] = ()
    error: str = ""
    taken_batch: int = 0
    taken_seq: int = 0
    """The sizes that it ran at, where none were asked for; 0 where the model has no such size."""
    cards: Cards = ONE_CARD
    topology: str = ""
    """How the cards are linked, whether it was asked for or not."""
    micro_batches: int = 1
    communication_us: float = 0.0
    """While a collective goes on, on the card on which that is longest."""
    exposed_us: float = 0.0
    """Of that, while the card computes nothing."""
    bubble: float = 0.0
    """The mean share of the time in which cards wait for each other."""
    sent_bytes: float = 0.0
    """By the card that sends most."""

    @staticmethod
    def at(point: Point, **figures: Any) -> Row:
        """The row of a point."""
        return Row(*point[:5], cards=point.cards, **figures)

    @property
    def point(self) -> Point:
        """The point it is of."""
        return Point(self.device, self.batch, self.seq, self.strategy, self.streams, self.cards)

    @property
    def speedup(self) -> float:
        """Over one stream."""
        return self.single_stream_us / self.time_us if self.time_us else 0.0

    @property
    def samples_per_s(self) -> float:
        """Samples of the batch a second, iterations back to back."""
        return max(1, self.batch) / self.period_us * 1e6 if self.period_us else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens that come in a second; 0 where the model takes none."""
        return self.samples_per_s * self.tokens

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for the journal."""
        return asdict(self) | {"warnings": list(self.warnings)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Row:
        """The row that `as_dict` made; ValueError for anything else.

        A journal of before there were all the figures has rows without the later ones.
        """
        names = {f.name for f in fields(Row)}
        later = {"flops", "hbm_bytes", "tokens", "taken_batch", "taken_seq", *_OF_CARDS}
        if set(data) | later != names:
            raise ValueError("not a row")
        cards = Cards(*data.get("cards", ()))
        return Row(**{**data, "cards": cards, "warnings": tuple(data["warnings"])})


_OF_CARDS = (
    *("cards", "topology", "micro_batches"),
    *("communication_us", "exposed_us", "bubble", "sent_bytes"),
)

COLUMNS = (
    *("device", "batch", "seq", "strategy", "streams", "chosen", "used_streams", "time_us"),
    *("period_us", "samples_per_s", "tokens_per_s", "single_stream_us", "speedup"),
    *("lower_bound_us", "bottleneck", "memory_bytes", "recommended_streams", "warnings", "error"),
)
"""The columns of the CSV and the keys of the JSON."""

CARD_COLUMNS = (
    *("tp", "sp", "dp", "pp", "ep", "topology", "micro_batches"),
    *("communication_us", "exposed_us", "bubble", "sent_bytes"),
)
"""The ones that there are besides where there are several cards."""


def columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """Those of a table of these rows."""
    return (*COLUMNS, *CARD_COLUMNS) if any(row.cards.several for row in rows) else COLUMNS


def recommended(rows: Sequence[Row]) -> dict[tuple[str, int, int, Cards], int]:
    """By device and size, the fewest streams that are within `ENOUGH` of the fastest found."""
    groups: dict[tuple[str, int, int, Cards], list[Row]] = {}
    for row in rows:
        if not row.error:
            groups.setdefault(row.point.group, []).append(row)
    found: dict[tuple[str, int, int, Cards], int] = {}
    for group, members in groups.items():
        # One stream is always to be had: its time is known beside every schedule.
        choices = [(row.used, row.time_us) for row in members]
        choices += [(1, row.single_stream_us) for row in members]
        best = min(us for _, us in choices)
        found[group] = min(count for count, us in choices if us * (1 - ENOUGH) <= best)
    return found


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as data under `COLUMNS`, with the recommendation of their group."""
    best, several = recommended(rows), len(columns(rows)) > len(COLUMNS)
    return [
        {
            "device": row.device,
            "batch": row.batch or row.taken_batch or None,
            "seq": row.seq or row.taken_seq or None,
            "strategy": row.strategy,
            "streams": row.streams or "auto",
            "chosen": row.chosen,
            "used_streams": row.used,
            "time_us": round(row.time_us, 3),
            "period_us": round(row.period_us, 3),
            "samples_per_s": round(row.samples_per_s, 4),
            "tokens_per_s": round(row.tokens_per_s, 2),
            "single_stream_us": round(row.single_stream_us, 3),
            "speedup": round(row.speedup, 4),
            "lower_bound_us": round(row.lower_bound_us, 3),
            "bottleneck": row.bottleneck,
            "memory_bytes": row.memory_bytes,
            "recommended_streams": best.get(row.point.group),
            "warnings": " ".join(row.warnings),
            "error": row.error,
            **(_of_cards(row) if several else {}),
        }
        for row in rows
    ]


def _of_cards(row: Row) -> dict[str, Any]:
    return {
        **{axis: getattr(row.cards, axis) for axis in CARD_COLUMNS[:5]},
        "topology": row.topology or row.cards.topology,
        "micro_batches": row.micro_batches,
        "communication_us": round(row.communication_us, 3),
        "exposed_us": round(row.exposed_us, 3),
        "bubble": round(row.bubble, 4),
        "sent_bytes": round(row.sent_bytes),
    }
