"""The registry of passes: explicit, extensible by entry point, and safe from broken packages."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from gecompiler.ir import Graph, UsageError
from gecompiler.passes import (
    PASSES,
    Pass,
    PassContext,
    PassRegistry,
    pass_table,
    registry,
    time_limit,
)


class Mine(Pass):
    """A pass of somebody else's."""

    name: ClassVar[str] = "mine"

    def run(self, graph: Graph, context: PassContext) -> int:
        return 0


ODD_IMPORTS = {
    "exit": "raise SystemExit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "untold": "class X(Exception):\n def __str__(self): raise ValueError\nraise X",
    "endless": "while True: pass",
}


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PassRegistry:
    module = types.ModuleType("foreign_passes")
    module.Mine = Mine  # type: ignore[attr-defined]
    module.NotAPass = int  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foreign_passes", module)
    for name, text in ODD_IMPORTS.items():
        (tmp_path / f"odd_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(time_limit, "SECONDS", 1.0)
    points = [
        *(EntryPoint(f"{n}-import", f"odd_{n}:Mine", registry.GROUP) for n in ODD_IMPORTS),
        EntryPoint("mine", "foreign_passes:Mine", registry.GROUP),
        EntryPoint("no-module", "not_there_at_all:Mine", registry.GROUP),
        EntryPoint("no-pass", "foreign_passes:NotAPass", registry.GROUP),
        EntryPoint("canonicalize", "foreign_passes:Mine", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    return PassRegistry()


def test_every_name_of_the_product_is_a_documented_pass_of_that_name() -> None:
    table = pass_table(PassRegistry(group="no.such.group"))
    assert set(table) == set(registry.BUILTIN)
    for name, cls in table.items():
        assert cls.name == name
        assert issubclass(cls, Pass)
        assert cls.__doc__


def test_an_entry_point_adds_a_pass(foreign: PassRegistry) -> None:
    assert "mine" in foreign.names()
    assert foreign.get("mine") is Mine


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-module", "ModuleNotFoundError"),
        ("no-pass", "no subclass"),
        ("exit-import", "SystemExit: 0"),
        ("interrupt-import", "KeyboardInterrupt"),
        ("untold-import", "X (without a text)"),
        ("endless-import", "this does not end"),
    ],
)
def test_a_broken_package_is_named_and_harms_no_other(
    foreign: PassRegistry, name: str, reason: str
) -> None:
    for _ in range(2):
        with pytest.raises(UsageError) as caught:
            foreign.get(name)
        assert name in str(caught.value)
        assert reason in str(caught.value)
    assert reason in foreign.broken[name]
    assert foreign.get("mine") is Mine
    assert name not in pass_table(foreign)


def test_an_entry_point_cannot_take_a_name_of_the_product(foreign: PassRegistry) -> None:
    assert foreign.get("canonicalize") is not Mine
    assert "taken" in foreign.broken["canonicalize"]


def test_a_name_is_given_once(foreign: PassRegistry) -> None:
    class Another(Mine):
        name: ClassVar[str] = "another"

    foreign.register(Another)
    assert foreign.get("another") is Another
    with pytest.raises(UsageError, match="exists already"):
        foreign.register(Another)
    for taken in ("dead-code", "mine"):
        cls = type("Taken", (Mine,), {"name": taken})
        with pytest.raises(UsageError, match="exists already"):
            foreign.register(cls)


def test_a_class_without_a_name_is_refused() -> None:
    class Nameless(Pass):
        def run(self, graph: Graph, context: PassContext) -> int:
            return 0

    with pytest.raises(UsageError, match="has no name"):
        PassRegistry(group="no.such.group").register(Nameless)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'constant-folding'"):
        PASSES.get("constant-fold")
