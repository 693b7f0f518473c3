"""Built models as ONNX files, and as real exports are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.ir.onnx_io.importer import load_onnx
from gecompiler.models import build, build_spec
from gecompiler.passes import PassContext, Pipeline
from tests.tiny_models import FAMILIES

CASES = [(f, p) for f in FAMILIES for p in ("prefill", "decode") if (f, p) != ("bert", "decode")]


def inputs_of(graph):
    rng = np.random.default_rng(0)
    found = {}
    for name in graph.inputs:
        type_ = graph.tensor(name)
        if name == "attention_mask":
            found[name] = np.ones(type_.sizes, np.int64)
            found[name][0, -1] = 0 if type_.sizes[1] > 1 else 1
        elif type_.dtype.is_integer:
            found[name] = rng.integers(0, 2 if "type" in name else 37, type_.sizes)
        else:
            found[name] = rng.normal(size=type_.sizes).astype(type_.dtype.numpy)
    return found


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("family", "phase"), CASES)
def test_a_built_model_is_valid_onnx_and_runs_alike_in_onnxruntime(family, phase, dtype):
    import onnxruntime as ort

    spec = {**FAMILIES[family], "dtype": dtype}
    graph = build_spec(spec, phase=phase, weights="random", batch=3, seq=6)
    graph.verify()
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    inputs = inputs_of(graph)
    want = dict(zip(graph.outputs, session.run(None, inputs), strict=True))
    found = run_reference(graph, inputs)
    tolerance = 1e-4 if dtype == "f32" else 3e-2
    for name, array in want.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("family", "phase"), CASES)
def test_inference_agrees_with_the_types_that_the_builder_states(family, phase):
    graph = build_spec(FAMILIES[family], phase=phase)
    stated = {v: graph.type(v) for op in graph.ops for v in op.outputs}
    for value in stated:
        graph.set_type(value, None)
    infer_types(graph)
    for value, type_ in stated.items():
        assert str(graph.type(value)) == str(type_), value


def test_llama_7b_has_the_ops_of_the_real_export(corpus):
    path = corpus / "models_real_size" / "llama-7b-sdpa-dynamo-fp16.onnx"
    counts = []
    for graph in (load_onnx(path), build("llama-7b")):
        infer_types(graph)
        Pipeline.parse("canonicalize").run(graph, PassContext())
        counts.append(Counter(op.kind for op in graph.ops))
    real, built = counts
    heavy = ("MatMul", "Softmax", "Mul", "Add", "Transpose", "Cast", "Slice", "Pow", "Where", "Neg")
    assert {k: real[k] for k in heavy} == {k: built[k] for k in heavy}
    assert abs(real.total() - built.total()) < 0.01 * real.total()
