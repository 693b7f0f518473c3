"""Columns: Chinese takes two, lines break between its characters and before no comma."""

from __future__ import annotations

import textwrap

from hypothesis import given
from hypothesis import strategies as st

from gecompiler.lang.width import columns, cut, pad, pad_left, wrap

TEXT = st.text("ab c，。流任务（x）", max_size=60)


def test_padding_and_cutting() -> None:
    assert columns("流 a") == 4
    assert pad("流", 5) == "流   "
    assert pad_left("流", 5) == "   流"
    assert cut("任务名字", 5) == "任务"
    assert cut("name", 9) == "name"


@given(TEXT, st.integers(12, 40))
def test_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = wrap(text, width, "  ", "    ")
    wide = max((columns(word) for word in text.replace("，", "").split()), default=0)
    assert all(columns(line) <= max(width, wide + 12) for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(TEXT, st.integers(12, 40))
def test_no_line_begins_with_a_closing_mark(text: str, width: int) -> None:
    lines = wrap("流" + text, width)
    assert (
        not any(line[:1] in "，。）" and line for line in lines[1:])
        or " ，" in text
        or any(f" {mark}" in text for mark in "，。）")
    )


@given(st.text("abc de", min_size=1, max_size=80), st.integers(12, 40))
def test_english_is_wrapped_as_the_standard_library_does(text: str, width: int) -> None:
    expected = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    assert wrap(text, width) == (expected or [""])
