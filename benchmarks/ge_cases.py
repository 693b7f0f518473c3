"""Stream allocation scenarios with known results, run with the product's own allocator.

    python -m benchmarks.ge_cases FILE.yaml

Prints a line per scenario, what was expected and what came out; exit 1 if one differs. A
scenario is a mapping with an ``id`` and one of these forms:

- ``units`` (name: engine, with ``label`` or ``user_label``), ``edges`` (``a>b``), and perhaps
  ``engines``, ``cap``, ``option``: the static allocator; with ``mode: dynamic`` the dynamic one,
  where ``chain: a(ENGINE) > b(ENGINE)`` does for both;
- ``nodes`` (name: stream) and ``chain``: folding of streams that do not overlap;
- ``streams`` (name: units in order) and ``cases`` of ``events``: the rules R1 and R2;
- ``main`` and ``branch_...`` (name: stream): event ids of branches of which one runs;
- ``cases`` that tell of numbers of nodes and tasks: the cut into physical streams.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.ge_split_cases import split_rows
from gecompiler.ir.errors import GecError
from gecompiler.passes.streams.engines import ENGINES, Engine
from gecompiler.passes.streams.folding import fold_ineffective
from gecompiler.passes.streams.ge_allocator import (
    AllocatorOptions,
    LabelConflictError,
    ModeConflictError,
    allocate,
)
from gecompiler.passes.streams.ge_dynamic import DynamicAllocator, DynamicUnit
from gecompiler.passes.streams.ge_events import EventScope, clean_events, needed_events
from gecompiler.passes.streams.ladder import Unit

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

ERRORS = {LabelConflictError: "label_conflict", ModeConflictError: "mode_conflict"}


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


def rows_of(case: Case) -> Iterator[Row]:
    """Runs a scenario, whatever its form."""
    forms: list[tuple[bool, Callable[[Case], Iterator[Row]]]] = [
        (case.get("mode") == "dynamic", _dynamic),
        ("nodes" in case, _folding),
        ("streams" in case, _event_rules),
        ("main" in case, _branches),
        ("units" in case, _static),
    ]
    for fits, form in forms:
        if fits:
            yield from form(case)
            return
    for part in case["cases"]:
        if "units" in part:
            inherited = {k: v for k, v in case.items() if k not in ("id", "cases")}
            option = {**inherited.pop("option", {}), **part.get("also", {})}
            yield from _static({**inherited, **part, "option": option})
        else:
            yield from (Row(*row) for row in split_rows(part))


# -------------------------------------------------------------------- static


def _engines(case: Case) -> dict[str, Engine]:
    found = dict(ENGINES)
    found.update((short, ENGINES[name]) for short, name in ALIASES.items())
    found.update((name, Engine(**flags)) for name, flags in (case.get("engines") or {}).items())
    return found


def _static(case: Case) -> Iterator[Row]:
    caps = case.get("cap") or {}
    if "P" not in caps.values():
        yield _static_row("", case, caps, case.get("expect") or {}, case.get("expect_error"))
        return
    for p in sorted({1, 2} | {int(k[8:]) for k in case if re.fullmatch(r"expect_P\d+", k)}):
        expect = _merged(case.get("expect_both") or {}, case.get(f"expect_P{p}") or {})
        yield _static_row(
            f"P={p}", case, {k: p if v == "P" else v for k, v in caps.items()}, expect
        )


def _merged(a: Case, b: Case) -> dict[str, Any]:
    groups = {k: [*a.get(k, []), *b.get(k, [])] for k in ("equal", "differ") if k in a or k in b}
    return {**a, **b, **groups}


def _static_row(name: str, case: Case, caps: Case, expect: Case, error: str | None = None) -> Row:
    labels = ("label", "user_label")
    names = [next(k for k in unit if k not in labels) for unit in case["units"]]
    units = [
        Unit(unit[n], *(str(unit.get(label, "")) for label in labels))
        for n, unit in zip(names, case["units"], strict=True)
    ]
    net = network(names, case.get("edges") or ())
    option = case.get("option") or {}
    options = AllocatorOptions(
        caps,
        _engines(case),
        memory_priority=bool(option.get("memory_priority")),
        single_stream=bool(option.get("single_stream")),
        auto_mode=option.get("auto_mode") or "",
    )
    expected = {"expect_error": error} if error else dict(expect)
    try:
        stream = allocate(units, net.preds, net.succs, options).stream
    except (LabelConflictError, ModeConflictError) as problem:
        return Row(name, expected, {"expect_error": ERRORS[type(problem)]})
    return Row(name, expected, _facts(net, stream, expected))


def _facts(net: Network, stream: Sequence[int | None], expected: Case) -> dict[str, Any]:
    """What came out, for each thing that was expected."""
    by_name = dict(zip(net.names, stream, strict=True))
    place = list(range(len(stream)))
    needed = needed_events(net.edges, stream)
    got: dict[str, Any] = {}
    for key, value in expected.items():
        if key == "equal":
            got[key] = [g for g in value if len({by_name[n] for n in g}) == 1]
        elif key == "differ":
            got[key] = [g for g in value if len({by_name[n] for n in g}) == len(g)]
        elif key in ("events_derived", "events"):
            got[key] = len(clean_events(needed, stream, place))
        elif key == "streams":
            got[key] = len({s for s in stream if s is not None})
        elif key in ("send", "recv"):
            ends = [net.names[e[key == "recv"]] for e in clean_events(needed, stream, place)]
            got[key] = {n: ends.count(n) for n in net.names if n in ends}
        else:
            got[key] = by_name.get(key)
    return got


# -------------------------------------------------------------------- dynamic


def _dynamic(case: Case) -> Iterator[Row]:
    if "chain" in case:
        net = chain(case["chain"])
        engines = re.findall(r"\((.*?)\)", case["chain"])
        labels = [""] * len(engines)
    else:
        extra = ("label", "user_label")
        names = [next(k for k in unit if k not in extra) for unit in case["units"]]
        net = network(names, case.get("edges") or ())
        engines = [unit[n] for n, unit in zip(names, case["units"], strict=True)]
        labels = [str(u.get("user_label") or u.get("label") or "") for u in case["units"]]
    units = [
        DynamicUnit(_long(engine), _op_type(name), label)
        for engine, name, label in zip(engines, net.names, labels, strict=True)
    ]
    priority = {_long(k): int(v) for k, v in (case.get("priority") or {}).items()}
    known = {_long(k): Engine(**v) for k, v in (case.get("engines") or {}).items()}
    allocator = DynamicAllocator(
        units,
        net.preds,
        net.succs,
        {**ENGINES, **known},
        priority,
        cpu_parallel=bool((case.get("option") or {}).get("ac_parallel_enable")),
    )
    expected = dict(case["expect"])
    yield Row("", expected, _facts(net, allocator.run(), expected))


def _long(engine: str) -> str:
    return ALIASES.get(engine.lower(), engine)


def _op_type(name: str) -> str:
    """Units named after a graph's ends are these."""
    if re.fullmatch(r"data\d*", name.lower()):
        return "Data"
    return "NetOutput" if re.fullmatch(r"(net)?output\d*", name.lower()) else ""


# -------------------------------------------------------------------- folding, events


def _folding(case: Case) -> Iterator[Row]:
    net = chain(case["chain"])
    given = [case["nodes"].get(name, -1) for name in net.names]
    for key, expected in case.items():
        if not key.startswith("expect"):
            continue
        found = re.fullmatch(r"expect_if_(\w+?)_user_label_\w+", key)
        labelled = {
            i for i, name in enumerate(net.names) if found and re.match(found[1] + r"\d*$", name)
        }
        kept = labelled | {i for i, s in enumerate(given) if s < 0}
        closed = {given[i] for i in labelled} | {-1}
        stream = fold_ineffective(net.preds, net.succs, given, kept, closed)
        yield Row(key, dict(expected), _facts(net, stream, expected))


def _event_rules(case: Case) -> Iterator[Row]:
    names = [unit for units in case["streams"].values() for unit in units]
    stream = [s for s, units in enumerate(case["streams"].values()) for _ in units]
    place = [i for units in case["streams"].values() for i in range(len(units))]
    for part in case["cases"]:
        net = network(names, part["events"])
        kept = clean_events(needed_events(net.edges, stream), stream, place)
        got = sorted(f"{names[a]}>{names[b]}" for a, b in kept)
        expected = sorted(str(e) for e in part["expect_kept"])
        yield Row(" ".join(part["events"]), {"kept": expected}, {"kept": got})


def _branches(case: Case) -> Iterator[Row]:
    branches = [v for k, v in case.items() if k.startswith("branch")]
    multi = any("batch_num" in str(name) for name in case["main"])
    scope = EventScope(
        _chain_events(case["main"]), tuple(EventScope(_chain_events(b)) for b in branches)
    )
    ids = scope.shared if multi else scope.total
    streams = {s for graph in (case["main"], *branches) for s in graph.values()}
    for mode in ("event", "notify"):
        expected = case.get(f"expect_{mode}_mode")
        if expected is None:
            continue
        got = {
            "streams": len(streams),
            "events_before_reuse": scope.total,
            "events": ids if mode == "event" else 0,
            "notifies": ids if mode == "notify" else 0,
        }
        yield Row(mode, dict(expected), {k: got.get(k) for k in expected})


def _chain_events(graph: Mapping[str, int]) -> int:
    """Events of a graph whose units follow each other as listed."""
    stream = list(graph.values())
    edges = [(i, i + 1) for i in range(len(stream) - 1)]
    return len(clean_events(needed_events(edges, stream), stream, range(len(stream))))


# -------------------------------------------------------------------- main


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per scenario; 1 when one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ge_cases", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    failed = False
    for case in yaml.safe_load(parser.parse_args(arguments).file.read_text(encoding="utf-8")):
        rows, problem = [], "nothing to run"
        try:
            rows = list(rows_of(case))
        except (GecError, AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"cannot be run: {type(error).__name__}: {error}"
        same = bool(rows) and all(row.expected == row.got for row in rows)
        failed |= not same
        told = "; ".join(f"{r.name or 'all'}: expected {r.expected}, got {r.got}" for r in rows)
        print(f"{'ok  ' if same else 'DIFF'} {case['id']}: {told or problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
