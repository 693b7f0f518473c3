"""Small built models with numbers, as training takes them."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np

from gecompiler.ir import Graph
from gecompiler.ir.bind import bind, choose_sizes
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.infer import infer_types
from gecompiler.models import build_spec
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.training import TrainingStep
from tests.tiny_models import FAMILIES as WHOLE

Arrays = dict[str, np.ndarray]
VOCABULARY = 36
FAMILIES = {name: {**spec, "vocabulary": VOCABULARY} for name, spec in WHOLE.items()}
FUSED = "fuse-attention,canonicalize,fuse-attention,fuse-block,canonicalize"


@cache
def tiny(
    family: str,
    *,
    fused: bool = True,
    batch: int = 4,
    seq: int = 8,
    layers: int = 2,
    width: int = 32,
    vocabulary: int = VOCABULARY,
    weights: Literal["absent", "random"] = "random",
) -> Graph:
    """A built model with random weights, the same every time; bound."""
    spec = {**FAMILIES[family], "dtype": "f32", "layers": layers, "hidden": width}
    spec["vocabulary"] = vocabulary
    graph = build_spec(spec, phase="prefill", weights=weights)
    infer_types(graph)
    Pipeline.parse(FUSED if fused else "canonicalize").run(graph, PassContext(Diagnostics()))
    sizes = choose_sizes(graph, batch=batch, seq=seq, diagnostics=Diagnostics()).sizes
    bound = bind(graph, sizes)
    after = "canonicalize,attention-layout" if fused else "canonicalize"
    Pipeline.parse(after).run(bound, PassContext(Diagnostics()))
    return bound


def feeds(step: TrainingStep, seed: int = 0) -> Arrays:
    """Random tokens and labels, and the state before the first step."""
    rng = np.random.default_rng(seed)
    state = step.initial_state()
    found: Arrays = {}
    for name in step.graph.inputs:
        kind = step.graph.tensor(name)
        assert kind is not None
        if name in state:
            found[name] = state[name]
        elif kind.dtype.is_float:
            found[name] = rng.standard_normal(kind.sizes).astype(kind.dtype.numpy)
        elif "mask" in name:
            found[name] = np.ones(kind.sizes, kind.dtype.numpy)
        else:
            high = 2 if "type" in name else 8 if "position" in name else VOCABULARY
            found[name] = rng.integers(0, high, kind.sizes).astype(kind.dtype.numpy)
    return found
