"""In how many parts a batch goes through cards that share its layers: decided by simulation.

Whole, every all-reduce is waited for. In parts that go side by side (`abreast`), one computes
while another communicates; in exchange weights are read once a part and messages are smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gecompiler.cards.schedule import CardsResult, least_streams, schedule_cards
from gecompiler.ir.activity import tell
from gecompiler.ir.errors import ModelError, ScheduleError

if TYPE_CHECKING:
    from gecompiler.backends.cluster import Cluster
    from gecompiler.cards.control import Control
    from gecompiler.cards.request import CardsRequest
    from gecompiler.ir.diagnostics import Diagnostics
    from gecompiler.ir.parallel import ParallelProgram

PARTS = (2, 4)
"""``auto`` tries so many parts, as far as the batch divides, while more bring more."""

MOST_OPS = 12_000
"""``auto`` cuts no batch where a rank has more ops than this, for the time that it takes."""


@dataclass(frozen=True, order=True)
class Way:
    """How a batch goes through the cards."""

    micro_batches: int = 1
    abreast: int = 1
    """So many take turns between their collectives."""
    lanes: int = 1
    """Streams on which they compute."""

    def __str__(self) -> str:
        if self.micro_batches == 1:
            return "whole"
        return f"micro-batches {self.micro_batches} x {self.abreast} on {self.lanes}"


@dataclass(frozen=True)
class TriedWay:
    """A way that was simulated, one rank of each kind."""

    way: Way
    makespan_us: float
    exposed_us: float


ProgramOf = Callable[[int], "ParallelProgram"]
"""The program of one of so many micro-batches."""


@dataclass
class WaySearch:
    """Tries ways for one program; those of equal time are told apart by how little they cut."""

    program_of: ProgramOf
    cluster: Cluster
    cards: CardsRequest
    training: bool = False
    streams: int | None = None
    control: Control | None = None
    diagnostics: Diagnostics | None = None
    """Learns what the user's control has to say, of the schedule that is taken."""

    def __post_init__(self) -> None:
        self.found: dict[Way, TriedWay] = {}
        self.programs: dict[int, ParallelProgram] = {}

    def auto(self, counts: Sequence[int], min_gain: float) -> Way:
        """Whole, or as few parts as come within ``min_gain`` of the best.

        Nothing is tried where communication shows less than could be gained.
        """
        whole = self.attempt(Way())
        if whole is None or whole.exposed_us < max(min_gain, 1e-9) * whole.makespan_us:
            return Way()
        best = whole
        for count in counts:
            found = self._best_of(count)
            if found is None or found.makespan_us >= best.makespan_us:
                break
            best = found
        return self._fewest(min_gain)

    def forced(self, counts: Sequence[int]) -> Way:
        """The fastest with one of these numbers of micro-batches, one after the other included."""
        for count in counts:
            if self.attempt(Way(count)) is not None:
                self._best_of(count)
        if not self.found:
            return Way(counts[0])
        return min(self.found.values(), key=lambda t: (t.makespan_us, t.way)).way

    def _fewest(self, min_gain: float) -> Way:
        best = min(t.makespan_us for t in self.found.values())
        near = [t for t in self.found.values() if t.makespan_us <= best * (1 + min_gain)]
        return min(near, key=lambda t: (t.way.micro_batches, t.makespan_us, t.way)).way

    def _best_of(self, count: int) -> TriedWay | None:
        """The fastest with so many parts side by side, None where they cannot be."""
        found = [t for way in self._abreast(count) if (t := self.attempt(way)) is not None]
        return min(found, key=lambda t: (t.makespan_us, t.way), default=None)

    def _abreast(self, count: int) -> Iterator[Way]:
        if count > 1:
            widths = (2,) if self.training else dict.fromkeys((2, min(count, PARTS[-1])))
            for abreast in widths:
                yield from (Way(count, abreast, lanes) for lanes in self.lanes(count))

    def lanes(self, count: int) -> tuple[int, ...]:
        """On how many streams so many micro-batches may compute, beside those that talk."""
        device = self.cluster.limits.max_streams
        most = min(self.streams or device, device)
        talking = max(1, least_streams(self.program(count)) - 1)
        return tuple(lanes for lanes in (1, 2) if lanes + talking <= most)

    def program(self, count: int) -> ParallelProgram:
        """The program of one of so many micro-batches."""
        if count not in self.programs:
            self.programs[count] = self.program_of(count)
        return self.programs[count]

    def attempt(self, way: Way) -> TriedWay | None:
        """Simulates a way on one rank of each kind; None where it cannot be."""
        tell(f"simulating candidates: {way}")
        try:
            found = self.schedule(way, memory=False, fold=True)
        except (ScheduleError, ModelError):
            return None
        exposed = max(f.exposed_us for f in found.figures)
        self.found[way] = TriedWay(way, found.timeline.makespan_ns / 1000, exposed)
        return self.found[way]

    def schedule(
        self, way: Way, *, memory: bool = True, fold: bool | None = None, streams: int | None = None
    ) -> CardsResult:
        """The program scheduled that way. Errors as of `schedule_cards`."""
        program, shape = self.program(way.micro_batches), None
        if way.micro_batches > 1 or self.cards.stages > 1:
            shape = self.cards.shape(way.micro_batches, training=self.training)
            shape = replace(shape, abreast=way.abreast)
        return schedule_cards(
            program,
            self.cluster,
            shape,
            streams=streams or self.streams,
            memory=memory,
            fold=fold,
            lanes=way.lanes,
            control=self.control,
            diagnostics=self.diagnostics if memory else None,
        )


def auto_counts(batch: int, replicas: int) -> tuple[int, ...]:
    """The numbers of parts that ``auto`` tries for a batch shared by so many replicas."""
    return tuple(n for n in PARTS if batch % n == 0 and batch // n % replicas == 0)


def asked_counts(batch: int, replicas: int, depth: int) -> tuple[int, ...]:
    """Those under ``pipeline``: two, as many as are in flight, and twice as many.

    Where the batch cannot be cut into any of them, its least divisor above one.
    """
    fit = [n for n in range(2, batch + 1) if batch % n == 0 and batch // n % replicas == 0]
    wanted = [n for n in dict.fromkeys((2, depth, 2 * depth)) if n in fit]
    return tuple(wanted or fit[:1])
