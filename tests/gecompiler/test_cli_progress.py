"""Long work is watched on a terminal, and silent anywhere else."""

from __future__ import annotations

import io
import re
import sys

import pytest

from gecompiler import cli_progress
from gecompiler.cli import main
from gecompiler.cli_progress import activity
from gecompiler.ir.activity import tell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Within a test: before it, pytest puts its own stderr there again."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(cli_progress, "PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return found


def shown(screen: Terminal) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


def test_a_terminal_shows_what_is_done_and_is_clean_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = terminal(monkeypatch)
    with activity(quiet=False):
        tell("running pass fuse-attention", 1, 3)
        tell("an [odd] name\x1b[2J")
    assert "running pass fuse-attention" in shown(screen)
    assert "an [odd] name\\x1b[2J" in shown(screen)
    assert screen.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))


def test_quick_work_and_quiet_work_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with activity(quiet=True):
        tell("something")
    monkeypatch.setattr(cli_progress, "PATIENCE", 60.0)
    with activity(quiet=False):
        tell("something")
    assert screen.getvalue() == ""


def test_work_that_fails_leaves_the_terminal_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)

    def work() -> None:
        with activity(quiet=False):
            tell("dividing")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert "dividing" in shown(screen)


def test_pipes_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile", "bert-base", "--seq", "16"])
    assert capsys.readouterr().err == ""


def test_compiling_tells_of_passes_and_candidates() -> None:
    from gecompiler import Session
    from gecompiler.ir.activity import listening

    told: list[tuple[str, int, int]] = []
    with listening(lambda *row: told.append(row)):
        Session().compile("bert-base", batch=1, seq=16)
    texts = [what for what, _, _ in told]
    assert texts[0] == "reading the model"
    assert "running pass fuse-attention" in texts
    assert any(text.startswith("simulating candidates: ") for text in texts)
    assert texts[-1] == "verifying the schedule"
    assert all(0 <= done <= total for _, done, total in told)
