"""The expansion to plain ONNX computes what the op's definition says, for every attribute."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from attention_help import run
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import parse
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.expand import ExpandFused
from gecompiler.passes.pass_base import PassContext

Array = Any


def flash_reference(
    q: Array, k: Array, v: Array, mask: Array, sinks: Array, attrs: dict[str, Any]
) -> Array:
    """The definition in `gecompiler.ir.flash_attention`, in float64, row by row."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    repeat = attrs["q_heads"] // attrs["kv_heads"]
    k, v = k.repeat(repeat, axis=1), v.repeat(repeat, axis=1)
    s = attrs["scale"] * (q @ k.swapaxes(-1, -2))
    if attrs["softcap"] > 0:
        s = attrs["softcap"] * np.tanh(s / attrs["softcap"])
    allowed = np.ones(s.shape, bool)
    rows, keys = s.shape[-2:]
    offset = keys - rows if attrs["align"] == "bottom_right" else 0
    distance = np.arange(keys)[None, :] - (np.arange(rows)[:, None] + offset)
    if attrs["window_left"] >= 0:
        allowed &= distance >= -attrs["window_left"]
    if attrs["window_right"] >= 0:
        allowed &= distance <= attrs["window_right"]
    if mask is not None and mask.dtype == bool:
        allowed &= mask
    elif mask is not None:
        s = s + mask
    out = np.zeros((*s.shape[:-1], v.shape[-1]))
    v = np.broadcast_to(v, (*s.shape[:2], *v.shape[2:]))
    for index in np.ndindex(*s.shape[:-1]):
        row, values = s[index], v[index[:2]]
        kept = allowed[index]
        logits = np.where(kept, row, -np.inf)
        if sinks is not None:
            logits = np.append(logits, sinks[index[1]])
        if np.all(logits == -np.inf):
            empty = {"nan": np.nan, "zero": 0.0, "mean": values.mean(axis=0)}
            out[index] = empty[attrs["masked_row"]]
            continue
        weights = np.exp(logits - logits.max())
        weights = (weights / weights.sum())[:keys]
        out[index] = weights @ values
    return out.astype(np.float32)


class Case:
    """A FlashAttention with random attributes and operands."""

    def __init__(self, seed: int, opset: int) -> None:
        draw, numbers = random.Random(seed), np.random.default_rng(seed)
        b, s, t = draw.choice([1, 2]), draw.choice([1, 4, 5]), draw.choice([1, 4, 6])
        heads = draw.choice([1, 2, 4])
        groups = draw.choice([g for g in (1, 2, 4) if heads % g == 0])
        kv_batch = draw.choice([b, 1])
        self.attrs: dict[str, Any] = {
            "scale": draw.choice([0.5, 1.0, -0.3]),
            "q_heads": heads,
            "kv_heads": groups,
            "softcap": draw.choice([0.0, 3.0]),
            "window_left": draw.choice([-1, -1, 0, 2]),
            "window_right": draw.choice([-1, -1, 0, 1]),
            "align": draw.choice(["top_left", "bottom_right"]),
            "masked_row": draw.choice(["nan", "zero", "mean"]),
        }
        symbolic = draw.random() < 0.5
        names = {"b": b, "s": s, "t": t}
        sizes = {n: n if symbolic else str(v) for n, v in names.items()}
        kind = draw.choice(["", "bool", "bool", "f32"])
        if kind == "f32" and self.attrs["masked_row"] == "mean":
            self.attrs["masked_row"] = "nan"
        lead = draw.choice(["", f"{sizes['b']}, 1, ", f"1, {heads}, "])
        rows = draw.choice(["1", sizes["s"]])
        self.feeds: dict[str, Any] = {
            "q": numbers.standard_normal((b, heads, s, 3)).astype(np.float32),
            "k": numbers.standard_normal((kv_batch, groups, t, 3)).astype(np.float32),
            "v": numbers.standard_normal((kv_batch, groups, t, 2)).astype(np.float32),
        }
        lines = [
            f"input %q: f32[{sizes['b']}, {heads}, {sizes['s']}, 3]",
            f"input %k: f32[{sizes['b'] if kv_batch == b else 1}, {groups}, {sizes['t']}, 3]",
            f"input %v: f32[{sizes['b'] if kv_batch == b else 1}, {groups}, {sizes['t']}, 2]",
        ]
        names_of = {"": "_", "bool": "%m", "f32": "%m"}
        operands = ["%q", "%k", "%v", names_of[kind]]
        if kind:
            lines.append(f"input %m: {kind}[{lead}{rows}, {sizes['t']}]")
            shape = [
                names.get(d, int(d) if d.isdigit() else 0)
                for d in f"{lead}{rows}, {sizes['t']}".split(", ")
            ]
            mask = numbers.random(shape) < 0.5
            if kind == "f32":
                mask = np.where(mask, numbers.standard_normal(shape), -np.inf).astype(np.float32)
            self.feeds["m"] = mask
        if draw.random() < 0.25:
            lines.append(f"input %z: f32[{heads}]")
            operands.append("%z")
            self.feeds["z"] = numbers.standard_normal(heads).astype(np.float32)
            self.attrs["masked_row"] = "zero"
        while operands[-1] == "_":
            operands.pop()
        attrs = ", ".join(
            f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in self.attrs.items()
        )
        call = f"gecompiler.FlashAttention({', '.join(operands)}) {{{attrs}}}"
        body = "\n".join(lines)
        self.text = f"graph (opset {opset}) {{ {body} %out = {call} return %out }}"

    def expected(self) -> Array:
        f = self.feeds
        return flash_reference(f["q"], f["k"], f["v"], f.get("m"), f.get("z"), self.attrs)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([9, 10, 11, 12, 13, 17, 18, 22, 23, 24]))
def test_the_expansion_is_the_definition(seed: int, opset: int) -> None:
    case = Case(seed, opset)
    graph = parse(case.text)
    infer_types(graph)
    (found,) = run(graph, case.feeds).values()
    np.testing.assert_allclose(found, case.expected(), rtol=2e-5, atol=2e-5, equal_nan=True)


def expanded(body: str, opset: int, **options: bool) -> list[str]:
    graph = parse(f"graph (opset {opset}) {{ {body} return %out }}")
    infer_types(graph)
    assert ExpandFused(**options).run(graph, PassContext()) == 1
    graph.verify()
    assert not any(op.domain for op in graph.ops)
    return [op.op_type for op in graph.ops]


PLAIN = """input %q: f32[b, 4, s, 8] input %k: f32[b, 4, s, 8] input %v: f32[b, 4, s, 8]
  %out = gecompiler.FlashAttention(%q, %k, %v) {scale = 0.5, q_heads = 4, kv_heads = 4}"""


def test_from_opset_23_on_it_is_one_op() -> None:
    assert expanded(PLAIN, 23) == ["Attention"]
    assert "Attention" not in expanded(PLAIN, 22)
    assert "Attention" not in expanded(PLAIN, 23, primitives=True)


def test_causality_over_itself_is_an_attribute() -> None:
    body = PLAIN.replace("kv_heads = 4", "kv_heads = 4, window_right = 0")
    assert expanded(body, 23) == ["Attention"]


@pytest.mark.parametrize(
    "change",
    [
        ("scale = 0.5", "scale = -0.5"),
        ("kv_heads = 4", 'kv_heads = 4, window_left = 0, window_right = 0, align = "bottom_right"'),
    ],
)
def test_what_runtimes_refuse_or_get_wrong_is_avoided(change: tuple[str, str]) -> None:
    body = PLAIN.replace(*change)
    found = expanded(body, 23)
    if "window_left" in change[1]:
        assert "Attention" in found
        assert "Range" in found, "a window is a mask"
    else:
        assert "Attention" not in found


@pytest.mark.parametrize("shared", ["k", "v"])
def test_keys_and_values_without_the_batch_are_given_it(shared: str) -> None:
    assert "Attention" in (
        found := expanded(PLAIN.replace(f"%{shared}: f32[b,", f"%{shared}: f32[1,"), 23)
    )
    assert "Expand" in found
    assert expanded(PLAIN, 23) == ["Attention"]


def test_a_row_that_may_be_empty_and_must_be_nan_is_written_out() -> None:
    body = PLAIN.replace("(%q, %k, %v)", "(%q, %k, %v, %m)") + "  "
    body = "input %m: bool[b, 1, 1, s] " + body
    assert "Attention" not in expanded(body, 23)
    zero = body.replace("kv_heads = 4", 'kv_heads = 4, masked_row = "zero"')
    assert "Attention" in expanded(zero, 23)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f64"])
def test_other_types_keep_theirs(kind: str) -> None:
    body = PLAIN.replace("f32", kind)
    graph = parse(f"graph (opset 17) {{ {body} return %out }}")
    infer_types(graph)
    ExpandFused().run(graph, PassContext())
    graph.verify()
    known = graph.tensor("out")
    assert known is not None
    assert known.dtype.short == kind


def test_a_window_over_more_keys_than_fit_memory_is_expanded_by_ops() -> None:
    """The places of keys are counted by ``Range``, not written out."""
    build = Builder(Graph("g", {"": 20}))
    assert build.graph.constant(build.arange(8)) is not None
    made = build.graph.producer(build.arange(2**31))
    assert made is not None
    assert made.op_type == "Range"
