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


def test_words_of_tables_are_whole_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [f"word{'x' * n}" for n in (30, 40, 50)]
    print_table(["strategy", "bottleneck", "what"], [[*words[:2], f"some {words[2]} of it"]])
    out = capsys.readouterr().out
    assert set(out.split()) == {"strategy", "bottleneck", "what", "some", "of", "it", *words}


def test_rows_of_one_line_have_one_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    row = [f"{name} and more" for name in "abcdefghijkl"]
    print_table(["a column"] * len(row), [row, row], one_line=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert [line.split("  ")[:2] for line in lines[1:]] == [row[:2], row[:2]]


def test_long_texts_of_tables_still_wrap_at_a_hundred_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["name", "text"], [["x", "some words " * 40], ["名字", "一" * 30]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "".join(lines).count("some") == 40
