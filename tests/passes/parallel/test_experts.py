"""Experts stacked in constants, as exporters write them without a loop."""

from __future__ import annotations

import numpy as np
import pytest

from gecompiler.ir import Graph
from gecompiler.ir.constants import Constant
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh
from gecompiler.ir.types import tensor
from gecompiler.passes.parallel import ParallelOptions, parallelise
from tests.passes.parallel.models_help import check_equal, collectives

EXPERTS, BATCH, TOKENS, HIDDEN, INNER = 4, 2, 6, 8, 12


def mixture(experts: int = EXPERTS, *, summed: bool = True) -> Graph:
    """The two best experts for each token, every expert computed for all tokens."""
    random = np.random.default_rng(0)
    graph = Graph("mixture", {"": 20, "gecompiler": 1})
    rows = BATCH * TOKENS

    def weight(*shape: int) -> str:
        data = (random.standard_normal(shape) * 0.3).astype(np.float32)
        return graph.add_constant(graph.fresh("w"), Constant.of(data))

    def ints(*numbers: int) -> str:
        return graph.constant_of("n", np.asarray(numbers, np.int64))

    def op(op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: object) -> str:
        name = graph.fresh(op_type)
        made = tuple(graph.fresh(f"{name}_{n}") for n in range(outputs))
        graph.add_op(Op(name, op_type, inputs, made, dict(attrs), domain))
        return made[0]

    graph.add_input("x", tensor("f32", (BATCH, TOKENS, HIDDEN)))
    flat = op("Reshape", "x", ints(rows, HIDDEN))
    best = op("TopK", op("MatMul", flat, weight(HIDDEN, experts)), ints(2), outputs=2, axis=-1)
    which = best.removesuffix("0") + "1"
    zeros = graph.constant_of("zeros", np.zeros((rows, experts), np.float32))
    dense = op("ScatterElements", zeros, which, op("Softmax", best, axis=-1), axis=1)
    routed = op("Reshape", op("Transpose", dense, perm=(1, 0)), ints(experts, rows, 1))
    every = op("Expand", op("Unsqueeze", flat, ints(0)), ints(experts, rows, HIDDEN))
    wide = op("MatMul", every, weight(experts, HIDDEN, 2 * INNER))
    inner = op("SiluMul", wide, domain="gecompiler", alpha=1.0, gate="first")
    each = op("Mul", op("MatMul", inner, weight(experts, INNER, HIDDEN)), routed)
    end = op("ReduceSum", each, ints(0), keepdims=0) if summed else each
    graph.set_outputs([end])
    infer_types(graph)
    graph.verify()
    return graph


INPUTS = {"x": np.random.default_rng(1).standard_normal((BATCH, TOKENS, HIDDEN)).astype(np.float32)}


@pytest.mark.parametrize(
    "sizes",
    [{"ep": 2}, {"ep": 4}, {"ep": 8}, {"ep": 2, "tp": 2}, {"ep": 2, "dp": 2, "tp": 2},
     {"ep": 2, "pp": 2}],
    ids=str,
)  # fmt: skip
def test_shared_out_experts(sizes: dict[str, int]) -> None:
    graph = mixture()
    check_equal(parallelise(graph, Mesh.of(**sizes)), graph, INPUTS)


def test_one_all_reduce_puts_them_together() -> None:
    program = parallelise(mixture(), Mesh.of(ep=4))
    assert collectives(program) == {"AllReduce ep": 1}
    template = program.templates[0]
    stacks = [template.graph.constants[n].type.sizes for n in template.constants]
    assert {s for s in stacks if len(s) == 3} == {(1, 8, 24), (1, 12, 8)}


def test_experts_are_cut_within_as_well() -> None:
    whole = ParallelOptions(expert_tokens="replicate")
    program = parallelise(mixture(), Mesh.of(ep=2, tp=2), whole)
    assert collectives(program) == {"AllReduce ep+tp": 1}
    template = program.templates[0]
    stacks = {template.graph.constants[n].type.sizes for n in template.constants}
    assert (2, 8, 12) in stacks
    assert (2, 6, 8) in stacks


def test_experts_that_are_not_summed_stay_whole_and_are_told() -> None:
    graph = mixture(summed=False)
    program = parallelise(graph, Mesh.of(ep=2))
    check_equal(program, graph, INPUTS)
    assert any(note.kind == "experts" for note in program.notes)
