"""A profile as a Timeline and a Schedule, for whatever shows those."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gecompiler.backends.trace.intervals import StepTime
from gecompiler.backends.trace.recording import COMMUNICATION, COPY, Recording, TaskFacts, Tensors
from gecompiler.ir.schedule import Demand, Event, Limits, Schedule, Task
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.profiles.layout import lay_out
from gecompiler.profiles.load import load_cards
from gecompiler.profiles.records import Card, Kernel, is_communication
from gecompiler.profiles.steps import step_times
from gecompiler.profiles.waits import Idle, Lane, Run, attribute

_UNKNOWN = Demand()
"""What a captured task asked of resources: nobody says."""


@dataclass(frozen=True)
class Profile:
    """What a profiler recorded of one run, on one card or several."""

    path: str
    dialect: str
    """``msprof`` or ``torch_npu``."""
    timeline: Timeline
    schedule: Schedule
    """The tasks of the timeline; made for showing, nothing in it was planned."""
    facts: Mapping[int, TaskFacts]
    origin_ns: int
    """When the timeline begins on the profiler's clock."""
    steps: tuple[StepTime, ...]
    """Reckoned from the tasks, by rank and step."""
    vendor_steps: tuple[StepTime, ...]
    """The profiler's own ``step_trace_time.csv``; empty where there is none."""
    stream_names: Mapping[Lane, str]
    collectives: Mapping[str, Mapping[str, float]]
    """Milliseconds of each collective: elapse, transit, wait, idle (``communication.json``)."""
    left_out: tuple[tuple[str, int], ...]
    """Rows that cannot be used: reasons and how many, the most frequent first."""
    sources: tuple[str, ...]
    set_aside: tuple[str, ...]
    """Files that were found and not needed."""

    @property
    def recording(self) -> Recording:
        """For the trace writers."""
        named = [s.step for s in self.steps if s.step]
        step = named[0] if len(set(named)) == 1 else "1"
        return Recording(self.timeline, self.schedule, self.facts, step)


def open_profile(path: str | os.PathLike[str]) -> Profile:
    """Opens msprof's or torch_npu's output: a folder, or one of its .csv or .json files.

    UsageError says what is missing; single rows that are broken are counted instead.
    """
    cards = load_cards(path)
    builder = _Builder(min(k.start_ns for card in cards for k in (*card.kernels, *card.copies)))
    devices = [
        (card, device, rank)
        for card in cards
        for device, rank in _ranks(card, alone=len(cards) == 1).items()
    ]
    for card, device, rank in devices:
        builder.add(card, device, rank)
    timeline, schedule = builder.build(Path(os.fspath(path)).name or "profile")
    left_out: Counter[str] = sum((card.left_out for card in cards), Counter())
    return Profile(
        path=os.fspath(path),
        dialect=cards[0].dialect,
        timeline=timeline,
        schedule=schedule,
        facts=builder.facts,
        origin_ns=builder.origin_ns,
        steps=tuple(s for c, device, rank in devices for s in step_times(c, device, rank)),
        vendor_steps=tuple(s for c in cards for s in _vendor_steps(c, len(cards) == 1)),
        stream_names=builder.names,
        collectives={name: times for card in cards for name, times in card.collectives.items()},
        left_out=tuple(sorted(left_out.items(), key=lambda pair: (-pair[1], pair[0]))),
        sources=tuple(name for card in cards for name in card.sources),
        set_aside=tuple(name for card in cards for name in card.set_aside),
    )


def _ranks(card: Card, *, alone: bool) -> dict[int, int]:
    """The rank of each device in a card's files: a folder of several keeps their numbers."""
    devices = sorted({k.device for k in card.kernels})
    if len(devices) == 1 and not (alone and card.rank is None):
        return {devices[0]: card.rank if card.rank is not None else devices[0]}
    if alone:
        return {device: device for device in devices}
    return {device: (card.rank or 0) * 1000 + device for device in devices}


def _vendor_steps(card: Card, alone: bool) -> list[StepTime]:
    """The vendor's rows with the rank in the place of the device."""
    ranks = _ranks(card, alone=alone)
    only = next(iter(ranks.values())) if len(ranks) == 1 else -1
    return [
        StepTime(
            ranks.get(s.device, only), s.step, s.computing, s.not_overlapped, s.communication,
            s.free, s.stage, s.bubble, s.preparing,
        )
        for s in card.vendor_steps
    ]  # fmt: skip


class _Builder:
    def __init__(self, origin_ns: int) -> None:
        self.origin_ns = origin_ns
        self.names: dict[Lane, str] = {}
        self.facts: dict[int, TaskFacts] = {}
        self._facts: dict[tuple[object, ...], TaskFacts] = {}
        self._kernels: list[Kernel] = []
        self._runs: list[Run] = []
        self._waits: dict[Lane, list[tuple[int, int]]] = defaultdict(list)

    def add(self, card: Card, device: int, rank: int) -> None:
        """Adds the tasks of one device."""
        kernels = [k for k in (*card.kernels, *card.copies) if k.device == device]
        kernels.sort(key=lambda k: (k.start_ns, k.end_ns))
        places, names = lay_out(kernels)
        self.names |= {(rank, number): name for number, name in names.items()}
        numbers = {k.stream: place[0] for k, place in zip(kernels, places, strict=True) if k.stream}
        origin = self.origin_ns
        for kernel, (stream, start, end) in zip(kernels, places, strict=True):
            issued = card.launches.get(kernel.start_ns)
            issued = None if issued is None else max(0, issued - origin)
            self._runs.append(Run((rank, stream), start - origin, end - origin, issued))
            alike = (kernel.core, is_communication(kernel.core, kernel.op_type), kernel.blocks,
                     kernel.texts)  # fmt: skip
            if alike not in self._facts:
                self._facts[alike] = _facts(kernel)
            self.facts[len(self._kernels)] = self._facts[alike]
            self._kernels.append(kernel)
        for wait in card.waits:
            if wait.device == device and wait.stream in numbers:
                lane = (rank, numbers[wait.stream])
                self._waits[lane].append((wait.start_ns - origin, wait.end_ns - origin))

    def build(self, name: str) -> tuple[Timeline, Schedule]:
        """The timeline and its tasks, numbered in the order of adding."""
        idle = attribute(self._runs, self._waits)
        order = _orders(self._runs)
        spans = tuple(
            _span(number, kernel, run, found, self.facts[number])
            for number, (kernel, run, found) in enumerate(
                zip(self._kernels, self._runs, idle, strict=True)
            )
        )
        tasks = tuple(_task(span, self.facts[span.task], order[span.task]) for span in spans)
        pairs = tuple(
            (span.waited_for, span.task)
            for span in spans
            if span.wait_cause == "event"
            and span.waited_for is not None
            and self._runs[span.waited_for].lane != self._runs[span.task].lane
        )
        events = tuple(
            Event(p, c, "data", producer_op=spans[p].name, consumer_op=spans[c].name)
            for p, c in pairs
        )
        streams = len({run.lane for run in self._runs})
        limits = Limits(streams, len(events), len(tasks), 0, 0, 0)
        schedule = Schedule(name, "", "captured", tasks, events, (), limits)
        return Timeline(spans, model=name, events=pairs), schedule


def _orders(runs: Sequence[Run]) -> list[int]:
    """The place of each run on its stream."""
    places: dict[Lane, int] = defaultdict(int)
    found = [0] * len(runs)
    for number in sorted(range(len(runs)), key=lambda n: (runs[n].start_ns, runs[n].end_ns, n)):
        found[number] = places[runs[number].lane]
        places[runs[number].lane] += 1
    return found


def _span(number: int, kernel: Kernel, run: Run, idle: Idle, facts: TaskFacts) -> Span:
    bound = {COMMUNICATION: "link", "AI_CORE": "cube", "AI_VECTOR_CORE": "vector"}
    return Span(
        task=number,
        name=kernel.name,
        op_type=kernel.op_type,
        rank=run.lane[0],
        stream=run.lane[1],
        start_ns=run.start_ns,
        end_ns=run.end_ns,
        alone_ns=run.end_ns - run.start_ns,
        wait_ns=idle.wait_ns,
        waited_for=idle.waited_for,
        wait_cause=idle.cause,
        bound_by=bound.get(facts.task_type, ""),
    )


def _task(span: Span, facts: TaskFacts, order: int) -> Task:
    kinds = {COMMUNICATION: "collective", COPY: "copy", "AI_CPU": "host"}
    return Task(
        span.task,
        span.name,
        kinds.get(facts.task_type, "kernel"),  # type: ignore[arg-type]
        span.stream,
        order,
        ops=(span.name,),
        op_type=span.op_type,
        rank=span.rank,
        demand=_UNKNOWN,
    )


def _facts(kernel: Kernel) -> TaskFacts:
    kind = kernel.core or "AI_CORE"
    if is_communication(kernel.core, kernel.op_type):
        kind = COMMUNICATION
    elif kind.startswith(("SDMA", "PCIE_DMA")):
        kind = COPY
    texts = [_items(text) for text in kernel.texts]
    return TaskFacts(kind, Tensors(*texts[:3]), Tensors(*texts[3:]), blocks=kernel.blocks)


def _items(text: str) -> tuple[str, ...]:
    return tuple(text.split(";")) if text else ()
