"""Every real export, its batch of three computed sample by sample, gives the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.driver import optimise
from gecompiler.ir.bind import bind, choose_binding
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.passes.manager import PassContext
from gecompiler.passes.micro_batches.batch_site import MixedSamplesError
from gecompiler.passes.micro_batches.micro_batch import micro_batch
from gecompiler.passes.pipeline import Pipeline
from gecompiler.request import Request

MIXED = {"deepseekv3-sdpa-ts": "ScatterND", "scores_also_used_elsewhere": "ReduceMax"}
"""Models whose batch cannot be split, and the op that is at fault."""


@pytest.mark.slow
def test_sample_by_sample(corpus_model: Path) -> None:
    inputs = dict(np.load(corpus_model.with_suffix(".inputs.npz")))
    if max(len(array) for array in inputs.values() if array.ndim) < 2:
        pytest.skip("its batch is 1")
    source = optimise(Request(corpus_model, arrays=inputs))
    binding = choose_binding(source.graph, arrays=inputs, diagnostics=Diagnostics())
    graph = bind(source.graph, binding)
    Pipeline.parse("canonicalize").run(graph, PassContext())
    if corpus_model.stem in MIXED:
        with pytest.raises(MixedSamplesError, match=MIXED[corpus_model.stem]):
            micro_batch(graph, 3)
        return
    split = micro_batch(graph, 3)
    expected = dict(np.load(corpus_model.with_suffix(".outputs.npz")))
    found = run_reference(split.graph, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4)
