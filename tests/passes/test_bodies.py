"""Passes go into the bodies of If, Loop and Scan, and what they compute stays the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir.bind import bind
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.importer import load_onnx
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.bodies import rewrite_all, rewrite_bodies

WEIGHTS = "float[32] w = {" + ",".join(f"{0.5 + i / 32:.4f}" for i in range(32)) + "}"
NUMBERS = f"{WEIGHTS}, float eps = {{1e-5}}, float two = {{2.0}}"
NORM = """
    sq = Pow(h, two)
    mean = ReduceMean<axes=[-1]>(sq)
    s = Add(mean, eps)
    r = Sqrt(s)
    q = Div(h, r)
    k = Mul(q, w)
    sig = Sigmoid(k)
    o = Mul(k, sig)
"""
FORMS = {
    "Loop": f"""(float[2,8,32] x, int64 n, bool c) => (float[2,8,32] y) <{NUMBERS}> {{
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[2,8,32] h)
            => (bool co, float[2,8,32] o) {{ co = Identity(ci) {NORM} }}>
    }}""",
    "If": f"""(float[2,8,32] x, bool c) => (float[2,8,32] y) <{NUMBERS}> {{
        h = Neg(x)
        y = If(c) <then_branch = a () => (float[2,8,32] o) {{ {NORM} }},
            else_branch = b () => (float[2,8,32] e) {{ e = Add(h, h) }}>
    }}""",
    "Scan": f"""(float[2,8,32] x) => (float[2,8,32] z) <{NUMBERS}> {{
        z = Scan <num_scan_inputs = 1, body = b (float[8,32] h) => (float[8,32] o)
            {{ {NORM} }}>(x)
    }}""",
    "If in Loop": f"""(float[2,8,32] x, int64 n, bool c) => (float[2,8,32] y) <{NUMBERS}> {{
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[2,8,32] h)
            => (bool co, float[2,8,32] p) {{
                co = Identity(ci)
                p = If(ci) <then_branch = t () => (float[2,8,32] o) {{ {NORM} }},
                    else_branch = f () => (float[2,8,32] e) {{ e = Neg(h) }}>
            }}>
    }}""",
}


def imported(text: str, tmp_path) -> Graph:
    import onnx

    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> m {text}')
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return load_onnx(path)


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    x = np.random.default_rng(3).standard_normal((2, 8, 32)).astype(np.float32)
    known = {"x": x, "n": np.array(2, np.int64), "c": np.array(True)}
    return {name: known[name] for name in graph.inputs}


def ran(graph: Graph) -> list[np.ndarray]:
    infer_types(graph)
    return list(run_reference(bind(graph, {}), feeds_of(graph)).values())


def kinds_within(graph: Graph) -> list[str]:
    found = []
    for op in graph.ops:
        for body in op.bodies if op.attrs else ():
            found += [*(o.kind for o in body.ops), *kinds_within(body)]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_block_fusion_enters_bodies_and_knows_the_constants_around_them(form, tmp_path):
    graph = imported(FORMS[form], tmp_path)
    expected = ran(graph)
    Pipeline.parse("canonicalize,fuse-block,canonicalize").run(graph, PassContext(Diagnostics()))
    graph.verify()
    kinds = kinds_within(graph)
    assert kinds.count("gecompiler.RMSNorm") == kinds.count("gecompiler.Silu") == 1
    assert not {"Pow", "Sqrt", "Sigmoid"} & set(kinds)
    np.testing.assert_allclose(ran(graph)[0], expected[0], rtol=2e-6, atol=2e-6)


def test_a_body_stops_taking_what_it_no_longer_reads_and_no_weight_is_copied(tmp_path):
    graph = imported(FORMS["Loop"], tmp_path)
    Pipeline.parse("fuse-block").run(graph, PassContext(Diagnostics()))
    (body,) = graph.ops[-1].bodies
    assert body.outer == ("w",)
    assert not body.constants


def test_fused_bodies_are_written_out_again(tmp_path):
    graph = imported(FORMS["Loop"], tmp_path)
    expected = ran(graph)
    Pipeline.parse("fuse-block,expand-fused").run(graph, PassContext(Diagnostics()))
    assert not any("gecompiler" in kind for kind in kinds_within(graph))
    np.testing.assert_allclose(ran(graph)[0], expected[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "body", "gone"),
    [
        ("no-op-removal", "a = Identity(h) o = Neg(a)", "Identity"),
        ("transpose-merging", "a = Transpose(h) d = Transpose(a) o = Neg(d)", "Transpose"),
        ("dead-code", "a = Exp(h) o = Neg(h)", "Exp"),
        ("inference-mode", "a = Dropout(h) o = Neg(a)", "Dropout"),
        (
            "constant-folding",
            "a = Constant<value_float = 2.0>() d = Exp(a) o = Mul(h, d)",
            "Exp",
        ),
        ("reshape-merging", "a = Flatten(h) d = Flatten(a) o = Neg(d)", "Flatten"),
    ],
)
def test_each_pass_enters_bodies(name, body, gone, tmp_path):
    text = f"""(float[2,8,32] x) => (float[2,8,32] z) {{
        z = Scan <num_scan_inputs = 1, body = b (float[8,32] h) => (float[8,32] o)
            {{ {body} }}>(x)
    }}"""
    graph = imported(text, tmp_path)
    expected = ran(graph)
    Pipeline.parse(name).run(graph, PassContext(Diagnostics()))
    assert gone not in kinds_within(graph)
    np.testing.assert_array_equal(ran(graph)[0], expected[0])


def test_equal_ops_of_a_body_are_merged_there(tmp_path):
    text = """(float[2,8,32] x) => (float[2,8,32] z) {
        z = Scan <num_scan_inputs = 1, body = b (float[8,32] h) => (float[8,32] o)
            { a = Exp(h) d = Exp(h) o = Add(a, d) }>(x)
    }"""
    graph = imported(text, tmp_path)
    Pipeline.parse("common-subexpressions").run(graph, PassContext(Diagnostics()))
    assert kinds_within(graph).count("Exp") == 1


def test_a_lent_constant_that_becomes_an_output_stays(tmp_path):
    text = """(float[2] x, bool c) => (float[2] y) <float[2] w = {1.0, 2.0}> {
        y = If(c) <then_branch = a () => (float[2] o) { v = Neg(w) o = Neg(v) },
            else_branch = b () => (float[2] e) { e = Neg(x) }>
    }"""
    graph = imported(text, tmp_path)

    def hand_out(body: Graph) -> int:
        names = list(body.constants)
        if not names:
            return 0
        body.set_outputs([names[0]])
        return 1

    assert rewrite_bodies(graph, hand_out, lend=True) == 1
    graph.verify()
    (then, other) = graph.ops[-1].bodies
    assert then.constant(then.outputs[0]) is not None
    assert "w" in then.outer
    assert not other.constants


def test_every_body_is_seen_once_after_what_it_lies_in(tmp_path):
    graph = imported(FORMS["If in Loop"], tmp_path)
    seen: list[int] = []
    assert rewrite_all(graph, lambda part: seen.append(len(part)) or 0) == 0
    assert len(seen) == 4
    assert seen[0] == len(graph)


def test_attention_in_a_body_is_fused_with_a_scale_from_around_it(tmp_path):
    text = """(float[2,4,8,16] x) => (float[2,4,8,16] z) <float scale = {0.25}> {
        z = Scan <num_scan_inputs = 1, body = b (float[4,8,16] h) => (float[4,8,16] o) {
            k = Transpose<perm = [0,2,1]>(h)
            q = Mul(h, scale)
            s = MatMul(q, k)
            p = Softmax<axis = -1>(s)
            o = MatMul(p, h)
        }>(x)
    }"""
    graph = imported(text, tmp_path)
    x = np.random.default_rng(5).standard_normal((2, 4, 8, 16)).astype(np.float32)
    infer_types(graph)
    (expected,) = run_reference(bind(graph, {}), {"x": x}).values()
    context = PassContext(Diagnostics())
    Pipeline.parse("canonicalize,fuse-attention,canonicalize").run(graph, context)
    graph.verify()
    kinds = kinds_within(graph)
    assert "gecompiler.FlashAttention" in kinds
    assert "Softmax" not in kinds
    (found,) = run_reference(bind(graph, {}), {"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
