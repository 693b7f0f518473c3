"""The graph engine's ladder on the cases its own tests assert."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from fakes import FakeTarget, task_graph

from gecompiler.passes.streams.default import DefaultStreams
from gecompiler.passes.streams.engines import Engine
from gecompiler.passes.streams.folding import dense, fold_ineffective, fold_to
from gecompiler.passes.streams.ladder import Ladder, Unit
from gecompiler.passes.streams.strategy import StrategyContext

CASES = ["1_", "2_", "3_", "4_", "5_", "6_", "7_", "10_"]


def ladder(case: dict, cap: dict) -> dict[str, int]:
    names = [next(iter(u)) for u in case["units"]]
    options = {k: Engine(**v) for k, v in (case.get("engines") or {}).items()}
    units = []
    for spec in case["units"]:
        name = next(iter(spec))
        units.append(Unit(spec[name], spec.get("label", ""), spec.get("user_label", "")))
    at = {n: i for i, n in enumerate(names)}
    preds: list[list[int]] = [[] for _ in names]
    succs: list[list[int]] = [[] for _ in names]
    for edge in case["edges"]:
        a, b = edge.replace(" (control)", "").replace(">>", ">").split(">")
        preds[at[b]].append(at[a])
        succs[at[a]].append(at[b])
    stream, _ = Ladder(units, preds, succs, cap, options).run()
    return dict(zip(names, stream, strict=True))


@pytest.mark.parametrize("prefix", CASES)
def test_scenarios_of_the_graph_engine(corpus, prefix: str) -> None:
    cases = yaml.safe_load((corpus / "cases" / "ge_stream_cases.yaml").read_text())
    case = next(c for c in cases if c["id"].startswith(prefix))
    for parallel in (1, 2):
        cap = {k: parallel if v == "P" else v for k, v in (case.get("cap") or {}).items()}
        found = ladder(case, cap)
        expect = dict(case.get("expect") or case["expect_both"])
        extra = case.get(f"expect_P{parallel}") or {}
        equal = [*expect.pop("equal", []), *extra.get("equal", [])]
        differ = [*expect.pop("differ", []), *extra.get("differ", [])]
        expect.pop("events_derived", None)
        assert {k: found[k] for k in expect} == expect
        assert all(len({found[n] for n in names}) == 1 for names in equal)
        assert all(found[a] != found[b] for a, b in differ)


def test_chain_of_one_engine_stays_together() -> None:
    units = [Unit("E")] * 4
    stream, rules = Ladder(units, [[], [0], [1], [2]], [[1], [2], [3], []], {"E": 100}).run()
    assert stream == [0, 0, 0, 0]
    assert rules == ["engine E"] + ["reuses its predecessor's stream"] * 3


def test_serial_detour_is_folded_away_unless_labelled() -> None:
    preds, succs = [[], [0], [1], [2]], [[1], [2], [3], []]
    assert fold_ineffective(preds, succs, [0, 1, 0, 0], ()) == [0, 0, 0, 0]
    # a label on relu1 closes its stream: the reduce stays where it is
    assert fold_ineffective(preds, succs, [0, 1, 0, 0], {0}, {0}) == [0, 1, 0, 0]


def test_folding_keeps_what_overlaps() -> None:
    # 0 -> 1 -> 3 with 2 beside 1: the stream is not idle while 1 runs
    preds, succs = [[], [0], [0], [1, 2]], [[1, 2], [3], [3], []]
    assert fold_ineffective(preds, succs, [0, 1, 0, 0], ()) == [0, 1, 0, 0]


def test_fold_to_merges_the_least_busy_into_its_neighbour() -> None:
    graph = task_graph(4, [(0, 1), (2, 3)], [5.0, 5.0, 3.0, 1.0])
    assert fold_to(graph, [0, 1, 2, 3], 3, ()) == [0, 1, 2, 2]
    assert fold_to(graph, [0, 1, 2, 3], 2, ()) == [0, 1, 0, 0]  # no edges: the least busy
    assert len(set(fold_to(graph, [0, 1, 2, 3], 1, ()))) == 1


def test_dense_keeps_the_ids_of_the_user() -> None:
    assert dense([7, 7, 9, 4], {2: 0}) == [2, 2, 0, 1]
    assert dense([0, 1, 2], {0: 3}) == [3, 0, 1]


def test_default_keeps_within_the_streams_there_are() -> None:
    graph = task_graph(6, [])
    labels = ("a", "b", "c", "d", "e", None)
    placement = DefaultStreams().assign(
        replace(graph, labels=labels), StrategyContext(FakeTarget(), 3)
    )
    assert sorted(set(placement.stream)) == [0, 1, 2]
