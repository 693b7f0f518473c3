"""What is fused does not depend on names, orders, no-ops, or whether sizes are known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attention_help import AttentionMaker, assert_close, fuse, random_feeds, run
from hypothesis import given, settings
from hypothesis import strategies as st
from metamorphic import TRANSFORMATIONS, rerouted

from gecompiler.ir import Graph, parse
from gecompiler.ir.bind import bind
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.importer import load_onnx
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.attention.site import AttentionSite

Transformation = Callable[[Graph, random.Random], Graph]


def facts(site: AttentionSite) -> tuple[Any, ...]:
    """All that a report says of a site but its name."""
    scale = None if site.scale is None else round(site.scale, 6)
    sizes = (str(site.head_dim), str(site.v_head_dim))
    return (
        site.fused,
        site.q_heads,
        site.kv_heads,
        *sizes,
        scale,
        site.softcap,
        site.mask,
        site.window,
        site.proven,
        site.kv_cache,
    )


@pytest.mark.parametrize("change", TRANSFORMATIONS, ids=lambda f: f.__name__)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_graph_that_looks_different_fuses_alike(change: Transformation, seed: int) -> None:
    maker = AttentionMaker(seed)
    if change is rerouted and 1 in maker.sizes.values():
        return  # then the canonical form has views that no longer tell the axes apart
    source = parse(maker.text)
    infer_types(source)
    plain, other = source.copy(), change(source, random.Random(seed))
    if change is rerouted:  # detours are for the canonical form to straighten
        Pipeline.parse("canonicalize").run(other, PassContext())
    feeds = random_feeds(source, maker.sizes)
    expected = run(other, feeds)
    assert [facts(s) for s in fuse(plain)] == [facts(s) for s in fuse(other)]
    rough = "10000" in maker.text
    assert_close(expected, run(other, feeds), 3e-3 if rough else 2e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_known_sizes_fuse_like_symbols(seed: int) -> None:
    maker = AttentionMaker(seed, static=False)
    if 1 in maker.sizes.values():  # there a bound on keys may turn out to hold always
        return
    symbolic = parse(maker.text)
    infer_types(symbolic)
    static = bind(symbolic, maker.sizes)
    (loose,), (tight,) = fuse(symbolic), fuse(static)
    assert facts(loose)[:7] == facts(tight)[:7]
    # With numbers more can be proven: that every row keeps a key, say.
    if loose.mask not in ("additive", "boolean"):
        assert facts(loose) == facts(tight)


CORPUS = [
    "llama-sdpa-ts",
    "gpt2-eager-ts",
    "bloom-eager-dynamo",
    "t5-eager-dyn23",
    "whisper-sdpa-dyn23",
    "llama-decode-sdpa-ts",
    "gemma2-eager-dyn23",
    "swin-eager-ts",
    "deepseekv3-sdpa-dynamo",
]


@pytest.mark.parametrize("change", TRANSFORMATIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", CORPUS)
def test_real_exports_fuse_alike(corpus: Path, name: str, change: Transformation) -> None:
    source = load_onnx(corpus / "models" / f"{name}.onnx")
    infer_types(source)
    other = change(source, random.Random(7))
    if change is rerouted:
        for graph in (source, other):
            Pipeline.parse("canonicalize").run(graph, PassContext())
    expected = Counter(facts(s) for s in fuse(source))
    assert Counter(facts(s) for s in fuse(other)) == expected
    assert all(found[0] for found in expected)
