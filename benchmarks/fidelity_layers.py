"""Readers of the measured layers of whole models, and of ops timed on the host."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fidelity_attention import plain
from benchmarks.fidelity_common import (
    HEAD,
    LeaveOut,
    Record,
    count,
    device_of,
    dtype_of,
    microseconds,
)
from benchmarks.fidelity_links import collective_row, op_type_of
from benchmarks.fidelity_products import product
from benchmarks.fidelity_rows import (
    Case,
    Collective,
    Row,
    attention,
    elementwise,
    gemm,
    op,
    pass_over,
    serial,
)
from gecompiler.ir.types import TensorType, tensor

UNRESOLVED = "ops below the resolution of the clock"
RESOLVED_US = 2.0
"""Times to the microsecond below this say little: their rounding alone is a quarter and more."""


def vidur_mlp(data: str, r: Record) -> Iterator[Row | str]:
    """Kernel times of one layer's parts, to the microsecond."""
    device = device_of(r["device"])
    t, tp = count(r, "num_tokens"), count(r, "tp")
    heads, groups = count(r, "n_head"), count(r, "n_kv_head")
    d, wide = count(r, "n_embd"), count(r, "n_expanded_embd") // tp
    qkv = (heads + 2 * groups) * HEAD // tp

    def us(name: str) -> float:
        return microseconds(r, f"{name}_ms", 1e3) if r[f"{name}_ms"] else 0.0

    for name, n, k in (
        ("attn_pre_proj", qkv, d),
        ("attn_post_proj", d, d // tp),
        ("mlp_up_proj", 2 * wide, d),
        ("mlp_down_proj", d, wide),
    ):
        if us(name) >= RESOLVED_US:
            yield product(data, device, us(name), t, n, k)
        elif us(name):
            yield UNRESOLVED
    x, w = tensor("f16", (t, d)), tensor("f16", (d,))
    turned, table = tensor("f16", (t, (heads + groups) * HEAD // tp)), tensor("f16", (t, HEAD // 2))
    for name, family, case in (
        ("input_layernorm", "norm", op("RMSNorm", [x, w], x, "gecompiler")),
        ("post_attention_layernorm", "norm", op("RMSNorm", [x, w], x, "gecompiler")),
        (
            "attn_rope",
            "rotary",
            op("RotaryEmbedding", [turned, table, table], turned, "gecompiler"),
        ),
        ("mlp_act", "elementwise", gated(t, wide)),
        ("add", "elementwise", elementwise("Add", (t, d), 2)),
        ("emb", "gather", gather(32000 // tp, d, t)),
    ):
        if us(name) >= RESOLVED_US:
            shape = f"{name},{t},{d},{wide}"
            yield Row(data, family, device, shape, us(name), case, warm=family != "gather")
        elif us(name):
            yield UNRESOLVED


def rotary(x: TensorType, table: TensorType) -> Case:
    """Rotary embedding as one kernel."""
    return op("RotaryEmbedding", [x, table, table], x, "gecompiler")


def gated(tokens: int, wide: int) -> Case:
    """SiLU of one half times the other, of (tokens, 2 * wide)."""
    both, half = tensor("f16", (tokens, 2 * wide)), tensor("f16", (tokens, wide))
    return op("SiluMul", [both], half, "gecompiler")


def gather(rows: int, width: int, tokens: int) -> Case:
    """Rows of an embedding table."""
    table, ids = tensor("f16", (rows, width)), tensor("i64", (tokens,))
    return op("Gather", [table, ids], tensor("f16", (tokens, width)))


LLAMA = {
    "meta-llama/Llama-3.1-8B": (4096, 32, 8, 14336, 128256),
    "meta-llama/Llama-3.1-70B": (8192, 64, 8, 28672, 128256),
}
"""Hidden size, heads, heads of keys, hidden size of the MLP, vocabulary."""


def llmservingsim_layers(data: str, r: Record) -> Iterator[Row]:
    """Kernel times of an eager model: norms, rotary embedding and activation op by op."""
    device = device_of(r["device"])
    if r["model"] not in LLAMA:
        raise LeaveOut(f"sizes of {r['model']}")
    d, heads, groups, wide, vocabulary = LLAMA[r["model"]]
    t, tp, name = count(r, "tokens"), count(r, "tp_size"), r["layer_name"]
    us = microseconds(r, "latency_ns", 1e-3)
    products = {
        "q_proj": (heads * HEAD // tp, d),
        "k_proj": (groups * HEAD // tp, d),
        "v_proj": (groups * HEAD // tp, d),
        "o_proj": (d, heads * HEAD // tp),
        "gate_proj": (wide // tp, d),
        "up_proj": (wide // tp, d),
        "down_proj": (d, wide // tp),
        "lm_head": (vocabulary // tp, d),
    }
    if name in products:
        yield product(data, device, us, t, *products[name])
        return
    if name.endswith("layernorm"):
        family, case = "norm", eager_norm(t, d)
    elif name == "rope":
        q, k = (t, heads // tp, HEAD), (t, groups // tp, HEAD)
        family, case = "rotary", eager_rotary(q) + eager_rotary(k)
    elif name == "act_fn":
        shape = (t, wide // tp)
        case = elementwise("Silu", shape) + elementwise("Mul", shape, 2)
        family = "elementwise"
    elif name == "embedding":
        family, case = "gather", gather(vocabulary // tp, d, t)
    elif name == "attn":
        family = "attention_prefill"
        own = max(1, groups // tp)
        # the layer writes new keys and values to the cache by a kernel of its own before
        case = pass_over(2 * t * own * HEAD) + attention(plain(1, heads // tp, own, t, t))
    else:
        raise LeaveOut(f"layer {name}")
    warm = family in ("norm", "rotary", "elementwise")
    yield Row(data, family, device, f"{name},{t},{d},{tp}", us, case, warm=warm)


def eager_norm(tokens: int, width: int) -> Case:
    """RMS norm op by op, in f32 between a cast in and a cast out."""
    x, half = tensor("f32", (tokens, width)), tensor("f16", (tokens, width))
    one, w = tensor("f32", (tokens, 1)), tensor("f16", (width,))
    return serial(
        (
            op("Cast", [half], x),
            op("Mul", [x, x], x),
            op("ReduceMean", [x], one, axes=(-1,)),
            op("Add", [one], one),
            op("Reciprocal", [one], one),
            op("Mul", [x, one], x),
            op("Cast", [x], half),
            op("Mul", [half, w], half),
        )
    )


def eager_rotary(shape: tuple[int, ...]) -> Case:
    """x * cos + rotate_half(x) * sin: a product, a negation, a concatenation, a product, a sum."""
    whole, half = tensor("f16", shape), tensor("f16", (*shape[:-1], shape[-1] // 2))
    table = tensor("f16", (shape[0], 1, shape[-1]))
    return serial(
        (
            op("Mul", [whole, table], whole),
            op("Neg", [half], half),
            op("Concat", [half, half], whole, axis=-1),
            op("Mul", [whole, table], whole),
            op("Add", [whole, whole], whole),
        )
    )


def llmcompass(data: str, r: Record) -> Iterator[Row]:
    """Times on the host, with a synchronisation after each call."""
    kind, us = r["op"], microseconds(r, "time_us")
    device = device_of(r["device"])
    cards = 4 if "x4" in r["device"] else 1
    if kind == "all_reduce":
        size = count(r, "N")
        link = Collective(op_type_of(kind), float(size), tuple(range(cards)))
        yield collective_row(data, kind, size, us, device, link)
        return
    if not r["N"]:
        raise LeaveOut("sizes not stated in the row")
    n, m, dtype = count(r, "N"), count(r, "M"), dtype_of(r["dtype"], device)
    if kind == "matmul":
        case = gemm(m, n, count(r, "K"), dtype)
        yield product(data, device, us, m, n, count(r, "K"), case, method=kind)
        return
    x, w = tensor(dtype, (m, n)), tensor(dtype, (n,))
    found = {
        "softmax": ("softmax", lambda: op("Softmax", [x], x)),
        "layernorm": ("norm", lambda: op("LayerNormalization", [x, w, w], x)),
        "gelu": ("elementwise", lambda: op("Gelu", [x], x, approximate="tanh")),
    }
    if kind not in found:
        raise LeaveOut(f"op {kind}")
    family, case = found[kind]
    yield Row(data, family, device, f"{kind},{m},{n}", us, case(), method=kind)
