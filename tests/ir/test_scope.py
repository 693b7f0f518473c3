"""Scopes and the names people use for the parts of a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from gecompiler.ir import Graph, load_onnx
from gecompiler.ir.scope import (
    common_scope,
    group_of,
    scope_of_metadata,
    scope_of_name,
    scope_of_parameter,
)


@pytest.mark.parametrize(
    ("scope", "group"),
    [
        ("/model/layers.0/self_attn/q_proj", "Attention q"),
        ("model.layers.0.self_attn.k_proj", "Attention k"),
        ("model.layers.0.self_attn.v_proj.base_layer", "Attention v"),
        ("/model/layers.0/self_attn/o_proj", "Attention o"),
        ("/model/layers.0/self_attn", "Attention"),
        ("/model/layers.0/self_attn/q_norm", "LayerNorm"),
        ("/model/layers.0/self_attn/kv_a_proj_with_mqa", "Attention kv"),
        ("/model/layers.0/mlp/gate_proj", "MLP gate"),
        ("/model/layers.0/mlp/up_proj", "MLP up"),
        ("/model/layers.0/mlp/down_proj", "MLP down"),
        ("/model/layers.0/mlp/act_fn", "MLP act"),
        ("/model/layers.0/mlp/gate_up_proj", "MLP gate up"),
        ("/model/layers.0/mlp", "MLP"),
        ("/model/layers.0/mlp/norm", "MLP norm"),
        ("/model/layers.0/mlp/experts.3/w1", "MLP gate"),
        ("/model/layers.0/mlp/gate", "MLP router"),
        ("/model/layers.0/mlp/anything", "MLP"),
        ("/model/layers.0/input_layernorm", "LayerNorm"),
        ("/model/layers.0/mlp_norm", "LayerNorm"),
        ("/model/layers.0", ""),
        ("/model/norm", "LayerNorm"),
        ("/lm_head", "LM head"),
        ("/model/embed_tokens", "Embedding"),
        ("/model/rotary_emb", "Rotary"),
        ("/transformer/h.0/attn/c_attn", "Attention qkv"),
        ("/transformer/h.0/attn/c_proj", "Attention o"),
        ("/transformer/h.0/mlp/c_fc", "MLP up"),
        ("/transformer/h.0/mlp/c_proj", "MLP down"),
        ("/transformer/h.0/ln_1", "LayerNorm"),
        ("/transformer/ln_f", "LayerNorm"),
        ("/transformer/wte", "Embedding"),
        ("/bert/encoder/layer.0/attention/self/query", "Attention q"),
        ("/bert/encoder/layer.0/attention/output/dense", "Attention o"),
        ("/bert/encoder/layer.0/attention/output/LayerNorm", "LayerNorm"),
        ("/bert/encoder/layer.0/intermediate/dense", "MLP up"),
        ("/bert/encoder/layer.0/output/dense", "MLP down"),
        ("/bert/encoder/layer.0/output/LayerNorm", "LayerNorm"),
        ("/cls/predictions/decoder", "LM head"),
        ("/decoder/block.0/layer.1/EncDecAttention/k", "Attention k"),
        ("/decoder/block.0/layer.2/DenseReluDense/wi", "MLP up"),
        ("/decoder/block.0/layer.2/DenseReluDense/wi_0", "MLP gate"),
        ("/decoder/block.0/layer.2/DenseReluDense/wo", "MLP down"),
        ("/decoder/layers.0/fc1", "MLP up"),
        ("/decoder/layers.0/activation_fn", "MLP act"),
        ("/distilbert/transformer/layer.0/ffn/lin2", "MLP down"),
        ("/features/norm5", "LayerNorm"),
        ("/features/batchnorm1", "BatchNorm"),
        ("/conv1", ""),
        ("", ""),
    ],
)
def test_groups(scope: str, group: str) -> None:
    assert group_of(scope) == group
    assert group_of("m." + scope.strip("/").replace("/", ".")) == group


PARTS = ["a", "q_proj", "norm", "gate", "act_fn", "dense", "self_attn", "0", "wo"]


@given(st.lists(st.sampled_from(PARTS), max_size=4))
def test_everything_inside_an_mlp_is_called_mlp(parts: list[str]) -> None:
    if "self_attn" not in parts:
        assert group_of("/".join(["model", "mlp", *parts])).startswith("MLP")


def test_the_op_type_tells_tied_projections_and_activations() -> None:
    assert group_of("model.embed_tokens", "MatMul") == "LM head"
    assert group_of("model.embed_tokens", "Gather") == "Embedding"
    assert group_of("model.layers.0.mlp", "Sigmoid") == "MLP act"
    assert group_of("model.layers.0.mlp", "Mul") == "MLP"


def test_scopes_in_names() -> None:
    assert scope_of_name("/model/layers.0/mlp/Mul_1") == "/model/layers.0/mlp"
    assert scope_of_name("node_linear_3") == ""
    assert scope_of_parameter("m.layers.0.mlp.up_proj.weight") == "m.layers.0.mlp.up_proj"
    assert scope_of_parameter("m.rotary_emb.inv_freq") == "m.rotary_emb"
    assert scope_of_parameter("onnx::MatMul_12") == ""
    assert scope_of_parameter("val_12") == ""
    assert scope_of_parameter("weight") == ""


def test_scopes_in_metadata() -> None:
    names = "['', 'model', 'model.layers.0', 'model.layers.0.mlp', 'linear']"
    assert scope_of_metadata({"pkg.torch.onnx.name_scopes": names}) == "model.layers.0.mlp"
    namespace = ": M/model.layers.0: Layer/model.layers.0.mlp: Mlp/linear: aten.linear.default"
    assert scope_of_metadata({"namespace": namespace}) == "model.layers.0.mlp"
    assert scope_of_metadata({"namespace": "encoder/block/MatMul"}) == "encoder/block"
    assert scope_of_metadata({}) == ""
    for hostile in ("__import__('os')", "[" * 5000, "[1, 2]", "{'a': 1}", "['only']"):
        assert scope_of_metadata({"pkg.torch.onnx.name_scopes": hostile}) == ""


PATHS = st.lists(st.sampled_from(["a", "b", "layers.0", "layers.1", "mlp"]), max_size=5)


@given(PATHS, PATHS, PATHS)
def test_common_scope_is_a_common_prefix(head: list[str], a: list[str], b: list[str]) -> None:
    first, second = "/" + "/".join(head + a), "/" + "/".join(head + b)
    found = common_scope(first, second)
    assert first.startswith(found)
    assert second.startswith(found)
    assert common_scope(second, first) == found
    assert len(found) >= len("/".join(["", *head])) or not head
    assert common_scope(first, first) == first


# ---------------------------------------------------------------- inference from neighbours


def layer() -> Graph:
    """A layer as torch.export spells it: only parameters carry names."""
    weights = {
        "norm": "m.layers.0.input_layernorm.weight",
        "q": "m.layers.0.self_attn.q_proj.weight",
        "k": "m.layers.0.self_attn.k_proj.weight",
        "o": "m.layers.0.self_attn.o_proj.weight",
        "gate": "m.layers.0.mlp.gate_proj.weight",
        "up": "m.layers.0.mlp.up_proj.weight",
        "down": "m.layers.0.mlp.down_proj.weight",
        "post": "m.layers.0.post_attention_layernorm.weight",
        "embed": "m.embed_tokens.weight",
    }
    text = """<ir_version: 8, opset_import: ["": 20]>
    g (int64[s] ids) => (float[s, 8] logits)
    <float[8, 4] embed, float[4] norm, float[4, 4] q, float[4, 4] k, float[4, 4] o,
     float[6, 4] gate, float[6, 4] up, float[4, 6] down, float[4] post> {
        x = Gather(embed, ids)
        two = Constant <value_float = 2.0> ()
        sq = Pow(x, two)
        ax = Constant <value_ints = [-1]> ()
        mean = ReduceMean(sq, ax)
        root = Sqrt(mean)
        xn = Div(x, root)
        h = Mul(xn, norm)
        qt = Transpose <perm = [1, 0]> (q)
        qh = MatMul(h, qt)
        kt = Transpose <perm = [1, 0]> (k)
        kh = MatMul(h, kt)
        kk = Transpose <perm = [1, 0]> (kh)
        scores = MatMul(qh, kk)
        p = Softmax(scores)
        ctx = MatMul(p, h)
        ot = Transpose <perm = [1, 0]> (o)
        oh = MatMul(ctx, ot)
        r = Add(x, oh)
        h2 = LayerNormalization(r, post)
        gt = Transpose <perm = [1, 0]> (gate)
        gh = MatMul(h2, gt)
        sig = Sigmoid(gh)
        silu = Mul(gh, sig)
        ut = Transpose <perm = [1, 0]> (up)
        uh = MatMul(h2, ut)
        prod = Mul(silu, uh)
        dt = Transpose <perm = [1, 0]> (down)
        dh = MatMul(prod, dt)
        et = Transpose <perm = [1, 0]> (embed)
        logits = MatMul(dh, et)
    }"""
    proto = parser.parse_model(text)
    for info in proto.graph.value_info:
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        proto.graph.initializer.add(name=weights[info.name], dims=dims, data_type=1)
    del proto.graph.value_info[:]
    for node in proto.graph.node:
        for slot, name in enumerate(node.input):
            node.input[slot] = weights.get(name, name)
    for node in proto.graph.node:
        node.name = f"node_{node.output[0]}"
    return load_onnx(proto)


def test_parameters_and_neighbours_place_every_op() -> None:
    graph = layer()
    groups = {op.outputs[0]: op.info.group for op in graph.ops}
    assert groups == {
        "x": "Embedding",
        **dict.fromkeys(("sq", "mean", "root", "xn", "h"), "LayerNorm"),
        **dict.fromkeys(("qt", "qh"), "Attention q"),
        **dict.fromkeys(("kt", "kh"), "Attention k"),
        **dict.fromkeys(("kk", "scores", "p", "ctx"), "Attention"),
        **dict.fromkeys(("ot", "oh"), "Attention o"),
        "r": "",
        "h2": "LayerNorm",
        **dict.fromkeys(("gt", "gh"), "MLP gate"),
        "sig": "MLP act",
        "silu": "MLP",
        **dict.fromkeys(("ut", "uh"), "MLP up"),
        "prod": "MLP",
        **dict.fromkeys(("dt", "dh"), "MLP down"),
        "et": "LM head",
        "logits": "LM head",
    }
    scopes = {op.outputs[0]: op.info.scope for op in graph.ops}
    assert scopes["scores"] == "m.layers.0.self_attn"
    assert scopes["silu"] == "m.layers.0.mlp"
    assert scopes["r"] == "m.layers.0"
    assert scopes["sq"] == "m.layers.0.input_layernorm"


def test_a_parameter_that_modules_share_misleads_nobody() -> None:
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 4] x) => (float[2, 4] y) {
        a = Add(x, bias)
        b = Add(a, bias)
        y = Add(b, bias)
    }""")
    name = "m.layers.0.self_attn.v_proj.bias"
    proto.graph.initializer.add(name=name, dims=[4], data_type=1)
    for node in proto.graph.node:
        node.input[1] = name
    assert {(op.info.scope, op.info.group) for op in load_onnx(proto).ops} == {("", "")}


def test_a_folded_weight_is_placed_by_its_bias() -> None:
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 4] x) => (float[2, 4] y) { t = MatMul(x, w) y = Add(t, b) }""")
    proto.graph.initializer.add(name="val_41", dims=[4, 4], data_type=1)
    proto.graph.initializer.add(name="m.mlp.fc1.bias", dims=[4], data_type=1)
    proto.graph.node[0].input[1] = "val_41"
    proto.graph.node[1].input[1] = "m.mlp.fc1.bias"
    assert [op.info.group for op in load_onnx(proto).ops] == ["MLP up", "MLP up"]


def test_names_of_torchscript_nodes_are_scopes(corpus: Path) -> None:
    graph = load_onnx(corpus / "models" / "llama-eager-ts.onnx")
    linear = {op.info.scope: op.info.group for op in graph.ops if op.op_type == "MatMul"}
    for layer_ in (0, 1):
        root = f"/m/model/layers.{layer_}"
        assert linear[f"{root}/self_attn/q_proj"] == "Attention q"
        assert linear[f"{root}/self_attn/o_proj"] == "Attention o"
        assert linear[f"{root}/mlp/gate_proj"] == "MLP gate"
        assert linear[f"{root}/mlp/down_proj"] == "MLP down"
    assert linear["/m/lm_head"] == "LM head"


def test_the_real_size_export_has_all_its_groups(corpus: Path) -> None:
    (path,) = (corpus / "models_real_size").glob("*.onnx")
    groups = [op.info.group for op in load_onnx(path).ops if op.op_type == "MatMul"]
    for name in ("Attention q", "Attention k", "Attention v", "Attention o"):
        assert groups.count(name) == 32
    for name in ("MLP gate", "MLP up", "MLP down"):
        assert groups.count(name) == 32
    assert groups.count("LM head") == 1
    assert groups.count("Attention") == 64  # scores and output
