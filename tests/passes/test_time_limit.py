"""Code that does not end is ended, and nothing else is."""

from __future__ import annotations

import contextvars
import threading
from dataclasses import dataclass
from typing import ClassVar

import pytest
from fakes import FakeTarget

from gecompiler.ir import parse
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.passes.manager import PassError, run_passes
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.streams.custom import StreamAssignStrategy, run_custom
from gecompiler.passes.streams.op_graph import OpGraph
from gecompiler.passes.time_limit import TimeUpError, run_limited

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


def test_one_that_cannot_be_ended_is_left_behind() -> None:
    release = threading.Event()
    with pytest.raises(TimeUpError):
        run_limited(lambda: release.wait(20.0), 0.05)
    release.set()


def test_what_ends_in_time_gives_what_it_gives() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(7)
    assert [run_limited(variable.get, 30.0) for _ in range(100)] == [7] * 100
    with pytest.raises(KeyError, match="gone"):
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
