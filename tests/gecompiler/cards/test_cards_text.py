"""What is printed of a compilation for several cards."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from tiny_cards import SPEC as TINY

import gecompiler as ge
from gecompiler.cli import gec
from gecompiler.lang import use_language
from gecompiler.models import build_spec
from gecompiler.report_layout import bound_text

SPEC = {**TINY, "layers": 2}


def test_the_text_speaks_of_cards_and_of_this_compilation(tmp_path: Path) -> None:
    ge.compile(build_spec(SPEC), batch=8, seq=16).save(tmp_path / "one")
    file = str(tmp_path / "one" / "model.onnx")
    found = CliRunner().invoke(gec, ["compile", file, "--tp", "2"], standalone_mode=False)
    text = " ".join(found.stdout.split())
    assert "x Ranks0-1 Stream" in text
    assert f"gec plan {file} --cards 2" in text
    assert "gec explain with these options and OP" in text
    assert "streams help" not in text
    assert "none were tried" in text


def test_a_bound_of_chains_names_what_lies_between_them() -> None:
    bounds = {"cube": 3.0, "segments": 5.0, "critical_path": 4.0}
    assert "cube between them" in bound_text({"binding_resource": "cube", "bounds": bounds})
    bounds["cube"] = 6.0
    assert bound_text({"binding_resource": "cube", "bounds": bounds}) == "cube"


def test_a_plan_in_chinese_has_no_english_titles_nor_keys(tmp_path: Path) -> None:
    ge.compile(build_spec(SPEC), batch=4, seq=16).save(tmp_path / "one")
    asked = ["plan", str(tmp_path / "one" / "model.onnx"), "--cards", "2", "--batch", "2"]
    with use_language("zh"):
        table = CliRunner().invoke(gec, asked, standalone_mode=False).stdout
    assert "受限于" in table
    assert "启动开销" in table
    assert not {"layout", "exposed", "bubble", "fixed"} & set(table.split())
