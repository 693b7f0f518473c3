"""What scenarios of stream allocation have in common: units, edges, engines, facts to compare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gecompiler.passes.streams.engines import ENGINES, Engine
from gecompiler.passes.streams.ge_events import clean_events, needed_events

Case = Mapping[str, Any]

ALIASES = {
    "aicore": "AIcoreEngine",
    "vector": "VectorEngine",
    "hccl": "DNN_HCCL",
    "dsa": "DSAEngine",
    "aicpu": "DNN_VM_AICPU",
    "local": "DNN_VM_GE_LOCAL",
    "ge_local": "DNN_VM_GE_LOCAL",
    "dvpp": "DNN_VM_DVPP",
    "rts": "DNN_VM_RTS",
    "host_cpu": "DNN_VM_HOST_CPU",
}


class Row(NamedTuple):
    """One thing that a scenario says, beside what came out."""

    name: str
    expected: dict[str, Any]
    got: dict[str, Any]


class Network(NamedTuple):
    """Named units and the edges between them, by position."""

    names: list[str]
    edges: list[tuple[int, int]]

    @property
    def preds(self) -> list[list[int]]:
        return [[a for a, b in self.edges if b == i] for i in range(len(self.names))]

    @property
    def succs(self) -> list[list[int]]:
        return [[b for a, b in self.edges if a == i] for i in range(len(self.names))]


def network(names: Sequence[str], edges: Sequence[str]) -> Network:
    """From ``a>b`` and ``a>>b (control)``."""
    at = {name: i for i, name in enumerate(names)}
    pairs = [re.split(r">+", re.sub(r"\(.*?\)", "", str(edge))) for edge in edges]
    return Network(list(names), [(at[a.strip()], at[b.strip()]) for a, b in pairs])


def chain(text: str) -> Network:
    """From ``a > b > c``; what stands in parentheses is left out."""
    names = [part.strip() for part in re.sub(r"\(.*?\)", "", text).split(">")]
    return Network(names, [(i, i + 1) for i in range(len(names) - 1)])


NOTES = ("label", "user_label", "force_attach")
"""Keys of a unit beside its name and engine."""


def unit_name(unit: Case) -> str:
    """The name of a unit."""
    return next(key for key in unit if key not in NOTES)


def engines_of(case: Case) -> dict[str, Engine]:
    """The graph engine's engines, also by short names, and those of the case."""
    found = dict(ENGINES)
    found.update((short, ENGINES[name]) for short, name in ALIASES.items())
    found.update((name, Engine(**flags)) for name, flags in (case.get("engines") or {}).items())
    return found


def facts(net: Network, stream: Sequence[int | None], expected: Case) -> dict[str, Any]:
    """What came out, for each thing that was expected. A unit without a stream is on -1."""
    by_name = dict(zip(net.names, stream, strict=True))
    kept = clean_events(needed_events(net.edges, stream), stream, list(range(len(stream))))
    got: dict[str, Any] = {}
    for key, value in expected.items():
        if key == "equal":
            got[key] = [g for g in value if len({by_name[n] for n in g}) == 1]
        elif key == "differ":
            got[key] = [g for g in value if len({by_name[n] for n in g}) == len(g)]
        elif key in ("events_derived", "events"):
            got[key] = len(kept)
        elif key == "streams":
            got[key] = len({s for s in stream if s is not None})
        elif key in ("send", "recv"):
            ends = [net.names[e[key == "recv"]] for e in kept]
            got[key] = {n: ends.count(n) for n in net.names if n in ends}
        else:
            found = by_name[key]
            got[key] = -1 if found is None and value is not None else found
    return got
