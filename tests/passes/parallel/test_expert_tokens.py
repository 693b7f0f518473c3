"""Experts on ranks that each have tokens of their own: to the experts and back."""

from __future__ import annotations

import math

import pytest

from gecompiler.ir.collective_ops import ALL_GATHER, REDUCE_SCATTER, message_bytes
from gecompiler.ir.parallel import Mesh
from gecompiler.passes.parallel import ParallelOptions, parallelise
from tests.passes.parallel.expert_graphs import FORMS, HIDDEN, TOKENS, Form, experts, inputs
from tests.passes.parallel.models_help import check_equal, collectives

MESHES = (
    {"ep": 2},
    {"ep": 4},
    {"dp": 2, "ep": 2},
    {"ep": 2, "tp": 2},
    {"dp": 2, "ep": 2, "tp": 2},
    {"dp": 4, "ep": 2},
    {"ep": 4, "sp": 2},
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_tokens_go_to_their_experts_and_come_back(form: Form, sizes: dict[str, int]) -> None:
    graph = experts(form, batch=8)
    program = parallelise(graph, Mesh.of(**sizes))
    axes = "dp+ep" if "dp" in sizes else "ep"
    assert str(program.templates[0].inputs["x"].sharding) == f"[{axes}, ., .]"
    check_equal(program, graph, inputs(8))
    found = collectives(program)
    assert found["ReduceScatter ep"] == 1
    assert not any(name.startswith("AllReduce ep") for name in found)


@pytest.mark.parametrize("form", ["looked-up", "dense", "joined"])
@pytest.mark.parametrize("sizes", [{"ep": 4}, {"dp": 2, "ep": 4}], ids=str)
def test_what_is_sent_is_what_the_formula_says(form: Form, sizes: dict[str, int]) -> None:
    """All tokens of the group to each rank and back: (n-1) x a rank's tokens x hidden, twice."""
    graph = experts(form, batch=8)
    program = parallelise(graph, Mesh.of(**sizes))
    local = program.templates[0].graph
    ranks, own = sizes["ep"], 8 * TOKENS // math.prod(sizes.values())
    sent: dict[str, list[float]] = {ALL_GATHER: [], REDUCE_SCATTER: []}
    for op in local.ops:
        if op.op_type in sent:
            sent[op.op_type].append(message_bytes(local, op) * (ranks - 1) / ranks)
    assert max(sent[ALL_GATHER]) == (ranks - 1) * own * HIDDEN * 4
    assert sent[REDUCE_SCATTER] == [(ranks - 1) * own * HIDDEN * 4]
    routing = sorted(sent[ALL_GATHER])[:-1]
    assert sum(routing) <= (ranks - 1) * own * 4 * (4 + 8), "weights and numbers of experts"


def test_ranks_of_ep_have_all_tokens_where_samples_do_not_divide() -> None:
    graph = experts("dense", batch=3)
    program = parallelise(graph, Mesh.of(ep=2))
    assert collectives(program) == {"AllReduce ep": 1}
    assert any(note.kind == "ep" and "3 samples for 2 ranks" in note.message
               for note in program.notes)  # fmt: skip
    check_equal(program, graph, inputs(3))


def test_tokens_are_replicated_on_request() -> None:
    graph = experts("looked-up", batch=4)
    whole = ParallelOptions(expert_tokens="replicate")
    program = parallelise(graph, Mesh.of(dp=2, ep=2), whole)
    assert collectives(program) == {"AllReduce ep": 1}
    assert str(program.templates[0].inputs["x"].sharding) == "[dp, ., .]"
    check_equal(program, graph, inputs(4))


def test_a_model_without_experts_has_no_more_replicas() -> None:
    from tests.passes.parallel.models_help import tiny

    program = parallelise(tiny("llama", batch=4), Mesh.of(ep=2))
    assert program.templates[0].inputs["input_ids"].sharding.is_whole
