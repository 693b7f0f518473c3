"""Bodies of If, Loop and Scan that hold fused ops compute what the plain ops do."""

from __future__ import annotations

import numpy as np
import pytest

from gecompiler.backends.execution.control_flow import holds_own_ops
from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import Graph, ModelError, infer_types, parse
from gecompiler.passes.attention.expand import ExpandFused
from gecompiler.passes.pass_base import PassContext

GELU = "%w = gecompiler.Gelu(%v)"

BODIES = {
    "If": f"""%y = If(%k) {{
        then_branch = graph @t {{ outer %v: f32[3, 2] {GELU} return %w }},
        else_branch = graph @e {{ outer %v: f32[3, 2] %n = Neg(%v) return %n }} }}""",
    "Loop": f"""const %m: i64[] = 3 %z, %y = Loop(%m, %k, %v) {{ body = graph @b {{
        input %i: i64[] input %g: bool[] input %v: f32[3, 2] {GELU}
        const %two: i64[] = 2 %h = Less(%i, %two) %s = Neg(%w) return %h, %w, %s }} }}""",
    "Loop without end of its own": f"""const %m: i64[] = 2 %z, %y = Loop(%m, _, %v) {{
        body = graph @b {{ input %i: i64[] input %g: bool[] input %v: f32[3, 2] {GELU}
        return %g, %w, %v }} }}""",
    "Scan": f"""const %s: f32[2] = [0.5, 1.0] %z, %y = Scan(%s, %v) {{ num_scan_inputs = 1,
        scan_input_directions = [1], scan_output_axes = [1], body = graph @b {{
        input %t: f32[2] input %v: f32[2] {GELU} %u = Add(%t, %w) return %u, %w }} }}""",
}


def _graph(kind: str) -> Graph:
    graph = parse(
        f"graph (opset 18) {{ input %v: f32[3, 2] input %k: bool[] {BODIES[kind]} return %y }}"
    )
    infer_types(graph)
    return graph


@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("kind", BODIES)
def test_a_fused_body_computes_the_same(kind: str, going: bool) -> None:
    graph = _graph(kind)
    given = {"v": np.linspace(-2, 2, 6, dtype=np.float32).reshape(3, 2), "k": np.array(going)}
    if "k" not in graph.inputs:
        del given["k"]
    plain = graph.copy()
    assert any(holds_own_ops(op) for op in graph.ops)
    assert ExpandFused().run(plain, PassContext()) == 1
    assert not any(holds_own_ops(op) for op in plain.ops)
    plain.verify()
    found, expected = (run_reference(g, given)["y"] for g in (graph, plain))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_a_body_that_takes_other_values_is_named() -> None:
    graph = _graph("Loop")
    (loop,) = (op for op in graph.ops if op.is_("Loop"))
    graph.replace_op(loop.name, loop.with_(inputs=(*loop.inputs, "v")))
    given = {"v": np.ones((3, 2), np.float32), "k": np.array(True)}
    with pytest.raises(ModelError, match="takes 3 values and is given 4"):
        run_reference(graph, given)
