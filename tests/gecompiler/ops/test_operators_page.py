"""The page on operators does what it says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from attention_problems import assert_same

import gecompiler as ge
from gecompiler.backends.counters import AttentionCounters
from gecompiler.ops.layouts import LAYOUTS
from gecompiler.ops.request import Options

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operators.md"
TEXT = PAGE.read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r"<!-- (\w+) -->\n```python\n(.*?)```", TEXT, re.S))


@pytest.fixture(scope="module")
def scope(tmp_path_factory):
    """What all snippets leave behind, run one after the other as a reader does."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for name, code in SNIPPETS.items():
            exec(compile(code, f"{PAGE.name}: {name}", "exec"), found)
        found["files"] = [path.name for path in Path().iterdir()]
    return found


def test_every_snippet_runs(scope, capsys):
    assert len(SNIPPETS) == TEXT.count("```python") == 6
    assert scope["files"] == ["flash_attention_trace.json"]


def test_the_snippets_give_what_the_page_says(scope):
    assert scope["both_sides"].skipped_fraction == pytest.approx(0.766, abs=0.01)
    assert scope["found"].overflows  # blocks of 256 on an Ascend 910
    whole = ge.ops.flash_attention(scope["query"], scope["key"], scope["value"], 8)
    assert_same(scope["heads"].out, whole)
    assert scope["kv_cache"].usage().sharing > 1.5
    kv = [np.concatenate([a, a[:, :3]], axis=1) for a in (scope["key"], scope["value"])]
    last = ge.ops.flash_attention(scope["query"][:, :1], *kv, 8)
    assert_same(scope["step"], last)
    assert len(scope["prof"].events()) == 2


def test_names_of_the_page_are_there():
    for layout in LAYOUTS:
        assert f"`{layout}`" in TEXT
    words = {field.name for field in fields(Options)} | {f.name for f in fields(AttentionCounters)}
    words |= {n for n in dir(AttentionCounters) if not n.startswith("_")} | set(ge.ops.__all__)
    rows = re.findall(r"^\| `(\w+)` \| ", TEXT, re.M)
    assert set(rows) - set(LAYOUTS) <= words
    for name in re.findall(r"\]\(\.\./(\S+?)\)", TEXT):
        assert (PAGE.parents[1] / name).exists()
