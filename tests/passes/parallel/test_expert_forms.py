"""Experts that are looked up for each token, or written one after the other."""

from __future__ import annotations

import math

import pytest

from gecompiler.ir import Graph
from gecompiler.ir.parallel import Mesh, ParallelProgram
from gecompiler.passes.parallel import ParallelOptions, parallelise
from tests.passes.parallel.expert_graphs import FORMS, INPUTS, Form, experts
from tests.passes.parallel.models_help import check_equal, collectives, inputs_of, tiny

MESHES = ({"ep": 2}, {"ep": 4}, {"ep": 2, "tp": 2}, {"ep": 2, "dp": 2}, {"pp": 2, "ep": 2})


def held(program: ParallelProgram) -> int:
    """The elements of the weights that a rank holds."""
    graph = program.graph(0)
    return sum(math.prod(c.type.sizes) for c in graph.constants.values() if c.type.dtype.is_float)


def weights(graph: Graph) -> int:
    return sum(math.prod(c.type.sizes) for c in graph.constants.values() if c.type.dtype.is_float)


@pytest.mark.parametrize("sizes", MESHES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_shared_out_experts(form: Form, sizes: dict[str, int]) -> None:
    if form == "picked" and "pp" in sizes:
        pytest.skip("a border of stages needs known sizes")
    graph = experts(form)
    before = str(graph)
    check_equal(parallelise(graph, Mesh.of(**sizes)), graph, INPUTS)
    assert str(graph) == before


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_holds_its_experts_and_sums_once(form: Form) -> None:
    graph = experts(form)
    program = parallelise(graph, Mesh.of(ep=4))
    assert collectives(program) == {"AllReduce ep": 1}
    assert len(program.templates) == 1
    assert not [n for n in program.notes if n.kind == "experts"]
    assert held(program) < weights(graph) / 2


@pytest.mark.parametrize("form", ["looked-up", "looked-up-nd", "dense", "joined"])
def test_experts_are_cut_within_as_well(form: Form) -> None:
    graph = experts(form)
    alone = held(parallelise(graph, Mesh.of(ep=2)))
    both = held(parallelise(graph, Mesh.of(ep=2, tp=2)))
    assert both < 0.75 * alone


@pytest.mark.parametrize("form", ["looked-up", "looked-up-nd"])
@pytest.mark.parametrize("count", [3, 5])
def test_stacks_that_do_not_divide(form: Form, count: int) -> None:
    graph = experts(form, count)
    for sizes in ({"ep": 2}, {"ep": 4}, {"ep": 8}):
        check_equal(parallelise(graph, Mesh.of(**sizes)), graph, INPUTS)


@pytest.mark.parametrize("form", ["dense", "picked"])
def test_branches_that_do_not_divide_stay_whole_and_are_told(form: Form) -> None:
    graph = experts(form, 3)
    program = parallelise(graph, Mesh.of(ep=2))
    check_equal(program, graph, INPUTS)
    assert any("3 experts are not shared out over 2 ranks" in n.message for n in program.notes)


@pytest.mark.parametrize("form", FORMS)
def test_the_best_one_alone(form: Form) -> None:
    """No sum over the chosen follows: rows are put together before they meet what all have."""
    for residual in (True, False):
        graph = experts(form, best=1, residual=residual)
        check_equal(parallelise(graph, Mesh.of(ep=2)), graph, INPUTS)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("sizes", [{"tp": 2}, {"tp": 8}, {"dp": 2, "sp": 2, "tp": 2}], ids=str)
def test_embeddings_cut_by_words(family: str, sizes: dict[str, int]) -> None:
    """37 words do not divide; each rank holds its part and one all-reduce puts them together."""
    graph, mesh = tiny(family), Mesh.of(**sizes)
    split = parallelise(graph, mesh, ParallelOptions(embeddings="split"))
    check_equal(split, graph, inputs_of(graph))
    whole = parallelise(graph, mesh)
    assert held(split) < held(whole)
    reduces = [
        sum(n for name, n in collectives(p).items() if name.startswith("AllReduce"))
        for p in (split, whole)
    ]
    assert reduces[0] > reduces[1]


@pytest.mark.parametrize("form", FORMS)
def test_what_others_read_of_experts_is_right(form: Form) -> None:
    """A result of one expert that the model gives away, and what was looked up for a token."""
    graph = experts(form)
    products = [op for op in graph.topological() if op.is_("MatMul")]
    for op in products[1:3]:
        kind = graph.tensor(op.outputs[0])
        if kind is not None and kind.is_static:
            seen = graph.emit("Tanh", [op.outputs[0]], kind)
            graph.set_outputs([*graph.outputs, seen])
    for sizes in ({"ep": 2}, {"ep": 2, "tp": 2}):
        check_equal(parallelise(graph, Mesh.of(**sizes)), graph, INPUTS)
