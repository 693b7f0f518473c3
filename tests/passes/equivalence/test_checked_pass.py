"""Wrong fusions are caught, undone alone, and told; right ones stay, and the graph is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import Graph, parse
from gecompiler.ir.block_ops import Activation, Norm
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.passes.attention.fuse import FuseAttention
from gecompiler.passes.block.fuse import FuseBlock
from gecompiler.passes.equivalence.checked_pass import CheckedPass
from gecompiler.passes.pass_base import Pass, PassContext

LAYER = """
  %s{n} = MatMul(%q{n}, %kt{n}) @s{n}
  %t{n} = Mul(%s{n}, %scale) @t{n}
  %m{n} = Where(%mask, %t{n}, %low) @m{n}
  %p{n} = Softmax(%m{n}) {{axis = -1}} @softmax{n}
  %o{n} = MatMul(%p{n}, %v{n}) @o{n}
"""


def attention(dtype: str = "f32", *, low: str = "-inf", layers: int = 2) -> Graph:
    """Layers of attention side by side, over one boolean mask."""
    head = [
        f"const %scale: {dtype}[] = 0.25",
        f"const %low: {dtype}[] = {low}",
        "input %mask: bool[b, 1, s, t]",
    ]
    head += [
        f"input %q{n}: {dtype}[b, 4, s, 8] input %kt{n}: {dtype}[b, 4, 8, t] "
        f"input %v{n}: {dtype}[b, 4, t, 8]"
        for n in range(layers)
    ]
    body = "".join(LAYER.format(n=n) for n in range(layers))
    outputs = ", ".join(f"%o{n}" for n in range(layers))
    graph = parse(f"graph (opset 17) {{ {' '.join(head)} {body} return {outputs} }}")
    infer_types(graph)
    return graph


def feeds(graph: Graph, sizes: dict[str, int]) -> dict[str, Any]:
    draw = np.random.default_rng(7)
    found: dict[str, Any] = {}
    for name in graph.inputs:
        type_ = graph.tensor(name)
        assert type_ is not None
        shape = type_.bind(sizes).sizes
        if type_.dtype.is_float:
            found[name] = draw.standard_normal(shape).astype(type_.dtype.numpy)
        else:
            found[name] = draw.random(shape) < 0.6
    return found


LOWEST = {"f32": "-3.4028234663852886e+38", "f16": "-65504.0", "bf16": "-3.3895313892515355e+38"}

Spoil = Callable[[Graph, Op], Op | None]


@dataclass(frozen=True)
class Spoilt(Pass):
    """A pass whose fused ops come out wrong: those that `spoil` gives another op for."""

    name: ClassVar[str] = "fuse-attention"
    right: Pass = field(default_factory=FuseAttention)
    spoil: Spoil = field(default=lambda graph, op: None)

    def run(self, graph: Graph, context: PassContext) -> int:
        before = {op.name for op in graph.ops if op.domain}
        count = self.right.run(graph, context)
        for op in graph.ops:
            wrong = self.spoil(graph, op) if op.domain and op.name not in before else None
            if wrong is not None:
                graph.replace_op(op.name, wrong)
        return count


def attribute(**changes: Any) -> Spoil:
    """Spoils the attention that stands for layer 1's softmax."""

    def spoil(graph: Graph, op: Op) -> Op | None:
        if "softmax1" not in op.info.sources:
            return None
        return op.with_(attrs=replace(FlashAttention.of(op), **changes).attrs())

    return spoil


def mask_lost(graph: Graph, op: Op) -> Op | None:
    return op.with_(inputs=op.inputs[:3]) if "softmax1" in op.info.sources else None


def operands_swapped(graph: Graph, op: Op) -> Op | None:
    q, k, v, *rest = op.inputs
    return op.with_(inputs=(q, v, k, *rest)) if "softmax1" in op.info.sources else None


SPOILT = {
    "scale": attribute(scale=0.3),
    "causal": attribute(window_right=0),
    "window": attribute(window_left=3),
    "softcap": attribute(softcap=5.0),
    "align": attribute(window_right=1, align="bottom_right"),
    "masked-row": attribute(masked_row="zero"),
    "mask-lost": mask_lost,
    "operands": operands_swapped,
}


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_wrong_attention_is_undone_alone(kind: str, dtype: str) -> None:
    source = attention(dtype)
    graph, context = source.copy(), PassContext()
    CheckedPass(Spoilt(spoil=SPOILT[kind]), run_reference).run(graph, context)
    graph.verify()
    assert [s.fused for s in context.sites] == [True, False]
    refused = context.sites[1]
    assert refused.name == "softmax1"
    assert "undone by the check, since it differs with " in refused.reason
    (warning,) = [w for w in context.diagnostics if w.code == "fusion-undone"]
    assert "'softmax1' wrongly, with " in warning.message
    assert sum(op.op_type == "FlashAttention" for op in graph.ops) == 1
    for sizes in ({"b": 2, "s": 5, "t": 6}, {"b": 1, "s": 1, "t": 140}):
        given = feeds(source, sizes)
        wanted, found = run_reference(source, given), run_reference(graph, given)
        for name in graph.outputs:
            tolerance = 2e-3 if dtype == "f16" else 1e-5
            np.testing.assert_allclose(found[name], wanted[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("low", ["-inf", "lowest", "-10000.0"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_right_fusions_stay_and_the_graph_is_the_same(dtype: str, low: str) -> None:
    low = LOWEST[dtype] if low == "lowest" else low
    plain, checked = attention(dtype, low=low), attention(dtype, low=low)
    FuseAttention().run(plain, PassContext())
    context = PassContext()
    count = CheckedPass(FuseAttention(), run_reference).run(checked, context)
    assert count == 2
    assert str(checked) == str(plain)
    assert not list(context.diagnostics)


BLOCK = """graph (opset 17) {
  input %x: f32[b, s, 32] input %w: f32[32, 32]
  const %g: f32[] = 1.5
  const %two: f32[] = 2.0
  const %eps: f32[] = 0.001
  %sq = Pow(%x, %two) @sq
  %mean = ReduceMean(%sq) {axes = [-1], keepdims = 1} @mean
  %safe = Add(%mean, %eps) @safe
  %root = Sqrt(%safe) @root
  %n = Div(%x, %root) @norm
  %y = MatMul(%n, %w) @matmul
  %sig = Sigmoid(%y) @sig
  %z = Mul(%y, %sig) @silu
  return %z
}"""


def wrong_epsilon(graph: Graph, op: Op) -> Op | None:
    if op.op_type != "RMSNorm":
        return None
    return op.with_(attrs=replace(Norm.of(op), epsilon=1e-6).attrs())


def wrong_activation(graph: Graph, op: Op) -> Op | None:
    if op.op_type != "Silu":
        return None
    return op.with_(attrs=replace(Activation.of(op), alpha=1.702).attrs())


@pytest.mark.parametrize(
    ("spoil", "lost", "kept"),
    [(wrong_epsilon, "RMSNorm", "Silu"), (wrong_activation, "Silu", "RMSNorm")],
)
def test_a_wrong_block_fusion_is_undone_alone(spoil: Spoil, lost: str, kept: str) -> None:
    source = parse(BLOCK)
    infer_types(source)
    graph, context = source.copy(), PassContext()
    CheckedPass(Spoilt(right=FuseBlock(), spoil=spoil), run_reference).run(graph, context)
    graph.verify()
    kinds = [op.op_type for op in graph.ops]
    assert kept in kinds
    assert lost not in kinds
    assert [w.code for w in context.diagnostics] == ["fusion-undone"]
    given = feeds(source, {"b": 2, "s": 3})
    given["x"] *= 0.03  # where an epsilon counts
    np.testing.assert_allclose(
        run_reference(graph, given)["z"], run_reference(source, given)["z"], rtol=1e-4, atol=1e-5
    )


def test_a_pass_that_cannot_be_kept_away_is_left_out() -> None:
    def stubborn(graph: Graph, op: Op) -> Op | None:
        return op.with_(attrs=replace(FlashAttention.of(op), scale=0.5).attrs())

    @dataclass(frozen=True)
    class Stubborn(Spoilt):
        def run(self, graph: Graph, context: PassContext) -> int:
            return super().run(graph, PassContext())

    source = attention()
    graph, context = source.copy(), PassContext()
    assert CheckedPass(Stubborn(spoil=stubborn), run_reference).run(graph, context) == 0
    assert str(graph) == str(source)
    assert "is left out" in list(context.diagnostics)[-1].message


def test_what_cannot_be_run_is_told() -> None:
    graph = attention()

    def nothing(graph: Graph, given: Any) -> Any:
        from gecompiler.ir.errors import ModelError

        raise ModelError("no runtime here")

    context = PassContext()
    assert CheckedPass(FuseAttention(), nothing).run(graph, context) == 2
    assert {w.code for w in context.diagnostics} == {"fusion-unchecked"}
    assert "no runtime here" in next(iter(context.diagnostics)).message


def test_huge_sizes_are_not_run() -> None:
    text = str(attention(layers=1)).replace(", 4, s, 8]", ", 4, 65536, 8]")
    graph = parse(text.replace("4, t, 8]", "4, 65536, 8]").replace("8, t]", "8, 65536]"))
    context = PassContext()
    CheckedPass(FuseAttention(), run_reference).run(graph, context)
    assert "too large" in next(iter(context.diagnostics)).message
