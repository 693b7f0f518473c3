"""Predicates: negation, conjunction and choice mean what logic says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gecompiler.passes.attention.predicates import (
    All,
    Lookup,
    Predicate,
    Some,
    conjunction,
    conjuncts,
    disjunction,
    negate,
    select,
)

NAMES = "pqr"
leaves = st.one_of(
    st.booleans(), st.builds(Lookup, st.sampled_from(NAMES), st.just(()), st.booleans())
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(conjunction, inner, inner),
        st.builds(disjunction, inner, inner),
        st.builds(negate, inner),
    ),
    max_leaves=8,
)
worlds = st.fixed_dictionaries({name: st.booleans() for name in NAMES})


def holds(p: Predicate, world: dict[str, bool]) -> bool:
    match p:
        case Lookup(value, _, positive, _):
            return world[value] == positive
        case All(parts):
            return all(holds(x, world) for x in parts)
        case Some(parts):
            return any(holds(x, world) for x in parts)
    assert isinstance(p, bool)
    return p


@given(predicates, worlds)
def test_negation(p: Predicate, world: dict[str, bool]) -> None:
    assert holds(negate(p), world) != holds(p, world)


@given(predicates, predicates, predicates, worlds)
def test_select(c: Predicate, a: Predicate, b: Predicate, world: dict[str, bool]) -> None:
    expected = holds(a, world) if holds(c, world) else holds(b, world)
    assert holds(select(c, a, b), world) == expected


@given(predicates, worlds)
def test_conjuncts_are_what_a_predicate_is_made_of(p: Predicate, world: dict[str, bool]) -> None:
    assert all(holds(x, world) for x in conjuncts(p)) == holds(p, world)


def test_the_same_condition_twice_is_one() -> None:
    p = Lookup("p", ())
    assert conjunction(p, p) == p
    assert conjunction(p, negate(p)) is False
    assert disjunction(p, negate(p)) is True
