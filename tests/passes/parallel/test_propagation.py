"""Whatever is cut wherever: ranks compute together what one card computes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.execution.executor import run_reference
from gecompiler.backends.execution.ranks import run_ranks
from gecompiler.ir import Graph
from gecompiler.ir.parallel import Layout, Mesh, ParallelProgram
from gecompiler.ir.parallel.layout import axes_in
from gecompiler.passes.parallel import ParallelOptions, parallelise
from gecompiler.passes.parallel.localise import Localiser
from gecompiler.passes.parallel.plan import Plan
from gecompiler.passes.parallel.stages import light_ops, usual_cost
from tests.passes.parallel.random_graphs import MESHES, graphs, layouts


def _wish(data: st.DataObject, shape: tuple[int, ...], mesh: Mesh) -> tuple[Layout, ...]:
    left = [name for name, _ in mesh.axes]
    found: list[Layout] = []
    for size in shape:
        layout = data.draw(layouts(size, left)) if size > 1 else None
        left = [a for a in left if a not in axes_in(layout)]
        found.append(layout)
    return tuple(found)


def _random_plan(data: st.DataObject, graph: Graph, mesh: Mesh) -> Plan:
    plan = Plan()
    for name in graph.inputs:
        plan.wishes[name] = _wish(data, graph.types[name].sizes, mesh)
    for op in graph.ops:
        for i, value in enumerate(op.inputs):
            constant = graph.constant(value)
            if constant is not None and constant.type.dtype.is_float:
                plan.wishes[(op.name, i)] = _wish(data, constant.type.sizes, mesh)
        for value in op.outputs:
            if data.draw(st.integers(0, 5)) == 0:
                plan.wishes[value] = _wish(data, graph.types[value].sizes, mesh)
    return plan


def _same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-4)


@settings(max_examples=60, deadline=None)
@given(graphs(), MESHES, st.data())
def test_any_cuts_of_any_graph(
    made: tuple[Graph, dict[str, np.ndarray]], mesh: Mesh, data: st.DataObject
) -> None:
    graph, arrays = made
    gathered = data.draw(st.sampled_from(((), ("sp",), ("tp", "dp"))))
    options = ParallelOptions(gather_outputs=gathered)
    template = Localiser(graph, mesh, _random_plan(data, graph, mesh), options).run()
    template.graph.verify()
    program = ParallelProgram(mesh, (template,), (0,) * mesh.size)
    _same(run_ranks(program, arrays), run_reference(graph, arrays))


@settings(max_examples=40, deadline=None)
@given(graphs(most=12), MESHES, st.integers(1, 4))
def test_the_choice_of_cuts_and_stages(
    made: tuple[Graph, dict[str, np.ndarray]], mesh: Mesh, stages: int
) -> None:
    graph, arrays = made
    light = light_ops(graph)
    heavy = sum(op.name not in light and usual_cost(graph, op) > 0 for op in graph.ops)
    stages = min(stages, max(heavy, 1))
    whole = Mesh.of(**dict(mesh.axes), pp=stages)
    program = parallelise(graph, whole)
    for template in program.templates:
        template.graph.verify()
    _same(run_ranks(program, arrays), run_reference(graph, arrays))
