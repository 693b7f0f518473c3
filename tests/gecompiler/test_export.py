"""What leaves: plain ONNX in the opset that was asked for, which compiles to the same again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import gecompiler as ge
from gecompiler.driver import Source, optimise
from gecompiler.export import save_model
from gecompiler.ir.errors import UsageError
from gecompiler.option_table import Options
from gecompiler.request import Request

ort.set_default_logger_severity(4)

QUICK = (
    *("bert-sdpa-ts", "deepseekv3-sdpa-dynamo", "gemma2-eager-dynamo", "gpt2-sdpa-dynamo"),
    *("llama-decode-eager-dyn23", "llama-sdpa-dyn23", "swin-eager-dynamo", "t5-eager-dynamo"),
    *("fp16_with_fp32_softmax_upcast", "sink_logits_gpt_oss_concat_softmax_slice"),
)
BUILT_IN = ("llama-7b",)
TARGETS = (17, 18, 21, 23)


def sites(source: Source) -> Counter[tuple[Any, ...]]:
    """What there is of attention, whatever its order and names."""
    return Counter(
        (s.fused, s.q_heads, s.kv_heads, str(s.head_dim), str(s.v_head_dim),
         None if s.scale is None else round(s.scale, 5), s.softcap, s.mask, s.window, s.proven,
         s.kv_cache)
        for s in source.sites
    )  # fmt: skip


def found(corpus: Path, name: str) -> Path:
    """A model or a case."""
    return next(corpus.glob(f"[mc]*/**/{name}.onnx"))


def compiled_twice(model: Any, folder: Path) -> tuple[Source, Source]:
    once = optimise(Request(model))
    save_model(once.graph, folder / "once.onnx")
    return once, optimise(Request(str(folder / "once.onnx")))


def assert_same_structure(once: Source, twice: Source) -> None:
    assert sites(once) == sites(twice)
    assert abs(len(once.graph) - len(twice.graph)) <= 0.02 * len(once.graph)


@pytest.mark.parametrize("name", QUICK)
def test_an_export_compiles_to_the_same_again(corpus: Path, name: str, tmp_path: Path) -> None:
    assert_same_structure(*compiled_twice(str(found(corpus, name)), tmp_path))


@pytest.mark.slow
def test_all_exports_compile_to_the_same_again(corpus_model: Path, tmp_path: Path) -> None:
    assert_same_structure(*compiled_twice(str(corpus_model), tmp_path))


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_models_too(name: str, tmp_path: Path) -> None:
    assert_same_structure(*compiled_twice(name, tmp_path))


def assert_right_in_every_opset(path: Path, folder: Path) -> None:
    source = optimise(Request(str(path)))
    given = dict(np.load(path.with_suffix(".inputs.npz")))
    expected = dict(np.load(path.with_suffix(".outputs.npz")))
    for target in TARGETS:
        save_model(source.graph, folder / "model.onnx", target)
        model = onnx.load(folder / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert {o.domain: o.version for o in model.opset_import}[""] == target
        session = ort.InferenceSession(model.SerializeToString())
        feeds = {i.name: given[i.name] for i in session.get_inputs()}
        for output, got in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            wanted = expected[output.name]
            half = wanted.dtype == np.float16
            np.testing.assert_allclose(
                got.astype(np.float64),
                wanted.astype(np.float64),
                rtol=1e-2 if half else 1e-3,
                atol=1e-2 if half else 2e-4,
            )


@pytest.mark.parametrize("name", QUICK)
def test_numbers_in_every_opset(corpus: Path, name: str, tmp_path: Path) -> None:
    assert_right_in_every_opset(found(corpus, name), tmp_path)


@pytest.mark.slow
def test_all_numbers_in_every_opset(corpus_model: Path, tmp_path: Path) -> None:
    assert_right_in_every_opset(corpus_model, tmp_path)


def test_the_option_reaches_the_saved_model(tiny_path: Path, tmp_path: Path) -> None:
    model = ge.compile(str(tiny_path), target_opset=17)
    model.save(tmp_path / "out")
    saved = onnx.load(tmp_path / "out" / "model.onnx")
    assert {o.domain: o.version for o in saved.opset_import}[""] == 17


@pytest.mark.parametrize("value", [6, 1000, "x", True, 17.5])
def test_an_opset_that_is_none_is_told(value: Any) -> None:
    with pytest.raises(UsageError, match=r"a version of ai\.onnx from 7"):
        Options({"target_opset": value})


@pytest.mark.parametrize("value", ["maybe", 3, None])
def test_a_check_is_asked_for_or_not(value: Any) -> None:
    with pytest.raises(UsageError, match="true or false"):
        Options({"check_fusions": value})


def test_a_checked_compilation_is_the_same(tiny_path: Path) -> None:
    plain, checked = ge.compile(str(tiny_path)), ge.compile(str(tiny_path), check=True)
    assert str(checked.symbolic_graph) == str(plain.symbolic_graph)
    assert checked.as_dict() == plain.as_dict()


def test_a_wrong_rule_is_undone_and_told(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from gecompiler.passes.attention import fuse

    right = fuse.decide

    def wrong(*args: Any) -> Any:
        plan = right(*args)
        return replace(plan, match=replace(plan.match, alpha=plan.match.alpha * 1.5))

    monkeypatch.setattr(fuse, "decide", wrong)
    report = ge.compile(str(tiny_path), check=True).as_dict()
    monkeypatch.undo()
    assert report["attention"]["fused"] == 0
    assert {s["status"] for s in report["attention"]["sites"]} == {"refused"}
    assert "undone by the check" in report["attention"]["sites"][0]["reason"]
    assert "fusion-undone" in {w["code"] for w in report["warnings"]}


@pytest.mark.parametrize("write", ["save", "save_html", "save_plot", "save_roofline"])
def test_the_model_is_never_replaced(write: str, tiny_path: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(tiny_path.read_bytes())
    compiled = ge.Session().compile(model)
    place = tmp_path / "link"
    place.symlink_to(tmp_path if write == "save" else model)
    with pytest.raises(UsageError, match="this is the model itself"):
        getattr(compiled, write)(place)
    assert model.read_bytes() == tiny_path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "model.onnx"]
