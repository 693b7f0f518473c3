"""Every norm, rotary embedding and activation of the real models becomes one op."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gecompiler.ir import Graph, load_onnx
from gecompiler.ir.errors import GecError
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.block.fuse import FuseBlock

MODELS = {
    "bert-eager": (6, 0, 3),
    "bert-sdpa": (6, 0, 3),
    "bloom-eager": (6, 0, 2),
    "deepseekv3-sdpa": (9, 4, 2),
    "distilbert-eager": (6, 0, 3),
    "distilbert-sdpa": (6, 0, 3),
    "gemma2-eager": (9, 4, 2),
    "gpt2-eager": (5, 0, 2),
    "gpt2-sdpa": (5, 0, 2),
    "gptneox-eager": (3, 4, 2),
    "gptneox-sdpa": (3, 4, 2),
    "llama-decode-eager": (5, 4, 2),
    "llama-decode-sdpa": (5, 4, 2),
    "llama-eager": (5, 4, 2),
    "llama-sdpa": (5, 4, 2),
    "llama32l-sdpa": (65, 64, 32),
    "mistral-eager": (5, 4, 2),
    "mistral-sdpa": (5, 4, 2),
    "modernbert-eager": (6, 4, 3),
    "modernbert-sdpa": (6, 4, 3),
    "opt-eager": (5, 0, 2),
    "opt-sdpa": (5, 0, 2),
    "phi3-eager": (5, 4, 2),
    "phi3-sdpa": (5, 4, 2),
    "qwen3-eager": (9, 4, 2),
    "qwen3-sdpa": (9, 4, 2),
    "swin-eager": (11, 0, 4),
    "t5-eager": (12, 0, 4),
    "vit-eager": (5, 0, 2),
    "vit-sdpa": (5, 0, 2),
    "whisper-eager": (12, 0, 6),
    "whisper-sdpa": (12, 0, 6),
}
"""How many norms, rotary embeddings and activations each model has."""

FEW = ("bert-eager", "deepseekv3-sdpa", "gemma2-eager", "gptneox-eager", "llama-sdpa", "t5-eager")
EXPORTERS = ("ts", "dynamo", "dyn23")
LEFT = {"Erf", "Pow", "Reciprocal", "Sigmoid", "Sqrt"}
"""What no model of these uses for anything else."""

NORMS = {
    *("RMSNorm", "LayerNorm", "AddRMSNorm", "AddLayerNorm"),
    *("RMSNormalization", "LayerNormalization"),
}
ACTIVATIONS = {"Gelu", "Silu", "Relu", "Swish", "GeluMul", "SiluMul"}


def found(graph: Graph) -> tuple[int, int, int]:
    kinds = Counter(op.op_type for op in graph.ops)
    norms, activations = (sum(kinds[k] for k in wanted) for wanted in (NORMS, ACTIVATIONS))
    return norms, kinds["RotaryEmbedding"], activations


def cases() -> list[object]:
    return [
        pytest.param(model, by, marks=[] if model in FEW else [pytest.mark.slow])
        for model in MODELS
        for by in EXPORTERS
    ]


@pytest.mark.parametrize(("model", "exporter"), cases())
def test_all_are_fused(corpus: Path, model: str, exporter: str) -> None:
    path = corpus / "models" / f"{model}-{exporter}.onnx"
    if not path.is_file():
        pytest.skip("that exporter has no such model")
    try:
        graph = load_onnx(path)
        stats = Pipeline.parse("canonicalize,fuse-attention,fuse-block,canonicalize").run(
            graph, PassContext()
        )
    except GecError:
        pytest.skip("an invalid model")
    assert found(graph) == MODELS[model]
    assert not LEFT & {op.op_type for op in graph.ops if not op.domain}
    assert stats[2].changes > 0
    assert FuseBlock().run(graph, PassContext()) == 0


@pytest.mark.slow
def test_a_large_model_takes_a_fraction_of_what_its_canonical_form_takes(corpus: Path) -> None:
    graph = load_onnx(corpus / "models" / "llama32l-sdpa-ts.onnx")
    spec = "canonicalize,fuse-attention,fuse-block"
    stats = Pipeline.parse(spec).run(graph, PassContext())
    assert stats[2].ms < stats[0].ms / 2
