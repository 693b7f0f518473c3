"""A model cut into the stages of a pipeline.

The ops in topological order are cut into runs of about equal cost; of the cuts that are nearly
as balanced as can be, those are taken that fewest bytes cross. What is cheap and made of inputs
alone (masks, positions) is made again where it is needed instead of being sent.

Source: the partition of a chain with a bottleneck (Pinar and Aykanat 2004), as in PipeDream
(Narayanan et al. 2019), section 3.1.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.parallel.stage_norms import is_residual_norm

Cost = Callable[[Graph, Op], float]
"""How long an op of the whole model takes, in any unit."""

SLACK = 1.1
"""How much longer than the best bottleneck a stage may be for the sake of fewer bytes."""

_HEAVY = ("MatMul", "Gemm", "Conv", "Einsum", "FlashAttention", "Loop", "Scan", "If")
_LIGHT_BYTES = 16 << 20


def usual_cost(graph: Graph, op: Op) -> float:
    """Multiply-adds of products, else the bytes that are moved."""
    sizes = [_elements(graph, v) for v in (*op.inputs, *op.outputs) if v]
    if op.op_type in ("MatMul", "Gemm", "Einsum", "Conv", "FlashAttention"):
        product = math.prod(max(size, 1) for size in (*sizes[:2], sizes[-1]))
        return math.sqrt(product) + sum(sizes)
    return float(sum(sizes))


def _elements(graph: Graph, value: str) -> int:
    type_ = graph.tensor(value)
    return math.prod(type_.sizes) if type_ is not None and type_.is_static else 0


def stage_of_ops(graph: Graph, stages: int, cost: Cost | None = None) -> dict[str, int]:
    """The stage of each op by name; every stage has an op that costs something.

    Costs O(stages * ops). Raises UsageError where there are fewer such ops than stages.
    """
    order = graph.topological()
    light = light_ops(graph)
    costs = [0.0 if op.name in light else (cost or usual_cost)(graph, op) for op in order]
    most = sum(cost > 0 for cost in costs)
    if stages > max(most, 1):
        raise UsageError(
            f"{stages} stages for a model of {most} ops that take time",
            where="pp",
            hint="use fewer stages",
        )
    cuts = _cuts(costs, _crossing(graph, order, light), stages)
    found, stage = {}, 0
    for i, op in enumerate(order):
        while stage < len(cuts) and i >= cuts[stage]:
            stage += 1
        found[op.name] = stage
    return found


def light_ops(graph: Graph) -> set[str]:
    """Ops that are made of inputs alone and cost little: cheaper made again than sent."""
    inputs = set(graph.inputs)
    light: set[str] = set()
    for op in graph.topological():
        if op.domain == "gecompiler" or op.bodies or op.op_type in _HEAVY:
            continue
        bytes_, fits = 0, True
        for value in op.inputs:
            if not value or value in inputs:
                continue
            maker = graph.producer(value)
            constant = graph.constant(value)
            if constant is not None:
                bytes_ += constant.type.bytes
                fits &= not (constant.type.dtype.is_float and len(constant.type.sizes) > 1)
            else:
                fits &= maker is not None and maker.name in light
        if fits and bytes_ <= _LIGHT_BYTES:
            light.add(op.name)
    return light


def _crossing(graph: Graph, order: Sequence[Op], light: set[str]) -> list[int]:
    """For each place in the order, the bytes that are made before it and read from it on."""
    at = {op.name: i for i, op in enumerate(order)}
    change = [0] * (len(order) + 1)
    for op in order:
        if op.name in light:
            continue
        for value in op.outputs:
            last = max((at[user.name] for user in graph.users(value)), default=-1) if value else -1
            type_ = graph.tensor(value) if value else None
            if last < 0 or not isinstance(type_, TensorType) or not type_.is_static:
                continue
            change[at[op.name] + 1] += type_.bytes
            change[last + 1] -= type_.bytes
    found, now = [], 0
    for step in change:
        now += step
        found.append(now)
    for i, op in enumerate(order):
        if is_residual_norm(op):  # of which only the sum crosses: see `stage_norms`
            found[i] -= _bytes(graph, op.inputs[0])
            if len(op.outputs) > 1 and op.outputs[1]:
                found[i + 1] -= _bytes(graph, op.outputs[0])
    return found


def _bytes(graph: Graph, value: str) -> int:
    type_ = graph.tensor(value)
    return type_.bytes if type_ is not None and type_.is_static else 0


def _cuts(costs: Sequence[float], crossing: Sequence[int], stages: int) -> list[int]:
    """Where each stage but the first begins; in each lies what costs something."""
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    limit = _bottleneck(sums, stages) * SLACK + 1e-9
    count = len(sums)
    best = [0.0 if 0 < sums[i] <= limit else math.inf for i in range(count)]
    came: list[list[int]] = []
    for _ in range(stages - 1):
        found, origin = [math.inf] * count, [0] * count
        window: deque[int] = deque()
        first = ready = 0
        for i in range(count):
            while sums[ready] < sums[i]:
                price = best[ready] + crossing[ready]
                while window and best[window[-1]] + crossing[window[-1]] >= price:
                    window.pop()
                window.append(ready)
                ready += 1
            while sums[i] - sums[first] > limit:
                first += 1
            while window and window[0] < first:
                window.popleft()
            if window:
                found[i] = best[window[0]] + crossing[window[0]]
                origin[i] = window[0]
        came.append(origin)
        best = found
    cuts, at = [], count - 1
    for origin in reversed(came):
        at = origin[at]
        cuts.append(at)
    return cuts[::-1]


def _bottleneck(sums: Sequence[float], stages: int) -> float:
    """The least cost of the dearest run, to a thousandth."""
    low = max([0.0, *(b - a for a, b in itertools.pairwise(sums))])
    low, high = max(low, sums[-1] / stages), sums[-1]
    while high - low > 1e-3 * max(high, 1e-9):
        middle = (low + high) / 2
        if _runs_needed(sums, middle) <= stages:
            high = middle
        else:
            low = middle
    return high


def _runs_needed(sums: Sequence[float], limit: float) -> int:
    runs, start = 1, 0.0
    for before, total in itertools.pairwise(sums):
        if total - start > limit:
            runs, start = runs + 1, before
    return runs
