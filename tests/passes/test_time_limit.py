"""Code that does not end is ended, and nothing else is."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from fakes import FakeTarget

from gecompiler.ir import parse
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.passes import time_limit
from gecompiler.passes.manager import PassError, run_passes
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.streams.custom import StreamAssignStrategy, run_custom
from gecompiler.passes.streams.op_graph import OpGraph
from gecompiler.passes.time_limit import StrangersError, TimeUpError, run_limited, told

TEXT = """
graph {
  input %x: f32[4]
  %y: f32[4] = Relu(%x)
  return %y
}
"""


def _for_ever() -> None:
    while True:
        pass


def _stubborn() -> None:
    """Catches whatever comes, three times."""
    for _ in range(3):
        try:
            _for_ever()
        except BaseException:
            continue
    _for_ever()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it takes long until a thread gets its turn to be ended."""
    monkeypatch.setattr(time_limit, "TIMES", 6000)


def _running() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "time limit"]


def test_a_loop_is_ended() -> None:
    with pytest.raises(TimeUpError):
        run_limited(_for_ever, 0.05)
    assert _running() == []


def test_one_that_catches_everything_is_ended_too() -> None:
    with pytest.raises(TimeUpError):
        run_limited(_stubborn, 0.05)
    assert _running() == []


def test_one_that_cannot_be_ended_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "TIMES", 3)
    release = threading.Event()
    with pytest.raises(TimeUpError):
        run_limited(release.wait, 0.05)
    (left,) = _running()
    release.set()
    left.join()


def test_what_ends_in_time_gives_what_it_gives() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(7)
    assert [run_limited(variable.get, 30.0) for _ in range(100)] == [7] * 100
    with pytest.raises(StrangersError, match=r"^KeyError: 'gone'$"):
        run_limited(lambda: {}["gone"], 30.0)
    assert _running() == []


class Endless(StreamAssignStrategy):
    def assign(self, op_graph: OpGraph) -> None:
        _for_ever()


def test_an_endless_strategy_is_named() -> None:
    with pytest.raises(UsageError, match=r"strategy Endless.*has not ended after 0\.05 s"):
        run_custom(Endless(), parse(TEXT), FakeTarget(), 0.05)


@dataclass(frozen=True)
class EndlessPass(Pass):
    name: ClassVar[str] = "endless"

    def run(self, graph: Graph, context: PassContext) -> int:
        _for_ever()
        return 0


def test_an_endless_pass_is_named() -> None:
    context = PassContext(custom_seconds=0.05)
    with pytest.raises(PassError, match=r"pass 'endless'.*has not ended after 0\.05 s"):
        run_passes(parse(TEXT), [EndlessPass()], context)


class Untold(BaseException):
    def __str__(self) -> str:
        raise ValueError


def test_an_error_that_cannot_be_told_is_told() -> None:
    assert told(Untold()) == "Untold (without a text)"


def _broken_error() -> UsageError:
    error = UsageError("what")
    del error.message
    return error


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(0),
        GeneratorExit(),
        RecursionError(),
        Untold(),
        _broken_error(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_is_told_and_ends_nothing(error: BaseException) -> None:
    def fails(*_: object) -> int:
        raise error

    name = type(error).__name__
    kind = type("Odd", (StreamAssignStrategy,), {"assign": fails})
    with pytest.raises(UsageError, match=rf"strategy Odd: assign\(\) raised {name}"):
        run_custom(kind(), parse(TEXT), FakeTarget())
    with pytest.raises(PassError, match=rf"pass 'own' .*crashed: {name}"):
        run_passes(parse(TEXT), [OwnPass(fails)], PassContext())


def test_the_folder_worked_in_stays(tmp_path: Path) -> None:
    before = os.getcwd()
    run_limited(lambda: os.chdir(tmp_path), 30.0)
    assert os.getcwd() == before


@dataclass(frozen=True)
class OwnPass(Pass):
    name: ClassVar[str] = "own"
    does: Callable[[Graph], object]

    def run(self, graph: Graph, context: PassContext) -> int:
        return self.does(graph)  # type: ignore[return-value]


@pytest.mark.parametrize("returned", [None, "3", True, 1.0], ids=repr)
def test_a_pass_that_does_not_count_is_told_what_is_expected(returned: object) -> None:
    with pytest.raises(PassError, match="expected int: how many rewrites"):
        run_passes(parse(TEXT), [OwnPass(lambda _: returned)], PassContext())


@pytest.mark.parametrize("part", ["_ops", "_inputs", "_types", "_uses", "_constants", "_states"])
def test_private_parts_that_are_gone_are_told(part: str) -> None:
    class Careless(StreamAssignStrategy):
        def assign(self, op_graph: OpGraph) -> None:
            delattr(op_graph.graph, part)

    graph = parse(TEXT)
    with pytest.raises(UsageError, match=r"Careless: it changed the graph"):
        run_custom(Careless(), graph, FakeTarget())
    with pytest.raises(PassError, match=r"pass 'own' .*left an invalid graph"):
        run_passes(graph, [OwnPass(lambda seen: delattr(seen, part) or 1)], PassContext())
