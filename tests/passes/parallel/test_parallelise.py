"""Built models on meshes: the same numbers, and no more talk than the papers say."""

from __future__ import annotations

import numpy as np
import pytest

from gecompiler.backends.execution.ranks import run_ranks
from gecompiler.ir import Graph
from gecompiler.ir.errors import UsageError
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, Product, Segments, Split
from gecompiler.ir.types import tensor
from gecompiler.passes.parallel import ParallelOptions, parallelise
from tests.passes.parallel.models_help import check_equal, collectives, inputs_of, tiny

MESHES = (
    *({axis: size} for axis in ("tp", "sp", "dp", "pp") for size in (2, 4, 8)),
    {"dp": 2, "tp": 2},
    {"sp": 2, "tp": 2},
    {"dp": 2, "sp": 2, "tp": 2},
    {"pp": 2, "sp": 2, "tp": 2},
    {"pp": 2, "dp": 2, "tp": 2},
    {"pp": 4, "dp": 2},
)
CASES = [("llama", "prefill"), ("gpt2", "prefill"), ("bert", "prefill"), ("llama", "decode")]


@pytest.mark.parametrize(("family", "phase"), CASES)
@pytest.mark.parametrize("sizes", MESHES, ids=lambda s: "".join(f"{a}{n}" for a, n in s.items()))
def test_ranks_compute_what_one_card_does(family: str, phase: str, sizes: dict[str, int]) -> None:
    graph = tiny(family, phase)
    program = parallelise(graph, Mesh.of(**sizes))
    check_equal(program, graph, inputs_of(graph))


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_sizes_that_do_not_divide(family: str) -> None:
    graph = tiny(family, batch=3, seq=7)
    for sizes in ({"dp": 2}, {"sp": 4}, {"tp": 3}, {"dp": 2, "sp": 2, "tp": 8}):
        check_equal(parallelise(graph, Mesh.of(**sizes)), graph, inputs_of(graph))


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_two_all_reduces_a_layer(family: str) -> None:
    """Megatron-LM: one behind the attention, one behind the MLP."""
    program = parallelise(tiny(family), Mesh.of(tp=4))
    assert collectives(program) == {"AllReduce tp": 4}
    assert len(program.templates) == 1
    assert program.template_of == (0, 0, 0, 0)


def test_keys_and_values_are_gathered_for_tokens() -> None:
    program = parallelise(tiny("llama"), Mesh.of(sp=4))
    assert collectives(program) == {"AllGather sp": 5}, "K and V of two layers, and the logits"
    assert len(program.templates) == 4, "causal ranks do different work"
    offsets = [
        [op.attr("row_offset", 0) for op in t.graph.ops if op.op_type == "FlashAttention"]
        for t in program.templates
    ]
    assert offsets == [[0, 0], [2, 2], [4, 4], [6, 6]]


@pytest.mark.parametrize("sizes", [{"sp": 2}, {"sp": 4}, {"sp": 8}, {"sp": 2, "tp": 2}], ids=str)
@pytest.mark.parametrize("way", ["gather", "ring", "all-to-all"])
def test_tokens_behind_a_cache_see_what_they_saw(way: str, sizes: dict[str, int]) -> None:
    """A window that is counted from the last key; the rows, which are many, are cut."""
    graph = Graph("chunk", {"": 20, "gecompiler": 1})
    random = np.random.default_rng(0)
    graph.add_input("x", tensor("f32", (2, 128, 8)))
    for name in ("keys", "values"):
        graph.add_input(name, tensor("f32", (2, 2, 135, 4)))
    weight = graph.constant_of("w", random.standard_normal((8, 8)).astype(np.float32))
    graph.add_op(Op("q", "MatMul", ("x", weight), ("flat",)))
    shape = graph.constant_of("shape", np.asarray([2, 128, 2, 4], np.int64))
    graph.add_op(Op("heads", "Reshape", ("flat", shape), ("rows",)))
    graph.add_op(Op("turn", "Transpose", ("rows",), ("queries",), {"perm": (0, 2, 1, 3)}))
    attention = FlashAttention(
        0.5, q_heads=2, kv_heads=2, window_left=5, window_right=0, align="bottom_right"
    )
    inputs = ("queries", "keys", "values")
    graph.add_op(Op("look", "FlashAttention", inputs, ("y",), attention.attrs(), "gecompiler"))
    graph.set_outputs(["y"])
    infer_types(graph)
    program = parallelise(graph, Mesh.of(**sizes), ParallelOptions(sequence=way))
    assert len(program.templates) > 1, "rows differ in what they see"
    check_equal(program, graph, inputs_of(graph))


def test_tokens_of_an_encoder_are_alike() -> None:
    program = parallelise(tiny("bert"), Mesh.of(sp=4), ParallelOptions(gather_outputs=()))
    assert len(program.templates) == 1
    assert program.templates[0].outputs["logits"].sharding.dims[1] == Split("sp")


def test_samples_need_no_talk() -> None:
    for family in ("llama", "gpt2", "bert"):
        program = parallelise(tiny(family), Mesh.of(dp=2))
        assert collectives(program) == {}
        inputs = program.templates[0].inputs.values()
        assert all(whole.sharding.dims[0] == Split("dp") for whole in inputs)


def test_one_tensor_crosses_a_border_of_stages() -> None:
    program = parallelise(tiny("llama"), Mesh.of(pp=2))
    sends = [op for op in program.templates[0].graph.ops if op.op_type == "Send"]
    receives = [op for op in program.templates[1].graph.ops if op.op_type == "Recv"]
    assert [op.attr("peer") for op in sends] == [1]
    assert [op.attr("peer") for op in receives] == [-1]
    assert sends[0].attr("tag") == receives[0].attr("tag")
    assert receives[0].attr("shape") == (2, 8, 32)


def test_masks_are_made_on_every_stage() -> None:
    program = parallelise(tiny("llama"), Mesh.of(pp=2))
    assert all("attention_mask" in t.graph.inputs for t in program.templates)
    assert "input_ids" not in program.templates[1].graph.inputs


def test_few_kv_heads_are_held_by_neighbours_or_made_in_parts() -> None:
    graph, mesh = tiny("llama"), Mesh.of(tp=4)
    arrays = inputs_of(graph)
    both = {way: parallelise(graph, mesh, ParallelOptions(kv_heads=way))
            for way in ("replicate", "split")}  # fmt: skip
    for program in both.values():
        check_equal(program, graph, arrays)
    assert collectives(both["replicate"]) == {"AllReduce tp": 4}
    assert collectives(both["split"]) == {"AllReduce tp": 4, "AllGather tp": 4}
    for program in both.values():
        note = next(n for n in program.notes if n.kind == "kv-heads")
        held, made, moved = (
            note.figures[f"{name}_bytes"]
            for name in ("replicate_weight", "split_weight", "split_gathered")
        )
        assert held == 2 * made == 2 * 2 * 2 * 32 * 16 * 4 // 4, "of two layers: K, V: 32 x 16"
        assert moved == 2 * 2 * 2 * 8 * 16 * 4, "of two layers: K, V: 2 x 8 tokens x 16"


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("sizes", [{"sp": 2}, {"sp": 4}, {"sp": 2, "tp": 2}, {"sp": 2, "dp": 2}])
def test_all_to_all_between_tokens_and_heads(family: str, sizes: dict[str, int]) -> None:
    graph, options = tiny(family), ParallelOptions(sequence="all-to-all")
    program = parallelise(graph, Mesh.of(**sizes), options)
    check_equal(program, graph, inputs_of(graph))
    # two layers: Q and the output, and K and V where each rank has KV heads of its own
    own_heads = family != "llama" or sizes == {"sp": 2} or "dp" in sizes
    assert collectives(program)["AllToAll sp"] == (8 if own_heads else 4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("sizes", [{"sp": 2}, {"sp": 4, "tp": 2}, {"sp": 8}, {"sp": 2, "pp": 2}])
def test_keys_go_round(family: str, sizes: dict[str, int]) -> None:
    """Also for rows whose keys are all padding, which give the mean of all values."""
    graph, options = tiny(family), ParallelOptions(sequence="ring")
    program = parallelise(graph, Mesh.of(**sizes), options)
    check_equal(program, graph, inputs_of(graph))
    talk = [collectives(program, n) for n in range(0, len(program.templates))]
    sent = max(t.get("Send sp", 0) for t in talk)
    layers = 1 if "pp" in sizes else 2
    assert sent == layers * 2 * (sizes["sp"] - 1), "K and V, to all others"
    assert not any("AllGather sp" in t and t["AllGather sp"] > 1 for t in talk), "but the logits"


def test_a_ring_of_causal_ranks_differs_by_offsets_alone() -> None:
    program = parallelise(tiny("llama"), Mesh.of(sp=2), ParallelOptions(sequence="ring"))
    offsets = [
        [op.attr("row_offset", 0) for op in t.graph.topological() if "lse" in str(op.outputs)]
        for t in program.templates
    ]
    assert sorted(offsets[0]) == [-4, -4, 0, 0], "its own keys, and those after its rows"
    assert sorted(offsets[1]) == [0, 0, 4, 4], "its own keys, and those before its rows"


@pytest.mark.parametrize("way", ["ring", "all-to-all"])
def test_what_cannot_be_exchanged_is_gathered_and_told(way: str) -> None:
    options = ParallelOptions(sequence=way)
    graph = tiny("llama", seq=7)
    program = parallelise(graph, Mesh.of(sp=2), options)
    check_equal(program, graph, inputs_of(graph))
    assert "7 tokens for 2 ranks" in str(program.notes[0])


def test_fused_projections_are_cut_by_heads() -> None:
    program = parallelise(tiny("gpt2"), Mesh.of(tp=2))
    layouts = {s.dims for _, s in program.templates[0].constants.values() if len(s.dims) == 2}
    heads = Product(((4, Split("tp")), (8, None)))
    assert (None, Segments(((32, heads),) * 3)) in layouts
    assert (heads, None) in layouts


def test_caches_are_cut_by_kv_heads_and_samples() -> None:
    program = parallelise(tiny("llama", "decode"), Mesh.of(tp=2, dp=2))
    template = program.templates[0]
    assert len(template.graph.states) == 4
    for state in template.graph.states:
        before, after = template.inputs[state.input], template.outputs[state.output]
        assert before.sharding.dims[:2] == (Split("dp"), Split("tp"))
        assert after.sharding == before.sharding


def test_caches_stay_with_their_stage() -> None:
    program = parallelise(tiny("llama", "decode"), Mesh.of(pp=2))
    assert [len(t.graph.states) for t in program.templates] == [2, 2]


def test_heads_that_straddle_stay_whole_and_are_told() -> None:
    graph = tiny("llama")  # 4 heads read 2 KV heads; 3 ranks would have heads of both
    program = parallelise(graph, Mesh.of(tp=3))
    check_equal(program, graph, inputs_of(graph))


def test_vocabulary_whole_or_cut() -> None:
    for cut in (True, False):
        program = parallelise(tiny("llama"), Mesh.of(tp=2), ParallelOptions(vocabulary=cut))
        assert (program.templates[0].outputs["logits"].sharding.dims[2] is not None) == cut


def test_the_same_every_time() -> None:
    mesh = Mesh.of(pp=2, dp=2, sp=2, tp=2)
    one, two = (parallelise(tiny("llama"), mesh) for _ in range(2))
    assert str(one) == str(two)
    for a, b in zip(one.templates, two.templates, strict=True):
        assert str(a.graph) == str(b.graph)
        assert list(a.constants) == list(b.constants)


def test_the_whole_graph_stays_as_it_is() -> None:
    graph = tiny("llama")
    before = str(graph)
    parallelise(graph, Mesh.of(pp=4, tp=2, sp=2))
    assert str(graph) == before


def test_one_rank_runs_the_model_itself() -> None:
    graph = tiny("bert")
    program = parallelise(graph, Mesh.of())
    assert [op.name for op in program.templates[0].graph.topological()] == [
        op.name for op in graph.topological()
    ]


def test_printed() -> None:
    text = str(parallelise(tiny("llama"), Mesh.of(tp=2, pp=2)))
    assert text.startswith("program @tiny on pp 2 x tp 2: 4 ranks, 2 templates\n")
    assert "  template 0: ranks 0-1\n" in text
    assert "    AllReduce over tp: 2, 4 KiB\n" in text
    assert "    Send over pp: 1, 2 KiB\n" in text
    assert "    output %logits: f32[2, 8, 37] as [., ., tp]" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence": "gathr"}, "sequence is 'gathr', expected one of gather, ring, all-to-all"),
        ({"kv_heads": "repeat"}, "kv_heads is 'repeat', expected one of replicate, split"),
    ],
)
def test_unknown_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parallelise(tiny("llama"), Mesh.of(tp=2), ParallelOptions(**options))


def test_more_stages_than_ops() -> None:
    with pytest.raises(UsageError, match="100 stages for a model of"):
        parallelise(tiny("llama"), Mesh.of(pp=100))


def test_weights_are_cut_when_they_are_asked_for() -> None:
    graph = tiny("llama")
    program = parallelise(graph, Mesh.of(tp=2))
    held = [sum(c.size for c in program.graph(r).constants.values()) for r in range(2)]
    whole = sum(c.size for c in graph.constants.values())
    assert held[0] == held[1] < 0.65 * whole
    outputs = run_ranks(program, inputs_of(graph))
    assert np.isfinite(outputs["logits"]).all()
