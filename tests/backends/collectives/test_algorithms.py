"""Every algorithm makes its collective: proved with sets of what each chunk holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.collectives import ALGORITHMS, Group, Plan
from gecompiler.backends.topology.figures import ALGORITHM_NAMES

KINDS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll", "Send")
State = list[dict[int, frozenset[int]]]
"""By place, chunk: whose contributions it holds."""

MAKES = {
    "ring": {"AllReduce", "AllGather", "ReduceScatter", "Broadcast"},
    "mesh": set(KINDS),
    "halving_doubling": {"AllReduce", "AllGather", "ReduceScatter"},
    "tree": {"AllReduce", "Broadcast"},
    "hierarchical": {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll"},
}


def at_first(kind: str, plan: Plan, n: int, root: int) -> State:
    if kind == "AllToAll":
        return [{p * n + d: frozenset([p]) for d in range(n)} for p in range(n)]
    chunks = range(plan.chunks)
    if kind == "AllGather":
        return [{c: frozenset([p]) for c in chunks if c * n // plan.chunks == p} for p in range(n)]
    if kind in ("Broadcast", "Send"):
        return [{c: frozenset([p]) for c in chunks} if p == root else {} for p in range(n)]
    return [{c: frozenset([p]) for c in chunks} for p in range(n)]


def in_the_end(kind: str, plan: Plan, n: int, root: int, place: int) -> dict[int, frozenset[int]]:
    chunks, everyone = range(plan.chunks), frozenset(range(n))
    if kind == "AllToAll":
        return {s * n + place: frozenset([s]) for s in range(n)}
    if kind == "AllGather":
        return {c: frozenset([c * n // plan.chunks]) for c in chunks}
    if kind in ("Broadcast", "Send"):
        return {c: frozenset([root]) for c in chunks}
    if kind == "ReduceScatter":
        return {c: everyone for c in chunks if c * n // plan.chunks == place}
    return dict.fromkeys(chunks, everyone)


def run(plan: Plan, state: State) -> State:
    for step in plan.steps:
        after = [dict(held) for held in state]
        for source, target, chunks, reduce in step:
            assert source != target
            for chunk in chunks:
                brought = state[source][chunk]
                if reduce:
                    assert not after[target][chunk] & brought, "added twice"
                    brought = brought | after[target][chunk]
                after[target][chunk] = brought
        state = after
    return state


def prove(kind: str, group: Group, algorithm: str, root: int) -> bool:
    plan = ALGORITHMS[algorithm](kind, group, root)
    if plan is None:
        return False
    n = group.size
    state = run(plan, at_first(kind, plan, n, root))
    for place in range(n):
        wanted = in_the_end(kind, plan, n, root, place)
        assert {c: state[place].get(c) for c in wanted} == wanted, (algorithm, kind, place)
    return True


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Places in any order, in one unit, in units of as many places, or of any."""
    if draw(st.booleans()):
        units, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        sizes = [width] * units
    else:
        sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    if sum(sizes) < 2:
        sizes = [2]
    places = iter(draw(st.permutations(range(sum(sizes)))))
    return Group(tuple(tuple(next(places) for _ in range(size)) for size in sizes))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(group=groups(), kind=st.sampled_from(KINDS), data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_each_place_has_in_the_end(
    algorithm: str, group: Group, kind: str, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, group.size - 1)) if kind == "Broadcast" else 0
    made = prove(kind, group, algorithm, root)
    usual = kind in MAKES[algorithm]
    if kind == "Send":
        usual = usual and group.size == 2
    if algorithm == "hierarchical":
        usual = usual and group.even > 1
    assert made == usual


def test_the_numbers_of_steps() -> None:
    group = Group((tuple(range(8)),))
    steps = {
        (name, kind): len(plan.steps)
        for name, algorithm in ALGORITHMS.items()
        for kind in KINDS
        if (plan := algorithm(kind, group, 0)) is not None
    }
    assert steps["ring", "AllReduce"] == 14
    assert steps["mesh", "AllReduce"] == 2
    assert steps["halving_doubling", "AllReduce"] == 6
    assert steps["tree", "Broadcast"] == 3
    odd = ALGORITHMS["halving_doubling"]("AllGather", Group((tuple(range(13)),)), 0)
    assert odd is not None
    assert len(odd.steps) == 4


@pytest.mark.parametrize("name", ["ring", "mesh", "halving_doubling", "hierarchical"])
def test_no_rank_sends_more_than_it_must(name: str) -> None:
    group = Group(((0, 1, 2, 3), (4, 5, 6, 7)))
    plan = ALGORITHMS[name]("AllReduce", group, 0)
    assert plan is not None
    sent = [0] * 8
    for step in plan.steps:
        for transfer in step:
            sent[transfer.source] += len(transfer.chunks)
    assert max(sent) / plan.chunks <= 2 * 7 / 8 + 0.26
    assert min(sent) / plan.chunks >= 2 * 7 / 8 - 0.01


def test_the_names_in_topologies_are_those_of_the_algorithms() -> None:
    assert tuple(ALGORITHMS) == ALGORITHM_NAMES
