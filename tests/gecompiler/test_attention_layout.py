"""Whole models with and without the layout of attention: numbers, costs, schedules, exports."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gecompiler.attention_blocks import attention_of
from gecompiler.backends.device import load_device
from gecompiler.backends.execution.executor import run_reference
from gecompiler.compiled import CompiledModel
from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.option_table import Options
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.micro_batches.micro_batch import micro_batch
from gecompiler.passes.streams.op_flops import flops
from gecompiler.request import Request


def compiled(model: object, *, off: bool = False, **options: object) -> CompiledModel:
    names = ("attention-layout",) if off else ()
    values = {"device": "ascend910", "disable_passes": names, **options}
    return CompiledModel.compile(Request(model, batch=2, seq=32, options=Options(values)))


def kinds(graph: Graph) -> Counter[str]:
    return Counter(op.op_type for op in graph.ops)


@pytest.mark.parametrize("model", ["bert-base", "gpt2", "llama-7b"])
def test_models_pay_no_transposes_around_attention(model: str) -> None:
    one = {"num_streams": 1}
    new, old = compiled(model, **one), compiled(model, off=True, **one)
    assert kinds(new.graph)["Transpose"] == 0
    assert kinds(old.graph)["Transpose"] == 4 * kinds(old.graph)["FlashAttention"]
    assert kinds(new.graph)["FlashAttention"] == kinds(old.graph)["FlashAttention"]
    now, then = (m.as_dict()["schedule"]["makespan_us"] for m in (new, old))
    assert now < then
    assert new.as_dict()["attention"] == old.as_dict()["attention"]


TEXT = """graph @g (opset 18) {{
  input %x: f32[4, 6, 4, 8]
  input %k: f32[4, 6, 2, 8]
  input %v: f32[4, 6, 2, 8]
  input %c: f32[6, 8]
  input %s: f32[6, 8]
  %qt = Transpose(%x) {{perm = [0, 2, 1, 3]}}
  %q = gecompiler.RotaryEmbedding(%qt, %c, %s) {{dim = 8}}
  %kt = Transpose(%k) {{perm = [0, 2, 1, 3]}}
  %vt = Transpose(%v) {{perm = [0, 2, 1, 3]}}
  %o = gecompiler.FlashAttention(%q, {keys}) {{
    scale = 0.4, q_heads = 4, kv_heads = 2, window_right = 0}}
  %ot = Transpose(%o) {{perm = [0, 2, 1, 3]}}
  return %ot
}}"""


def laid_out(keys: str = "%kt, %vt") -> tuple[Graph, Graph]:
    """The graph as it is, and with the layout that the pass chooses."""
    text = TEXT.format(keys=keys)
    if keys != "%kt, %vt":
        text = text.replace("input %c:", "input %kn: f32[4, 2, 6, 8]\n input %c:")
    plain, graph = parse(text), parse(text)
    infer_types(plain)
    Pipeline.parse("attention-layout").run(graph, PassContext())
    return plain, graph


def attention(graph: Graph) -> object:
    return next(op for op in graph.ops if op.op_type == "FlashAttention")


@pytest.mark.parametrize("keys", ["%kt, %vt", "%kn, %vt"])
def test_the_layout_changes_neither_cost_nor_work(keys: str) -> None:
    device = load_device("ascend910")
    plain, graph = laid_out(keys)
    assert attention(graph).attr("layout") == ("BSND" if "kt" in keys else "BNSD_BSND")
    problems = [attention_of(g, attention(g)) for g in (plain, graph)]
    assert problems[0] == problems[1]
    costs = [device.demand(g, attention(g)) for g in (plain, graph)]
    assert costs[0] == costs[1]
    work = [flops(g, attention(g)) for g in (plain, graph)]
    assert work[0] == work[1] > 0


@pytest.mark.parametrize("keys", ["%kt, %vt", "%kn, %vt"])
@pytest.mark.parametrize("parts", [2, 4])
def test_a_batch_in_parts_keeps_every_number(keys: str, parts: int) -> None:
    plain, graph = laid_out(keys)
    draw = np.random.default_rng(0)
    feeds = {n: draw.normal(size=graph.tensor(n).sizes).astype(np.float32) for n in graph.inputs}
    wanted = run_reference(plain, feeds)["ot"]
    samples = [n for n in graph.inputs if n not in ("c", "s")]
    split = micro_batch(graph, parts, samples)
    made = getattr(split, "graph", split)
    assert kinds(made)["FlashAttention"] == parts
    np.testing.assert_allclose(run_reference(made, feeds)["ot"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [18, 23])
def test_exports_compile_to_the_same_attentions(opset: int, tmp_path: Path) -> None:
    plain, graph = laid_out()
    graph.opsets[""] = opset
    Pipeline.parse("expand-fused").run(graph, PassContext())
    graph.verify()
    assert all(op.domain != "gecompiler" for op in graph.ops)
    again = CompiledModel.compile(Request(to_onnx(graph), options=Options({"num_streams": 1})))
    sites = again.as_dict()["attention"]
    assert (sites["fused"], sites["refused"]) == (1, 0)
    assert kinds(again.graph)["Transpose"] == 0
    draw = np.random.default_rng(0)
    feeds = {n: draw.normal(size=plain.tensor(n).sizes).astype(np.float32) for n in plain.inputs}
    np.testing.assert_allclose(
        again.run(feeds)["ot"], run_reference(plain, feeds)["ot"], rtol=1e-5, atol=1e-5
    )
