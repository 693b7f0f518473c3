"""Recorded calls, added up by operator, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from gecompiler.backends.counters import AttentionCounters, OperatorCall
from gecompiler.ir.errors import UsageError, nearest

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class EventAverage:
    """Calls of one operator (of the same shapes, where grouped by them). Times in us."""

    key: str
    input_shapes: Shapes
    calls: tuple[OperatorCall, ...] = field(repr=False)

    @property
    def count(self) -> int:
        """How many calls."""
        return len(self.calls)

    @property
    def counters(self) -> tuple[AttentionCounters, ...]:
        """Of each call."""
        return tuple(call.counters for call in self.calls)

    @property
    def cpu_time_total(self) -> float:
        """Time on the host."""
        return sum(call.host_ns for call in self.calls) / 1e3

    @property
    def cpu_time(self) -> float:
        """The same per call."""
        return self.cpu_time_total / self.count

    @property
    def npu_time_total(self) -> float:
        """Modelled time on the device."""
        return sum(c.time_us for c in self.counters)

    @property
    def npu_time(self) -> float:
        """The same per call."""
        return self.npu_time_total / self.count

    @property
    def flops(self) -> int:
        """Of the matrix products that were done."""
        return sum(c.flops for c in self.counters)

    @property
    def flops_skipped(self) -> int:
        """Of those that were skipped."""
        return sum(c.flops_skipped for c in self.counters)

    @property
    def hbm_bytes(self) -> int:
        """Read from and written to device memory."""
        return sum(c.hbm_bytes for c in self.counters)

    @property
    def sram_peak_bytes(self) -> int:
        """The most a step of any call holds on a core."""
        return max(c.sram_peak_bytes for c in self.counters)

    @property
    def overflows(self) -> tuple[str, ...]:
        """On-chip buffers that the blocks of some call do not fit into."""
        return tuple(sorted({name for c in self.counters for name in c.overflows}))

    @property
    def cube_utilisation(self) -> float:
        """Share of the modelled time in which the cube cores are busy."""
        return self._mean(lambda c: c.cube_utilisation)

    @property
    def vector_utilisation(self) -> float:
        """The same of the vector cores."""
        return self._mean(lambda c: c.vector_utilisation)

    @property
    def npu_memory_usage(self) -> int:
        """Bytes of device memory that the results take."""
        return sum(call.memory_bytes for call in self.calls)

    def _mean(self, share: Callable[[AttentionCounters], float]) -> float:
        total = self.npu_time_total
        return sum(share(c) * c.time_us for c in self.counters) / total if total else 0.0


_SORTS = (
    "count",
    "cpu_time",
    "cpu_time_total",
    "cube_utilisation",
    "flops",
    "hbm_bytes",
    "npu_memory_usage",
    "npu_time",
    "npu_time_total",
)


class EventList(Sequence[EventAverage]):
    """Averages, in the order in which their operators were first called."""

    def __init__(
        self,
        items: Iterable[EventAverage],
        *,
        shapes: bool = False,
        memory: bool = False,
        host: bool = True,
        device: bool = True,
    ) -> None:
        self._items = tuple(items)
        self._shapes, self._memory, self._host, self._device = shapes, memory, host, device

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> EventAverage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[EventAverage, ...]: ...
    def __getitem__(self, index: int | slice) -> EventAverage | tuple[EventAverage, ...]:
        return self._items[index]

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """The averages as text, largest first by ``sort_by``, at most ``row_limit`` of them.

        torch's names are known too: ``self_cpu_time_total``, ``row_limit=-1`` for all.
        """
        if isinstance(sort_by, str):  # no operator here calls another: its own time is all of it
            sort_by = sort_by.removeprefix("self_")
        if sort_by is not None and sort_by not in _SORTS:
            raise UsageError(
                f"sort_by {sort_by!r} is not known",
                where="table",
                hint=nearest(str(sort_by), _SORTS, 9),
            )
        items = list(self._items)
        if sort_by is not None:
            items.sort(key=lambda e: float(getattr(e, sort_by)), reverse=True)
        columns = self._columns()
        rows = [[name for name, _ in columns]]
        shown = items[:row_limit] if row_limit >= 0 else items
        rows += [[cell(item) for _, cell in columns] for item in shown]
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
        rule = "  ".join("-" * width for width in widths)
        lines = [_line(row, widths) for row in rows]
        text = "\n".join([rule, lines[0], rule, *lines[1:], rule])
        return "\n".join([text, *self._totals()]) + "\n"

    def _columns(self) -> list[tuple[str, Callable[[EventAverage], str]]]:
        host = math.fsum(e.cpu_time_total for e in self._items) or 1.0
        npu = math.fsum(e.npu_time_total for e in self._items) or 1.0
        found: list[tuple[str, Callable[[EventAverage], str]]] = [("Name", lambda e: e.key)]
        if self._host:
            found += [
                ("CPU %", lambda e: f"{100 * e.cpu_time_total / host:.1f}%"),
                ("CPU total", lambda e: _time(e.cpu_time_total)),
                ("CPU time avg", lambda e: _time(e.cpu_time)),
            ]
        if self._device:
            found += [
                ("NPU %", lambda e: f"{100 * e.npu_time_total / npu:.1f}%"),
                ("NPU total", lambda e: _time(e.npu_time_total)),
                ("NPU time avg", lambda e: _time(e.npu_time)),
                ("Cube", lambda e: f"{100 * e.cube_utilisation:.1f}%"),
                ("Gflop", lambda e: f"{e.flops / 1e9:.3f}"),
                ("skipped", lambda e: f"{_share(e.flops_skipped, e.flops):.1f}%"),
                ("HBM", lambda e: _size(e.hbm_bytes)),
                ("SRAM", lambda e: _size(e.sram_peak_bytes) + ("!" if e.overflows else "")),
            ]
        if self._memory:
            found.append(("NPU Mem", lambda e: _size(e.npu_memory_usage)))
        found.append(("# of Calls", lambda e: str(e.count)))
        if self._shapes:
            found.append(("Input Shapes", lambda e: str([list(s) for s in e.input_shapes])))
        return found

    def _totals(self) -> list[str]:
        found = []
        if self._host:
            total = math.fsum(e.cpu_time_total for e in self._items)
            found.append(f"CPU time total: {_time(total)}")
        if self._device:
            total = math.fsum(e.npu_time_total for e in self._items)
            found.append(f"NPU time total: {_time(total)}")
            found += [
                f"! {e.key}: blocks overflow {', '.join(e.overflows)}; smaller ones are faster"
                for e in self._items
                if e.overflows
            ]
        return found


def averages(
    calls: Iterable[OperatorCall],
    *,
    by_shape: bool,
    shapes: bool = False,
    memory: bool = False,
    host: bool = True,
    device: bool = True,
) -> EventList:
    """The calls added up by operator, or by operator and shapes."""
    groups: dict[tuple[str, Shapes], list[OperatorCall]] = {}
    for call in calls:
        groups.setdefault((call.name, call.shapes if by_shape else ()), []).append(call)
    items = [EventAverage(name, found, tuple(of)) for (name, found), of in groups.items()]
    columns = shapes and by_shape
    return EventList(items, shapes=columns, memory=memory, host=host, device=device)


def _line(cells: list[str], widths: list[int]) -> str:
    first = cells[0].ljust(widths[0])
    return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])


def _share(part: float, rest: float) -> float:
    return 100 * part / (part + rest) if part + rest else 0.0


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _size(amount: float) -> str:
    if amount < 1024:
        return f"{amount:.0f} B"
    power = min(4, int(math.log2(amount) // 10))
    return f"{amount / 1024**power:.2f} {'KMGT'[power - 1]}iB"
