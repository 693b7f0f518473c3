"""One HTML text from the template, the style sheet, the scripts and the data of this folder.

A model file comes from anywhere and so do the names in it. They stand only in a JSON block in
which ``<`` is escaped, so that no name can close it, and in the escaped title; the scripts put
them on the page as text, never as markup. The content security policy admits this page's own
style and script by their hashes, and no connection to anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from gecompiler import __version__
from gecompiler.ir.errors import UsageError, nearest

LANGUAGES: tuple[Literal["en"], Literal["zh"]] = ("en", "zh")

SCRIPTS = (
    "texts_en.js",
    "texts_zh.js",
    "units.js",
    "dom.js",
    "data.js",
    "state.js",
    "palette.js",
    "columns.js",
    "lanes.js",
    "marks.js",
    "curves.js",
    "overview.js",
    "pointer.js",
    "keyboard.js",
    "details.js",
    "legend.js",
    "table.js",
    "summary.js",
    "cards.js",
    "comparison.js",
    "findings.js",
    "main.js",
)
"""In this order inside one function, so that what one file defines the next ones see."""

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def render_page(data: Mapping[str, Any], lang: str = "en") -> str:
    """The whole page in UTF-8-safe text; the same data gives the same text."""
    if lang not in LANGUAGES:
        raise UsageError(
            f"there is no page in {lang!r}", where="lang", hint=nearest(lang, LANGUAGES)
        )
    style, script = _style(), _script()
    title = f"{data['title']} - {data['device']}" if data["device"] else str(data["title"])
    parts = {
        "lang": "zh-CN" if lang == "zh" else lang,
        "title": _plain(title),
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "script": script,
        "data": _json({**data, "version": __version__, "lang": lang}),
    }
    return _PLACE.sub(lambda found: parts[found[1]], _source("template.html"))


def _plain(text: str) -> str:
    """Text that is text in HTML, also with characters that no file can hold."""
    safe = html.escape(text).encode("ascii", "xmlcharrefreplace")
    return safe.decode("ascii")


def _json(data: object) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


@lru_cache
def _source(name: str) -> str:
    return files("gecompiler.html_report").joinpath(name).read_text(encoding="utf-8")


@lru_cache
def _style() -> str:
    return _source("style.css")


@lru_cache
def _script() -> str:
    body = "\n".join(_source(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}\n}})();'
