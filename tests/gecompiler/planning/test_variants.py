"""Other ways to communicate as candidates of a plan, and which are left out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import gecompiler as ge
from gecompiler.models import build_spec
from gecompiler.option_table import Options
from gecompiler.planning.assess import Assessor
from gecompiler.planning.facts import ModelFacts, model_facts
from gecompiler.planning.layouts import Layout
from gecompiler.planning.plan import PlanRequest, plan
from gecompiler.planning.report import plan_as_dict, plan_text
from gecompiler.planning.variants import MOST_VARIANTS, VariantSearch, parts_of, ways_of
from gecompiler.request import Request

SPEC: dict[str, Any] = {
    "name": "wide", "family": "llama", "description": "wide", "source": "this test",
    "hidden": 2048, "layers": 2, "heads": 16, "kv_heads": 2, "head_dim": 128,
    "intermediate": 8192, "vocabulary": 320, "max_positions": 4096, "norm_epsilon": 1e-5,
    "rope_theta": 10000.0, "dtype": "f16",
}  # fmt: skip
FACTS = ModelFacts(8, 128, True, 4, 8, 2, 0, 1 << 30, 1 << 20, 1 << 29)


def request(batch: int = 8, seq: int = 512) -> Request:
    options = Options({"device": "ascend910b", "topology": "mesh8"})
    return Request(build_spec(SPEC), batch, seq, options=options)


def test_ways_are_those_that_can_matter() -> None:
    assert list(ways_of(Layout(dp=8), FACTS)) == []
    assert list(ways_of(Layout(tp=2, dp=4), FACTS)) == []
    assert [w.kv_heads for w in ways_of(Layout(tp=8), FACTS)] == ["split"]
    assert [w.exchange for w in ways_of(Layout(sp=8), FACTS)] == ["ring", "all-to-all"]
    assert [w.exchange for w in ways_of(Layout(sp=16), FACTS)] == ["ring"]
    assert list(ways_of(Layout(sp=8), replace(FACTS, seq=1))) == []


def test_parts_are_of_cards_that_share_layers() -> None:
    assert [p.micro_batches for p in parts_of(Layout(tp=8), FACTS)] == [2, 4]
    assert [p.micro_batches for p in parts_of(Layout(tp=2, dp=4), FACTS)] == [2]
    assert all(p.abreast == p.micro_batches for p in parts_of(Layout(tp=8), FACTS))
    for layout in (Layout(dp=8), Layout(tp=2, pp=4, micro_batches=4)):
        assert list(parts_of(layout, FACTS)) == []
    assert list(parts_of(Layout(tp=8), replace(FACTS, cuttable=False))) == []
    assert list(parts_of(Layout(tp=8), FACTS, training=True)) == []
    step = Layout(tp=8, micro_batches=4)
    assert list(parts_of(step, FACTS, training=True)) == [replace(step, abreast=2)]


def test_a_variant_is_named_and_asked_for() -> None:
    layout = Layout(tp=4, sp=2, micro_batches=2, abreast=2, exchange="ring", kv_heads="split")
    assert str(layout) == "tp4 sp2 mb2 abreast ring kv-split"
    assert layout.options()["sequence_exchange"] == "ring"
    assert layout.options()["shared_kv_heads"] == "split"
    assert "sequence_exchange" not in Layout(tp=4, sp=2).options()


def made(layout: Layout, time_us: float, exposed_us: float) -> Any:
    memory = SimpleNamespace(total=1)
    return SimpleNamespace(
        layout=layout, time_us=time_us, exposed_us=exposed_us, memory=memory, sent_bytes={}
    )


def search(times: dict[Layout, float]) -> tuple[VariantSearch, list[Layout]]:
    asked: list[Layout] = []

    def assess(layout: Layout) -> Any:
        asked.append(layout)
        return made(layout, times.get(layout, 1e9), 0.0)

    return VariantSearch(FACTS, assess, 10), asked


def test_what_could_not_be_the_fastest_is_not_simulated() -> None:
    slow, fast = made(Layout(tp=8), 100.0, 30.0), made(Layout(dp=8), 50.0, 0.0)
    found, asked = search({})
    assert found.run([slow, fast]) == []
    assert asked == []
    assert found.ruled_out == 3  # split KV heads, two parts, four parts


def test_four_parts_are_tried_where_two_bring_something() -> None:
    base = made(Layout(tp=8), 100.0, 50.0)
    two, four = parts_of(base.layout, FACTS)
    found, asked = search({two: 80.0, four: 70.0})
    assert [a.time_us for a in found.run([base])] == [1e9, 80.0, 70.0]
    assert asked[1:] == [two, four]
    found, asked = search({two: 101.0})
    found.run([base])
    assert asked[1:] == [two]


def test_so_many_are_simulated_and_no_more() -> None:
    bases = [made(Layout(tp=8, dp=n), 100.0, 99.0) for n in range(1, 30)]
    found, asked = search({})
    found.run(bases)
    assert len(asked) == found.tried == MOST_VARIANTS


def test_the_plan_has_parts_where_they_are_fastest() -> None:
    found = plan(PlanRequest(request(), 8))
    best = found.ranked[0]
    by_name = {str(a.layout): a for a in found.ranked}
    assert found.variants > 0
    cut = next(a for a in found.ranked if a.layout.abreast > 1)
    whole = by_name[str(replace(cut.layout, abreast=1, micro_batches=1))]
    assert cut.time_us < whole.time_us
    assert cut.exposed_us < whole.exposed_us
    assert best.time_us == min(a.time_us for a in found.ranked)
    assert plan_as_dict(found)["variants"] == found.variants
    assert "other ways to communicate" in plan_text(found)


def test_a_variant_takes_what_compiling_it_takes() -> None:
    asked = request()
    found = Assessor.of(asked, 8)
    found.facts = model_facts(found.source, found.whole, found.binding)
    for layout in (
        Layout(tp=8, micro_batches=2, abreast=2),
        Layout(sp=8, exchange="ring"),
        Layout(tp=8, kv_heads="split"),
    ):
        compiled = ge.compile(
            build_spec(SPEC), batch=8, seq=512, device="ascend910b", topology="mesh8",
            **{"micro_batches": 1, **layout.options()},
        )  # fmt: skip
        taken = compiled.as_dict()["schedule"]["makespan_us"]
        assert found.assess(layout).time_us == pytest.approx(taken, rel=0.02)
