"""The canonical form as a whole: same bits, at rest, the same for the same model, and small."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.backend.test.loader import load_node_model_tests
from rewriting_help import GraphMaker, apply, assert_same_bits, feeds, kinds, rewritten, run

from gecompiler.ir import GecError, load_onnx, parse
from gecompiler.passes.block.fuse import FuseBlock
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.pass_base import PassContext


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_random_graph_computes_the_same_bits(seed: int, ops: int) -> None:
    text = GraphMaker(seed, ops).text
    source, graph = parse(text), parse(text)
    apply(graph)
    for sizes in ({"b": 2, "s": 3}, {"b": 1, "s": 1}, {"b": 3, "s": 4}):
        given_values = feeds(source, sizes, seed % 97)
        assert_same_bits(run(source, given_values), run(graph, given_values), rtol=1e-6)


def test_the_same_model_gives_the_same_text() -> None:
    text = GraphMaker(11, 40).text
    assert str(rewritten(text)) == str(rewritten(text))


def test_a_bound_mask_is_folded() -> None:
    """Once sizes are numbers, position arithmetic has nothing left to compute."""
    text = """graph @g (opset 18) {
      input %x: f32[2, 4, 16, 16]
      const %i0: i64[] = 0
      const %i1: i64[] = 1
      const %i2: i64[] = 2
      const %rows: i64[1] = [1]
      const %zero: f32[] = 0.0
      const %low: f32[] = -inf
      const %freq: f32[2] = [1.0, 0.01]
      %d = Shape(%x)
      %s = Gather(%d, %i2)
      %r = Range(%i0, %s, %i1)
      %c = Unsqueeze(%r, %rows)
      %m = LessOrEqual(%r, %c)
      %f = Where(%m, %zero, %low)
      %a = Add(%x, %f)
      %p = Cast(%c) {to = 1}
      %angles = Mul(%p, %freq)
      %cos = Cos(%angles)
      %sin = Sin(%angles)
      return %a, %cos, %sin
    }"""
    graph = rewritten(text)
    assert kinds(graph) == {"Add": 1, "Identity": 2}


def test_what_is_too_big_is_computed_at_run_time() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2048, 2048]
      const %i0: i64[] = 0
      const %i1: i64[] = 1
      const %n: i64[] = 2048
      const %rows: i64[1] = [1]
      %r = Range(%i0, %n, %i1)
      %c = Unsqueeze(%r, %rows)
      %m = LessOrEqual(%r, %c)
      %y = Where(%m, %x, %x)
      %z: f32[2048, 2048] = Where(%m, %x, %y)
      %k = Not(%m)
      return %z, %k
    }"""
    graph = rewritten(text)
    assert kinds(graph) == {"LessOrEqual": 1, "Not": 1, "Identity": 1}


def test_states_and_labels_survive() -> None:
    text = """graph @g (opset 18) {
      input %past: f32[b, n, 4]
      input %new: f32[b, 1, 4]
      %i = Identity(%new)
      %c = Concat(%past, %i) {axis = 1} label "cache"
      %present = Identity(%c)
      %y = Neg(%present)
      state %past -> %present axis 1
      return %y, %present
    }"""
    graph = rewritten(text)
    assert kinds(graph) == {"Concat": 1, "Neg": 1}
    (state,) = graph.states
    assert (state.input, state.output, state.axis) == ("past", "present", 1)
    maker = graph.producer("present")
    assert maker is not None
    assert maker.info.label == "cache"


def test_the_cost_is_near_linear() -> None:
    """Counted in rule applications, which no other load on the machine changes."""
    counts = []
    for layers in (50, 200):
        graph = parse(_layers(layers))
        assert Canonicalize().run(graph, PassContext()) > 0
        counts.append(len(graph) / layers)
    assert counts[0] == pytest.approx(counts[1], rel=0.2)


def _layers(count: int) -> str:
    lines = ["graph @g (opset 18) {", "input %h0: f32[b, s, 8]", "const %t: i64[1] = [-1]"]
    lines += ["const %i0: i64[] = 0", "const %a: i64[1] = [0]", "const %w: f32[8, 8] = absent"]
    for i in range(count):
        lines += [
            f"%m{i} = MatMul(%h{i}, %w)",
            f"%d{i} = Shape(%m{i})",
            f"%b{i} = Gather(%d{i}, %i0)",
            f"%u{i} = Unsqueeze(%b{i}, %a)",
            f"const %k{i}: i64[2] = [-1, 8]",
            f"%c{i} = Concat(%u{i}, %k{i}) {{axis = 0}}",
            f"%r{i} = Reshape(%m{i}, %c{i})",
            f"%h{i + 1} = Relu(%r{i})",
        ]
    return "\n".join([*lines, f"return %h{count}", "}"])


# ---------------------------------------------------------------- the corpus


ARCHITECTURES = [
    *("bert-eager", "bert-sdpa", "bloom-eager", "deepseekv3-sdpa", "distilbert-eager"),
    *("distilbert-sdpa", "gemma2-eager", "gpt2-eager", "gpt2-sdpa", "gptneox-eager"),
    *("gptneox-sdpa", "llama-decode-eager", "llama-decode-sdpa", "llama-eager", "llama-sdpa"),
    *("llama32l-sdpa", "mistral-eager", "mistral-sdpa", "modernbert-eager", "modernbert-sdpa"),
    *("opt-eager", "opt-sdpa", "phi3-eager", "phi3-sdpa", "qwen3-eager", "qwen3-sdpa"),
    *("swin-eager", "t5-eager", "vit-eager", "vit-sdpa"),
]


QUICK = ("bert-sdpa", "llama-sdpa", "modernbert-eager")


@pytest.mark.parametrize(
    "architecture",
    [a if a in QUICK else pytest.param(a, marks=pytest.mark.slow) for a in ARCHITECTURES],
)
def test_torchscript_comes_down_to_what_dynamo_writes(corpus: Path, architecture: str) -> None:
    counts = {}
    for exporter in ("ts", "dynamo"):
        graph = load_onnx(corpus / "models" / f"{architecture}-{exporter}.onnx")
        apply(graph)
        FuseBlock(norms=False, rotary=False, residuals=False).run(graph, PassContext())
        counts[exporter] = len(graph)
    assert counts["ts"] <= 1.3 * counts["dynamo"]


def _runnable(corpus: Path) -> list[Path]:
    manifest = yaml.safe_load((corpus / "models" / "manifest.yaml").read_text())
    files = [corpus / "models" / f"{n}.onnx" for n, m in manifest.items() if "invalid" not in m]
    return [*files, *sorted((corpus / "cases" / "attention").glob("*.onnx"))]


@pytest.mark.slow
def test_every_model_of_the_corpus_computes_torchs_numbers(corpus: Path) -> None:
    """Also the fifteen that onnxruntime refuses as they come."""
    for file in _runnable(corpus):
        graph = load_onnx(file)
        apply(graph)
        inputs = dict(np.load(file.with_suffix(".inputs.npz")))
        expected = dict(np.load(file.with_suffix(".outputs.npz")))
        found = run(graph, inputs)
        for name, array in found.items():
            half = array.dtype == np.float16
            np.testing.assert_allclose(
                array, expected[name], rtol=1e-3, atol=2e-3 if half else 1e-4, err_msg=str(file)
            )


@pytest.mark.slow
def test_folding_gives_what_onnx_expects_of_its_own_cases() -> None:
    """Every case of onnx's node tests with its inputs as constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own, while it makes the cases
        cases = sorted(load_node_model_tests(), key=lambda c: str(c.name))
    folded = sum(_folds_right(case) for case in cases)
    assert folded > 400


NOT_FOLDING = {
    "test_training_dropout",  # compiled as inference, with a warning
    "test_training_dropout_default",
    "test_training_dropout_mask",
    "test_training_dropout_default_mask",
    "test_reduce_sum_empty_set_non_reduced_axis_zero",  # type inference fails on it
}


def _folds_right(case: Any) -> int:
    inputs, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if len(inputs) != len(model.graph.input) or case.name in NOT_FOLDING:
        return 0
    if not all(isinstance(x, (onnx.TensorProto, np.ndarray, np.generic)) for x in inputs):
        return 0
    for info, array in zip(model.graph.input, inputs, strict=True):
        tensor = array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(array)
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = info.name
    del model.graph.input[:]
    try:
        graph = load_onnx(model)
        Canonicalize().run(graph, PassContext())
    except GecError:
        return 0
    count = 0
    for name, wanted in zip(graph.outputs, outputs, strict=True):
        maker = graph.producer(name)
        constant = graph.constant(maker.inputs[0] if maker and maker.inputs else name)
        if maker is None or not maker.is_("Identity") or constant is None:
            continue
        array = wanted if isinstance(wanted, np.ndarray) else numpy_helper.to_array(wanted)
        found = constant.array()
        assert (found.dtype, found.shape) == (array.dtype, array.shape), case.name
        if found.dtype.kind in "biufc":
            np.testing.assert_allclose(found, array, rtol=1e-3, atol=1e-7, err_msg=case.name)
        count += 1
    return count
