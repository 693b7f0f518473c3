"""Small built models with numbers, as `parallelise` takes them."""

from __future__ import annotations

from functools import cache

import numpy as np

from gecompiler.backends.execution.executor import run_reference
from gecompiler.backends.execution.ranks import run_ranks
from gecompiler.ir import Graph
from gecompiler.ir.bind import bind, choose_sizes
from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.infer import infer_types
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.models import build_spec
from gecompiler.passes import PassContext, Pipeline
from tests.tiny_models import FAMILIES

PIPELINE = "fuse-attention,canonicalize,fuse-attention,fuse-block,canonicalize"

Arrays = dict[str, np.ndarray]


def optimised(graph: Graph, batch: int, seq: int) -> Graph:
    """The graph as it is when ranks share it out."""
    infer_types(graph)
    Pipeline.parse(PIPELINE).run(graph, PassContext(Diagnostics()))
    sizes = choose_sizes(graph, batch=batch, seq=seq, diagnostics=Diagnostics()).sizes
    bound = bind(graph, sizes)
    Pipeline.parse("canonicalize,attention-layout").run(bound, PassContext(Diagnostics()))
    return bound


@cache
def tiny(family: str, phase: str = "prefill", batch: int = 2, seq: int = 8) -> Graph:
    """A built model of two layers; random weights, the same every time."""
    spec = {**FAMILIES[family], "dtype": "f32"}
    graph = build_spec(spec, phase=phase, weights="random")
    return optimised(graph, batch, seq)


def inputs_of(graph: Graph) -> Arrays:
    """Random inputs: tokens below the vocabulary; the first sample is padded on the left."""
    random = np.random.default_rng(0)
    found: Arrays = {}
    for name in graph.inputs:
        type_ = graph.types[name]
        if not type_.dtype.is_float:
            high = {"attention_mask": 2, "token_type_ids": 2}.get(name, 37)
            array = random.integers(0, high, type_.sizes)
            if name == "attention_mask":
                array = np.ones(type_.sizes, np.int64)
                array[0, :2] = 0
            found[name] = array.astype(type_.dtype.numpy)
        else:
            found[name] = random.standard_normal(type_.sizes).astype(type_.dtype.numpy)
    return found


def check_equal(program: ParallelProgram, graph: Graph, arrays: Arrays) -> None:
    """Ranks together compute what one card does."""
    for template in program.templates:
        template.graph.verify()
    expected = run_reference(graph, arrays)
    found = run_ranks(program, arrays)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=2e-5, err_msg=name)


def collectives(program: ParallelProgram, template: int = 0) -> dict[str, int]:
    """How often a template talks, by op type and axes: ``AllReduce tp``."""
    found: dict[str, int] = {}
    for op in program.templates[template].graph.topological():
        if is_collective_op(op):
            key = f"{op.op_type} {op.attr('communicator')}"
            found[key] = found.get(key, 0) + 1
    return found
