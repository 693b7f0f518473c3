"""What a batch rule allows gives the same numbers, wherever the samples lie; and it allows much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir.constants import Constant
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, tensor
from gecompiler.passes.micro_batches.batch_rules import RULES
from gecompiler.passes.micro_batches.batch_site import MixedSamplesError
from gecompiler.passes.micro_batches.micro_batch import micro_batch

B = 4


@dataclass(frozen=True)
class Case:
    """An op, the shapes of its inputs (arrays are constants), and the axes that may be split.

    Each of ``along`` and ``mixes`` maps the inputs that are split to their axes; the others are
    whole. A split axis whose size is no multiple of B is made B times as long.
    """

    kind: str
    inputs: list[Any]
    along: list[dict[int, int]]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    mixes: list[dict[int, int]] = field(default_factory=list)
    opset: int = 20
    dtypes: tuple[str, ...] = ()


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


NORM = {"axis": -1, "epsilon": 1e-5, "stash_type": DType.F32.code, "scale_type": DType.F32.code}
ROTARY = {"dim": 8, "start": 0, "style": "half"}
GE = "gecompiler."

CASES = [
    # elementwise
    Case("Add", [(B, 3, B), (B, 3, B)], [{0: 0}, {0: 2, 1: 2}, {1: 0}, {0: 0, 1: 2}]),
    Case("Mul", [(3, B, 5), (B, 1)], [{0: 1}, {0: 1, 1: 0}]),
    Case("Mul", [(3, B, 5), (1, 5)], [{0: 1}]),
    Case("Where", [(B, 1), (B, 3), (3,)], [{0: 0}, {1: 0}], dtypes=("bool", "f32", "f32")),
    Case("Clip", [(B, 3), np.float32(0), np.float32(1)], [{0: 0}]),
    Case("PRelu", [(B, 3, 2), (3, 1)], [{0: 0}]),
    Case("Sum", [(B, 3), (3,), (B, 1)], [{0: 0}, {2: 0}]),
    Case("Dropout", [(B, 3)], [{0: 0}]),
    # products
    Case("MatMul", [(B, 3, 5), (5, 2)], [{0: 0}]),
    Case("MatMul", [(B, 5), (5, 2)], [{0: 0}]),
    Case("MatMul", [(3, B), (B, 2)], [], mixes=[{0: 1}, {1: 0}]),
    Case("MatMul", [(B, 2, 3, 5), (B, 2, 5, 3)], [{0: 0, 1: 0}, {0: 0}]),
    Case("MatMul", [(B, 2, 3, 5), (2, 5, 3)], [{0: 0}]),
    Case("Gemm", [(B, 5), (5, 3), (3,)], [{0: 0}]),
    Case("Gemm", [(3, B), (B, 2)], [], mixes=[{0: 1}, {1: 0}]),
    Case("Gemm", [(B, 5), (5, 3), (B, 3)], [{0: 0}, {0: 0, 2: 0}]),
    Case("Gemm", [(5, B), (5, 3)], [{0: 1}], {"transA": 1}),
    Case(
        "MatMulInteger",
        [(B, 5), np.ones((5, 2), np.int8), np.int8(1)],
        [{0: 0}],
        dtypes=("i8",),
    ),
    Case("Einsum", [(B, 3, 5), (B, 2, 5)], [{0: 0}, {0: 0, 1: 0}], {"equation": "bij,bkj->bik"}),
    Case("Einsum", [(3, B), (B, 2)], [], {"equation": "ij,jk->ik"}, mixes=[{0: 1}]),
    # along axes
    Case("Softmax", [(B, 3, B)], [{0: 0}], mixes=[{0: 2}]),
    Case("Softmax", [(3, B, 5)], [], opset=11, mixes=[{0: 1}]),
    Case("Softmax", [(B, 3, 5)], [{0: 0}], opset=11),
    Case("Hardmax", [(B, 3, 5)], [{0: 0}]),
    Case("ArgMax", [(3, B)], [{0: 1}], {"axis": 0, "keepdims": 0}, mixes=[{0: 0}]),
    Case("ReduceMean", [(3, B, 5), ints(0)], [{0: 1}], {"keepdims": 0}, mixes=[{0: 0}]),
    Case("ReduceSum", [(B, 3), ints(-1)], [{0: 0}], mixes=[{0: 1}]),
    Case("CumSum", [(B, 3), ints(1)[0]], [{0: 0}], mixes=[{0: 1}]),
    Case("TopK", [(B, 5), ints(2)], [{0: 0}], outputs=2, mixes=[{0: 1}]),
    Case("LpNormalization", [(B, 5)], [{0: 0}], mixes=[{0: 1}]),
    # moves
    Case("Transpose", [(3, B, 5)], [{0: 1}], {"perm": (2, 0, 1)}),
    Case("Reshape", [(B, 3, 4), ints(B, 12)], [{0: 0}]),
    Case("Reshape", [(B * 3, 4), ints(B, 3, 4)], [{0: 0}]),
    Case("Reshape", [(3, B), ints(3 * B)], [], mixes=[{0: 1}]),
    Case("Reshape", [(3, B, 2), ints(3, 2 * B)], [{0: 1}]),
    Case("Flatten", [(B, 3, 5)], [{0: 0}]),
    Case("Flatten", [(3, B, 5)], [], {"axis": 2}, mixes=[{0: 1}]),
    Case("Squeeze", [(1, B, 1), ints(0)], [{0: 1}]),
    Case("Expand", [(B, 1), ints(2, B, 3)], [{0: 0}]),
    Case("Tile", [(B, 3), ints(1, 2)], [{0: 0}]),
    Case("Tile", [(B, 3), ints(2, 1)], [], mixes=[{0: 0}]),
    Case("Concat", [(B, 3), (B, 2)], [{0: 0}, {0: 0, 1: 0}], {"axis": 1}, mixes=[]),
    Case("Concat", [(B, 3), (B, 3)], [], {"axis": 0}, mixes=[{0: 0, 1: 0}]),
    Case("Split", [(B, 6), ints(2, 4)], [{0: 0}], {"axis": 1}, outputs=2),
    Case("Slice", [(B, 6), ints(1), ints(4), ints(1)], [{0: 0}], mixes=[{0: 1}]),
    Case("Pad", [(B, 3), ints(0, 1, 0, 2)], [{0: 0}], mixes=[{0: 1}]),
    Case("Pad", [(3, B), ints(1, 1), np.float32(2), ints(0)], [{0: 1}], mixes=[{0: 0}]),
    Case(
        "Resize",
        [(B, 2, 3, 3), np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)],
        [{0: 0}],
        mixes=[{0: 2}],
    ),
    Case("Trilu", [(B, 3, 3)], [{0: 0}], mixes=[{0: 1}]),
    Case("OneHot", [(B, 3), ints(5)[0], ints(0, 1)], [{0: 0}], dtypes=("i64",)),
    Case("OneHot", [(B, 3), ints(5)[0], ints(0, 1)], [{0: 0}], {"axis": 0}, dtypes=("i64",)),
    # by index
    Case("Gather", [(5, 3), (B, 2)], [{1: 0}], dtypes=("f32", "i64"), mixes=[{0: 0}]),
    Case("Gather", [(2, B, 3), ints(1, 0)], [{0: 1}], {"axis": 2}),
    Case("Gather", [(5, B, 3), np.zeros((2, 2), np.int64)], [{0: 1}], {"axis": 0}),
    Case(
        "GatherElements",
        [(B, 5), (B, 2)],
        [{0: 0}, {1: 0}, {0: 0, 1: 0}],
        {"axis": 1},
        dtypes=("f32", "i64"),
    ),
    Case("GatherElements", [(B, 5), (2, 5)], [], dtypes=("f32", "i64"), mixes=[{0: 0}]),
    Case(
        "ScatterElements",
        [(B, 5), np.zeros((B, 1), np.int64), (B, 1)],
        [{0: 0}, {2: 0}],
        {"axis": 1},
    ),
    Case("GatherND", [(5, 3), (B, 2, 1)], [{1: 0}], dtypes=("f32", "i64")),
    Case(
        "GatherND",
        [(B, 5, 3), (B, 2, 1)],
        [{0: 0}, {1: 0}, {0: 0, 1: 0}],
        {"batch_dims": 1},
        dtypes=("f32", "i64"),
        mixes=[],
    ),
    Case("GatherND", [(B, 5), np.zeros((2, 1), np.int64)], [], mixes=[{0: 0}]),
    Case(
        "ScatterND",
        [(5, 3, B), ints(2, 0).reshape(2, 1), (2, 3, B)],
        [{0: 2}, {2: 2}, {0: 2, 2: 2}],
        mixes=[{2: 0}],
    ),
    Case("ScatterND", [(B, 3), ints(2, 0).reshape(2, 1), (2, 3)], [], mixes=[{0: 0}]),
    Case(
        "ReverseSequence",
        [(3, B, 2), ints(1, 2, 3, 1)],
        [{0: 1}],
        {"batch_axis": 1, "time_axis": 0},
        mixes=[{0: 0}],
    ),
    # layers
    Case("LayerNormalization", [(B, 3, 8), (8,), (8,)], [{0: 0}], mixes=[{0: 2}]),
    Case(GE + "RMSNorm", [(B, 3, 8), (8,)], [{0: 0}], NORM, mixes=[{0: 2}]),
    Case(GE + "LayerNorm", [(B, 3, 8), (8,), (8,)], [{0: 0}], NORM),
    Case(
        GE + "AddRMSNorm",
        [(B, 3, 8), (B, 3, 8), (8,)],
        [{0: 0, 1: 0}, {0: 0}, {1: 0}],
        NORM,
        outputs=2,
        mixes=[{0: 2, 1: 2}],
    ),
    Case(GE + "RotaryEmbedding", [(B, 2, 3, 8), (3, 8), (3, 8)], [{0: 0}], ROTARY),
    Case(
        GE + "RotaryEmbedding",
        [(B, 2, 3, 8), (B, 1, 3, 8), (B, 1, 3, 8)],
        [{0: 0}, {0: 0, 1: 0, 2: 0}, {1: 0}],
        ROTARY,
        mixes=[{0: 3}],
    ),
    Case(GE + "SiluMul", [(B, 3, 8), (B, 3, 8)], [{0: 0}, {0: 0, 1: 0}]),
    Case(GE + "SiluMul", [(B, 3, 8)], [{0: 0}], {"gate": "first"}, mixes=[{0: 2}]),
    Case(GE + "Gelu", [(B, 3, 8), (8,)], [{0: 0}]),
    Case(
        GE + "FlashAttention",
        [(B, 2, 3, 8), (B, 2, 5, 8), (B, 2, 5, 8), (B, 1, 3, 5)],
        [{0: 0, 1: 0, 2: 0, 3: 0}, {0: 0}],
        FlashAttention(0.5, 2, 2).attrs(),
        mixes=[{0: 3, 1: 3}],
    ),
    Case(
        GE + "FlashAttention",
        [(B, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), (2, 3, 5)],
        [{0: 0}],
        FlashAttention(0.5, 2, 2).attrs(),
    ),
    Case(
        "Attention",
        [(B, 3, 16), (B, 5, 16), (B, 5, 16), (3, 5)],
        [{0: 0, 1: 0, 2: 0}],
        {"q_num_heads": 2, "kv_num_heads": 2},
        opset=23,
    ),
    Case("Conv", [(B, 4, 5, 5), (4, 4, 3, 3), (4,)], [{0: 0}], mixes=[{0: 1}, {1: 0}]),
    Case("ConvTranspose", [(B, 2, 5, 5), (2, 3, 3, 3)], [{0: 0}]),
    Case("MaxPool", [(B, 2, 4, 4)], [{0: 0}], {"kernel_shape": (2, 2)}),
    Case("MaxPool", [(B, 2, 4, 4)], [], {"kernel_shape": (2, 2)}, outputs=2, mixes=[{0: 0}]),
    Case("GlobalAveragePool", [(B, 2, 4, 4)], [{0: 0}], mixes=[{0: 2}]),
    Case("LRN", [(B, 3, 4, 4)], [{0: 0}], {"size": 3}),
    Case("DepthToSpace", [(B, 8, 2, 2)], [{0: 0}], {"blocksize": 2}),
    Case("InstanceNormalization", [(B, 3, 4), (3,), (3,)], [{0: 0}]),
    Case(
        "BatchNormalization",
        [(B, 4, 4), (4,), (4,), (4,), np.ones(4, np.float32)],
        [{0: 0}, {0: 2}],
        mixes=[{0: 1}],
    ),
    Case("MeanVarianceNormalization", [(B, 3, 4, 4)], [], mixes=[{0: 0}]),
    Case("MeanVarianceNormalization", [(B, 3, 4, 4)], [{0: 0}], {"axes": (1, 2, 3)}),
    Case("QuantizeLinear", [(B, 3), np.float32(0.1), np.int8(1)], [{0: 0}, {0: 1}]),
    Case("QuantizeLinear", [(B, 3), np.ones(3, np.float32)], [{0: 0}], mixes=[{0: 1}]),
    Case(
        "LSTM",
        [(3, B, 2), (1, 20, 2), (1, 20, 5), (1, 40), "", (1, B, 5)],
        [{0: 1}, {0: 1, 5: 1}],
        {"hidden_size": 5},
        outputs=3,
        mixes=[{0: 0}],
    ),
    Case("GRU", [(3, B, 2), (1, 15, 2), (1, 15, 5)], [{0: 1}], {"hidden_size": 5}, outputs=2),
    # never
    Case("DynamicQuantizeLinear", [(B, 3)], [], outputs=3, mixes=[{0: 0}]),
    Case("NonZero", [(B, 3)], [], mixes=[{0: 0}]),
]


def build(case: Case, along: dict[int, int]) -> tuple[Graph, dict[str, np.ndarray]]:
    """The op, its split inputs made of graph inputs that have the samples first."""
    rng = np.random.default_rng(len(case.kind))
    graph = Graph("case", {"": case.opset, "gecompiler": 1})
    arrays: dict[str, np.ndarray] = {}
    names: list[str] = []
    for i, spec in enumerate(case.inputs):
        if isinstance(spec, str):
            names.append("")
            continue
        if not isinstance(spec, tuple):
            names.append(graph.add_constant(f"c{i}", Constant.of(np.asarray(spec))))
            continue
        dtype = case.dtypes[i] if i < len(case.dtypes) else "f32"
        shape = list(spec)
        if i in along and shape[along[i]] % B:
            shape[along[i]] = B * shape[along[i]]
        array = rng.standard_normal(shape).astype(np.float32)
        if dtype != "f32":
            array = rng.integers(0, 2, shape).astype(
                {"i64": np.int64, "i8": np.int8}.get(dtype, bool)
            )
        if i not in along:
            names.append(graph.add_constant(f"w{i}", Constant.of(array)))
            continue
        first = np.moveaxis(array, along[i], 0)
        arrays[f"x{i}"] = np.ascontiguousarray(first.reshape(B, -1, *first.shape[1:]))
        name = graph.add_input(f"x{i}", tensor(dtype, arrays[f"x{i}"].shape))
        flat = graph.constant_of("flat", np.array(first.shape, np.int64))
        name = graph.emit("Reshape", [name, flat], tensor(dtype, first.shape))
        order = [*range(1, along[i] + 1), 0, *range(along[i] + 1, len(shape))]
        attrs = {"perm": tuple(order)}
        names.append(graph.emit("Transpose", [name], tensor(dtype, tuple(shape)), attrs=attrs))
    domain, _, kind = case.kind.rpartition(".")
    results = tuple(f"y{i}" for i in range(case.outputs))
    graph.add_op(Op("op", kind, tuple(names), results, case.attrs, domain))
    graph.set_outputs(results)
    infer_types(graph)
    return graph, arrays


def same_in_parts(graph: Graph, arrays: dict[str, np.ndarray], count: int) -> None:
    expected = run_reference(graph, arrays)
    found = run_reference(micro_batch(graph, count).graph, arrays)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, equal_nan=True)


def _each(which: str) -> list[Any]:
    return [
        pytest.param(case, along, id=f"{case.kind}-{i}-{along}")
        for i, case in enumerate(CASES)
        for along in getattr(case, which)
    ]


@pytest.mark.parametrize(("case", "along"), _each("along"))
def test_samples_stay_apart(case: Case, along: dict[int, int]) -> None:
    graph, arrays = build(case, along)
    for count in (2, 3):
        same_in_parts(graph, arrays, count)


@pytest.mark.parametrize(("case", "along"), _each("mixes"))
def test_samples_are_mixed(case: Case, along: dict[int, int]) -> None:
    graph, _ = build(case, along)
    with pytest.raises(MixedSamplesError, match="'op'"):
        micro_batch(graph, 2)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kind)
def test_whatever_is_allowed_gives_the_same_numbers(case: Case) -> None:
    """Every input by itself and all inputs together, split along every axis."""
    shaped = {i: len(s) for i, s in enumerate(case.inputs) if isinstance(s, tuple)}
    tried = [{i: axis} for i, rank in shaped.items() for axis in range(rank)]
    tried += [dict.fromkeys(shaped, axis) for axis in range(min(shaped.values()))]
    for along in tried:
        try:
            graph, arrays = build(case, along)
            expected = run_reference(graph, arrays)
        except Exception:  # sizes that the op itself refuses
            continue
        try:
            split = micro_batch(graph, 2)
        except MixedSamplesError:
            continue
        found = run_reference(split.graph, arrays)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)


def test_every_rule_has_a_case() -> None:
    same_rule = {RULES[case.kind] for case in CASES if case.kind in RULES}
    assert {kind for kind, rule in RULES.items() if rule not in same_rule} == {
        "RotaryEmbedding",
        "com.microsoft.RotaryEmbedding",
        "GridSample",
    }
