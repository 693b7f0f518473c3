"""The ranking of layouts, and whether sequence parallel moves less than tensor parallel."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from gecompiler.cli import gec
from gecompiler.cli_plan import memory_size
from gecompiler.driver import compile_source, optimise
from gecompiler.ir import Constant, Graph, symbol, tensor
from gecompiler.ir.errors import UsageError
from gecompiler.models import build_spec
from gecompiler.option_table import Options
from gecompiler.planning.assess import Assessor
from gecompiler.planning.facts import ModelFacts, model_facts
from gecompiler.planning.finding import sequence_finding
from gecompiler.planning.layouts import Layout, layouts
from gecompiler.planning.memory import least_memory
from gecompiler.planning.plan import Plan, PlanRequest, plan
from gecompiler.planning.report import plan_as_dict, plan_text
from gecompiler.request import Request

SPEC: dict[str, Any] = {
    "name": "tiny", "family": "llama", "description": "small", "source": "this test",
    "hidden": 256, "layers": 4, "heads": 8, "kv_heads": 2, "head_dim": 32, "intermediate": 512,
    "vocabulary": 320, "max_positions": 4096, "norm_epsilon": 1e-5, "rope_theta": 10000.0,
    "dtype": "f16",
}  # fmt: skip


def request(batch: int | None = 4, seq: int = 128, phase: str = "prefill", **spec: Any) -> Request:
    graph = build_spec({**SPEC, **spec}, phase=phase)
    return Request(graph, batch, seq, options=Options({"device": "ascend910b"}))


@cache
def planned(cards: int = 4, *, training: bool = False) -> Plan:
    return plan(PlanRequest(request(), cards, training=training))


def assessor(asked: Request, cards: int = 8, *, training: bool = False) -> Assessor:
    found = Assessor.of(asked, cards, training=training)
    found.facts = model_facts(found.source, found.whole, found.binding)
    return found


FACTS = ModelFacts(8, 128, True, 4, 8, 2, 0, 1 << 30, 1 << 20, 1 << 29)


def test_layouts_use_all_cards_and_divide_the_model() -> None:
    found = layouts(FACTS, 8)
    assert len(set(found)) == len(found)
    for layout in found:
        assert layout.tp * layout.sp * layout.dp * layout.pp * layout.ep == 8
        assert FACTS.q_heads % layout.tp == 0
        assert FACTS.batch % (layout.dp * layout.micro_batches) == 0
        assert layout.pp <= FACTS.layers
    assert Layout(tp=8) in found
    assert Layout(sp=8) in found
    assert not any(layout.ep > 1 for layout in found)


def test_one_token_cannot_be_shared() -> None:
    from dataclasses import replace

    assert not any(layout.sp > 1 for layout in layouts(replace(FACTS, seq=1), 8))


def test_the_cache_of_one_token_can_be_shared() -> None:
    from dataclasses import replace

    found = layouts(replace(FACTS, seq=1, cached=5), 8)
    assert {layout.sp for layout in found} == {1, 2, 4}


def test_a_batch_that_is_fixed_is_not_cut() -> None:
    from dataclasses import replace

    found = layouts(replace(FACTS, cuttable=False), 4)
    assert {layout.micro_batches for layout in found} == {1}


def test_least_memory_is_shared_where_it_can_be() -> None:
    one = least_memory(FACTS, Layout())
    assert least_memory(FACTS, Layout(tp=2, pp=2)) < one / 3
    assert least_memory(FACTS, Layout(dp=4)) > FACTS.weight_bytes
    # 2 KV heads on 8 cards: each is held by four
    cache = least_memory(FACTS, Layout(tp=8)) - FACTS.weight_bytes / 8
    assert cache == FACTS.state_bytes * 4 / 8


def test_the_ranking_is_by_time_and_fits_the_memory() -> None:
    found = planned()
    times = [a.time_us for a in found.ranked]
    assert times == sorted(times)
    assert len(times) > 5
    assert all(a.memory.total <= found.memory_bytes for a in found.ranked)
    for a in found.ranked:
        assert 0 <= a.bubble <= 1
        assert a.exposed_us <= a.time_us
        assert a.tokens_per_s == pytest.approx(4 * 128 / a.time_us * 1e6)
        assert a.bound.share > 0


def test_the_same_plan_gives_the_same_bytes() -> None:
    again = plan(PlanRequest(request(), 4))
    assert json.dumps(plan_as_dict(again)) == json.dumps(plan_as_dict(planned()))


def test_the_outline_of_a_pipeline_is_near_the_whole() -> None:
    spec = {"hidden": 2048, "layers": 8, "heads": 16, "kv_heads": 4, "head_dim": 128}
    found = assessor(request(8, 1024, intermediate=8192, **spec))
    for layout in (
        Layout(pp=4, micro_batches=8),
        Layout(tp=2, pp=2, dp=2, micro_batches=4),
        Layout(tp=2, pp=4, micro_batches=8, pipeline_schedule="interleaved", chunks=2),
    ):
        outline, whole = found.assess(layout), found.assess(layout, whole=True)
        assert outline.time_us == pytest.approx(whole.time_us, rel=0.12)
        assert outline.memory.total == pytest.approx(whole.memory.total, rel=0.1)
        assert outline.sent_bytes == pytest.approx(whole.sent_bytes)


def test_the_outline_of_a_training_step_does_once_what_is_done_once() -> None:
    """The optimiser and the sum over replicas come after all micro-batches."""
    found = assessor(request(8, 128), 4, training=True)
    for layout in (
        Layout(dp=4, micro_batches=2),
        Layout(pp=2, dp=2, micro_batches=4),
        Layout(pp=4, micro_batches=8, pipeline_schedule="interleaved", chunks=2)
    ):  # fmt: skip
        outline, whole = found.assess(layout), found.assess(layout, whole=True)
        assert outline.sent_bytes == pytest.approx(whole.sent_bytes)
        assert outline.time_us == pytest.approx(whole.time_us, rel=0.04)
        assert outline.bubble == pytest.approx(whole.bubble, abs=0.15)
        assert 0 < outline.bound.share <= 1


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [
        ({"kv_heads": 8}, 1 / 2),  # as many KV heads as heads
        ({"kv_heads": 2}, 1 / 8),
        ({"kv_heads": 1}, 1 / 16),
        ({"kv_heads": 8, "head_dim": 128}, 2.0),  # attention four times as wide as the layer
    ],
    ids=str,
)
def test_sequence_moves_less_where_keys_and_values_are_narrow(
    changes: dict[str, int], ratio: float
) -> None:
    found = assessor(request(4, 512, **changes))
    assert found.facts is not None
    finding = sequence_finding(found, found.facts, 8)
    assert finding is not None
    assert finding.sequence_bytes / finding.tensor_bytes == pytest.approx(ratio)
    assert finding.expected == pytest.approx(ratio)
    assert finding.holds == (ratio < 1)
    tokens, layers = 4 * 512, 4
    assert finding.tensor_bytes == 4 * 7 / 8 * SPEC["hidden"] * 2 * tokens * layers
    assert finding.tensor_weights < finding.sequence_weights / 3


def test_a_decode_step_has_no_sequence_to_share_but_a_cache() -> None:
    found = plan(PlanRequest(request(4, 256, "decode"), 2))
    assert found.finding is None
    cache = {str(a.layout): a.memory.kv_cache for a in found.ranked}
    assert all(cache.values())
    assert cache["sp2"] == pytest.approx(cache["tp2"], rel=0.02)
    assert "one token a sample" in plan_text(found)


def test_a_training_step_holds_gradients_and_the_optimisers_state() -> None:
    found = planned(2, training=True)
    best = found.ranked[0]
    assert best.memory.optimizer > best.memory.weights
    by_layout = {str(a.layout): a for a in found.ranked}
    assert by_layout["dp2"].sent_bytes["dp"] > 0
    assert by_layout["dp2"].memory.total > by_layout["tp2"].memory.total


@pytest.mark.parametrize("seq", [4, symbol("seq")], ids=["known", "bound"])
def test_a_table_read_at_known_places_is_planned_as_the_parameter_it_is(seq: Any) -> None:
    """Rows of it are no constant where the table is trained, before sizes are bound and after."""
    graph, batch = Graph("places", {"": 17}), symbol("batch")
    x = graph.add_input("x", tensor("f32", (batch, seq, 8)))
    graph.add_constant("table", Constant.of(np.ones((64, 8), np.float32)))
    graph.add_constant("w", Constant.of(np.ones((8, 8), np.float32)))
    zero = graph.constant_of("zero", np.array(0, np.int64))
    one = graph.constant_of("one", np.array(1, np.int64))
    shape = graph.emit("Shape", [x], tensor("i64", (3,)))
    count = graph.emit("Gather", [shape, one], tensor("i64", ()))
    at = graph.emit("Range", [zero, count, one], tensor("i64", (seq,)))
    rows = graph.emit("Gather", ["table", at], tensor("f32", (seq, 8)))
    moved = graph.emit("Add", [x, rows], tensor("f32", (batch, seq, 8)))
    graph.set_outputs([graph.emit("MatMul", [moved, "w"], tensor("f32", (batch, seq, 8)))])
    asked = Request(graph, 4, 4, options=Options({"device": "ascend910b", "optimizer": "sgd"}))
    found = Assessor.of(asked, 2, training=True)
    states = found.program(Layout(dp=2)).graph(0).states
    assert sorted(s.input for s in states) == ["table", "w"]
    assert asked.options.get("train") is False
    plain = Request(graph, 4, 4, options=Options({"device": "ascend910b"}))
    folded = Assessor.of(plain, 2).program(Layout(dp=2)).graph(0)
    assert not any(op.is_("Gather") for op in folded.ops)


@pytest.mark.parametrize("training", [False, True])
def test_one_card_takes_what_compiling_for_it_says(training: bool) -> None:
    asked = request()
    asked.options.set("train", training)
    alone = compile_source(optimise(asked), asked).result.makespan_us
    found = planned(4, training=training)
    assert found.one_card is not None
    assert found.one_card.time_us == pytest.approx(alone)
    row = plan_as_dict(found)["one_card"]
    assert row["speedup"] == pytest.approx(alone / found.ranked[0].time_us)
    assert row["memory_bytes"] <= found.memory_bytes
    # of so small a model cards are slower
    assert f"faster than 4 cards ({row['speedup']:.2f}x)" in plan_text(found)


def test_one_card_that_is_slower_is_told_as_well() -> None:
    spec = {"hidden": 2048, "layers": 2, "heads": 16, "kv_heads": 4, "head_dim": 128}
    found = plan(PlanRequest(request(4, 512, intermediate=8192, **spec), 2, most=2))
    row = plan_as_dict(found)["one_card"]
    assert row["speedup"] > 1
    assert f"2 cards are {row['speedup']:.2f}x as fast" in plan_text(found)


def test_one_card_that_cannot_hold_the_model_is_not_told() -> None:
    one = plan_as_dict(planned())["one_card"]["memory_bytes"]
    found = plan(PlanRequest(request(), 4, round(one * 0.75)))
    assert found.one_card is None
    assert plan_as_dict(found)["one_card"] is None
    assert "One card" not in plan_text(found)


def test_a_plan_of_one_card_is_not_held_against_itself() -> None:
    assert planned(1).one_card is None


def test_what_would_be_needed_is_said_where_nothing_fits() -> None:
    with pytest.raises(UsageError, match=r"nothing fits 1\.0 MiB a card") as raised:
        plan(PlanRequest(request(), 2, 1 << 20))
    assert "about" in raised.value.hint


def test_cards_that_divide_nothing() -> None:
    with pytest.raises(UsageError, match="no layout of 7 cards divides the model"):
        plan(PlanRequest(request(), 7))


def test_the_text_has_a_row_a_layout_and_the_command() -> None:
    text = plan_text(planned(), most=3)
    best = planned().ranked[0]
    assert str(best.layout) in text
    assert "gec compile" in text
    assert "Sequence or tensor parallel, 4 cards" in text
    assert "slower ones" in text


@pytest.mark.parametrize(
    ("text", "count"), [("64GiB", 64 << 30), ("1.5 GiB", 3 << 29), ("80GB", 80 * 10**9), ("7", 7)]
)
def test_sizes_of_memory(text: str, count: int) -> None:
    assert memory_size(text) == count


def test_the_command(tmp_path: Any) -> None:
    from click.testing import CliRunner

    target = tmp_path / "plan.json"
    arguments = ["plan", "gpt2", "--cards", "2", "--batch", "2", "--seq", "64", "-o", str(target)]
    found = CliRunner().invoke(gec, arguments)
    assert found.exit_code == 0, found.output
    data = json.loads(target.read_text())
    assert data["cards"] == 2
    assert data["ranked"][0]["layout"]["micro_batches"] >= 1
    assert CliRunner().invoke(gec, ["plan", "gpt2", "--cards", "2", "--memory", "much"]).exit_code


@pytest.mark.parametrize("more", [["--seq", "64"], ["--phase", "decode"], ["--train"]], ids=str)
def test_the_command_that_is_told_gives_the_time_that_is_told(more: list[str]) -> None:
    from click.testing import CliRunner

    asked = ["plan", "gpt2", "--cards", "2", "--batch", "2", "--topology", "pairs", *more]
    told = CliRunner().invoke(gec, asked).output
    best = json.loads(CliRunner().invoke(gec, [*asked, "--json"]).output)["ranked"][0]
    command = next(line for line in told.splitlines() if line.startswith("  gec compile "))
    made = json.loads(CliRunner().invoke(gec, [*command.split()[1:], "--json"]).output)
    assert made["schedule"]["makespan_us"] == pytest.approx(best["time_us"], rel=0.05)
