"""Import then export keeps every model as it was, but for how it is spelled.

Two models are compared by a normal form that forgets only what the import is meant to change:
``Constant`` ops are constants, unknown sizes have names, ``ai.onnx`` is ``""``.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    numpy_helper,
)

from gecompiler.ir import GecError, load_onnx, to_onnx
from gecompiler.ir.dim_parse import parse_dim
from gecompiler.ir.onnx_io.legacy import raise_opset
from gecompiler.ir.onnx_io.types import ANONYMOUS

A = AttributeProto


def tensor_form(t: TensorProto) -> tuple[Any, ...]:
    if t.data_location == TensorProto.EXTERNAL:
        return t.data_type, tuple(t.dims), sorted((e.key, e.value) for e in t.external_data)
    array = numpy_helper.to_array(t)
    return array_form(array, t.data_type)


def array_form(array: np.ndarray, code: int) -> tuple[Any, ...]:
    data = array.tolist() if code == TensorProto.STRING else array.tobytes()
    return code, array.shape, data


def constant_form(node: NodeProto) -> tuple[Any, ...]:
    attr = node.attribute[0]
    match attr.name:
        case "value":
            return tensor_form(attr.t)
        case "value_float":
            return array_form(np.array(attr.f, np.float32), TensorProto.FLOAT)
        case "value_floats":
            return array_form(np.array(attr.floats, np.float32), TensorProto.FLOAT)
        case "value_int":
            return array_form(np.array(attr.i, np.int64), TensorProto.INT64)
        case "value_ints":
            return array_form(np.array(attr.ints, np.int64), TensorProto.INT64)
    raise AssertionError(f"no case has a Constant with {attr.name}")


def type_form(type_: TypeProto, name: str) -> Any:
    tensor = type_.tensor_type
    if not tensor.elem_type:
        return type_.SerializeToString(deterministic=True)
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    sizes: list[Any] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value"):
            sizes.append(dim.dim_value)
        elif dim.dim_param in ANONYMOUS:
            sizes.append(f"{name}_dim{axis}")
        else:
            sizes.append(str(parse_dim(dim.dim_param)))
    return tensor.elem_type, sizes


def attr_form(attr: AttributeProto) -> tuple[Any, ...]:
    match attr.type:
        case A.TENSOR:
            value: Any = tensor_form(attr.t)
        case A.GRAPH:
            value = graph_form(attr.g)
        case _:
            value = onnx.helper.get_attribute_value(attr)
            value = list(value) if isinstance(value, Iterable) else value
    return attr.name, attr.type, value


def graph_form(graph: GraphProto) -> dict[str, Any]:
    constants = {t.name: tensor_form(t) for t in graph.initializer}
    nodes = []
    for node in graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if node.op_type == "Constant" and not domain:
            constants[node.output[0]] = constant_form(node)
            continue
        attrs = sorted(map(attr_form, node.attribute), key=lambda a: str(a[0]))
        nodes.append((domain, node.op_type, list(node.input), list(node.output), attrs))
    outputs = {o.name for o in graph.output}
    made = {v for node in nodes for v in node[3]} - outputs
    return {
        "name": graph.name or "graph",
        "inputs": [
            (v.name, type_form(v.type, v.name)) for v in graph.input if v.name not in constants
        ],
        "outputs": [(v.name, type_form(v.type, v.name)) for v in graph.output],
        "constants": constants,
        "nodes": nodes,
        "types": {v.name: type_form(v.type, v.name) for v in graph.value_info if v.name in made},
    }


def same(a: ModelProto, b: ModelProto) -> None:
    first, second = graph_form(a.graph), graph_form(b.graph)
    for part, content in first.items():
        assert content == second[part], part
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in a.opset_import}
    assert {"": 20, **opsets} == {"": 20, **{o.domain: o.version for o in b.opset_import}}


# ---------------------------------------------------------------- onnx's own tests


def cases(kind: str) -> list[tuple[str, ModelProto]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute their expected outputs with numpy
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind=kind)
    return [(c.name, c.model or onnx.load(Path(c.model_dir or "") / "model.onnx")) for c in found]


@pytest.mark.parametrize("kind", ["node", "simple", "pytorch-converted", "pytorch-operator"])
def test_every_backend_case_comes_back(
    kind: str, record_property: pytest.RecordProperty, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    for name, model in cases(kind):
        raised, old = raise_opset(model, name)
        try:
            same(raised, to_onnx(load_onnx(model)))
        except GecError as error:
            raise AssertionError(name) from error
        counts["equal" if old is None else "raised to opset 7, then equal"] += 1
    record_property("counts", dict(counts))
    with capsys.disabled():
        print(f"\n{kind}: {dict(counts)}")  # noqa: T201  (the counts are the result)
    if kind == "node":
        assert counts["equal"] > 1500


# ---------------------------------------------------------------- the corpus


def models(corpus: Path) -> list[tuple[Path, dict[str, Any]]]:
    manifest = yaml.safe_load((corpus / "models" / "manifest.yaml").read_text())
    found = [(corpus / "models" / f"{name}.onnx", entry) for name, entry in manifest.items()]
    cases_of_attention = sorted((corpus / "cases" / "attention").glob("*.onnx"))
    return found + [(path, {"ort_runs": True}) for path in cases_of_attention]


def test_every_model_of_the_corpus_comes_back(corpus: Path) -> None:
    refused = {}
    for path, entry in models(corpus):
        try:
            graph = load_onnx(path)
        except GecError as error:
            refused[path.stem] = str(error)
            continue
        assert "invalid" not in entry, path.stem
        graph.verify()
        exported = to_onnx(graph)
        same(onnx.load(path), exported)
        assert to_onnx(load_onnx(exported)) == exported
    assert len(refused) == 3
    for name, text in refused.items():
        assert f"{name}.onnx, node 'node_Add_" in text
        assert "f32[" in text
        assert "bool[" in text
        assert "Where(mask, x, -inf)" in text


def test_the_real_size_export_needs_no_weights(corpus: Path) -> None:
    (path,) = sorted((corpus / "models_real_size").glob("*.onnx"))
    original = onnx.load(path, load_external_data=False)
    graph = load_onnx(path)
    assert not any(c.has_data for c in graph.constants.values() if c.size > 10_000)
    same(original, to_onnx(graph))


@pytest.mark.slow
def test_no_number_of_the_corpus_changes(corpus: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Without it the training-mode Dropout that some exporters leave behind draws random numbers.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    for path, entry in models(corpus):
        if not entry["ort_runs"]:
            continue
        feeds = dict(np.load(path.with_suffix(".inputs.npz")))
        exported = to_onnx(load_onnx(path)).SerializeToString()
        first, second = (
            onnxruntime.InferenceSession(source, options).run(None, feeds)
            for source in (str(path), exported)
        )
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=path.stem)
