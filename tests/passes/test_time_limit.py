"""Code that does not end is ended, and nothing else is."""

from __future__ import annotations

import threading
import time
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
from gecompiler.passes.time_limit import TimeUpError, time_limit

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


def test_a_loop_is_ended() -> None:
    with pytest.raises(TimeUpError), time_limit(0.05):
        _for_ever()


def test_one_that_catches_everything_is_ended_too() -> None:
    with pytest.raises(TimeUpError), time_limit(0.05):
        _stubborn()


def test_what_ends_in_time_is_left_alone() -> None:
    for _ in range(200):
        with time_limit(30.0):
            pass
    assert [t for t in threading.enumerate() if t.name == "time limit"] == []


def test_time_that_is_just_up_reaches_nobody_outside() -> None:
    """Whether the limit falls before or after the end of the block, what follows is not hit."""
    for _ in range(200):
        try:
            with time_limit(0.0005):
                end = time.perf_counter() + 0.0005
                while time.perf_counter() < end:
                    pass
        except TimeUpError:
            pass
        for _ in range(300):
            pass


def test_threads_do_not_end_each_other() -> None:
    ended: list[str] = []

    def limited() -> None:
        try:
            with time_limit(0.05):
                _for_ever()
        except TimeUpError:
            ended.append("limited")

    thread = threading.Thread(target=limited)
    thread.start()
    total = sum(range(1000))
    thread.join()
    assert (ended, total) == (["limited"], 499500)


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
