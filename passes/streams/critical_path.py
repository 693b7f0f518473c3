"""The strategy ``critical_path``: list scheduling by modelled time and contention.

Time runs forward over an image of the device: the tasks that run progress at a rate that falls
as they overload a resource together. Whenever a stream is idle, of the ready tasks the one with
the longest way ahead (upward rank) starts on the stream that lets it begin first, unless the
resources it needs are so full that starting it would gain nothing. Then it waits, and goes on
the stream of what it would have slowed down: nothing else keeps the two apart on the device.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.ranks import upward_ranks
from gecompiler.passes.streams.strategy import Placement, StrategyContext, StreamStrategy

LOOKAHEAD = 24
"""How many of the most urgent ready tasks are looked at when a stream is idle."""

MIN_GAIN = 0.05
"""Starting a task beside others must raise the work done per time by this share."""


class CriticalPath(StreamStrategy):
    """List scheduling by the longest path ahead, with shared resources in mind."""

    name = "critical_path"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        planner = _Planner(graph, context)
        planner.run()
        return Placement(graph, tuple(planner.stream), tuple(planner.sequence), planner.reasons)


@dataclass(slots=True)
class _Running:
    task: int
    lag: float
    """Time left before it makes progress: the gap to the task before, or a sync."""
    left: float
    """Time left if it ran alone from then on."""


class _Planner:
    def __init__(self, graph: TaskGraph, context: StrategyContext) -> None:
        self.graph = graph
        self.gap = context.target.task_gap_us
        self.sync = context.target.event_us
        self.fixed = context.fixed_streams(graph)
        count = max([context.streams, *(s + 1 for s in self.fixed.values())])
        self.use = graph.utilisations(context.target)
        step = min(self.gap, self.sync)
        ranks = upward_ranks(graph.succs, graph.alone_us, step)
        self.key = [(-rank, task) for task, rank in enumerate(ranks)]
        self.open = range(context.streams)
        self.waiting = [len(p) for p in graph.preds]
        self.ready = sorted(self.key[t] for t, n in enumerate(self.waiting) if not n)
        self.now = 0.0
        self.running: dict[int, _Running] = {}
        self.free_at = [-self.gap] * count
        self.last: list[int | None] = [None] * count
        self.end = [0.0] * len(graph)
        self.behind: dict[int, set[int]] = {}
        """Streams of the tasks that a task had to wait for because of a full resource."""
        self.stream = [0] * len(graph)
        self.sequence: list[int] = []
        self.reasons: dict[int, str] = {}

    def run(self) -> None:
        while self.ready or self.running:
            while self._start_one():
                pass
            self._advance()

    # ---------------------------------------------------------------- starting

    def _start_one(self) -> bool:
        if not self.ready or len(self.running) == len(self.last):
            return False
        load = self._load()
        for position in range(min(LOOKAHEAD, len(self.ready))):
            task = self.ready[position][1]
            stream = self._best_stream(task)
            if stream is None or not self._gains(task, load):
                continue
            del self.ready[position]
            self._start(task, stream)
            return True
        return False

    def _best_stream(self, task: int) -> int | None:
        """The idle stream on which the task can begin first; its predecessors' on a tie."""
        if task in self.fixed:
            wanted = self.fixed[task]
            return None if wanted in self.running else wanted
        idle = [s for s in self.open if s not in self.running]
        behind = self.behind.get(task)
        if behind is not None:
            idle = [s for s in idle if s in behind] or idle
        near = {self.stream[p]: self.end[p] for p in self.graph.preds[task]}
        return min(idle, key=lambda s: (self._begin(task, s), -near.get(s, -1.0), s), default=None)

    def _begin(self, task: int, stream: int) -> float:
        begin = self.free_at[stream] + self.gap
        for p in self.graph.preds[task]:
            arrival = self.end[p] + (self.sync if self.stream[p] != stream else 0.0)
            begin = max(begin, arrival)
        return max(begin, self.now)

    def _load(self) -> dict[str, float]:
        load: dict[str, float] = {}
        for run in self.running.values():
            for resource, share in self.use[run.task]:
                load[resource] = load.get(resource, 0.0) + share
        return load

    def _gains(self, task: int, load: dict[str, float]) -> bool:
        """Whether more gets done per time with the task running beside the others."""
        if not self.running:
            return True
        before = max(1.0, *load.values()) if load else 1.0
        after, worst = before, ""
        for resource, share in self.use[task]:
            if load.get(resource, 0.0) + share > after:
                after, worst = load.get(resource, 0.0) + share, resource
        count = len(self.running)
        if (count + 1) / after > (count / before) * (1 + MIN_GAIN):
            return True
        self.behind[task] = {
            s for s, run in self.running.items() if any(r == worst for r, _ in self.use[run.task])
        }
        return False

    def _start(self, task: int, stream: int) -> None:
        begin = self._begin(task, stream)
        self.stream[task] = stream
        self.sequence.append(task)
        self.running[stream] = _Running(task, begin - self.now, self.graph.alone_us[task])
        self.last[stream] = task
        self.reasons[task] = "fixed by the user" if task in self.fixed else "can begin first here"

    # ---------------------------------------------------------------- time

    def _advance(self) -> None:
        """Lets time run until a task starts to make progress or ends."""
        active: dict[str, float] = {}
        for run in self.running.values():
            if run.lag <= 0:
                for resource, share in self.use[run.task]:
                    active[resource] = active.get(resource, 0.0) + share
        rates = {s: self._rate(run, active) for s, run in self.running.items()}
        step = min(
            run.lag if run.lag > 0 else run.left / rates[s] for s, run in self.running.items()
        )
        self.now += step
        ended: list[int] = []
        for s, run in self.running.items():
            if run.lag > 0:
                run.lag = run.lag - step if run.lag - step > 1e-9 else 0.0
            else:
                run.left -= step * rates[s]
                if run.left <= 1e-9:
                    ended.append(s)
        for s in ended:
            self._finish(s)

    def _rate(self, run: _Running, active: dict[str, float]) -> float:
        worst = max((active.get(r, 0.0) for r, _ in self.use[run.task]), default=0.0)
        return 1.0 if worst <= 1.0 else 1.0 / worst

    def _finish(self, stream: int) -> None:
        task = self.running.pop(stream).task
        self.end[task] = self.free_at[stream] = self.now
        for after in self.graph.succs[task]:
            self.waiting[after] -= 1
            if not self.waiting[after]:
                insort(self.ready, self.key[after])
