"""The Schedule: which task, on which stream, in which order, behind which event, where.

A Schedule is self-contained: it says what every task reads and writes, where each tensor
lies, and what order is demanded, so that it can be verified and simulated without the graph
it was made from, also after being edited by hand. The words are execution-model.md's.
Tensors are named ``rank:name`` only where there are several ranks; with one rank plainly.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gecompiler.ir.schedule_verify import Finding

TaskKind = Literal["kernel", "load", "store", "copy", "collective", "host"]
BufferKind = Literal["input", "output", "weight", "state", "activation", "workspace"]
EventKind = Literal["data", "buffer", "control", "user"]
SyncPrimitive = Literal["event", "notify"]
"""An event's record may be waited for by many; a notify wakes one wait, which uses it up."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one task asks of the device's resources.

    Work is in units in which the device's capacity is fixed, so that a demand stays the same
    when the task has company: bytes for memory and links, core-microseconds for cores.
    ``tiles`` is how many tiles the loads, compute and stores are pipelined over: with n tiles
    the first tile's load and the last tile's store (1/n each) do not overlap compute.
    """

    load_bytes: float = 0.0
    """Bytes read from HBM."""
    store_bytes: float = 0.0
    """Bytes written to HBM."""
    l2_bytes: float = 0.0
    """Bytes moved between L2 and the cores, both ways."""
    cube_us: float = 0.0
    """Core-microseconds of matrix work, summed over cores."""
    vector_us: float = 0.0
    """Core-microseconds of vector work, summed over cores."""
    cube_cores: int = 0
    """Most cube cores the task can keep busy at once (0 when it uses none)."""
    vector_cores: int = 0
    """Most vector cores the task can keep busy at once."""
    link_bytes: tuple[tuple[str, float], ...] = ()
    """Bytes per inter-card link, by the link's name."""
    fixed_us: float = 0.0
    """Time in which the task holds its stream and no shared resource (start-up, latency)."""
    tiles: int = 1
    least_us: float = 0.0
    """Least time of what it does after ``fixed_us``; 0 but for collectives, whose steps follow
    each other: the sum of the times of the fullest link of each. Loads, cores and links then
    share that time evenly, in one phase."""


@dataclass(frozen=True, slots=True)
class Task:
    """One unit issued to a stream. ``id`` is its index in `Schedule.tasks`."""

    id: int
    name: str
    kind: TaskKind
    stream: int
    order: int
    """Position on its stream, dense from 0."""
    ops: tuple[str, ...] = ()
    """Names of the ops of the optimised graph that it computes (view ops ride with a task)."""
    op_type: str = ""
    """The type of the op that gives the task its cost."""
    group: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    demand: Demand = field(default_factory=Demand)
    rank: int = 0
    communicator: str = ""
    signature: str = ""
    """What the parts of one collective must have in common: its type, reduction, sizes, and for
    a Send and its Recv who sends to whom, with which tag."""


@dataclass(frozen=True, slots=True)
class Event:
    """One wait: ``consumer`` starts after ``producer`` ended, across two streams.

    ``event_id`` is the hardware id it occupies; waits on the same record share it.
    """

    producer: int
    consumer: int
    kind: EventKind
    tensors: tuple[str, ...] = ()
    """The tensors, or reused buffers' tensors, that made it necessary."""
    event_id: int = -1
    producer_op: str = ""
    consumer_op: str = ""
    """The ops that record and wait, for whoever meets the event's id in a log."""


@dataclass(frozen=True, slots=True)
class PhysicalStream:
    """A part of a stream that one of the device's task queues holds: a run of its tasks.

    The device's queues hold a limited number of tasks, so that a long stream is cut; an event
    joins the parts. ``first`` and ``last`` are places on the stream, both included.
    """

    id: int
    stream: int
    first: int
    last: int
    entries: int
    """Entries of the queue that its tasks, records and waits take."""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Where a tensor lies: ``[offset, offset + bytes)`` of its rank's arena.

    ``alias_of`` names the tensor whose memory this one is by intent, so that sharing it is no
    hazard by itself: a view (written by the task that writes that tensor, or by none, as that
    tensor), or what a task writes over an input it has read (in place; the state that an output
    hands to the next run), in which case all other readers must be done before; or the tensor
    that a task makes of this one and others where they lie, as the parts of what it writes.
    """

    tensor: str
    offset: int
    bytes: int
    kind: BufferKind
    alias_of: str | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Control:
    """An order demanded beyond data: by the graph, or by the user's sync point."""

    producer: int
    consumer: int
    origin: Literal["graph", "user"]
    sync_type: str = ""


@dataclass(frozen=True, slots=True)
class StateAlias:
    """Memory that outlives a run: ``output`` becomes ``input`` of the next run."""

    input: str
    output: str
    bytes: int
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Communicator:
    """Ranks that take part in one sequence of collectives."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """What the links of one kind carry, each one way: ``hccs`` is that of ``hccs:0>3``."""

    name: str
    bytes_per_us: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What the device has of each countable thing; a schedule must stay within."""

    max_streams: int
    max_events: int
    max_tasks_per_stream: int
    memory_bytes: int
    cube_cores: int
    vector_cores: int
    prefetch_bytes: int = 0
    """On-chip memory that loads issued ahead of their kernels may fill together."""
    max_notifies: int = 1024
    """Ids there are where notifies are used in the place of events."""
    queue_entries: int = 1024
    """Tasks, records and waits that one physical stream holds."""


@dataclass(frozen=True)
class Schedule:
    """See the module's docstring. ``verify()`` is the independent check."""

    model: str
    device: str
    strategy: str
    tasks: tuple[Task, ...]
    events: tuple[Event, ...]
    buffers: tuple[Buffer, ...]
    limits: Limits
    controls: tuple[Control, ...] = ()
    states: tuple[StateAlias, ...] = ()
    communicators: tuple[Communicator, ...] = ()
    arena_bytes: int = 0
    """Size of the arena: all buffers of a rank lie in [0, arena_bytes)."""
    requested_streams: int | None = None
    sync_primitive: SyncPrimitive = "event"
    physical_streams: tuple[PhysicalStream, ...] = ()
    """How the device holds the streams, as planned; what is edited later is not followed."""
    links: tuple[Link, ...] = ()
    """Those of the topology that it was made for; of a kind that is left out the device's."""

    @cached_property
    def streams(self) -> dict[tuple[int, int], tuple[Task, ...]]:
        """The tasks of each (rank, stream), in stream order."""
        found: dict[tuple[int, int], list[Task]] = defaultdict(list)
        for task in self.tasks:
            found[task.rank, task.stream].append(task)
        return {k: tuple(sorted(found[k], key=lambda t: t.order)) for k in sorted(found)}

    @cached_property
    def waits(self) -> dict[int, tuple[Event, ...]]:
        """The events that each task waits for, by task id."""
        found: dict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.consumer].append(event)
        return {k: tuple(v) for k, v in found.items()}

    @cached_property
    def buffer_of(self) -> dict[str, Buffer]:
        """The buffer of each tensor."""
        return {b.tensor: b for b in self.buffers}

    def verify(self) -> None:
        """Raises ScheduleError when a race, a deadlock or a limit is found; see `findings`."""
        from gecompiler.ir.schedule_verify import raise_on_findings

        raise_on_findings(self)

    def findings(self) -> list[Finding]:
        """All that is wrong with the schedule, found independently of who made it."""
        from gecompiler.ir.schedule_verify import verify_schedule

        return verify_schedule(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: a row per stream."""
        from gecompiler.ir.notebook import schedule_html

        return schedule_html(self)

    def to_json(self) -> dict[str, object]:
        """Plain data, as schedule.schema.json describes it."""
        from gecompiler.ir.schedule_json import to_json

        return to_json(self)

    @staticmethod
    def from_json(data: object) -> Schedule:
        """The schedule that plain data describes; ScheduleError names what is wrong where."""
        from gecompiler.ir.schedule_json import from_json

        return from_json(data)
