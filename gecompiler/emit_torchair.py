"""``--emit torchair``: Python that asks the real graph engine for the same placement.

Two ways, as torchair documents them. In graph mode ops inside ``npu_stream_switch(label)`` get
that stream label, and the engine inserts the events that data needs; sync points become
``npu_wait_tensor``. In reduce-overhead mode nothing is inserted, and the schedule's own events
are written out as tagged events, with ``npu_record_tagged_stream`` for tensors that another
stream reads. ``limit_core_num`` holds in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING

from gecompiler.emit_order import cannot, issue_order, require_plain, soc_version

if TYPE_CHECKING:
    from gecompiler.backends.device import Device
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.driver import Compilation
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.schedule import Schedule, Task

Cores = tuple[int, int] | None
_Calls = Callable[["Task"], Iterator[str]]

HEAD = '''"""Streams of {model} for {device} ({soc}), strategy {strategy}.

``run(name)`` is to call the part of your model that stands for one op of the compiled graph,
``values`` to hold tensors by the names of that graph; wrap the calls of your own forward() in
the same scopes. compiler_config() keeps the order of issue as it is written here.
"""

import torchair
from torchair.configs.compiler_config import CompilerConfig
from torchair.scope import limit_core_num, npu_stream_switch, npu_wait_tensor
'''


def emit_torchair(compilation: Compilation) -> str:
    """The Python text. UsageError with one sentence for what torchair cannot be asked for."""
    schedule = require_plain(compilation)
    soc = soc_version(compilation.device.name)
    if schedule.sync_primitive == "notify":
        raise cannot("torchair has no option for notifies", "use sync_primitive: event")
    head = HEAD.format(
        model=_plain(schedule.model),
        device=schedule.device,
        soc=soc,
        strategy=_plain(compilation.result.chosen),
    )
    if compilation.cards is not None:
        return head + _of_cards(compilation.cards, compilation.device)
    return head + "\n\n" + _blocks(_Writer(compilation.graph, compilation.device, schedule))


def _blocks(writer: _Writer) -> str:
    blocks = [writer.labels(), writer.config(), writer.graph_mode(), writer.event_mode()]
    return "\n\n".join(block.rstrip("\n") + "\n" for block in blocks)


RANKS = """
# Several cards: each process asks placement(rank) for what its card runs. Names are those of the
# card's own graph; collectives (AllReduce and so on) are calls of torch.distributed.
"""

RETURN = """
return SimpleNamespace(
    labels=STREAM_LABELS,
    compiler_config=compiler_config,
    place=place,
    place_with_events=place_with_events,
)
"""


def _of_cards(cards: CardsResult, device: Device) -> str:
    """A function for each kind of rank, and which rank is of which kind."""
    found = ["from types import SimpleNamespace\n" + RANKS]
    prefix = "" if cards.shape is None else "mb0/"  # of the only micro-batch that there may be
    ranks_of: dict[int, list[int]] = {}
    for rank, template in enumerate(cards.program.template_of):
        ranks_of.setdefault(template, []).append(rank)
    for template, ranks in ranks_of.items():
        part = cards.parts[template]
        text = _blocks(_Writer(part.graph, device, part.schedule, prefix)).replace("\n\n\n", "\n\n")
        body = indent(text + RETURN, "    ")
        doc = f'    """What ranks {", ".join(map(str, ranks))} run."""'
        found.append(f"\ndef template_{template}():\n{doc}\n\n{body}")
    rows = [f"    {r}: template_{t}," for r, t in enumerate(cards.program.template_of)]
    last = ["\nTEMPLATES = {", *rows, "}", "", "", "def placement(rank):",
            '    """The placement of a rank."""', "    return TEMPLATES[rank]()", ""]  # fmt: skip
    return "\n".join([*found, "\n".join(last)])


def _plain(text: str) -> str:
    """Text that may stand in a docstring."""
    return "".join(c if c.isprintable() and c not in '"\\' else "_" for c in text)


class _Writer:
    """The parts of the text."""

    def __init__(self, graph: Graph, device: Device, schedule: Schedule, prefix: str = "") -> None:
        self.graph = graph
        self.limits = device.limits
        self.split_cores = device.cube_vector_split
        self.schedule = schedule
        self.order = issue_order(schedule)
        self.prefix = prefix
        self.single = len(schedule.streams) < 2
        self.cores = {task.id: self._cores(task) for task in self.order}

    def own(self, name: str) -> str:
        """The name in the model."""
        return name.removeprefix(self.prefix)

    def _cores(self, task: Task) -> Cores:
        if task.name not in self.graph:
            return None
        info = self.graph.op(task.name).info
        if info.cube_cores is None and info.vector_cores is None:
            return None
        if not self.split_cores:
            raise cannot(
                f"limits of cores (of {task.name!r}) exist on Atlas A2 and A3 only",
                "leave them out, or choose ascend910b or ascend910c (--device)",
            )
        most = (self.limits.cube_cores, self.limits.vector_cores)
        wanted = (info.cube_cores, info.vector_cores)
        return tuple(  # type: ignore[return-value]
            m if w is None else min(w, m) for w, m in zip(wanted, most, strict=True)
        )

    def labels(self) -> str:
        """The stream label of every op: the engine's attribute _user_stream_label."""
        if self.single:
            return "STREAM_LABELS = {}  # one stream: see compiler_config()\n"
        pairs = [(self.own(op), _label(t.stream)) for t in self.order for op in t.ops]
        rows = [f"    {op!r}: {label!r}," for op, label in pairs]
        return "\n".join(["STREAM_LABELS = {", *rows, "}"])

    def config(self) -> str:
        """The options of the compiler that go with it."""
        single = ["    config.ge_config.enable_single_stream = True"] if self.single else []
        return "\n".join(
            [
                "def compiler_config():",
                '    """Keeps the order of issue; one stream where the schedule has one."""',
                "    config = CompilerConfig()",
                '    config.experimental_config.topology_sorting_strategy = "StableRDFS"',
                *single,
                "    return config",
            ]
        )

    def graph_mode(self) -> str:
        """Placement in graph mode: scopes, and waits for what data does not order."""
        lines = [
            "def place(run, values):",
            '    """Graph mode: the engine adds events for data."""',
        ]
        lines += self._scopes(self._plain_calls) or ["    pass"]
        return "\n".join(lines)

    def event_mode(self) -> str:
        """Placement in reduce-overhead mode: scopes, and every event of the schedule."""
        if self.single:
            return (
                "def place_with_events(run, values):\n"
                '    """Reduce-overhead mode: one stream, no events."""\n'
                "    place(run, values)"
            )
        ids = sorted({e.event_id for e in self.schedule.events})
        made = [
            f"    {i}: torchair.ops.npu_create_tagged_event(tag={f'gec_event_{i}'!r})," for i in ids
        ]
        return "\n".join(
            [
                "EVENTS = {",
                *made,
                "}",
                "",
                "",
                "def place_with_events(run, values):",
                '    """Reduce-overhead mode: every event is written out."""',
                *self._scopes(self._calls_with_events),
            ]
        )

    def _scopes(self, calls: _Calls) -> list[str]:
        lines: list[str] = []
        for stream, run in groupby(self.order, key=lambda t: t.stream):
            indent = "    "
            if not self.single:
                lines.append(f"{indent}with npu_stream_switch({_label(stream)!r}):")
                indent += "    "
            for cores, part in groupby(run, key=lambda t: self.cores[t.id]):
                inner = indent
                if cores is not None:
                    lines.append(f"{indent}with limit_core_num({cores[0]}, {cores[1]}):")
                    inner += "    "
                lines += [inner + line for task in part for line in calls(task)]
        return lines

    def _plain_calls(self, task: Task) -> Iterator[str]:
        main = task.name
        for op in task.ops:
            waits = self._control_waits(task) if op == main else ""
            yield f"run({self.own(op)!r}{waits})"

    def _control_waits(self, task: Task) -> str:
        """The op's input behind tensors of the ops that the user wants done before."""
        tasks = self.schedule.tasks
        befores = [tasks[p] for p in self._demanded.get(task.id, ())]
        if not befores:
            return ""
        tensor = next((v for v in task.reads if self.graph.constant(v) is None), None)
        if tensor is None or not all(b.writes for b in befores):
            raise cannot(
                f"{task.name!r} reads no tensor that could be made to wait for {befores[0].name!r}",
                "leave the sync point out, or name another op of its part of the model",
            )
        waiting = f"values[{self.own(tensor)!r}]"
        for before in befores:
            waiting = f"npu_wait_tensor({waiting}, values[{self.own(before.writes[0])!r}])"
        return f", {{{self.own(tensor)!r}: {waiting}}}"

    def _calls_with_events(self, task: Task) -> Iterator[str]:
        for event in self.schedule.waits.get(task.id, ()):
            yield f"torchair.ops.npu_tagged_event_wait(EVENTS[{event.event_id}])"
        yield from (f"run({self.own(op)!r})" for op in task.ops)
        for tensor, stream in self._read_elsewhere(task):
            label = _label(stream)
            yield f"torchair.ops.npu_record_tagged_stream(values[{self.own(tensor)!r}], {label!r})"
        for event_id in self._records.get(task.id, ()):
            yield f"torchair.ops.npu_tagged_event_record(EVENTS[{event_id}])"

    def _read_elsewhere(self, task: Task) -> Iterable[tuple[str, int]]:
        """What the task writes, with each other stream that reads it."""
        return [
            (tensor, s)
            for tensor in task.writes
            for s in sorted(self._readers.get(tensor, ()))
            if s != task.stream
        ]

    @cached_property
    def _readers(self) -> dict[str, set[int]]:
        """The streams that read each tensor."""
        found: dict[str, set[int]] = {}
        for task in self.schedule.tasks:
            for tensor in task.reads:
                found.setdefault(tensor, set()).add(task.stream)
        return found

    @cached_property
    def _demanded(self) -> dict[int, list[int]]:
        """The tasks that each task has to wait for beside its data."""
        found: dict[int, list[int]] = {}
        for control in self.schedule.controls:
            found.setdefault(control.consumer, []).append(control.producer)
        return found

    @cached_property
    def _records(self) -> dict[int, dict[int, None]]:
        """The events that each task records."""
        found: dict[int, dict[int, None]] = {}
        for event in self.schedule.events:
            found.setdefault(event.producer, {})[event.event_id] = None
        return found


def _label(stream: int) -> str:
    return f"gec_stream_{stream}"
