"""Real exports shared out over ranks: the numbers of one card, whoever exported them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.backends.execution.ranks import run_ranks
from gecompiler.driver import optimise
from gecompiler.ir import Graph
from gecompiler.ir.bind import bind, choose_sizes
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.parallel import Mesh
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.parallel import ParallelOptions, parallelise
from gecompiler.request import Request
from tests.passes.parallel.models_help import collectives

EVERY_MESH = (
    *({axis: size} for axis in ("tp", "sp", "dp", "pp") for size in (2, 4, 8)),
    {"dp": 2, "tp": 2},
    {"sp": 2, "tp": 2},
    {"dp": 2, "sp": 2, "tp": 2},
    {"dp": 4, "tp": 2},
    {"sp": 2, "tp": 4},
    {"pp": 2, "tp": 4},
    {"pp": 2, "sp": 2, "tp": 2},
    {"pp": 2, "dp": 2, "sp": 2},
    {"pp": 4, "ep": 2},
)
SAMPLE = {
    "llama-sdpa-ts": ({"tp": 4}, {"dp": 2, "sp": 2, "tp": 2}, {"pp": 2, "sp": 4}),
    "llama-decode-eager-dynamo": ({"tp": 8}, {"dp": 2, "pp": 2, "tp": 2}),
    "gpt2-eager-dynamo": ({"tp": 2}, {"sp": 8}, {"pp": 4, "dp": 2}),
    "phi3-sdpa-ts": ({"tp": 2}, {"sp": 2, "tp": 2}),
    "gptneox-eager-dyn23": ({"tp": 4}, {"pp": 2, "tp": 2}),
    "bloom-eager-ts": ({"tp": 2, "dp": 2},),
    "gemma2-eager-dynamo": ({"sp": 4}, {"tp": 8}),
    "deepseekv3-sdpa-dynamo": ({"tp": 4}, {"dp": 2, "sp": 2, "tp": 2}),
    "t5-eager-ts": ({"tp": 2, "sp": 2}, {"pp": 4}),
    "whisper-sdpa-dynamo": ({"tp": 2}, {"sp": 2}, {"pp": 2, "dp": 2}),
    "swin-eager-ts": ({"tp": 4}, {"dp": 2, "tp": 2}),
    "vit-sdpa-dynamo": ({"sp": 2, "tp": 2},),
    "modernbert-sdpa-dyn23": ({"tp": 4}, {"sp": 4}),
}
TALK = {
    "llama-sdpa-ts": {"AllReduce tp": 4},
    "gpt2-eager-dynamo": {"AllReduce tp": 4},
    "phi3-sdpa-ts": {"AllReduce tp": 4},
    "gptneox-eager-dyn23": {"AllReduce tp": 2},  # attention and MLP side by side: one sum
    "bloom-eager-ts": {"AllReduce tp": 4},
    "gemma2-eager-dynamo": {"AllReduce tp": 4},
    "deepseekv3-sdpa-dynamo": {"AllReduce tp": 4},
    "t5-eager-ts": {"AllReduce tp": 10},  # two encoder layers, two decoder layers of three parts
    "modernbert-sdpa-dyn23": {"AllReduce tp": 4},
}


@lru_cache(maxsize=1)
def optimised(path: Path) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The model bound to its inputs, these, and what one card makes of them."""
    inputs = dict(np.load(path.with_suffix(".inputs.npz")))
    graph = optimise(Request(path, arrays=inputs)).graph
    sizes = choose_sizes(graph, arrays=inputs, diagnostics=Diagnostics()).sizes
    bound = bind(graph, sizes)
    Pipeline.parse("canonicalize,attention-layout").run(bound, PassContext(Diagnostics()))
    return bound, inputs, run_reference(bound, inputs)


def check(path: Path, sizes: dict[str, int], options: ParallelOptions | None = None) -> None:
    graph, inputs, expected = optimised(path)
    program = parallelise(graph, Mesh.of(**sizes), options)
    for template in program.templates:
        template.graph.verify()
    found = run_ranks(program, inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(
            found[name].astype(np.float64), array.astype(np.float64), rtol=1e-3, atol=2e-5
        )


@pytest.mark.parametrize("name", SAMPLE)
def test_a_choice_of_models_and_meshes(corpus: Path, name: str) -> None:
    for sizes in SAMPLE[name]:
        check(corpus / "models" / f"{name}.onnx", sizes)


@pytest.mark.parametrize("name", TALK)
def test_ranks_talk_no_more_than_they_must(corpus: Path, name: str) -> None:
    graph, _, _ = optimised(corpus / "models" / f"{name}.onnx")
    program = parallelise(graph, Mesh.of(tp=2))
    assert collectives(program) == TALK[name]
    assert not program.notes


@pytest.mark.parametrize("name", ["bert-eager-ts", "llama-sdpa-dyn23"])
def test_other_ways_for_tokens_on_old_and_new_opsets(corpus: Path, name: str) -> None:
    for way in ("ring", "all-to-all"):
        check(corpus / "models" / f"{name}.onnx", {"sp": 2}, ParallelOptions(sequence=way))


@pytest.mark.slow
def test_every_model_on_every_mesh(corpus_model: Path) -> None:
    graph, _, _ = optimised(corpus_model)
    for sizes in EVERY_MESH:
        if sizes.get("pp", 1) <= len(graph):
            check(corpus_model, sizes)


@pytest.mark.slow
def test_every_model_with_heads_exchanged(corpus_model: Path) -> None:
    for way in ("ring", "all-to-all"):
        for sizes in ({"sp": 2}, {"sp": 5}, {"sp": 2, "tp": 2}):
            check(corpus_model, sizes, ParallelOptions(sequence=way, kv_heads="split"))
