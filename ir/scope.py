"""Module paths and the names people use for the parts of a model.

A *scope* is the path of the module an op came from, as its exporter wrote it:
``/model/layers.0/mlp/gate_proj`` (TorchScript node names) or
``model.layers.0.mlp.gate_proj`` (parameter names). A *group* is what people call that part:
``MLP gate``, ``Attention q``, ``LayerNorm``. Everything inside an MLP has a group that starts
with ``MLP``, everything inside an attention one that starts with ``Attention``, but for norms.

The tables below hold module names of the Hugging Face, timm, OpenAI and LLaMA code bases,
lower case. A new family of models is a new line in a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_ATTENTION = (
    "self_attn cross_attn encoder_attn attn attention self_attention cross_attention "
    "selfattention encdecattention crossattention attn1 attn2 multihead_attn inter_attention"
)
_MLP = (
    "mlp ffn feed_forward feedforward densereludense moe block_sparse_moe experts expert "
    "shared_expert shared_experts ff intermediate"
)

_CONTEXT: dict[str, str] = {
    **dict.fromkeys(_ATTENTION.split(), "Attention"),
    **dict.fromkeys(_MLP.split(), "MLP"),
}

_IN_ATTENTION: dict[str, str] = {
    name: group
    for group, names in {
        "Attention q": "q_proj query query_proj q_lin q wq to_q linear_q q_a_proj q_b_proj",
        "Attention k": "k_proj key key_proj k_lin k wk to_k linear_k",
        "Attention v": "v_proj value value_proj v_lin v wv to_v linear_v",
        "Attention kv": "kv_proj kv wkv to_kv kv_a_proj_with_mqa kv_b_proj",
        "Attention qkv": "qkv qkv_proj query_key_value c_attn wqkv in_proj w_pack to_qkv",
        "Attention o": "o_proj out_proj out_lin o wo to_out c_proj dense proj linear_out",
    }.items()
    for name in names.split()
}

_IN_MLP: dict[str, str] = {
    name: group
    for group, names in {
        "MLP gate": "gate_proj w1 wi_0 linear_gate",
        "MLP gate up": "gate_up_proj wi gate_up",
        "MLP up": "up_proj fc1 c_fc w3 wi_1 lin1 dense_h_to_4h fc_in linear1 linear_fc1 dense",
        "MLP down": "down_proj fc2 c_proj w2 wo lin2 dense_4h_to_h fc_out linear2 linear_fc2",
        "MLP act": "act act_fn activation activation_fn gelu gelu_impl silu relu "
        "intermediate_act_fn act_fct",
        "MLP router": "gate router",
    }.items()
    for name in names.split()
}
_IN_MLP_UNGATED = {"wi": "MLP up"}  # T5: DenseReluDense.wi; ModernBERT's mlp.Wi holds both

_ANYWHERE: dict[str, str] = {
    name: group
    for group, names in {
        "Attention q": "q_proj q_lin",
        "Attention k": "k_proj k_lin",
        "Attention v": "v_proj v_lin",
        "Attention qkv": "qkv_proj query_key_value c_attn wqkv",
        "Attention o": "o_proj out_lin",
        "MLP gate": "gate_proj",
        "MLP gate up": "gate_up_proj",
        "MLP up": "up_proj fc1 c_fc dense_h_to_4h",
        "MLP down": "down_proj fc2 dense_4h_to_h",
        "LM head": "lm_head embed_out proj_out vocab_projector output_projection",
        "Embedding": "embed embeddings embed_tokens wte wpe embed_in embed_positions shared "
        "word_embeddings position_embeddings token_type_embeddings tok_embeddings patch_embed "
        "patch_embeddings token_embedding position_embedding embedding",
        "Rotary": "rotary_emb rotary rope rotary_embedding rotary_pos_emb",
        "Pooler": "pooler",
        "Classifier": "classifier score qa_outputs",
    }.items()
    for name in names.split()
}

_ACTIVATIONS = frozenset(
    ["Relu", "Gelu", "Sigmoid", "Swish", "HardSwish", "Tanh", "Erf", "Elu", "Mish", "Softplus"]
)
_NORM = re.compile(r"norm\d*[a-z]?$|^ln(_|\d|$)|(^|_)norm(_|\d|$)")
_OTHER_NORMS = {"batch": "BatchNorm", "group": "GroupNorm", "instance": "InstanceNorm"}
_LAYER_ACTIVATION = frozenset(("activation_fn", "act_fn", "act"))


@lru_cache(maxsize=8192)
def group_of(scope: str, op_type: str = "") -> str:
    """The group of an op from its scope; ``""`` where no name of the tables occurs in it.

    The name nearest to the end of the path decides. ``op_type`` tells a tied output
    projection from the embedding whose weight it reads, and the activation within an MLP.
    """
    parts = [p for p in re.split(r"[/.]", scope.lower()) if p]
    found = _group(parts)
    if found == "Embedding" and op_type in ("MatMul", "Gemm"):
        return "LM head"
    return "MLP act" if found == "MLP" and op_type in _ACTIVATIONS else found


def _group(parts: Sequence[str]) -> str:
    context = next((_CONTEXT[p] for p in reversed(parts) if p in _CONTEXT), "")
    if not context and tuple(parts[-2:]) == ("output", "dense"):
        return "MLP down"  # BERT: layer.0.output.dense, beside layer.0.intermediate.dense
    for part in reversed(parts):
        group = _group_of_part(part, context, parts)
        if group:
            return group
    return context


def _group_of_part(part: str, context: str, parts: Sequence[str]) -> str:
    if _NORM.search(part):
        other = next((g for kind, g in _OTHER_NORMS.items() if part.startswith(kind)), "")
        return "MLP norm" if context == "MLP" else other or "LayerNorm"
    if context == "MLP":
        if "densereludense" in parts and part in _IN_MLP_UNGATED:
            return _IN_MLP_UNGATED[part]
        return _IN_MLP.get(part, "")
    if context == "Attention":
        return _IN_ATTENTION.get(part, "")
    if part in _LAYER_ACTIVATION and "layers" in parts:
        return "MLP act"  # OPT and Whisper keep fc1 and fc2 in the layer itself
    if part == "decoder" and "predictions" in parts:
        return "LM head"
    return _ANYWHERE.get(part, "")


def scope_of_name(name: str) -> str:
    """The scope in a node's name (``/model/layers.0/mlp/Mul_1``), ``""`` where it has none."""
    return name.rpartition("/")[0]


_PARAMETER = re.compile(
    r"(weight|bias|inv_freq|scales?|zero_points?|qweight|weight_\w+|embed_scale|cls_token|"
    r"position_embeddings|position_ids|gamma|beta|running_mean|running_var|kernel)$"
)


def scope_of_parameter(name: str) -> str:
    """The module a parameter's name names (``model.norm.weight``), ``""`` where it names none."""
    module, _, leaf = name.rpartition(".")
    return module if module and _PARAMETER.search(leaf) else ""


def scope_of_metadata(props: Mapping[str, str]) -> str:
    """The scope that torch's exporter wrote into a node's metadata, ``""`` where there is none.

    ``pkg.torch.onnx.name_scopes`` is a list such as ``['', 'model', 'model.norm', 'mul']``, the
    last item being the node itself; ``namespace`` is a path of ``name: class`` parts.
    """
    text = props.get("pkg.torch.onnx.name_scopes", "")
    if text:
        scopes = _name_list(text)
        if len(scopes) > 1:
            return scopes[-2]
    parts = [p.partition(":")[0].strip() for p in props.get("namespace", "").split("/")]
    named = [p for p in parts[:-1] if p]
    return named[-1] if named and "." in named[-1] else "/".join(named)


def _name_list(text: str) -> list[str]:
    if len(text) > 4096:
        return []
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def common_scope(a: str, b: str) -> str:
    """The innermost module that holds both scopes, ``""`` where there is none."""
    if a == b:
        return a
    marks = re.compile(r"[/.]")
    cut = 0
    for x, y in zip(marks.finditer(a + "/"), marks.finditer(b + "/"), strict=False):
        if x.start() != y.start() or a[: x.start()] != b[: y.start()]:
            break
        cut = x.start()
    return a[:cut]
