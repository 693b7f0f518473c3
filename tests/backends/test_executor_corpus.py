"""Real exports with torch's outputs, op by op and scheduled."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import yaml

from gecompiler.backends.device import load_device
from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.bind import bind, choose_binding
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.importer import load_onnx
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)

TRAINING = ("swin-eager-dynamo",)  # exported with random depth left in; passes take it out


def cases(folder):
    invalid = {
        name
        for name, facts in yaml.safe_load((folder / "models" / "manifest.yaml").read_text()).items()
        if "invalid" in facts
    }
    models = [p for p in sorted((folder / "models").glob("*.onnx")) if p.stem not in invalid]
    return models + sorted((folder / "cases" / "attention").glob("*.onnx"))


def arrays(path, kind):
    return dict(np.load(path.with_suffix(f".{kind}.npz")))


def differs(found, want):
    wide = 4e-3 if want.dtype == np.float16 else 1e-3
    return found.dtype != want.dtype or not np.allclose(
        found.astype(np.float64), want, rtol=wide, atol=wide / 10, equal_nan=True
    )


def test_every_model_op_by_op_gives_the_numbers_of_torch(corpus):
    wrong, count = [], 0
    for path in cases(corpus):
        if path.stem in TRAINING:
            continue
        found = run_reference(load_onnx(path), arrays(path, "inputs"))
        wrong += [
            (path.stem, n) for n, a in arrays(path, "outputs").items() if differs(found[n], a)
        ]
        count += 1
    assert not wrong
    assert count > 100


def any_order(schedule, rng):
    """A random order of all tasks that stream order and events allow."""
    after = {task.id: [] for task in schedule.tasks}
    waiting = dict.fromkeys(after, 0)
    pairs = [(e.producer, e.consumer) for e in schedule.events]
    for tasks in schedule.streams.values():
        pairs += [(a.id, b.id) for a, b in pairwise(tasks)]
    for a, b in pairs:
        after[a].append(b)
        waiting[b] += 1
    ready, found = [t for t, n in waiting.items() if not n], []
    while ready:
        task = ready.pop(rng.randrange(len(ready)))
        found.append(task)
        for then in after[task]:
            waiting[then] -= 1
            if not waiting[then]:
                ready.append(then)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("passes", ["canonicalize", "canonicalize,fuse-attention,canonicalize"])
def test_every_model_scheduled_gives_the_same_in_every_allowed_order(corpus, passes):
    device, rng, wrong = load_device("ascend910"), random.Random(0), []
    for path in cases(corpus):
        inputs, want = arrays(path, "inputs"), arrays(path, "outputs")
        graph = load_onnx(path)
        infer_types(graph)
        Pipeline.parse(passes).run(graph, PassContext())
        graph = bind(graph, choose_binding(graph, arrays=inputs, diagnostics=Diagnostics()))
        Pipeline.parse("canonicalize").run(graph, PassContext())
        options, user = ScheduleOptions(strategy="critical_path"), UserControl({}, [], None)
        result = build_schedule(graph, device, Simulator(device), options, user, Diagnostics())
        plain = run_reference(graph, inputs)
        wrong += [(path.stem, n) for n, a in want.items() if differs(plain[n], a)]
        for order in (None, any_order(result.schedule, rng), any_order(result.schedule, rng)):
            found = execute(graph, result.schedule, result.timeline, inputs, order=order)
            wrong += [
                (path.stem, n, order is None)
                for n, a in plain.items()
                if not np.array_equal(found[n], a, equal_nan=a.dtype.kind == "f")
            ]
    assert not wrong
