"""Stages: balanced, with few bytes across, every op in one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir import Graph
from gecompiler.ir.errors import UsageError
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh
from gecompiler.ir.types import tensor
from gecompiler.passes.parallel import ParallelOptions, parallelise
from gecompiler.passes.parallel.stages import SLACK, stage_of_ops
from tests.passes.parallel.models_help import check_equal, inputs_of, tiny


def chain(costs: list[float], widths: list[int]) -> tuple[Graph, dict[str, float]]:
    """Ops one after the other; op n passes ``widths[n]`` elements on."""
    graph = Graph("chain", {"": 20, "gecompiler": 1})
    graph.add_input("x", tensor("f32", (4,)))
    value = "x"
    for n, width in enumerate(widths):
        op = Op(f"op{n}", "MatMul", (value,), (f"v{n}",))
        graph.add_op(op, [tensor("f32", (width,))])
        value = f"v{n}"
    graph.set_outputs([value])
    return graph, {f"op{n}": cost for n, cost in enumerate(costs)}


def best_bottleneck(costs: list[float], stages: int) -> float:
    """By trying every cut."""
    if stages == 1:
        return sum(costs)
    return min(
        max(sum(costs[:n]), best_bottleneck(costs[n:], stages - 1)) for n in range(len(costs) + 1)
    )


@given(st.data())
def test_no_stage_is_much_longer_than_it_must_be(data: st.DataObject) -> None:
    costs = data.draw(st.lists(st.floats(0.1, 10), min_size=1, max_size=9))
    stages = data.draw(st.integers(1, min(4, len(costs))))
    widths = data.draw(st.lists(st.integers(1, 9), min_size=len(costs), max_size=len(costs)))
    graph, cost_of = chain(costs, widths)
    found = stage_of_ops(graph, stages, lambda _, op: cost_of[op.name])
    numbers = [found[f"op{n}"] for n in range(len(costs))]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(stages))
    longest = max(
        sum(c for c, s in zip(costs, numbers, strict=True) if s == stage) for stage in range(stages)
    )
    assert longest <= best_bottleneck(costs, stages) * SLACK * 1.01


def test_the_narrow_place_is_taken_where_it_costs_little() -> None:
    costs = [1.0] * 40
    widths = [100] * 40
    widths[20] = 1
    graph, cost_of = chain(costs, widths)
    found = stage_of_ops(graph, 2, lambda _, op: cost_of[op.name])
    assert [found["op20"], found["op21"]] == [0, 1]


def test_every_stage_has_work_where_one_op_is_dearer_than_all_else() -> None:
    costs = [1.0, 0.0, 1.0, 1.0, 0.0, 50.0, 0.0]
    graph, cost_of = chain(costs, [4] * 7)
    found = stage_of_ops(graph, 4, lambda _, op: cost_of[op.name])
    assert {found[f"op{n}"] for n in (0, 2, 3, 5)} == {0, 1, 2, 3}
    with pytest.raises(UsageError, match="5 stages for a model of 4 ops that take time"):
        stage_of_ops(graph, 5, lambda _, op: cost_of[op.name])


def test_uniform_layers_make_uniform_stages() -> None:
    graph, cost_of = chain([1.0] * 32, [4] * 32)
    found = stage_of_ops(graph, 4, lambda _, op: cost_of[op.name])
    counts = np.bincount([found[f"op{n}"] for n in range(32)])
    assert counts.tolist() == [8, 8, 8, 8]


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_every_op_is_run_by_one_stage_unless_it_is_cheap(family: str) -> None:
    graph = tiny(family)
    program = parallelise(graph, Mesh.of(pp=3))
    heavy = [
        op.name
        for t in program.templates
        for op in t.graph.ops
        if op.op_type in ("MatMul", "Gemm", "FlashAttention")
    ]
    own = [op.name for op in graph.ops if op.op_type in ("MatMul", "Gemm", "FlashAttention")]
    assert sorted(heavy) == sorted(own)


def test_costs_of_a_target_decide() -> None:
    graph = tiny("llama")
    first = next(op.name for op in graph.topological() if op.op_type == "MatMul")
    options = ParallelOptions(cost=lambda _, op: 100.0 if op.name == first else 0.001)
    program = parallelise(graph, Mesh.of(pp=2), options)
    assert len(program.templates[0].graph) < 12 or len(program.templates[1].graph) < 12
    check_equal(program, graph, inputs_of(graph))
