"""The page is one file that loads nothing and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner
from schedule_help import layered_subject

from gecompiler.cli import gec
from gecompiler.compiled import CompiledModel
from gecompiler.html_report import compilation_page, page_data, render_page
from gecompiler.html_report.page import SCRIPTS
from gecompiler.ir.errors import UsageError

HOSTILE = "</script><script>document.title='broken in'</script><!--<img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts and style."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in self.inside:
            self.inside[tag].append("")
            self._open = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open][-1] += data


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    return parser


def page(name: str = "op") -> str:
    subject = layered_subject(12, 2, name=lambda n: f"{name}{n}")
    return render_page(page_data(subject))


def test_the_policy_names_the_style_and_the_script_by_their_hashes() -> None:
    found = elements(page())
    policy = next(
        str(attrs["content"])
        for tag, attrs in found.found
        if tag == "meta" and "http-equiv" in attrs
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, text in (("script", found.inside["script"][1]), ("style", found.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_nothing_is_loaded_from_anywhere(model_page: Path) -> None:
    for tag, attrs in elements(model_page.read_text(encoding="utf-8")).found:
        for key in ("src", "href", "action", "data"):
            value = attrs.get(key)
            assert value is None or value == "data:," or value.startswith("#"), (tag, value)
        assert not [key for key in attrs if key.startswith("on")], tag
        assert "style" not in attrs, tag


def test_names_stay_names() -> None:
    subject = layered_subject(12, 2, name=lambda n: f"{HOSTILE}{n}")
    data = {**page_data(subject), "title": HOSTILE}
    found = elements(render_page(data))
    assert len(found.inside["script"]) == 2
    assert not [tag for tag, _ in found.found if tag == "img"]
    back = json.loads(found.inside["script"][0])
    assert any(HOSTILE in rest for rest in back["strings"]["rest"])
    assert found.inside["title"][0].startswith(HOSTILE)


def test_characters_that_no_file_holds_are_written_all_the_same() -> None:
    subject = layered_subject(4, 1, name=lambda n: f"\ud800 😀 {{{{script}}}} {n}")
    text = render_page({**page_data(subject), "title": "\ud800"})
    back = json.loads(elements(text).inside["script"][0])
    assert any("{{script}}" in rest for rest in back["strings"]["rest"])
    text.encode("utf-8")


def test_numbers_that_json_lacks_become_text(compiled: CompiledModel) -> None:
    from dataclasses import replace

    from gecompiler.html_report import compilation_subject

    subject = compilation_subject(compiled.compilation)
    assert subject.report is not None
    site = {**subject.report["attention"]["sites"][0], "scale": float("nan")}
    odd = {**subject.report, "attention": {"fused": 1, "refused": 0, "sites": [site]}}
    text = render_page(page_data(replace(subject, report=odd)))
    back = json.loads(elements(text).inside["script"][0])
    assert back["report"]["attention"]["sites"][0]["scale"] == "nan"


def test_the_same_compilation_gives_the_same_bytes(tiny_path: Path) -> None:
    from gecompiler.request import Request

    texts = {
        compilation_page(CompiledModel.compile(Request(tiny_path, batch=2, seq=16)).compilation)
        for _ in range(2)
    }
    assert len(texts) == 1


def test_both_languages_have_the_same_texts() -> None:
    def keys(lang: str) -> dict[str, set[str]]:
        text = files("gecompiler.html_report").joinpath(f"texts_{lang}.js").read_text("utf-8")
        rows = re.findall(r'\b(\w+): "((?:[^"\\]|\\.)*)"', text)
        return {key: set(re.findall(r"\{\d\}", value)) for key, value in rows}

    english, chinese = keys("en"), keys("zh")
    assert english == chinese
    assert len(english) > 100


def test_every_text_that_is_asked_for_exists() -> None:
    home = files("gecompiler.html_report")
    known = set(re.findall(r'\b(\w+): "', home.joinpath("texts_en.js").read_text("utf-8")))
    asked = set(re.findall(r'data-t="(\w+)"', home.joinpath("template.html").read_text("utf-8")))
    for name in SCRIPTS:
        asked |= set(re.findall(r'say\("(\w+)"', home.joinpath(name).read_text("utf-8")))
    assert asked <= known
    assert len(asked) > 80


def test_every_script_of_the_folder_is_used() -> None:
    names = {item.name for item in files("gecompiler.html_report").iterdir()}
    assert {name for name in names if name.endswith(".js")} == set(SCRIPTS)


def test_an_unknown_language_is_refused(compiled: CompiledModel) -> None:
    with pytest.raises(UsageError, match="'fr'"):
        compilation_page(compiled.compilation, "fr")


def test_twenty_thousand_tasks_stay_small(large_page: Path) -> None:
    assert large_page.stat().st_size < 8_000_000


def test_the_command_writes_it(tiny_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    sizes = ["--batch", "2", "--seq", "16"]
    run = CliRunner().invoke(gec, ["compile", str(tiny_path), *sizes, "--html", str(out)])
    assert run.exit_code == 0, run.output
    assert f"written to {out}" in run.output
    found = elements(out.read_text(encoding="utf-8"))
    assert found.inside["title"][0] == "tiny - ascend910"
    quiet = CliRunner().invoke(gec, ["compile", str(tiny_path), *sizes, "-q", "--html", str(out)])
    assert quiet.output == ""


def test_a_graph_that_is_only_printed_has_no_page(tiny_path: Path, tmp_path: Path) -> None:
    arguments = ["compile", str(tiny_path), "--stop-after", "import", "--html", "x.html"]
    run = CliRunner().invoke(gec, arguments)
    assert run.exit_code == 2
    assert "--html" in run.output


def test_a_place_that_cannot_be_written_is_named(compiled: CompiledModel, tmp_path: Path) -> None:
    from gecompiler.files import OutputError

    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        compiled.save_html(tmp_path / "file" / "report.html")
