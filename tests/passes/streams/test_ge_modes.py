"""The graph engine's automatic modes: load_balance, main_stream, cv."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
from fakes import FakeTarget, random_dag, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.errors import UsageError
from gecompiler.passes.streams.dag_mode import residual
from gecompiler.passes.streams.path_cover import minimum_path_cover
from gecompiler.passes.streams.registry import make_strategy, parse_strategy
from gecompiler.passes.streams.strategy import StrategyContext

MODES = ("load_balance", "main_stream", "LoadBalance:2", "MainStream:3", "cv")
seeds = st.integers(0, 10**9)


def succs_of(count: int, edges: list[tuple[int, int]]) -> list[list[int]]:
    succs: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        succs[a].append(b)
    return succs


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_path_cover_is_valid_and_as_small_as_networkx_matching_says(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 25)
    edges = random_dag(rng, count, rng.random())
    paths = minimum_path_cover(succs_of(count, edges))
    assert sorted(node for path in paths for node in path) == list(range(count))
    assert {pair for path in paths for pair in pairwise(path)} <= set(edges)
    left = [("L", i) for i in range(count)]
    both = nx.Graph((("L", a), ("R", b)) for a, b in edges)
    both.add_nodes_from(left)
    matched = len(nx.bipartite.hopcroft_karp_matching(both, left)) // 2
    assert len(paths) == count - matched


def test_path_cover_of_a_deep_ladder_needs_no_recursion() -> None:
    count = 20_000  # the greedy start matches each i with i + 1, all but one pair must turn over
    succs = [[i + 1, i + 2] for i in range(count - 2)] + [[count - 1], []]
    assert len(minimum_path_cover(succs)) == 1


@given(seeds, st.sampled_from(MODES))
@settings(max_examples=150, deadline=None)
def test_modes_place_every_task_and_keep_what_the_user_fixed(seed: int, mode: str) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 25)
    graph = task_graph(count, random_dag(rng, count, rng.random() * 0.5))
    graph = replace(
        graph,
        labels=tuple(rng.choice([None] * 5 + ["a", "b"]) for _ in range(count)),
        engines=tuple(rng.choice(["AIcoreEngine", "VectorEngine"]) for _ in range(count)),
    )
    fixed = {f"t{rng.randrange(count)}": rng.randrange(4)} if rng.random() < 0.3 else {}
    placement = make_strategy(mode).assign(graph, StrategyContext(FakeTarget(), 4, fixed))
    assert placement.graph is graph
    assert set(placement.stream) <= set(range(4))
    assert all(placement.stream[int(name[1:])] == s for name, s in fixed.items())
    if not fixed and mode != "cv":
        for label in ("a", "b"):
            streams = {s for s, x in zip(placement.stream, graph.labels, strict=True) if x == label}
            others = {s for s, x in zip(placement.stream, graph.labels, strict=True) if x != label}
            assert len(streams) <= 1
            assert not streams & others


def test_branches_go_to_streams_of_their_own() -> None:
    branches = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]
    edges = [e for b in branches for e in pairwise((0, *b, 10))]
    graph = task_graph(11, edges)
    for mode in MODES[:2]:
        stream = make_strategy(mode).assign(graph, StrategyContext(FakeTarget(), 4)).stream
        homes = [{stream[t] for t in branch} for branch in branches]
        assert all(len(home) == 1 for home in homes)
        assert len(set.union(*homes)) == 3


def test_what_nothing_runs_beside_is_on_the_main_stream() -> None:
    ends = (0, 7, 14)  # each alone on its level, with two branches of three between them
    branches = [(1, 2, 3), (4, 5, 6), (8, 9, 10), (11, 12, 13)]
    between = [(0, 7), (0, 7), (7, 14), (7, 14)]
    edges = [e for (a, z), b in zip(between, branches, strict=True) for e in pairwise((a, *b, z))]
    graph = task_graph(15, edges)
    stream = make_strategy("main_stream").assign(graph, StrategyContext(FakeTarget(), 2)).stream
    assert [stream[t] for t in ends] == [0, 0, 0]
    assert {stream[1], stream[4]} == {stream[8], stream[11]} == {0, 1}


def test_tasks_left_out_are_bypassed() -> None:
    graph = task_graph(5, [(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)])
    preds, succs = residual(graph, [0, 4])
    assert (preds, succs) == ([[], [0]], [[1], []])
    assert residual(graph, [1, 3, 4]) == ([[], [], [0, 1]], [[2], [2], []])


def test_cv_moves_only_vector_work_that_the_nearest_cubes_do_not_need() -> None:
    # cube 0 -> vector 1 -> cube 3; vector 2 has no part in it
    graph = task_graph(5, [(0, 1), (1, 3), (2, 4), (3, 4)])
    kinds = ("AIcoreEngine", "VectorEngine", "VectorEngine", "AIcoreEngine", "AIcoreEngine")
    stream = (
        make_strategy("cv")
        .assign(replace(graph, engines=kinds), StrategyContext(FakeTarget(), 4))
        .stream
    )
    assert stream[0] == stream[1] == stream[3] == stream[4] != stream[2]


def test_names_and_numbers() -> None:
    assert parse_strategy("load_balance:4") == ("load_balance", 4)
    assert parse_strategy("LoadBalance:64") == ("load_balance", 64)
    assert parse_strategy("MainStream") == ("main_stream", None)
    for wrong in ("LoadBalance:0", "LoadBalance:65", "main_stream:", "main_stream:x", "cv:2"):
        with pytest.raises(UsageError):
            parse_strategy(wrong)
    with pytest.raises(UsageError, match="main_strem") as error:
        parse_strategy("main_strem")
    assert "main_stream" in error.value.hint
