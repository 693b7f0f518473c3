"""The built models: sizes, types, names, and the numbers of small ones."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir.dims import substitute
from gecompiler.ir.errors import MissingDataError, UsageError
from gecompiler.models import build, build_spec, names, spec

TINY = {
    "name": "tiny",
    "description": "for tests",
    "source": "none",
    "hidden": 24,
    "layers": 2,
    "heads": 4,
    "head_dim": 6,
    "intermediate": 40,
    "vocabulary": 31,
    "max_positions": 16,
    "dtype": "f32",
}
LLAMA = {**TINY, "family": "llama", "kv_heads": 2}
GPT2 = {**TINY, "family": "gpt2"}
BERT = {**TINY, "family": "bert", "token_types": 2}
SIZES = {"batch": 2, "seq": 5}


def inputs_of(graph, sizes=None, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for name in graph.inputs:
        type_ = graph.tensor(name)
        shape = tuple(substitute(d, sizes or SIZES) for d in type_.shape)
        if name == "attention_mask":
            found[name] = np.ones(shape, np.int64)
        elif type_.dtype.is_integer:
            found[name] = rng.integers(0, 2 if "type" in name else 31, shape)
        else:
            found[name] = rng.normal(size=shape).astype(type_.dtype.numpy)
    return found


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-7b", 6_738_415_616),
        ("llama-70b", 68_976_648_192),
        ("gpt2", 124_439_808 + 50257 * 768),  # the head is tied in the original, a copy here
        ("bert-base", 109_514_298 + 30522 * 768),
    ],
)
def test_a_named_model_has_the_parameters_of_the_original(name, parameters):
    graph = build(name)
    absent = [c for c in graph.constants.values() if not c.has_data]
    assert sum(c.size for c in absent) == parameters
    assert all(c.type.dtype.short == "f16" for c in absent)


def test_every_listed_model_has_a_description_and_says_where_its_sizes_are_from():
    assert names() == ["bert-base", "gpt2", "llama-70b", "llama-7b"]
    assert all(spec(name).description and spec(name).source for name in names())


@pytest.mark.parametrize("family", [LLAMA, GPT2, BERT], ids=lambda f: f["family"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_every_value_has_at_run_time_the_type_that_the_builder_states(family, phase, dtype):
    if family is BERT and phase == "decode":
        pytest.skip("an encoder has no decode step")
    graph = build_spec({**family, "dtype": dtype}, phase=phase, weights="random")
    inputs = inputs_of(graph)
    graph.set_outputs([v for op in graph.ops for v in op.outputs])
    found = run_reference(graph, inputs)
    assert len(found) >= len(graph)
    for name, array in found.items():
        stated = graph.tensor(name).bind(SIZES)
        assert (stated.sizes, stated.dtype.numpy) == (array.shape, array.dtype), name


@pytest.mark.parametrize("family", [LLAMA, GPT2], ids=lambda f: f["family"])
def test_decoding_token_by_token_gives_the_rows_of_the_prefill(family):
    prefill = build_spec(family, weights="random", seed=3)
    decode = build_spec(family, phase="decode", weights="random", seed=3)
    inputs = inputs_of(prefill)
    want = run_reference(prefill, inputs)["logits"]
    state = {
        s.input: np.zeros((2, decode.shape(s.input)[1], 0, 6), np.float32) for s in decode.states
    }
    assert len(state) == 4
    for i in range(5):
        step = {
            "input_ids": inputs["input_ids"][:, i : i + 1],
            "attention_mask": np.ones((2, i + 1), np.int64),
            **state,
        }
        found = run_reference(decode, step)
        np.testing.assert_allclose(found["logits"][:, 0], want[:, i], rtol=2e-4, atol=2e-5)
        state = {s.input: found[s.output] for s in decode.states}
        assert all(s.axis == 2 and state[s.input].shape[2] == i + 1 for s in decode.states)


@pytest.mark.parametrize("family", [LLAMA, GPT2, BERT], ids=lambda f: f["family"])
def test_padding_is_not_attended(family):
    graph = build_spec(family, weights="random")
    inputs = inputs_of(graph)
    inputs["attention_mask"][0, 3:] = 0
    first = run_reference(graph, inputs)["logits"]
    inputs["input_ids"][0, 3:] = (inputs["input_ids"][0, 3:] + 7) % 31
    second = run_reference(graph, inputs)["logits"]
    np.testing.assert_array_equal(first[0, :3], second[0, :3])
    assert not np.allclose(first[0, 3:], second[0, 3:])


def llama_in_numpy(weights, ids):
    """The published equations in float64, on their own."""
    w = {k: v.array().astype(np.float64) for k, v in weights.items()}

    def norm(x, name):
        scale = w[f"{name}.weight"]
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * scale

    angle = np.arange(ids.shape[1])[:, None] / 10000.0 ** (np.arange(0, 6, 2) / 6)
    turn = np.exp(1j * angle)

    def rotate(x):
        pairs = (x[..., :3] + 1j * x[..., 3:]) * turn
        return np.concatenate([pairs.real, pairs.imag], axis=-1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(2):
        at = f"model.layers.{i}"
        y = norm(x, f"{at}.input_layernorm")
        q, k, v = (
            (y @ w[f"{at}.self_attn.{n}_proj.weight"]).reshape(*ids.shape, -1, 6).swapaxes(1, 2)
            for n in "qkv"
        )
        k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
        scores = rotate(q) @ rotate(k).swapaxes(2, 3) / math.sqrt(6)
        scores = np.where(np.tri(ids.shape[1], dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (p / p.sum(axis=-1, keepdims=True) @ v).swapaxes(1, 2).reshape(*ids.shape, -1)
        x = x + mixed @ w[f"{at}.self_attn.o_proj.weight"]
        y = norm(x, f"{at}.post_attention_layernorm")
        gate = y @ w[f"{at}.mlp.gate_proj.weight"]
        up = y @ w[f"{at}.mlp.up_proj.weight"]
        x = x + gate / (1 + np.exp(-gate)) * up @ w[f"{at}.mlp.down_proj.weight"]
    return norm(x, "model.norm") @ w["lm_head.weight"]


def test_llama_computes_the_published_equations():
    graph = build_spec(LLAMA, weights="random", seed=5)
    inputs = inputs_of(graph)
    named = {k: c for k, c in graph.constants.items() if k.endswith("weight")}
    want = llama_in_numpy(named, inputs["input_ids"])
    found = run_reference(graph, inputs)["logits"]
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


def test_random_weights_depend_on_seed_and_name_alone():
    one, two, other = (build_spec(LLAMA, weights="random", seed=s) for s in (1, 1, 2))
    name = "model.layers.1.mlp.up_proj.weight"
    assert one.constants[name].digest == two.constants[name].digest
    assert one.constants[name].digest != other.constants[name].digest
    assert str(one.opsets) == str(two.opsets)
    assert [o.name for o in one.ops] == [o.name for o in two.ops]


def test_ops_have_the_groups_that_people_use():
    groups = Counter(op.info.group for op in build("llama-7b").ops)
    for name in ("MLP gate", "MLP up", "MLP down", "Attention q", "Attention o"):
        assert groups[name] == 32
    assert groups["LM head"] == groups["Embedding"] == 1
    matmuls = [o for o in build("gpt2").ops if o.op_type in ("MatMul", "Gemm")]
    assert all(op.info.group for op in matmuls)


def test_bound_sizes_leave_no_symbol():
    graph = build("llama-7b:decode", batch=4, seq=100, layers=1)
    assert graph.tensor("past_key_values.0.key").sizes == (4, 32, 100, 128)
    assert graph.tensor("present.0.key").sizes == (4, 32, 101, 128)
    assert all(graph.tensor(v).is_static for op in graph.ops for v in op.outputs)


def test_weights_are_absent_and_running_says_which():
    graph = build("gpt2", batch=1, seq=2, layers=1)
    with pytest.raises(MissingDataError, match=r"wte\.weight"):
        run_reference(graph, inputs_of(graph))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: build("llama-7"), r"no model of that name\n.*did you mean 'llama-7b'"),
        (lambda: build("bert-base:decode"), "cannot be built as 'decode'"),
        (lambda: build("gpt2:prefil"), r"'prefil'\n.*did you mean 'prefill'"),
        (lambda: build("gpt2:prefill", phase="decode"), "contradicts the name"),
        (
            lambda: build("gpt2", seq=1025),
            r"1025 positions asked for, 1024 learned\n.*at most 1024",
        ),
        (lambda: build("gpt2:decode", seq=1024), r"1025 positions.*\n.*at most 1023"),
        (lambda: build("gpt2", batch=0), "batch must be at least 1"),
        (lambda: build("gpt2", layers=0), "layers must be at least 1"),
        (lambda: build_spec({**LLAMA, "hiden": 3}), r"unknown key 'hiden'\n.*'hidden'"),
        (lambda: build_spec({**LLAMA, "hidden": "3"}), "expected int, found '3'"),
        (lambda: build_spec({**LLAMA, "heads": True}), "expected int, found True"),
        (lambda: build_spec({**LLAMA, "heads": 5}), "5 heads are no multiple of 2"),
        (lambda: build_spec({**LLAMA, "head_dim": 5}), "even width"),
        (
            lambda: build_spec({**TINY, "family": "bert", "head_dim": 0, "heads": 5}),
            "give head_dim",
        ),
        (lambda: build_spec({**LLAMA, "family": "lama"}), r"unknown family.*\n.*'llama'"),
        (lambda: build_spec({**LLAMA, "dtype": "i8"}), "expected f16, f32 or bf16"),
        (lambda: build_spec({**LLAMA, "norm_epsilon": 0}), "must be above 0"),
        (
            lambda: build_spec({k: v for k, v in LLAMA.items() if k != "heads"}),
            "'heads' is missing",
        ),
        (lambda: build_spec("no/such/file.yaml"), "cannot be read"),
        (lambda: build_spec(spec("llama-7b"), weights="random"), "random weights"),
    ],
)
def test_what_cannot_be_built_is_said(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def test_a_spec_may_lie_in_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(f"{k}: {v}" for k, v in LLAMA.items()), encoding="utf-8")
    assert build_spec(path).name == "tiny"
    for text, said in (("name: mine\nname: two\n", "twice"), ("- 1\n", "expected keys")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=said):
            build_spec(str(path))
