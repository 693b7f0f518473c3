"""Schedules of any size as pages show them: layers of four ops over the streams of each card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.html_report import Subject
from gecompiler.ir.schedule import Buffer, Demand, Event, Schedule, Task

TYPES = ("MatMul", "LayerNormalization", "Gelu", "Transpose")
DEMANDS = (
    Demand(load_bytes=3e6, store_bytes=4e5, l2_bytes=8e6, cube_us=90, cube_cores=32, tiles=8),
    Demand(load_bytes=4e5, store_bytes=4e5, l2_bytes=8e5, vector_us=60, vector_cores=32, tiles=4),
    Demand(load_bytes=8e5, store_bytes=8e5, vector_us=20, vector_cores=32, tiles=4, fixed_us=1.0),
    Demand(load_bytes=2e6, store_bytes=2e6, fixed_us=2.0, tiles=2),
)
BYTES = 65_536


def plain_name(number: int) -> str:
    layer, part = divmod(number, 4)
    return f"/model/layers.{layer}/block_{number % 7}/{TYPES[part]}"


def layered_schedule(
    count: int, streams: int = 4, ranks: int = 1, name: Callable[[int], str] = plain_name
) -> Schedule:
    """``count`` tasks on each card; every seventh one waits for a task of another stream."""
    tasks: list[Task] = []
    events: list[Event] = []
    for rank in range(ranks):
        order = [0] * streams
        for number in range(count):
            here = len(tasks)
            stream = number // 4 % streams
            before = here - 1 if number else None
            reads = () if before is None else (tasks[before].writes[0],)
            if before is not None and tasks[before].stream != stream:
                events.append(Event(before, here, "data", reads, event_id=len(events) % 64))
            tasks.append(
                Task(
                    here, name(number), "kernel", stream, order[stream],
                    ops=(name(number), f"view_{number}"), op_type=TYPES[number % 4],
                    group=("Attention", "MLP")[number // 4 % 2], reads=reads,
                    writes=(f"{rank}:out_{number}" if ranks > 1 else f"out_{number}",),
                    demand=_demand(number, rank, ranks), rank=rank,
                )
            )  # fmt: skip
            order[stream] += 1
    device = load_device("ascend910")
    buffers = tuple(_buffers(tasks))
    return Schedule(
        "layers", device.name, "default", tuple(tasks), tuple(events), buffers,
        device.limits, arena_bytes=4 * BYTES,
    )  # fmt: skip


def _demand(number: int, rank: int, ranks: int) -> Demand:
    """Of several cards the last op of a layer sends to the next card as well."""
    own = DEMANDS[number % 4]
    if ranks < 2 or number % 4 < 3:
        return own
    return replace(own, link_bytes=((f"hccs:{rank}-{(rank + 1) % ranks}", 1e6),))


def _buffers(tasks: list[Task]) -> Iterator[Buffer]:
    for number, task in enumerate(tasks):
        kind = "output" if number + 1 == len(tasks) else "activation"
        yield Buffer(task.writes[0], number % 4 * BYTES, BYTES, kind, rank=task.rank)


def layered_subject(
    count: int, streams: int = 4, ranks: int = 1, name: Callable[[int], str] = plain_name
) -> Subject:
    """The schedule, simulated, and the same work on one stream."""
    schedule = layered_schedule(count, streams, ranks, name)
    simulate = Simulator(load_device("ascend910"))
    one = layered_schedule(count, 1, 1, name)
    return Subject(
        timeline=replace(simulate(schedule), model=schedule.model),
        schedule=schedule,
        advice={"en": ["Make it faster"], "zh": ["再快一点"]},
        single=simulate(one),
        shapes={f"out_{number}": "f16[8, 4096]" for number in range(count)},
    )
