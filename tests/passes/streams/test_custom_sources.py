"""Strategies of one's own: from installed packages, and from files named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from gecompiler.ir.errors import UsageError
from gecompiler.passes import time_limit
from gecompiler.passes.streams import custom_sources, strategy_table
from gecompiler.passes.streams.custom import StreamAssignStrategy
from gecompiler.passes.streams.custom_sources import (
    is_strategy_file,
    load_custom,
    load_strategy_file,
)
from gecompiler.passes.streams.registry import check_strategy

GOOD = """
import gecompiler as ge
class Second(ge.StreamAssignStrategy):
    "Everything on stream 1."
    def assign(self, op_graph):
        for op in op_graph.ops:
            ge.assign_to_stream(op, 1)
"""

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(text)
        return str(path)

    return make


def test_the_only_class_of_a_file_or_the_one_named(write: Write) -> None:
    path = write(GOOD)
    assert type(load_strategy_file(path)).__name__ == "Second"
    assert type(load_strategy_file(f"{path}:Second")).__name__ == "Second"


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("x = 1", "", "no class derives from StreamAssignStrategy"),
        (GOOD + GOOD.replace("Second", "Third"), "", "2 classes derive from .*: Second, Third"),
        (GOOD, ":Secnd", "the file has no class 'Secnd'"),
        (GOOD + "x = 1", ":x", "expected a subclass of StreamAssignStrategy, found 1"),
        ("def broken(:", "", "the file fails: SyntaxError"),
        ("import sys; sys.exit(0)", "", "the file fails: SystemExit: 0"),
        ("raise KeyboardInterrupt", "", "the file fails: KeyboardInterrupt"),
        ("while True: pass", "", "the file fails: this does not end"),
        ("1 / 0", "", "the file fails: ZeroDivisionError"),
        (GOOD + "    def __init__(self): raise KeyError(1)", "", r"Second\(\) fails: KeyError"),
    ],
)
def test_a_file_at_fault_is_named(
    write: Write, text: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 1.0)
    path = write(text)
    with pytest.raises(UsageError, match=said) as error:
        load_strategy_file(path + name)
    assert path in str(error.value)
    assert not any(m.startswith("gecompiler_strategy") and m in text for m in sys.modules)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_strategy_file(str(tmp_path / "absent.py"))


def test_only_the_command_line_names_files(write: Write) -> None:
    path = write("raise SystemExit(9)")
    assert is_strategy_file(path)
    assert is_strategy_file(f"{path}:A")
    assert not is_strategy_file("load_balance:4")
    with pytest.raises(UsageError, match="no stream strategy") as error:
        check_strategy(path)
    assert "--strategy FILE.py" in error.value.hint


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("fake_strategies")

    class Good(StreamAssignStrategy):
        """Assigns nothing."""

        def assign(self, op_graph: object) -> None:
            pass

    module.Good, module.Bad = Good, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_strategies", module)
    values = {"good": "Good", "bad": "Bad", "gone": "Gone", "single": "Good"}
    points = [
        EntryPoint(n, f"fake_strategies:{v}", custom_sources.GROUP) for n, v in values.items()
    ]
    monkeypatch.setattr(custom_sources, "entry_points", lambda group: points)


@pytest.mark.usefixtures("package")
def test_entry_points_add_strategies_and_broken_ones_are_named() -> None:
    assert type(load_custom("good")).__name__ == "Good"
    with pytest.raises(UsageError, match="expected a subclass of StreamAssignStrategy"):
        load_custom("bad")
    with pytest.raises(UsageError, match=r"fake_strategies:Gone cannot be loaded: AttributeError"):
        load_custom("gone")
    table = strategy_table()
    assert table["good"].__doc__ == "Assigns nothing."
    assert "bad" not in table
    assert table["single"].__name__ == "SingleStream"  # nobody takes a name of the product
