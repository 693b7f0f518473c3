"""Random tasks of a real device profile, bound by whatever it has."""

from __future__ import annotations

import random
from dataclasses import replace

from fakes import random_dag, task_graph

from gecompiler.backends.device import Device
from gecompiler.ir.schedule import Demand
from gecompiler.passes.scheduling.task_graph import TaskGraph


def random_demand(rng: random.Random, target: Device) -> Demand:
    """Bound by the cube, the vector cores, memory, or nothing; a few to a hundred us."""
    us = rng.choice([2.0, 10.0, 60.0])
    loads, stores = (rng.uniform(0, us) * target.hbm_bytes_per_us for _ in range(2))
    kind = rng.choice(["cube", "vector", "move", "latency"])
    cores = rng.choice([1, 4, 32, 64])
    tiles = rng.choice([1, 2, 16])
    if kind == "latency":
        return Demand(fixed_us=us)
    if kind == "move":
        return Demand(loads, stores, l2_bytes=loads, fixed_us=rng.choice([0.0, 1.0]))
    work = {f"{kind}_us": rng.uniform(0, us) * 32, f"{kind}_cores": cores}
    return Demand(loads / 3, stores / 3, l2_bytes=2 * loads, fixed_us=3.0, tiles=tiles, **work)  # type: ignore[arg-type]


def random_tasks(rng: random.Random, count: int, target: Device) -> TaskGraph:
    """Dense at times, so that tasks are often alone between others; with side branches."""
    bare = task_graph(count, random_dag(rng, count, rng.choice([0.1, 0.3, 0.6])))
    tasks = tuple(replace(t, demand=random_demand(rng, target)) for t in bare.tasks)
    return replace(bare, tasks=tasks, alone_us=tuple(target.alone_us(t.demand) for t in tasks))
