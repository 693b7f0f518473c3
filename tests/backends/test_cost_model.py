"""Every op gets a demand: by its family's formula, or by its bytes, never by an exception."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.cost.attention import Attention, attention_demand
from gecompiler.backends.cost.engine import engine
from gecompiler.backends.cost.gemm import Gemm, gemm_demand
from gecompiler.backends.cost.model import FORMULAS
from gecompiler.backends.device import load_device
from gecompiler.backends.topology import default_topology
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType, OpaqueType, ValueType, tensor

DEVICE = load_device("ascend910b")


def cost(
    op_type: str,
    inputs: list[ValueType],
    outputs: list[ValueType],
    domain: str = "",
    **attrs: Any,
) -> Demand:
    """The demand of one op between values of those types."""
    graph = Graph("g")
    for i, kind in enumerate(inputs):
        graph.add_input(f"x{i}", kind)
    names = tuple(f"x{i}" for i in range(len(inputs)))
    results = tuple(f"y{i}" for i in range(len(outputs)))
    op = graph.add_op(Op("op", op_type, names, results, attrs, domain), outputs)
    return DEVICE.demand(graph, op)


def f16(*shape: int) -> ValueType:
    return tensor("f16", shape)


def f32(*shape: int) -> ValueType:
    return tensor("f32", shape)


def product(batch: int, m: int, n: int, k: int, a: float, b: float, out: float) -> Demand:
    return gemm_demand(DEVICE, Gemm(batch, m, n, k, DType.F16, a * 2, b * 2, 0.0, out * 2))


def test_matmul_folds_the_batch_into_m_where_weights_are_shared() -> None:
    found = cost("MatMul", [f16(8, 100, 64), f16(64, 32)], [f16(8, 100, 32)])
    assert found == product(1, 800, 32, 64, 8 * 100 * 64, 64 * 32, 800 * 32)


def test_batched_matmul_and_its_einsum_cost_the_same() -> None:
    a, b, c = f16(4, 8, 100, 64), f16(4, 8, 64, 50), f16(4, 8, 100, 50)
    found = cost("MatMul", [a, b], [c])
    assert found == product(32, 100, 50, 64, 32 * 6400, 32 * 3200, 32 * 5000)
    assert cost("Einsum", [a, b], [c], equation="bhik,bhkj->bhij") == found
    assert cost("Einsum", [a, b], [c], equation="...ik,...kj->...ij") == found
    turned = cost("Einsum", [a, f16(4, 8, 50, 64)], [c], equation="bhik,bhjk -> bhij")
    assert turned == found
    implicit = cost("Einsum", [f16(100, 64), f16(64, 50)], [f16(100, 50)], equation="ik,kj")
    assert implicit == cost("MatMul", [f16(100, 64), f16(64, 50)], [f16(100, 50)])


@pytest.mark.parametrize(
    "equation", ["ii,ij->j", "ij,jk,kl->il", "", "a...,b->a", "ij->ji", "xyzw"]
)
def test_any_other_einsum_is_bound_by_bytes(equation: str) -> None:
    found = cost("Einsum", [f16(4, 4), f16(4, 4)], [f16(4, 4)], equation=equation)
    assert found.vector_us > 0 or found.cube_us > 0


def test_gemm_knows_its_turned_operands() -> None:
    plain = cost("Gemm", [f16(30, 64), f16(64, 50), f16(50)], [f16(30, 50)])
    turned = cost("Gemm", [f16(64, 30), f16(50, 64), f16(50)], [f16(30, 50)], transA=1, transB=1)
    assert plain == turned
    assert plain.cube_us > 0


def test_integer_products_run_at_the_rate_of_int8() -> None:
    a, b = tensor("u8", (512, 8192)), tensor("i8", (8192, 512))
    half = cost("MatMul", [f16(512, 8192), f16(8192, 512)], [f16(512, 512)])
    found = cost("MatMulInteger", [a, b], [tensor("i32", (512, 512))])
    assert found.cube_us == pytest.approx(half.cube_us / 2, rel=0.15)


def test_vectors_take_part_in_matmul() -> None:
    assert cost("MatMul", [f16(64), f16(64, 50)], [f16(50)]).cube_us > 0
    assert cost("MatMul", [f16(30, 64), f16(64)], [f16(30)]).cube_us > 0


def test_flash_attention_and_onnx_attention_agree() -> None:
    q, k, v, o = f16(2, 8, 256, 64), f16(2, 2, 512, 64), f16(2, 2, 512, 64), f16(2, 8, 256, 64)
    attrs = {"scale": 0.125, "q_heads": 8, "kv_heads": 2}
    found = cost("FlashAttention", [q, k, v], [o], domain="gecompiler", **attrs)
    assert found == attention_demand(DEVICE, Attention(2, 8, 2, 256, 512, 64, 64, DType.F16))
    assert cost("Attention", [q, k, v], [o]) == found
    flat = [f16(2, 256, 512), f16(2, 512, 128), f16(2, 512, 128)]
    three = cost("Attention", flat, [f16(2, 256, 512)], q_num_heads=8, kv_num_heads=2)
    assert three == found


def test_flash_attention_skips_what_its_window_hides() -> None:
    q = f16(1, 8, 4096, 64)
    attrs = {"scale": 0.125, "q_heads": 8, "kv_heads": 8}
    full = cost("FlashAttention", [q, q, q], [q], domain="gecompiler", **attrs)
    causal = cost("FlashAttention", [q, q, q], [q], domain="gecompiler", window_right=0, **attrs)
    assert causal.cube_us < 0.6 * full.cube_us
    mask = [q, q, q, f32(1, 1, 4096, 4096), f32(8)]
    masked = cost("FlashAttention", mask, [q], domain="gecompiler", **attrs)
    assert masked.vector_us > full.vector_us
    assert masked.load_bytes >= full.load_bytes + 4096 * 4096 * 4


def test_attention_of_onnxruntime() -> None:
    q, kv = f16(2, 128, 512), f16(2, 128, 128)
    out = [f16(2, 128, 512), f16(2, 2, 128, 64), f16(2, 2, 128, 64)]
    grouped = cost(
        "GroupQueryAttention", [q, kv, kv], out, "com.microsoft", num_heads=8, kv_num_heads=2
    )
    assert grouped.cube_us > 0
    multi = cost("MultiHeadAttention", [q, q, q], [q], "com.microsoft", num_heads=8)
    assert multi.cube_us > 0
    packed = [q, f16(512, 1536), f16(1536)]
    whole = cost("Attention", packed, [q], "com.microsoft", num_heads=8)
    assert whole.cube_us > multi.cube_us


def test_views_cost_nothing_and_copies_their_bytes() -> None:
    x = f16(128, 1024)
    for view in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape"):
        assert cost(view, [x], [x]) == Demand()
    for copy in ("Concat", "Expand", "Tile", "Pad", "Transpose"):
        found = cost(copy, [x], [x])
        assert found.store_bytes == 128 * 1024 * 2
        assert found.fixed_us >= DEVICE.vector_kernel_start_us


def test_a_slice_reads_what_it_keeps() -> None:
    found = cost("Slice", [f16(1024, 1024)], [f16(10, 1024)])
    assert found.load_bytes == found.store_bytes == 10 * 1024 * 2


def test_an_embedding_reads_rows_and_not_the_table() -> None:
    ids = tensor("i64", (2, 10))
    found = cost("Gather", [f16(32000, 4096), ids], [f16(2, 10, 4096)])
    assert found.load_bytes == 20 * 4096 * 2 + 20 * 8
    element = cost("GatherElements", [f16(100000, 100), tensor("i64", (50, 2))], [f16(50, 2)])
    assert element.load_bytes == 100 * 64 + 800


def test_elementwise_is_bound_by_memory_when_big() -> None:
    x = f16(1 << 25)
    found = cost("Add", [x, x], [x])
    assert found.load_bytes == 2 * 2 * (1 << 25)
    moved = 3 * 2 * (1 << 25)
    assert DEVICE.alone_us(found) == pytest.approx(moved / DEVICE.hbm_bytes_per_us, rel=0.05)
    erf = cost("Erf", [x], [x])
    assert erf.vector_us > 20 * found.vector_us


def test_the_same_value_twice_is_read_once() -> None:
    graph = Graph("g")
    graph.add_input("x", f16(4096))
    op = graph.add_op(Op("op", "Mul", ("x", "x"), ("y",)), [f16(4096)])
    assert DEVICE.demand(graph, op).load_bytes == 4096 * 2


def test_a_small_vector_kernel_is_mostly_start_up() -> None:
    found = cost("Add", [f32(1000)], [f32(1000)])
    assert found.vector_cores == 1
    assert DEVICE.alone_us(found) == pytest.approx(1.4, abs=0.4)


def test_long_rows_are_read_twice_by_norms() -> None:
    short, long, longer = f16(64, 4096), f16(2, 131072), f16(2, 2**22)
    assert cost("Softmax", [short], [short]).load_bytes == 64 * 4096 * 2
    assert cost("Softmax", [long], [long]).load_bytes == 2 * 131072 * 2
    assert cost("Softmax", [long], [long]).l2_bytes == 3 * 2 * 131072 * 2
    assert cost("Softmax", [longer], [longer]).load_bytes == 2 * 2 * 2**22 * 2
    assert cost("LayerNormalization", [short, f16(4096)], [short], axis=-1).vector_us > 0
    assert cost("GroupNormalization", [f16(1, 8, 64, 64)], [f16(1, 8, 64, 64)]).vector_us > 0


def test_convolution_as_a_product() -> None:
    x, w, y = f16(1, 64, 56, 56), f16(128, 64, 3, 3), f16(1, 128, 56, 56)
    found = cost("Conv", [x, w], [y])
    flop = 2.0 * 56 * 56 * 128 * 64 * 9
    assert found.cube_us >= flop / DEVICE.cube_flop_per_us(DType.F16)
    assert found.load_bytes == (64 * 56 * 56 + 128 * 64 * 9) * 2
    depthwise = cost("Conv", [x, f16(64, 1, 3, 3)], [x], group=64)
    assert DEVICE.alone_us(depthwise) < DEVICE.alone_us(found)
    assert cost("ConvTranspose", [x, f16(64, 32, 2, 2)], [f16(1, 32, 112, 112)]).cube_us > 0


def test_recurrent_layers_pay_for_every_step() -> None:
    w, r = f16(1, 1024, 256), f16(1, 1024, 256)
    short = cost("LSTM", [f16(10, 4, 256), w, r], [f16(10, 1, 4, 256)])
    long = cost("LSTM", [f16(100, 4, 256), w, r], [f16(100, 1, 4, 256)])
    assert 8 < DEVICE.alone_us(long) / DEVICE.alone_us(short) < 12
    assert long.load_bytes < 3e6


def body(op_type: str, *, out: str = "b") -> Graph:
    inner = Graph("body")
    inner.add_outer("x", f16(1024, 1024))
    inner.add_op(Op("inner", op_type, ("x",), (out,)), [f16(1024, 1024)])
    inner.set_outputs([out])
    return inner


def with_bodies(op_type: str, attrs: dict[str, Any], inputs: tuple[str, ...]) -> Demand:
    graph = Graph("g")
    graph.add_input("x", f16(1024, 1024))
    graph.add_input("s", f16(7, 16))
    graph.add_constant("trips", Constant.of(np.array(50, np.int64)))
    graph.add_input("unknown", tensor("i64", ()))
    op = graph.add_op(Op("op", op_type, inputs, ("y",), attrs), [f16(1024, 1024)])
    return DEVICE.demand(graph, op)


def test_bodies_cost_their_ops_as_often_as_they_run() -> None:
    once = DEVICE.alone_us(with_bodies("Loop", {"body": body("Relu")}, ("unknown", "")))
    many = DEVICE.alone_us(with_bodies("Loop", {"body": body("Relu")}, ("trips", "")))
    assert many == pytest.approx(50 * once + 49 * DEVICE.task_gap_us)
    scan = with_bodies("Scan", {"body": body("Relu"), "num_scan_inputs": 1}, ("s",))
    assert DEVICE.alone_us(scan) == pytest.approx(7 * once + 6 * DEVICE.task_gap_us)
    branches = {"then_branch": body("Relu"), "else_branch": body("Erf", out="e")}
    either = DEVICE.alone_us(with_bodies("If", branches, ("unknown",)))
    assert either > once


def test_bodies_nested_without_end_are_cut_off() -> None:
    inner = body("Relu")
    for i in range(100):
        outer = Graph("deep")
        outer.add_outer("x", f16(1024, 1024))
        outer.add_op(Op("loop", "Loop", ("", ""), (f"l{i}",), {"body": inner}))
        outer.set_outputs([f"l{i}"])
        inner = outer
    assert with_bodies("Loop", {"body": inner}, ("", "")) is not None


def test_collectives_use_the_links() -> None:
    x = f16(1024, 1024)
    reduce = cost("AllReduce", [x], [x], "com.microsoft", group_size=8)
    assert dict(reduce.link_bytes)["hccs"] == pytest.approx(2 * 7 / 8 * 2 * 1024 * 1024)
    gather = cost("AllGather", [x], [f16(8192, 1024)], "com.microsoft", group_size=8)
    assert dict(gather.link_bytes)["hccs"] == pytest.approx(7 * 2 * 1024 * 1024)
    assert cost("Send", [x], [], "custom").link_bytes
    for found, size in ((reduce, 2.0 * 1024 * 1024), (gather, 16.0 * 1024 * 1024)):
        kind = "AllReduce" if found is reduce else "AllGather"
        topology = default_topology(DEVICE, 8)
        expected = collective_cost(topology, kind, tuple(range(8)), size)
        assert DEVICE.alone_us(found) == pytest.approx(expected.us)


@pytest.mark.parametrize(
    ("op_type", "domain", "expected"),
    [
        ("MatMul", "", "AIcoreEngine"),
        ("Conv", "", "AIcoreEngine"),
        ("FlashAttention", "gecompiler", "AIcoreEngine"),
        ("MultiHeadAttention", "com.microsoft", "AIcoreEngine"),
        ("Add", "", "VectorEngine"),
        ("Softmax", "", "VectorEngine"),
        ("NobodyKnows", "my.domain", "VectorEngine"),
        ("Reshape", "", "DNN_VM_GE_LOCAL"),
        ("NonZero", "", "DNN_VM_AICPU"),
        ("StringConcat", "", "DNN_VM_AICPU"),
        ("LabelEncoder", "ai.onnx.ml", "DNN_VM_AICPU"),
        ("AllReduce", "com.microsoft", "DNN_HCCL"),
        ("HcomAllReduce", "ge", "DNN_HCCL"),
    ],
)
def test_engines(op_type: str, domain: str, expected: str) -> None:
    assert engine(Op("n", op_type, (), (), domain=domain)) == expected


def test_every_operator_of_onnx_has_a_demand_whatever_is_known() -> None:
    kinds: list[ValueType] = [
        f16(2, 3, 8, 8),
        f32(),
        tensor("string", (4,)),
        tensor("f16", (0, 5)),
        tensor("i64", ("n", 3)),  # type: ignore[arg-type]
        None,
        OpaqueType("seq(f32)", b""),
        tensor("u4", (3,)),
    ]
    names = sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas()})
    assert len(names) > 150
    for domain, name in names:
        for kind in kinds:
            for count in (0, 1, 2, 4):
                found = cost(name, [kind] * count, [kind], domain)
                assert DEVICE.alone_us(found) >= 0


def test_every_formula_copes_with_odd_shapes() -> None:
    for kind in FORMULAS:
        domain, _, name = kind.rpartition(".")
        for shape in ((), (0,), (1,), (5, 0, 3), (2, 3), (2, 3, 4), (2, 4, 4, 4), (1,) * 6):
            for count in range(1, 6):
                found = cost(name, [f16(*shape)] * count, [f16(*shape)], domain)
                assert DEVICE.alone_us(found) >= 0


attributes = st.dictionaries(
    st.sampled_from(
        ["axis", "perm", "group", "num_heads", "kernel_shape", "equation", "batch_dims", "scale"]
    ),
    st.one_of(
        st.integers(-3, 9), st.text(max_size=5), st.tuples(st.integers(-2, 3)), st.floats(-2, 2)
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(FORMULAS)),
    st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=4),
    attributes,
)
def test_no_attribute_makes_it_fail(
    kind: str, shapes: list[list[int]], attrs: dict[str, Any]
) -> None:
    domain, _, name = kind.rpartition(".")
    types = [f16(*s) for s in shapes]
    found = cost(name, types, types[:1] or [None], domain, **attrs)
    assert DEVICE.alone_us(found) >= 0


def test_host_copies_go_over_pcie_and_need_no_core() -> None:
    x = f32(1024, 1024)
    inward = cost("MemcpyFromHost", [x], [x], "com.microsoft")
    outward = cost("MemcpyToHost", [x], [x], "com.microsoft")
    bytes_ = 4.0 * 1024 * 1024
    assert inward.store_bytes == outward.load_bytes == bytes_
    assert inward.load_bytes == outward.store_bytes == 0
    assert inward.cube_cores == inward.vector_cores == 0
    link_us = bytes_ / DEVICE.link_bytes_per_us("pcie")
    for found in (inward, outward):
        assert DEVICE.alone_us(found) == pytest.approx(link_us + DEVICE.pcie_latency_us, rel=0.1)


def test_a_message_takes_one_wire_of_a_mesh() -> None:
    x = f16(4096, 4096)
    send = cost("Send", [x], [], "custom")
    wire = DEVICE.link_bytes_per_us("hccs") / 7
    start_us = DEVICE.collective_start_us + DEVICE.hccs_latency_us
    assert DEVICE.alone_us(send) == pytest.approx(2.0 * 4096 * 4096 / wire + start_us, rel=0.01)


def test_reductions_come_in_waves_of_rows() -> None:
    def sync_us(rows: int, length: int) -> float:
        found = cost("ReduceMean", [f32(rows, length)], [f32(rows, 1)], axes=(-1,))
        cores = found.vector_cores * DEVICE.core_dispatch_us
        return found.fixed_us - DEVICE.vector_kernel_start_us - cores

    at_once = DEVICE.vector_cores * DEVICE.rows_in_flight
    assert sync_us(at_once, 4096) == pytest.approx(DEVICE.row_sync_us)
    assert sync_us(5 * at_once, 4096) == pytest.approx(5 * DEVICE.row_sync_us)
    assert sync_us(8 * at_once, 128) == pytest.approx(DEVICE.row_sync_us)


def test_an_operand_that_is_spread_costs_what_the_profile_says() -> None:
    slow = dataclasses.replace(DEVICE, broadcast_efficiency_fraction=0.25)
    shapes = {"spread": (8192, 1), "scalar": (1,), "whole": (8192, 4096)}
    graph = Graph("g")
    graph.add_input("x", f16(8192, 4096))
    times = {}
    for name, shape in shapes.items():
        graph.add_input(name, f16(*shape))
        op = graph.add_op(Op(f"op_{name}", "Mul", ("x", name), (f"y_{name}",)), [f16(8192, 4096)])
        times[name] = [d.alone_us(d.demand(graph, op)) for d in (DEVICE, slow)]
    assert times["spread"][1] > 3 * times["spread"][0]
    assert times["scalar"][0] == times["scalar"][1]
    assert times["whole"][0] == times["whole"][1]


def test_small_collectives_do_not_grow_with_the_cards_of_a_mesh() -> None:
    x = f16(16)

    def us(cards: int) -> float:
        graph = Graph("g")
        graph.add_input("x", x)
        op = Op("op", "AllReduce", ("x",), ("y",), {"group_size": cards}, "com.microsoft")
        return DEVICE.alone_us(DEVICE.demand(graph, graph.add_op(op, [x])))

    issue_us = DEVICE.event_record_us
    assert us(8) == pytest.approx(us(4) + 2 * 4 * issue_us, rel=0.01)
