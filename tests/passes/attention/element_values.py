"""What an element comes to, where sizes, coordinates and arrays are known."""

from __future__ import annotations

from typing import Any

from gecompiler.ir.dims import Dim, substitute
from gecompiler.passes.attention.elements import (
    Choice,
    Element,
    Magnitude,
    Number,
    Opaque,
    Real,
    Truth,
)
from gecompiler.passes.attention.predicates import All, AtMost, Lookup, Predicate, Some

Env = dict[str, int]


def number(dim: Dim, env: Env) -> int:
    found = substitute(dim, env)  # type: ignore[arg-type]
    assert isinstance(found, int), found
    return found


def at(arrays: dict[str, Any], value: str, coords: tuple[Dim, ...], env: Env) -> Any:
    return arrays[value][tuple(number(c, env) for c in coords)]


def holds(predicate: Predicate, arrays: dict[str, Any], env: Env) -> bool:
    match predicate:
        case bool():
            return predicate
        case AtMost(value):
            return number(value, env) <= 0
        case Lookup(value, coords, positive, witness):
            found = bool(at(arrays, value, coords, env)) == positive
            if witness is not None:
                assert bool(at(arrays, witness[0], witness[1], env)) == (
                    found == (witness[2] == positive)
                )
            return found
        case All(parts):
            every = [holds(p, arrays, env) for p in parts]  # all of them: witnesses are checked
            return all(every)
        case Some(parts):
            every = [holds(p, arrays, env) for p in parts]
            return any(every)


def value_of(element: Element, arrays: dict[str, Any], env: Env) -> Any:
    match element:
        case Number(value):
            return number(value, env)
        case Real(value):
            return value
        case Truth(predicate):
            return holds(predicate, arrays, env)
        case Choice(condition, yes, no):
            return value_of(yes if holds(condition, arrays, env) else no, arrays, env)
        case Magnitude(value):
            return abs(number(value, env))
        case Opaque(value, coords):
            return at(arrays, value, coords, env)
