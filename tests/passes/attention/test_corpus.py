"""Real exports and single cases: every attention fused, as listed, and the numbers right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from attention_help import CORPUS, fuse, run

from gecompiler.ir import Graph
from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.importer import load_onnx
from gecompiler.passes.attention.site import AttentionSite
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.pass_base import PassContext

Entry = dict[str, Any]


def listed(file: Path) -> Any:
    return yaml.safe_load(file.read_text()) if file.is_file() else {}


MANIFEST: dict[str, Entry] = listed(CORPUS / "models" / "manifest.yaml") if CORPUS else {}
CASES: list[Entry] = listed(CORPUS / "cases" / "attention" / "cases.yaml") if CORPUS else []

WRONG_IN_MANIFEST = {("deepseekv3", "v_head_dim")}
"""The file has values of size 8 (V is (3, 4, 10, 8)), the manifest says 5."""


def check_site(name: str, entry: Entry, site: AttentionSite) -> None:
    assert site.fused, site.reason
    for key in ("q_heads", "kv_heads", "head_dim", "v_head_dim", "kv_cache"):
        if key in entry and (name.split("-", maxsplit=1)[0], key) not in WRONG_IN_MANIFEST:
            assert getattr(site, key) == entry[key], key
    if "scale" in entry:
        assert site.scale == pytest.approx(entry["scale"], abs=1e-5)
    assert site.softcap == (pytest.approx(entry["softcap"]) if "softcap" in entry else None)


def check_numbers(graph: Graph, path: Path) -> None:
    feeds = dict(np.load(path.with_suffix(".inputs.npz")))
    expected = dict(np.load(path.with_suffix(".outputs.npz")))
    for name, found in run(graph, feeds).items():
        half = found.dtype == np.float16
        np.testing.assert_allclose(
            found, expected[name], atol=2e-3 if half else 1e-4, rtol=1e-3, equal_nan=True
        )


LARGE = "llama32l"
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name.startswith(LARGE) else name
    for name in sorted(MANIFEST)
]


@pytest.mark.parametrize("name", NAMES)
def test_every_attention_of_a_real_export(corpus: Path, name: str) -> None:
    entry, path = MANIFEST[name], corpus / "models" / f"{name}.onnx"
    if "invalid" in entry:
        with pytest.raises(ModelError):
            load_onnx(path)
        return
    for canonical in (False, True):
        graph = load_onnx(path)
        if canonical:
            Canonicalize().run(graph, PassContext())
        sites = fuse(graph)
        assert len(sites) == entry["sites"]
        for site in sites:
            check_site(name, entry, site)
        # Tables that hold zeros vanish in canonical form: Swin's, which are not trained.
        if not (canonical and name.startswith("swin")):
            assert sorted(str(s.mask) for s in sites) == sorted(entry["masks"])
    check_numbers(graph, path)


@pytest.mark.parametrize("entry", CASES, ids=lambda e: e["file"])
def test_every_single_case(corpus: Path, entry: Entry) -> None:
    path = corpus / "cases" / "attention" / f"{entry['file']}.onnx"
    graph = load_onnx(path)
    (site,) = fuse(graph)
    if entry["fuse"] != "either":
        assert site.fused == (entry["fuse"] == "yes"), site.reason
    assert site.fused or site.reason
    check_numbers(graph, path)
