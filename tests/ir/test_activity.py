"""Whoever listens is told what is done, and nobody else pays."""

from __future__ import annotations

import threading

from gecompiler.ir.activity import listening, tell


def test_the_innermost_listener_is_told() -> None:
    outer: list[tuple[str, int, int]] = []
    inner: list[tuple[str, int, int]] = []
    tell("nobody hears this")
    with listening(lambda *told: outer.append(told)):
        tell("a")
        with listening(lambda *told: inner.append(told)):
            tell("b", 1, 2)
        tell("c", 2, 2)
    tell("nobody")
    assert outer == [("a", 0, 0), ("c", 2, 2)]
    assert inner == [("b", 1, 2)]


def test_other_threads_are_not_listened_to() -> None:
    heard: list[str] = []
    with listening(lambda what, done, total: heard.append(what)):
        thread = threading.Thread(target=tell, args=("elsewhere",))
        thread.start()
        thread.join()
    assert heard == []
