"""Names from files do not reach the terminal raw."""

from __future__ import annotations

import io
import sys

import pytest

from gecompiler.console import print_table
from gecompiler.terminal import PrintableStream, printable, printable_output, raw_stream


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 名 \t\n", "plain 名 \t\n"),
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("a\rb\x00", "a\\rb\\x00"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\u202egnp", "\\u202egnp"),
        ("lone \udc80", "lone \\udc80"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_all_that_is_printed_passes_through(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with printable_output():
        sys.stdout.write("\x1b[2J\n")
        sys.stderr.write("\x07\n")
        assert raw_stream(sys.stdout) is before
    assert sys.stdout is before
    assert capsys.readouterr() == ("\\x1b[2J\n", "\\x07\n")


def test_an_encoding_that_lacks_the_text_is_no_error() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PrintableStream(raw).writelines(["é", "名"])
    raw.flush()
    assert raw.buffer.getvalue() == b"\\xe9\\u540d"  # type: ignore[attr-defined]


def test_tables_show_brackets_and_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["name"], [["[red]x[/]"], ["\x1b[1m"], ["a\nb"]])
    assert capsys.readouterr().out.split() == ["name", "[red]x[/]", "\\x1b[1m", "a\\nb"]
