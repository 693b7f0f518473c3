"""Batches that go through cards in parts side by side: numbers, orders, and what they gain."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from tiny_cards import SPEC as TINY
from tiny_cards import tokens

import gecompiler as ge
from gecompiler.advice import advice
from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import load_device
from gecompiler.backends.execution.ranks_schedule import execute_ranks
from gecompiler.cards.batch_cut import BatchCut
from gecompiler.cards.compilation import cut, micro_batch_sizes
from gecompiler.cards.names import own_name
from gecompiler.cards.report_text import cards_lines
from gecompiler.cards.request import CardsRequest
from gecompiler.cards.schedule import schedule_cards
from gecompiler.cards.side_by_side import WaySearch, asked_counts, auto_counts
from gecompiler.cards.way_choice import search_ways
from gecompiler.ir.bind import bind
from gecompiler.ir.constants import Constant
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.dims import symbol
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, ParallelProgram
from gecompiler.ir.types import tensor
from gecompiler.models import build_spec
from gecompiler.option_table import Options
from gecompiler.report import report_schema

SPEC: dict[str, Any] = {**TINY, "layers": 3}

WIDE = {**SPEC, "hidden": 2048, "heads": 16, "kv_heads": 16, "head_dim": 128,
        "intermediate": 8192, "max_positions": 1024, "dtype": "f16"}  # fmt: skip
"""So wide that there is something to hide behind."""

LAYOUTS: tuple[dict[str, Any], ...] = (
    {"tp": 2},
    {"tp": 4, "shared_kv_heads": "split"},
    {"tp": 2, "embeddings": "split"},
    {"sp": 2},
    {"sp": 2, "sequence_exchange": "ring"},
    {"sp": 2, "sequence_exchange": "all-to-all"},
    {"tp": 2, "dp": 2},
    {"tp": 2, "sp": 2},
)


@cache
def model(phase: str = "prefill") -> Graph:
    return build_spec(SPEC, phase=phase, weights="random")


@cache
def wide() -> Graph:
    return build_spec(WIDE)


@cache
def inputs() -> dict[str, Any]:
    return tokens(8, 16)


@cache
def expected() -> Any:
    return ge.compile(model(), batch=8, seq=16).forward(inputs())


def compiled_for(layout: dict[str, Any], parts: int, **more: Any) -> ge.CompiledModel:
    return ge.compile(model(), batch=8, seq=16, micro_batches=parts, **layout, **more)


def shape_of(compiled: ge.CompiledModel) -> Any:
    cards = compiled.compilation.cards
    assert cards is not None
    return cards.shape


@pytest.mark.parametrize(
    ("layout", "parts"), [*((layout, 2) for layout in LAYOUTS), ({"tp": 2}, 4)], ids=str
)
def test_numbers_stay_and_every_rank_keeps_one_order(layout: dict[str, Any], parts: int) -> None:
    compiled = compiled_for(layout, parts)
    assert shape_of(compiled).abreast > 1
    np.testing.assert_allclose(compiled.forward(inputs()), expected(), rtol=1e-4, atol=1e-5)
    assert compiled.compilation.findings == ()
    orders: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task in sorted(compiled.schedule.tasks, key=lambda t: (t.rank, t.stream, t.order)):
        if task.kind == "collective":
            orders[task.communicator][task.rank].append(task.name.partition(":")[2])
    for by_rank in orders.values():
        first, *others = by_rank.values()
        assert all(other == first for other in others)


@pytest.mark.parametrize("layout", [{"tp": 2}, {"sp": 2, "sequence_exchange": "ring"}], ids=str)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_numbers_at_planned_addresses_in_simulated_order(
    layout: dict[str, Any], phase: str
) -> None:
    graph = model(phase)
    given = {"batch": 4, "seq": 8}
    whole = ge.compile(graph, **given)
    rng = np.random.default_rng(3)
    arrays: dict[str, Any] = {}
    for name in whole.graph.inputs:
        type_ = whole.graph.tensor(name)
        assert type_ is not None
        if type_.dtype.is_float:
            arrays[name] = rng.standard_normal(type_.sizes).astype(np.float32)
        else:
            ones = name == "attention_mask"
            arrays[name] = (np.ones if ones else lambda s, t: rng.integers(0, 50, s))(
                type_.sizes, np.int64
            )
    compiled = ge.compile(graph, **given, micro_batches=2, **layout)
    cards = compiled.compilation.cards
    assert cards is not None
    assert cards.shape is not None
    assert cards.shape.abreast == 2
    local = {
        name: np.split(arrays[own.name], 2)[own.micro_batch]
        for template in cards.program.templates
        for name in template.inputs
        for own in [own_name(name, cards.shape)]
    }
    found = execute_ranks(cards.program, cards.schedule, cards.timeline, local)
    result = whole.run(arrays)
    for name, array in result.items():
        parts = [found[f"mb{m}/{name}"] for m in range(2)]
        np.testing.assert_allclose(np.concatenate(parts), array, rtol=1e-3, atol=2e-5)


def test_auto_cuts_where_it_hides_communication() -> None:
    compiled = ge.compile(wide(), batch=8, seq=512, tp=8, device="ascend910b")
    report = compiled.as_dict()
    jsonschema.validate(report, report_schema())
    part = report["parallel"]
    assert part["pipeline"]["abreast"] > 1
    assert part["exposed_us"] < 0.6 * part["whole_batch"]["exposed_us"]
    assert report["schedule"]["makespan_us"] < 0.95 * part["whole_batch"]["makespan_us"]
    assert "in one piece" in "\n".join(cards_lines(report))
    kept = ge.compile(wide(), batch=8, seq=512, tp=8, device="ascend910b", micro_batches=1)
    assert shape_of(kept) is None
    taken = kept.as_dict()["schedule"]["makespan_us"]
    assert part["whole_batch"]["makespan_us"] == pytest.approx(taken)


def test_auto_leaves_a_batch_whole_that_gains_nothing() -> None:
    """Replicas say nothing to each other; a small model is held up by latency."""
    assert shape_of(ge.compile(wide(), batch=8, seq=512, dp=4, device="ascend910b")) is None
    assert shape_of(ge.compile(model(), batch=8, seq=16, tp=2)) is None


def test_a_batch_of_one_is_told_what_a_larger_one_brings() -> None:
    compiled = ge.compile(wide(), batch=1, seq=512, tp=8, device="ascend910b")
    report = compiled.as_dict()
    assert report["parallel"]["uncut"] == "the batch is 1"
    assert any("--batch" in line for line in advice(compiled.compilation, report))
    assert any("batch 为 2" in line for line in advice(compiled.compilation, report, "zh"))


def test_the_pipeline_strategy_asks_for_parts() -> None:
    found = ge.compile(model(), batch=8, seq=16, tp=2, stream_strategy="pipeline")
    assert shape_of(found).micro_batches in (2, 4)
    np.testing.assert_allclose(found.forward(inputs()), expected(), rtol=1e-4, atol=1e-5)
    assert "cards-placement" not in [w["code"] for w in found.as_dict()["warnings"]]
    one = ge.compile(model(), batch=1, seq=16, tp=2, stream_strategy="pipeline")
    said = {w["code"]: w["message"] for w in one.as_dict()["warnings"]}
    assert "the batch is 1" in said["pipeline-not-possible"]


def test_what_is_on_one_stream_is_not_cut() -> None:
    alone = ge.compile(wide(), batch=8, seq=512, tp=8, device="ascend910b", num_streams=1)
    assert shape_of(alone) is None


def test_memory_is_counted() -> None:
    """Two halves side by side take no more than the whole, but for what both hold at once."""
    whole = ge.compile(wide(), batch=8, seq=512, tp=8, device="ascend910b", micro_batches=1)
    cut = ge.compile(wide(), batch=8, seq=512, tp=8, device="ascend910b", micro_batches=2)
    rows = [c.as_dict()["parallel"]["per_rank"][0]["memory"] for c in (whole, cut)]
    assert rows[1]["weight"] == rows[0]["weight"]
    assert rows[1]["input"] == pytest.approx(rows[0]["input"], rel=0.01, abs=4096)
    assert 0 < rows[1]["activation"] < 1.5 * rows[0]["activation"]


def test_a_training_step_side_by_side_is_that_of_one_card() -> None:
    arrays = {**inputs(), "labels": np.random.default_rng(5).integers(0, 50, (8, 16))}
    one = ge.compile(model(), batch=8, seq=16, train=True).run(arrays)
    compiled = compiled_for({"tp": 2}, 2, train=True)
    assert shape_of(compiled).abreast == 2
    assert compiled.compilation.findings == ()
    found = compiled.run(arrays)
    loss = [np.asarray(values[name]).item() for values in (one, found)
            for name in values if "loss" in name]  # fmt: skip
    assert loss[0] == pytest.approx(loss[1], rel=1e-4)


def test_numbers_of_parts() -> None:
    assert auto_counts(8, 1) == (2, 4)
    assert auto_counts(8, 4) == (2,)
    assert auto_counts(6, 1) == (2,)
    assert auto_counts(1, 1) == ()
    assert asked_counts(12, 1, 3) == (2, 3, 6)
    assert asked_counts(9, 1, 2) == (3,)
    assert asked_counts(1, 1, 2) == ()


def test_an_uneven_number_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be cut into 3"):
        compiled_for({"tp": 2}, 3)


@pytest.mark.parametrize("share", [0.5, 1.02])
def test_what_memory_makes_slow_gives_way_to_the_whole(share: float) -> None:
    """Too little for both, and just enough for the whole: never slower than in one piece."""
    device, mesh = load_device("ascend910b"), Mesh.of(tp=8)

    def program(parts: int) -> ParallelProgram:
        sizes = {"batch": 8 // parts, "seq": 512}
        return cut(bind(wide(), {n: sizes[n] for n in sizes}), mesh, device)

    whole = schedule_cards(program(1), Cluster.of(device, mesh))
    arena = max(part.memory.arena_bytes for part in whole.parts if part.memory is not None)
    small = replace(device, memory_gib=share * arena / 2**30)
    tight = Cluster.of(small, mesh)
    search = WaySearch(program, tight, CardsRequest(mesh))
    values = {**Options().as_dict(), "stream_strategy": "auto"}
    cutting = BatchCut(wide(), {"batch": 8, "seq": 512}, lambda _: wide())
    graph = bind(wide(), {"batch": 8, "seq": 512})
    found = search_ways(search, graph, 1, values, cutting, Diagnostics())
    assert found.timeline.makespan_ns <= schedule_cards(program(1), tight).timeline.makespan_ns


RINGS: tuple[dict[str, Any], ...] = (
    {"micro_batches": 2},
    {"micro_batches": 4},
    {"pp": 2, "micro_batches": 2},
    {"pp": 2, "micro_batches": 2, "pipeline_schedule": "interleaved"},
    {"micro_batches": 2, "stream_strategy": "heft"},
)


@pytest.mark.parametrize("more", RINGS, ids=str)
def test_keys_that_go_round_are_of_one_micro_batch_each(more: dict[str, Any]) -> None:
    """None is taken for another's, neither on the way nor in the figures."""
    given: dict[str, Any] = {"sp": 2, "sequence_exchange": "ring", **more}
    compiled = ge.compile(model(), batch=8, seq=16, **given)
    np.testing.assert_allclose(compiled.forward(inputs()), expected(), rtol=1e-4, atol=1e-5)
    transfers = [t for t in compiled.schedule.tasks if t.op_type in ("Send", "Recv")]
    named = Counter((t.communicator, t.name.partition(":")[2]) for t in transfers)
    assert set(named.values()) == {2}
    result = compiled.compilation.result
    for row in compiled.as_dict()["parallel"]["per_rank"]:
        assert 0 < row["exposed_us"] <= row["communication_us"] <= result.makespan_us
    assert max(result.bounds.values()) <= result.makespan_us


def contrasting(kind: str) -> Graph:
    """Samples compared with each other, or summed up."""
    graph = Graph("contrast", {"": 20})
    width = 8
    for name in ("x", "y"):
        graph.add_input(name, tensor("f32", (symbol("batch"), width)))
    graph.add_constant("w", Constant.of(np.eye(width, dtype=np.float32)))
    graph.add_op(Op("mm", "MatMul", ("x", "w"), ("h",)))
    if kind == "pairs":
        graph.add_op(Op("turn", "Transpose", ("y",), ("t",), {"perm": (1, 0)}))
        graph.add_op(Op("all", "MatMul", ("h", "t"), ("z",)))
    else:
        graph.add_op(Op("both", "Mul", ("h", "y"), ("p",)))
        graph.add_op(Op("all", "ReduceMean", ("p",), ("z",), {"keepdims": 0}))
    graph.set_outputs(["z"])
    infer_types(graph)
    return graph


@pytest.mark.parametrize(
    ("kind", "said"), [("pairs", "has the batch in 2 axes"), ("mean", "is of the whole batch")]
)
def test_a_batch_that_is_compared_stays_whole(kind: str, said: str) -> None:
    graph = contrasting(kind)
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal((4, 8)).astype(np.float32) for name in "xy"}
    with pytest.raises(UsageError, match=said):
        ge.compile(graph, batch=4, tp=2, micro_batches=2)
    one = ge.compile(graph, batch=4).forward(arrays)
    assert micro_batch_sizes(
        graph, {"batch": 4}, CardsRequest(Mesh(), micro_batches=2), training=True
    ) == ({"batch": 2}, 2)
    for layout in ({"pp": 2}, {"tp": 2}, {"dp": 2}):
        compiled = ge.compile(graph, batch=4, **layout)
        np.testing.assert_allclose(compiled.forward(arrays), one, rtol=1e-4, atol=1e-5)
        codes = [w["code"] for w in compiled.as_dict()["warnings"]]
        assert ("batch-in-one-piece" in codes) == ("pp" in layout)
