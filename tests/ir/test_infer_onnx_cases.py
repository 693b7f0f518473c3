"""Every node test of onnx: the shapes inferred are those of the expected outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from gecompiler.ir import DType, Graph, TensorType, infer_types, load_onnx, symbol
from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim, substitute, symbols

DATA_DEPENDENT = {
    "ImageDecoder", "NonMaxSuppression", "StringNormalizer", "StringSplit", "Unique", "NonZero",
    "Compress",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    graph: Graph
    feeds: dict[str, Any]
    outputs: dict[str, Any]

    @property
    def data_dependent(self) -> bool:
        return any(op.op_type in DATA_DEPENDENT for op in self.graph.ops)


@pytest.fixture(scope="module", params=[5, pytest.param(1, marks=pytest.mark.slow)])
def cases(request: pytest.FixtureRequest) -> list[Case]:
    """Every fifth case, so that a run is short; all of them among the slow tests."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return list(map(_case, found[:: request.param]))


def _case(test: Any) -> Case:
    model: onnx.ModelProto = test.model
    graph = load_onnx(model)
    inputs, outputs = test.data_sets[0]
    feeds = dict(zip([v.name for v in model.graph.input], inputs, strict=False))
    return Case(
        test.name,
        graph,
        feeds,
        dict(zip([v.name for v in model.graph.output], outputs)),  # noqa: B905
    )


def _is_parameter(value: Any, graph: Graph) -> bool:
    """Whether an input says something about shapes: a small tensor of integers, or of scales."""
    if not isinstance(value, (np.ndarray, np.generic)) or value.size > 64:
        return False
    scales = any(op.op_type in ("Resize", "Upsample", "Range", "OneHot") for op in graph.ops)
    return value.dtype.kind in "ib" or (scales and value.dtype.kind in "fV" and value.ndim < 2)


def _prepared(case: Case, symbolic: bool) -> tuple[Graph, dict[str, Dim]]:
    """The case's graph without any declared type of outputs; parameters are constants.

    With ``symbolic`` every size of every other input has a symbol of its own.
    """
    graph = Graph(case.graph.name, case.graph.opsets)
    sizes: dict[str, Dim] = {}
    for name in case.graph.inputs:
        value, type_ = case.feeds.get(name), case.graph.type(name)
        if _is_parameter(value, case.graph):
            graph.add_constant(name, Constant.of(value))
            continue
        if symbolic and isinstance(type_, TensorType) and isinstance(value, np.ndarray):
            dims = [symbol(f"{name}_{i}") if d else 0 for i, d in enumerate(value.shape)]
            sizes |= {f"{name}_{i}": d for i, d in enumerate(value.shape)}
            type_ = TensorType(type_.dtype, tuple(dims))
        graph.add_input(name, type_)
    for name, constant in case.graph.constants.items():
        graph.add_constant(name, constant)
    for op in case.graph.topological():
        graph.add_op(op)
    graph.set_outputs(case.graph.outputs)
    return graph, sizes


def _mistakes(case: Case, graph: Graph, sizes: dict[str, Dim]) -> Iterator[str]:
    for name, value in case.outputs.items():
        type_ = graph.type(name)
        if not name or not isinstance(value, np.ndarray) or not isinstance(type_, TensorType):
            continue
        if type_.dtype is not DType.STRING and type_.dtype.numpy != value.dtype:
            yield f"{case.name}: {name} is {type_}, found {value.dtype}"
        if type_.shape is None:
            continue
        if len(type_.shape) != value.ndim:
            yield f"{case.name}: {name} is {type_}, found {value.shape}"
            continue
        for dim, size in zip(type_.shape, value.shape, strict=True):
            if symbols(dim) <= sizes.keys() and substitute(dim, sizes) != size:
                yield f"{case.name}: {name} is {type_}, found {value.shape}"


def _wrong_values(case: Case, values: Any, sizes: dict[str, Dim]) -> Iterator[str]:
    for name, value in case.outputs.items():
        if name not in values or not isinstance(value, np.ndarray):
            continue
        for item, truth in zip(values[name].items, value.reshape(-1).tolist(), strict=True):
            known = item is not None and symbols(item) <= sizes.keys()
            if known and substitute(item, sizes) != truth:
                yield f"{case.name}: {name} holds {values[name]}, found {value}"


@pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "symbols"])
def test_shapes_types_and_contents_are_those_of_the_expected_outputs(
    cases: list[Case], symbolic: bool
) -> None:
    mistakes: list[str] = []
    for case in cases:
        graph, sizes = _prepared(case, symbolic)
        facts = infer_types(graph)
        mistakes += _mistakes(case, graph, sizes)
        mistakes += _wrong_values(case, facts.values, sizes)
    assert mistakes == []


def test_nothing_but_data_leaves_a_size_open(cases: list[Case]) -> None:
    open_ = []
    for case in cases:
        if case.data_dependent or case.name.endswith("_expanded"):
            continue
        graph, _ = _prepared(case, symbolic=False)
        infer_types(graph)
        for name in case.outputs:
            type_ = graph.type(name) if name else None
            if type_ is None or (isinstance(type_, TensorType) and not type_.is_static):
                open_.append((case.name, name, str(type_)))
    assert open_ == []


def test_onnx_agrees_on_every_case(cases: list[Case]) -> None:
    """Where onnx's own inference tells a number, ours is that number."""
    differences = []
    for case in cases:
        if any(op.op_type == "STFT" for op in case.graph.ops):
            continue  # onnx 1.23 ignores that `onesided` is 1 by default
        graph, _ = _prepared(case, symbolic=False)
        stated = graph.copy()
        infer_types(graph)
        theirs = _onnx_shapes(stated)
        for name, found in theirs.items():
            ours = graph.tensor(name) if graph.has_value(name) else None
            if ours is None or ours.shape is None or len(ours.shape) != len(found):
                differences.append((case.name, name, str(ours), found))
                continue
            for mine, other in zip(ours.shape, found, strict=True):
                if other is not None and mine != other:
                    differences.append((case.name, name, str(ours), found))
    assert differences == []


def _onnx_shapes(graph: Graph) -> dict[str, list[int | None]]:
    from gecompiler.ir import to_onnx

    model = to_onnx(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return {}
    found: dict[str, list[int | None]] = {}
    for value in [*inferred.graph.value_info, *inferred.graph.output]:
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            dims = tensor.shape.dim
            found[value.name] = [d.dim_value if d.HasField("dim_value") else None for d in dims]
    return found
