"""Texts in the language in use: `say` makes one, `translate` turns a finished one round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gecompiler.ir.errors import GecError
from gecompiler.lang.choice import language
from gecompiler.lang.plural import counted
from gecompiler.lang.template import Template, holes

MOST_NESTED = 4
"""A message holds another one that holds another one, at most so deep."""
LONGEST = 20_000
"""Longer texts stay as they are."""


def say(template: str, /, **values: Any) -> str:
    """The text of a template with named holes, filled in.

    The English template is the key, written as of several: of one its nouns are singular. In
    Chinese the catalogue's text takes its place.
    """
    if language() == "zh":
        template = _messages().get(template, template)
    else:
        template = counted(template, values)
    return template.format(**values)


def translate(text: str, lang: str | None = None) -> str:
    """A finished English text in the language in use, or in ``lang``.

    It is recognised by its template. What stands in the holes is translated as well where it
    is a message itself, and stays as it is otherwise: names, numbers, values.
    """
    if (lang or language()) != "zh" or not text or len(text) > LONGEST:
        return text
    return _chinese(text, MOST_NESTED)


def error_text(error: GecError) -> str:
    """What an error says, with its place and its hint, in the language in use."""
    if language() != "zh":
        return str(error)
    message, where, hint = (translate(t) for t in (error.message, error.where, error.hint))
    text = f"{where}：{message}" if where else message
    return f"{text}\n  提示：{hint}" if hint else text


def _chinese(text: str, depth: int) -> str:
    exact = _messages().get(text)
    if exact is not None:
        return exact.format()
    if not depth:
        return text
    first = None
    for template, chinese in _candidates(text):
        found = template.match(text)
        if found is None:
            continue
        parts = [_value(part, depth - 1) for part in found]
        whole = all(part != old or " " not in old for part, old in zip(parts, found, strict=True))
        if whole:
            return chinese.format(*parts)
        if first is not None:  # two that fit are looked at: the surest, else the other
            return first
        first = chinese.format(*parts)
    return _joined(text, depth) if first is None else first


def _joined(text: str, depth: int) -> str:
    """Several messages behind each other, as hints are."""
    for mark, chinese in (("; ", "；"), ("\n", "\n")):
        parts = text.split(mark)
        if len(parts) > 1:
            turned = [_chinese(part, depth - 1) for part in parts]
            if turned != parts:
                return chinese.join(turned)
    return text


def _value(text: str, depth: int) -> str:
    """What stands in a hole: a phrase may be a message, a single word is a name or a value."""
    return _chinese(text, depth) if " " in text else text


def _candidates(text: str) -> list[tuple[Template, str]]:
    """Templates that the text may be of, the surest first: by its first word, then the rest."""
    by_word = _templates()
    found = [*by_word[_first_word(text)], *by_word[""]]
    return sorted(found, key=lambda row: -row[0].weight)


def _first_word(text: str) -> str:
    return text.split(" ", 1)[0]


@lru_cache
def _templates() -> Mapping[str, list[tuple[Template, str]]]:
    """The templates of finished texts by their first word, under "" where that has a hole.

    Those with named holes are only said, never recognised.
    """
    found: dict[str, list[tuple[Template, str]]] = defaultdict(list)
    for english, chinese in _messages().items():
        template = Template(english)
        if holes(english) and all(name.isdigit() for name in holes(english)):
            first, space, _ = template.pieces[0].partition(" ")
            found[first if space else ""].append((template, chinese))
    return found


@lru_cache
def _messages() -> Mapping[str, str]:
    from gecompiler.lang.zh import messages

    return messages()
