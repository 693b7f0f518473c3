"""The discrete-event simulator: a Schedule in, a Timeline out.

The semantics are those of docs "execution model": FIFO streams with a gap between tasks, events
that cost time to record and to wait for, tasks that run through phases, and resources shared
max-min fairly. Several ranks run in one timeline: each has resources of its own, links are
shared by name. The parts of one collective go on once all of them have started.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from gecompiler.backends.device import Device
from gecompiler.backends.simulator.cycle import explain_stuck
from gecompiler.backends.simulator.domain import whole_ns
from gecompiler.backends.simulator.engine import Costs, Engine, Outcome
from gecompiler.backends.simulator.fluid import LinkRate
from gecompiler.backends.simulator.plan import FIXED, NS, PEERS, Plan, make_plan
from gecompiler.backends.topology import Topology
from gecompiler.ir.collector import paused_collector
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Span, Timeline, Usage


class Simulator:
    """Runs schedules on a device; an `Evaluator`. Deterministic, and safe to share.

    ``launch`` says who issues the tasks: ``sunk`` (the graph lies on the device) or ``host``
    (a serial host thread a rank, in order of task ids); by default what the profile says.
    ``topology`` gives the links between cards their bandwidth; without one the schedule does,
    and the device for links that neither knows.
    """

    def __init__(
        self, device: Device, *, launch: str | None = None, topology: Topology | None = None
    ) -> None:
        self.device = device
        self.topology = topology
        self.launch = launch or device.launch_mode
        if self.launch not in ("sunk", "host"):
            raise ScheduleError(f"launch mode {self.launch!r} is neither 'sunk' nor 'host'")
        self._costs = Costs(
            device.task_gap_us * NS, device.event_record_us * NS, device.event_wait_us * NS
        )

    def __call__(self, schedule: Schedule) -> Timeline:
        """The timeline of one run from a cold start.

        ScheduleError when tasks wait for each other in a circle (they are named), or when an
        event, a demand or a link makes no sense. Near-linear in tasks and events.
        """
        with paused_collector():
            return self._run(schedule)

    def _run(self, schedule: Schedule) -> Timeline:
        # a frame of its own: plan and outcome are gone before the collector looks at what is left
        plan = make_plan(
            schedule, self.device, host=self.launch == "host", link_rate=self._link_rate(schedule)
        )
        outcome = Engine(plan, self._costs).run()
        if outcome.stuck:
            raise explain_stuck(schedule, plan, outcome.stuck)
        return Timeline(
            spans=_spans(schedule, plan, outcome, self._costs),
            usage=_usage(plan, outcome),
            device=self.device.name,
            model=schedule.model,
            events=tuple([(e.producer, e.consumer) for e in schedule.events]),
        )

    def _link_rate(self, schedule: Schedule) -> LinkRate:
        if self.topology is not None:
            return partial(self.topology.link_or_device, self.device)
        return kept_link_rate(schedule, self.device)


def kept_link_rate(schedule: Schedule, device: Device) -> LinkRate:
    """What links carry, as the schedule keeps it by tier; else as the device has it."""
    known = {link.name: link.bytes_per_us for link in schedule.links}

    def rate(link: str) -> float:
        found = known.get(link.partition(":")[0])
        return device.link_bytes_per_us(link) if found is None else found

    return rate


def _spans(schedule: Schedule, plan: Plan, out: Outcome, costs: Costs) -> tuple[Span, ...]:
    free = [0.0] * len(out.start)
    for queue in plan.queues:
        for before, after in pairwise(queue):
            free[after] = out.end[before] + costs.gap
    names = [[_short(plan.resources[r]) for r in domain] for domain in plan.domains]
    names = [[*short, "peers", "fixed"] for short in names]  # PEERS is -2, FIXED is -1
    found: list[Span] = []
    for i, task in enumerate(schedule.tasks):
        start, spent, released_by = out.start[i], out.spent[i], out.waited_for[i]
        most, longest = FIXED, -1.0
        for bound, time in spent.items():
            if time > longest:
                most, longest = bound, time
        found.append(
            Span(
                task=i,
                name=task.name,
                op_type=task.op_type,
                rank=task.rank,
                stream=task.stream,
                start_ns=whole_ns(start),
                end_ns=whole_ns(out.end[i]),
                alone_ns=whole_ns(plan.work[i].alone_ns),
                wait_ns=max(0, whole_ns(start - free[i])),
                waited_for=None if released_by < 0 else released_by,
                wait_cause=out.cause[i],
                bound_by=names[plan.domain_of[i]][most],
                peer=out.peer.get(i),
                peer_ns=whole_ns(spent.get(PEERS, 0.0)),
            )
        )
    return tuple(found)


def _short(resource: str) -> str:
    rank, _, core = resource.partition(":")
    return core if rank.isdigit() else resource


def _usage(plan: Plan, out: Outcome) -> tuple[Usage, ...]:
    return tuple(
        Usage(name, capacity, unit, times, shares)
        for name, (capacity, unit), (times, shares) in zip(
            plan.resources, plan.capacities, out.curves, strict=True
        )
    )
