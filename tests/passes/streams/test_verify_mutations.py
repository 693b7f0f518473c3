"""The verifier judges mutated schedules exactly as the full closure does."""

from __future__ import annotations

import random
from dataclasses import replace

from brute_force import is_safe, run_randomly
from fakes import FakeEvaluator, FakeTarget, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.schedule import Event, Schedule
from gecompiler.ir.schedule_verify import verify_schedule
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)


def built(rng: random.Random) -> Schedule:
    graph = random_graph(rng.randrange(10**9), rng.randint(2, 14), controls=rng.random() < 0.3)
    names = [op.name for op in graph.ops]
    fixed = {n: rng.randrange(3) for n in names if rng.random() < 0.7}
    strategy = rng.choice(("default", "critical_path", "compute_overlap", "single"))
    target = FakeTarget()
    result = build_schedule(
        graph,
        target,
        FakeEvaluator(target),
        ScheduleOptions(strategy=strategy, num_streams=3, overlap_ratio=1.0),
        UserControl(fixed),
        Diagnostics(),
    )
    return result.schedule


def drop_event(s: Schedule, rng: random.Random) -> Schedule:
    if not s.events:
        return s
    at = rng.randrange(len(s.events))
    return replace(s, events=s.events[:at] + s.events[at + 1 :])


def turn_event(s: Schedule, rng: random.Random) -> Schedule:
    if not s.events:
        return s
    at = rng.randrange(len(s.events))
    e = s.events[at]
    other = replace(e, producer=e.consumer, consumer=e.producer)
    return replace(s, events=(*s.events[:at], other, *s.events[at + 1 :]))


def move_event(s: Schedule, rng: random.Random) -> Schedule:
    if not s.events:
        return s
    at = rng.randrange(len(s.events))
    end = rng.choice(("producer", "consumer"))
    task = getattr(s.events[at], end) + rng.choice((-1, 1))
    if not 0 <= task < len(s.tasks):
        return s
    return replace(
        s, events=(*s.events[:at], replace(s.events[at], **{end: task}), *s.events[at + 1 :])
    )


def add_event(s: Schedule, rng: random.Random) -> Schedule:
    a, b = rng.randrange(len(s.tasks)), rng.randrange(len(s.tasks))
    return replace(s, events=(*s.events, Event(a, b, "control", event_id=rng.randrange(4))))


def swap_tasks(s: Schedule, rng: random.Random) -> Schedule:
    tasks = list(s.tasks)
    a, b = rng.randrange(len(tasks)), rng.randrange(len(tasks))
    if rng.random() < 0.7:  # neighbours on one stream
        queue = rng.choice(list(s.streams.values()))
        if len(queue) > 1:
            at = rng.randrange(len(queue) - 1)
            a, b = queue[at].id, queue[at + 1].id
    one, two = tasks[a], tasks[b]
    tasks[a] = replace(one, stream=two.stream, order=two.order)
    tasks[b] = replace(two, stream=one.stream, order=one.order)
    return replace(s, tasks=tuple(tasks))


def move_task(s: Schedule, rng: random.Random) -> Schedule:
    """To the end of another stream."""
    tasks = list(s.tasks)
    a, stream = rng.randrange(len(tasks)), rng.randrange(3)
    last = max(t.order for t in tasks)
    tasks[a] = replace(tasks[a], stream=stream, order=last + 1)
    return replace(s, tasks=tuple(tasks))


def move_buffer(s: Schedule, rng: random.Random) -> Schedule:
    """Onto another buffer, or some way on; with its views or without."""
    a, b = rng.choice(s.buffers), rng.choice(s.buffers)
    offset = b.offset if rng.random() < 0.7 else max(0, a.offset + rng.choice((-512, -8, 8, 512)))
    group = {a.tensor} | (
        {x.tensor for x in s.buffers if x.alias_of == a.tensor} if rng.random() < 0.5 else set()
    )
    shift = offset - a.offset
    moved = [replace(x, offset=x.offset + shift) if x.tensor in group else x for x in s.buffers]
    return replace(s, buffers=tuple(moved), arena_bytes=s.arena_bytes + 1024)


def cut_alias(s: Schedule, rng: random.Random) -> Schedule:
    at = rng.randrange(len(s.buffers))
    other = rng.choice([None, *(b.tensor for b in s.buffers[:at])])
    return replace(
        s,
        buffers=(
            *s.buffers[:at],
            replace(s.buffers[at], alias_of=other),
            *s.buffers[at + 1 :],
        ),
    )


def change_id(s: Schedule, rng: random.Random) -> Schedule:
    if not s.events:
        return s
    e = rng.choice(s.events)
    new = rng.randrange(4)
    same = [replace(x, event_id=new) if x.producer == e.producer else x for x in s.events]
    return replace(s, events=tuple(same))


MUTATIONS = (
    drop_event,
    turn_event,
    move_event,
    add_event,
    swap_tasks,
    move_task,
    move_buffer,
    cut_alias,
    change_id,
)


def mutate(s: Schedule, rng: random.Random) -> Schedule:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        s = rng.choice(MUTATIONS)(s, rng)
    return s


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_mutations_are_judged_as_by_the_closure(seed: int) -> None:
    rng = random.Random(seed)
    schedule = built(rng)
    for _ in range(25):
        mutant = mutate(schedule, rng)
        findings = [f for f in verify_schedule(mutant) if f.category != "limit"]
        assert (not findings) == is_safe(mutant), findings


def test_ten_thousand_mutants_are_judged_as_by_the_closure() -> None:
    safe = 0
    for seed in range(420):
        rng = random.Random(seed)
        schedule = built(rng)
        for _ in range(25):
            mutant = mutate(schedule, rng)
            findings = [f for f in verify_schedule(mutant) if f.category != "limit"]
            assert (not findings) == is_safe(mutant), (seed, findings)
            safe += not findings
    assert 3_000 < safe < 7_500


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_what_is_accepted_runs_right_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    schedule = built(rng)
    for _ in range(10):
        mutant = mutate(schedule, rng)
        if not verify_schedule(mutant):
            assert all(run_randomly(mutant, random.Random(i)) for i in range(4))


def test_mutations_of_both_kinds_occur() -> None:
    rng = random.Random(1)
    verdicts = [not verify_schedule(mutate(built(rng), rng)) for _ in range(300)]
    assert 60 < sum(verdicts) < 240


def test_the_fix_that_is_named_helps() -> None:
    """Adding the wait that a finding asks for removes that finding."""
    rng = random.Random(2)
    helped = 0
    for _ in range(150):
        mutant = drop_event(built(rng), rng)
        found = verify_schedule(mutant)
        if not found or not found[0].fix.startswith("add_sync_point"):
            continue
        first = found[0]
        before, after = (next(t.id for t in mutant.tasks if t.name == n) for n in first.tasks)
        fixed = replace(mutant, events=(*mutant.events, Event(before, after, "user", event_id=63)))
        assert first not in verify_schedule(fixed)
        helped += 1
    assert helped > 20
