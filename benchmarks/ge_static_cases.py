"""Cases of the static and the dynamic allocator, and of the automatic modes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from benchmarks.ge_network import (
    ALIASES,
    Case,
    Network,
    Row,
    chain,
    engines_of,
    facts,
    network,
    unit_name,
)
from gecompiler.backends.device import load_device
from gecompiler.ir.errors import UsageError
from gecompiler.ir.schedule import Control, Task
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.dag_mode import DagMode
from gecompiler.passes.streams.engines import ENGINES, Engine
from gecompiler.passes.streams.ge_allocator import (
    AllocatorOptions,
    LabelConflictError,
    ModeConflictError,
    allocate,
)
from gecompiler.passes.streams.ge_dynamic import DynamicAllocator, DynamicUnit
from gecompiler.passes.streams.ladder import Unit
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.strategy import StrategyContext

ERRORS = {
    LabelConflictError: ("label_conflict", "E10055"),
    ModeConflictError: ("mode_conflict", "E10056"),
    UsageError: ("param_invalid", "E10001"),
}
"""What a scenario may call each error: by its nature, or by GE's code."""

MODE = re.compile(r"|default|cv|(LoadBalance|MainStream|WeightedLoadBalance):\d{1,20}")
"""GE's grammar of modes; ``default`` comes from an attribute of the graph and means none."""


def static_rows(case: Case) -> Iterator[Row]:
    """One row, or one for each value of the cap P."""
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
    names = [unit_name(unit) for unit in case["units"]]
    units = [
        Unit(
            unit[n],
            str(unit.get("label", "")),
            str(unit.get("user_label", "")),
            force_attach=bool(unit.get("force_attach")),
        )
        for n, unit in zip(names, case["units"], strict=True)
    ]
    net = network(names, case.get("edges") or ())
    option = case.get("option") or {}
    mode = option.get("auto_mode") or ""
    single = bool(option.get("single_stream"))
    options = AllocatorOptions(
        caps,
        engines_of(case),
        memory_priority=bool(option.get("memory_priority")) or "MemoryPriority" in option.values(),
        single_stream=single,
        auto_mode=mode,
        clusters=case.get("level") != "node",
    )
    expected = {"expect_error": error} if error else dict(expect)
    if mode not in ("", "default") and not single:
        try:
            return Row(name, expected, facts(net, _by_mode(net, units, mode), expected))
        except UsageError as problem:
            return Row(name, expected, _error(problem, error))
    try:
        stream = allocate(units, net.preds, net.succs, options).stream
    except (LabelConflictError, ModeConflictError) as problem:
        return Row(name, expected, _error(problem, error))
    return Row(name, expected, facts(net, stream, expected))


def _error(problem: UsageError, expected: str | None) -> dict[str, str]:
    """The error as the scenario calls it, by its first name where it is another one."""
    names = ERRORS[type(problem)]
    return {"expect_error": expected if expected in names else names[0]}


def _by_mode(net: Network, units: list[Unit], mode: str) -> list[int]:
    """Streams of an automatic mode: every unit one task of one microsecond.

    UsageError for a mode that GE's grammar does not have.
    """
    if not MODE.fullmatch(mode):
        raise UsageError(f"no automatic mode {mode!r}", where="auto_mode")
    graph = TaskGraph(
        "units",
        tuple(Task(i, name, "kernel", 0, i, (name,)) for i, name in enumerate(net.names)),
        {},
        tuple(ALIASES.get(unit.engine, unit.engine) for unit in units),
        tuple(unit.key or None for unit in units),
        (1.0,) * len(units),
        tuple(Control(a, b, "graph") for a, b in net.edges),
    )
    strategy = make_strategy(mode)
    labels = len({unit.key for unit in units if unit.key})
    count = strategy.count if isinstance(strategy, DagMode) and strategy.count else len(units)
    context = StrategyContext(load_device("ascend910"), count + labels)
    return list(strategy.assign(graph, context).stream)


def dynamic_rows(case: Case) -> Iterator[Row]:
    """One row."""
    if "chain" in case:
        net = chain(case["chain"])
        engines = re.findall(r"\((.*?)\)", case["chain"])
        labels = [""] * len(engines)
    else:
        names = [unit_name(unit) for unit in case["units"]]
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
        cpu_parallel=str((case.get("option") or {}).get("ac_parallel_enable", "")) == "1",
    )
    expected = dict(case["expect"])
    yield Row("", expected, facts(net, allocator.run(), expected))


def _long(engine: str) -> str:
    return ALIASES.get(engine.lower(), engine)


def _op_type(name: str) -> str:
    """Units named after a graph's ends are these, and those named after foreign ops."""
    short = re.sub(r"[_\d]", "", name.lower())
    known = {
        "data": "Data",
        "netoutput": "NetOutput",
        "output": "NetOutput",
        "const": "Const",
        "variable": "Variable",
        "getnext": "GetNext",
        "dynamicgetnext": "DynamicGetNext",
        "dropoutgenmask": "DropOutGenMask",
    }
    return known.get(short, "")
