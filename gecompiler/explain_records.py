"""What is known of one task's place in a schedule. Times are ns from the start of the run."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.explain_times import Release
from gecompiler.ir.schedule import Task
from gecompiler.ir.timeline import Span


@dataclass(frozen=True, slots=True)
class Lever:
    """One change, and how much earlier the task could start by it at most.

    Of a collective that waits for other cards, ``peer``: how much earlier it could go on.
    """

    kind: str
    """``move`` to an idle stream; ``join`` the stream of a task it depends on; ``shorten`` the
    task it started upon, or ``shorten_back`` one further back; run what came before without
    ``contention``; ``launch`` from the device in the place of the host."""
    gain_ns: int
    task: int | None = None
    """The task to change, where it is another one; of ``peer`` the part that came last."""
    stream: int | None = None
    """The stream to go to, where there is one."""


@dataclass(frozen=True, slots=True)
class Way:
    """The tasks that held up each other before the start, and what that time was."""

    tasks: tuple[int, ...]
    """The first first, without the task itself."""
    alone_ns: int
    """What they take with nothing beside them."""
    slowed_ns: int
    """What they took more, having shared resources."""
    between_ns: int
    """Launches, syncs and, where the host issues tasks, waiting for it."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective: when each card's part was ready for the others, and what it then took."""

    arrivals: tuple[tuple[int, int], ...]
    """(task, ns) of all parts, the first to come first."""
    transfer_ns: int
    """From when the last had come to the end."""
    alone_ns: int
    """What that takes with nothing beside it."""
    bound_by: str
    """The link or resource that limited the transfer, ``fixed`` where latencies did."""
    how: tuple[str, ...] = ()
    """Algorithm and protocol."""
    steps: int = 0
    message_bytes: float = 0.0
    link: str = ""
    """The link that is fullest, if nothing else is sent."""

    @property
    def last(self) -> int:
        """The part that came last."""
        return self.arrivals[-1][0]

    @property
    def spread_ns(self) -> int:
        """How long after the first the last one came."""
        return self.arrivals[-1][1] - self.arrivals[0][1]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known of one task's place in the schedule."""

    task: Task
    span: Span
    why_here: str
    data_ready_ns: int
    """When the last of the tasks that it depends on had ended."""
    data_from: int | None
    releases: tuple[Release, ...]
    """The conditions of its start, the decisive one first."""
    beside: tuple[tuple[int, int], ...]
    """(task, ns) of the tasks it ran beside, the longest first."""
    way: Way
    levers: tuple[Lever, ...]
    """What would make it start earlier, the most first."""
    earliest_ns: int
    """No schedule starts it before: what it depends on takes so long, alone."""
    slack_ns: int
    meeting: Meeting | None = None
    """Of a collective."""

    @property
    def critical(self) -> bool:
        """Whether the run gets longer by each ns that the task is later."""
        return self.slack_ns == 0
