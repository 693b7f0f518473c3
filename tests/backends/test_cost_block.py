"""Costs of the ops of block fusion: one pass over the data."""

from __future__ import annotations

import pytest

from gecompiler.backends.device import load_device
from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.ir.schedule import Demand

B, S, H = 4, 512, 4096
X = B * S * H * 2
"""Bytes of an activation in half precision."""

INPUTS = f"""
  input %x: f16[{B}, {S}, {H}]
  input %r: f16[{B}, {S}, {H}]
  input %w: f16[{H}]
  input %q: f16[{B}, 32, {S}, 128]
  input %c: f16[1, 1, {S}, 64]
  input %t: f16[1, 1, {S}, 64]
"""


def demands(ops: str, out: str = "%y") -> list[Demand]:
    graph: Graph = parse(f"graph (opset 23) {{ {INPUTS} {ops} return {out} }}")
    infer_types(graph)
    device = load_device("ascend910")
    return [device.demand(graph, op) for op in graph.topological()]


@pytest.mark.parametrize(
    ("op", "out", "load", "store"),
    [
        ("%y = gecompiler.RMSNorm(%x, %w)", "%y", X + 2 * H, X),
        ("%y, %s = gecompiler.AddRMSNorm(%x, %r, %w)", "%y, %s", 2 * X + 2 * H, 2 * X),
        ("%y = gecompiler.AddLayerNorm(%x, %r, %w, %w, %w)", "%y", 2 * X + 2 * H, X),
        ("%y = gecompiler.Gelu(%x, %w)", "%y", X + 2 * H, X),
        ("%y = gecompiler.SiluMul(%x, %r)", "%y", 2 * X, X),
        ("%y = gecompiler.SiluMul(%x)", "%y", X, X / 2),
        ("%y = gecompiler.RotaryEmbedding(%q, %c, %t) {dim = 128}", "%y", X + S * 256, X),
    ],
)
def test_each_tensor_moves_once(op: str, out: str, load: float, store: float) -> None:
    (found,) = demands(op, out)
    assert (found.load_bytes, found.store_bytes) == (load, store)
    assert found.vector_us > 0
    assert found.cube_us == 0


@pytest.mark.parametrize(
    ("ours", "standard"),
    [
        ("%y = gecompiler.RMSNorm(%x, %w)", "%y = RMSNormalization(%x, %w)"),
        ("%y = gecompiler.LayerNorm(%x, %w)", "%y = LayerNormalization(%x, %w)"),
        ("%y = gecompiler.Gelu(%x)", "%y = Gelu(%x)"),
        (
            '%y = gecompiler.Gelu(%x) {approximate = "tanh"}',
            '%y = Gelu(%x) {approximate = "tanh"}',
        ),
    ],
)
def test_ours_cost_what_the_standard_ops_do(ours: str, standard: str) -> None:
    assert demands(ours) == demands(standard)


SUM = "%s = Add(%x, %r) %y = RMSNormalization(%s, %w)"
GATE = "%a = Sigmoid(%x) %b = Mul(%x, %a) %y = Mul(%b, %r)"


@pytest.mark.parametrize(
    ("whole", "out", "parts"),
    [
        ("%y, %s = gecompiler.AddRMSNorm(%x, %r, %w)", "%y, %s", SUM),
        ("%y = gecompiler.SiluMul(%x, %r)", "%y", GATE),
        ("%y = gecompiler.Gelu(%x, %w)", "%y", "%a = Add(%x, %w) %y = Gelu(%a)"),
    ],
)
def test_one_kernel_is_faster_than_its_parts(whole: str, out: str, parts: str) -> None:
    device = load_device("ascend910")
    one, several = demands(whole, out), demands(parts, out)
    assert device.alone_us(one[0]) < sum(map(device.alone_us, several))


def test_long_rows_of_several_axes_are_read_twice() -> None:
    short, long = (
        demands(f"%y = gecompiler.RMSNorm(%x) {{axis = {axis}}}")[0] for axis in (-1, -2)
    )
    assert long.load_bytes == short.load_bytes * 2
