"""The pass costs time in proportion to the number of layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attention_help import fuse
from growth import Make, growth_of_calls, growth_of_time

from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.fuse import FuseAttention
from gecompiler.passes.pass_base import PassContext


def bert_like(layers: int) -> Graph:
    """So many layers of self attention that share one mask."""
    lines = [
        "input %x0: f32[b, s, 32] input %m: i64[b, s]",
        "const %sh: i64[4] = [0, 0, 4, 8] const %os: i64[3] = [0, 0, 32] const %c: f32[] = 2.83",
        "const %ax: i64[2] = [1, 2] const %z: f32[] = 0.0 const %low: f32[] = -3.4e38",
        "%mb = Cast(%m) {to = 9} %mu = Unsqueeze(%mb, %ax) %bias = Where(%mu, %z, %low)",
        *(f"const %w{w}: f32[32, 32] = absent" for w in "qkvo"),
    ]
    for n in range(layers):
        for w in "qkv":
            lines.append(f"%{w}a{n} = MatMul(%x{n}, %w{w}) %{w}b{n} = Reshape(%{w}a{n}, %sh)")
            lines.append(f"%{w}{n} = Transpose(%{w}b{n}) {{perm = [0, 2, 1, 3]}}")
        lines.append(
            f"%t{n} = Transpose(%k{n}) {{perm = [0, 1, 3, 2]}} %s{n} = MatMul(%q{n}, %t{n})"
        )
        lines.append(f"%d{n} = Div(%s{n}, %c) %e{n} = Add(%d{n}, %bias) %p{n} = Softmax(%e{n})")
        lines.append(
            f"%f{n} = MatMul(%p{n}, %v{n}) %g{n} = Transpose(%f{n}) {{perm = [0, 2, 1, 3]}}"
        )
        lines.append(f"%h{n} = Reshape(%g{n}, %os) %i{n} = MatMul(%h{n}, %wo)")
        lines.append(f"%x{n + 1} = Add(%i{n}, %x{n})")
    return parse(f"graph (opset 17) {{ {' '.join(lines)} return %x{layers} }}")


def test_every_layer_is_fused_with_the_one_mask() -> None:
    graph = bert_like(6)
    sites = fuse(graph)
    assert [s.mask for s in sites] == ["padding"] * 6
    flash = [op for op in graph.ops if op.op_type == "FlashAttention"]
    assert {op.inputs[3] for op in flash} == {"mu"}
    assert not any(op.is_("Where", "Softmax", "Div") for op in graph.ops)


def grouped(layers: int) -> Graph:
    """So many layers with onnxruntime's GroupQueryAttention, each with its cache."""
    lines = ["input %x0: f32[b, s, 32] input %last: i32[b] input %total: i32[]"]
    widths = {"q": 32, "k": 16, "v": 16, "o": 32}
    lines += [f"const %w{w}: f32[32, {n}] = absent" for w, n in widths.items()]
    for n in range(layers):
        lines.append(f"input %pk{n}: f32[b, 2, p, 8] input %pv{n}: f32[b, 2, p, 8]")
        lines += [f"%{w}{n} = MatMul(%x{n}, %w{w})" for w in "qkv"]
        lines.append(
            f"%a{n}, %nk{n}, %nv{n} = com.microsoft.GroupQueryAttention(%q{n}, %k{n}, %v{n}, "
            f"%pk{n}, %pv{n}, %last, %total) {{num_heads = 4, kv_num_heads = 2}}"
        )
        lines.append(f"%i{n} = MatMul(%a{n}, %wo) %x{n + 1} = Add(%i{n}, %x{n})")
    presents = "".join(f", %nk{n}, %nv{n}" for n in range(layers))
    return parse(
        f"graph (opset 17, com.microsoft 1) {{ {' '.join(lines)} return %x{layers}{presents} }}"
    )


def _fusing(make: Callable[[int], Graph]) -> Make:
    def prepared(layers: int) -> Callable[[], object]:
        graph = make(layers)
        infer_types(graph)

        def fuse_all() -> None:
            assert FuseAttention().run(graph, PassContext()) == layers

        return fuse_all

    return prepared


@pytest.mark.parametrize("make", [bert_like, grouped])
def test_work_grows_with_the_layers(make: Callable[[int], Graph]) -> None:
    assert growth_of_calls(_fusing(make), 6, 24) < 4 * 1.2


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert_like, grouped])
def test_time_grows_with_the_layers(make: Callable[[int], Graph]) -> None:
    assert growth_of_time(_fusing(make), 24, 96) < 4 * 2
