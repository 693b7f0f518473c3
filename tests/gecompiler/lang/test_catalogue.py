"""Every text for the user has a Chinese one, with the same holes."""

from __future__ import annotations

import re
from importlib import import_module

import click
import pytest
from message_sources import raised, said, without_chinese

from gecompiler.cli import EPILOG, gec
from gecompiler.cli_language import first_sentence
from gecompiler.lang import say, translate, use_language
from gecompiler.lang.template import Template, holes
from gecompiler.lang.zh import PARTS, messages

HOW = (
    "\nadd the English template and a Chinese text to a dictionary in gecompiler/lang/zh/ "
    "(f-string holes are {}, in another order {0} and {1}):\n"
)


def test_what_is_said_raised_or_warned_of_has_a_chinese_text() -> None:
    missing = [f"{place}: {text!r}" for text, place in without_chinese().items()]
    assert not missing, HOW + "\n".join(missing)


def test_the_search_for_texts_finds_them() -> None:
    assert "Longest waits ({count} in all, {total})" in said()
    assert "no op has this name, type or group, nor matches it as a glob" in raised()
    assert "{} is missing: there is no such file" in raised()
    assert len(said()) > 200
    assert len(raised()) > 700


def test_the_holes_of_both_texts_are_the_same() -> None:
    wrong = [en for en, zh in messages().items() if set(holes(en)) != set(holes(zh))]
    assert wrong == []
    mixed = [en for en, zh in messages().items() if "{}" in zh and re.search(r"\{\d", zh)]
    assert mixed == []


def test_a_template_has_one_chinese_text() -> None:
    found: dict[str, str] = {}
    for part in PARTS:
        for english, chinese in import_module(f"gecompiler.lang.zh.{part}").TEXTS.items():
            assert found.setdefault(english, chinese) == chinese, (part, english)


def test_a_filled_in_message_is_recognised_and_keeps_its_values() -> None:
    for english, chinese in messages().items():
        names = holes(english)
        if not names or not all(name.isdigit() for name in names):
            continue
        values = [f"'v{n}'" for n in range(len(names))]
        found = translate(english.format(*values), "zh")
        assert all(value in found for value in values), english
        if Template(english).weight > 12:
            assert found == chinese.format(*values), english


def _paragraphs(command: click.Command) -> list[str]:
    options = [p.help for p in command.params if isinstance(p, click.Option) and p.help]
    texts = (command.help or "").split("\n\n")
    found = [" ".join(text.split()) for text in (*texts, *options)]
    return [*found, first_sentence(command.help or "")]


@pytest.mark.parametrize("name", sorted(gec.commands))
def test_every_help_is_in_chinese(name: str) -> None:
    known = {key.format() for key in messages() if not holes(key)}
    assert [text for text in _paragraphs(gec.commands[name]) if text not in known] == [], HOW


def test_lists_of_what_there_is_are_in_chinese() -> None:
    from gecompiler.option_table import TABLE
    from gecompiler.passes import pass_table
    from gecompiler.passes.streams import strategy_table

    kinds = [*pass_table().values(), *strategy_table().values()]
    texts = [(kind.__doc__ or "").strip().split("\n", 1)[0] for kind in kinds]
    texts += [text for option in TABLE for text in (option.accepts, option.doc)]
    texts += [" ".join((gec.help or "").split()), *EPILOG.split("\n\n")]
    assert [text for text in texts if translate(text, "zh") == text] == [], HOW


def test_names_are_not_translated() -> None:
    text = "no op has this name, type or group, nor matches it as a glob"
    assert translate("stream", "zh") != "stream"  # a title of a table
    assert "'stream'" in translate("the model has no input 'stream'", "zh")
    assert translate(text, "zh") != text
    assert translate("a text that nobody wrote {0}", "zh") == "a text that nobody wrote {0}"


def test_a_message_within_a_message_is_translated() -> None:
    found = translate("op '/a (b)' (Softmax) reads 'x', which nothing makes", "zh")
    assert "/a (b)" in found
    refusal = translate(
        "/layer/Softmax (Softmax) adds 'm', which is not a floating-point number", "zh"
    )
    assert refusal == "/layer/Softmax（Softmax）加上 'm'，它不是浮点数"


def test_both_languages_of_what_is_said() -> None:
    assert say("and {count} more streams", count=3) == "and 3 more streams"
    with use_language("zh"):
        assert say("and {count} more streams", count=3) == "另有 3 条流"


def test_of_two_texts_that_fit_the_one_is_taken_that_leaves_no_english() -> None:
    for text in (
        "expected a number from 1, or 'auto', found '0'",
        "expected a number from 1 to 4096, or 'auto', found '0'",
        "expected a whole number from 0 to 1000000000, found -1",
        "expected a number from 0 to 3, found 9",
        "expected a number of at least 3, found 'a b'",
        "expected a number from 2 to 5, found 7",
    ):
        turned = translate(text, "zh")
        assert not set(turned.replace("'", " ").split()) & {"from", "of", "least", "or", "to"}, (
            turned
        )


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 micro-batches"), (1, "1 micro-batch"), ("1", "1 micro-batch"), (2, "2 micro-batches")],
)
def test_one_of_a_thing_is_singular_in_english(count: object, text: str) -> None:
    assert say("{count} micro-batches, {order}", count=count, order="1f1b") == f"{text}, 1f1b"
    with use_language("zh"):
        assert say("{count} event ids", count=count) == f"{count} 个事件 id"


def test_only_the_noun_behind_its_own_count_is_singular() -> None:
    template = "{stages} stages, {count} micro-batches; {streams}"
    said = say(template, stages=2, count=1, streams="1 streams")
    assert said == "2 stages, 1 micro-batch; 1 streams"
