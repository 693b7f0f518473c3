"""Readers of the measured files: each row as a `Row`, or a reason to leave it out."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fidelity_rows import (
    Case,
    Row,
    attention,
    collective,
    elementwise,
    gemm,
    op,
    pass_over,
    serial,
)
from gecompiler.backends.cost.attention import Attention
from gecompiler.backends.device import Device, load_device
from gecompiler.ir.types import DType, TensorType, tensor

Record = dict[str, str]
HEAD = 128
"""The dimension of a head in all of these files."""

DEVICES = (
    ("h100_pairwise", None),
    ("a100", "a100"),
    ("h100", "h100"),
    ("h200", "h200"),
    ("h800", "h800"),
    ("ascend910b1", "ascend910b"),
    ("ascend910b2", "ascend910b2"),
    ("ascend910b3", "ascend910b3"),
    ("ascend910b4", "ascend910b4"),
    ("ascend910b x8", "ascend910b2"),
    ("ascend-a3", "ascend910c"),
)
"""By the beginning of a device's name, without regard to case."""


class LeaveOut(Exception):  # noqa: N818 - a reason, not an error
    """Why a row is not predicted."""


@dataclass
class Found:
    """The rows of all files, and what was left out and why."""

    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, Counter[str]] = field(default_factory=dict)


def device_of(name: str) -> str:
    """The profile for a device's name; LeaveOut when there is none."""
    for start, profile in DEVICES:
        if name.lower().startswith(start) and profile:
            return profile
        if name.lower().startswith(start):
            break
    raise LeaveOut(f"no profile of {name}")


def read(folder: Path) -> Found:
    """All rows of the files in the folder that are known."""
    found = Found()
    for path in sorted(folder.glob("*.csv")):
        reader = READERS.get(path.stem)
        if reader is None:
            continue
        skipped = found.skipped.setdefault(path.stem, Counter())
        with path.open(newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                if record.get("physically_possible", "True") == "False":
                    skipped["physically impossible"] += 1
                    continue
                try:
                    for row in reader(path.stem, record):
                        if isinstance(row, Row):
                            found.rows.append(row)
                        else:
                            skipped[row] += 1
                except LeaveOut as reason:
                    skipped[str(reason)] += 1
    return found


def _gemm_family(us: float) -> str:
    return "gemm_over_50us" if us > 50 else "gemm_under_50us"


def _product(
    data: str, device: str, us: float, m: int, n: int, k: int, case: Case | None = None, **more: str
) -> Row:
    return Row(data, _gemm_family(us), device, f"{m},{n},{k}", us, case or gemm(m, n, k), **more)


def aiconfigurator_gemm(data: str, r: Record) -> Iterator[Row]:
    """Kernel times of the vendor's library within captured graphs."""
    dtypes = {"bfloat16": DType.BF16, "float16": DType.F16, "fp8": DType.F8E4M3FN}
    dtype = dtypes.get(r["dtype"])
    if dtype is None:
        raise LeaveOut(f"element type {r['dtype']}")
    m, n, k = int(r["m"]), int(r["n"]), int(r["k"])
    case = gemm(m, n, k, dtype, DType.BF16)
    yield _product(data, device_of(r["device"]), float(r["latency_ms"]) * 1e3, m, n, k, case)


MOST_STACKED = 32
"""Query heads of one head of keys that TensorRT-LLM's decoding kernel takes together."""
PART_KEYS = 128
"""Keys of one of the parts into which it can split a cache."""


def aiconfigurator_attention(data: str, r: Record) -> Iterator[Row]:
    """Attention as the serving library runs it.

    TensorRT-LLM's op also turns queries and keys by their positions and writes the cache: one
    more kernel before the attention of the context; in generation it is part of the kernel.
    Its cache was made for keys alone (``CacheType.SELFKONLY`` in collector/trtllm/collect_attn.py
    of ai-dynamo/aiconfigurator): the values lie in the same blocks. That is why many rows of
    generation are faster than the memory could read what they claim.
    """
    batch, q_len, kv_len = int(r["batch_size"]), int(r["isl"]), int(r["kv_len"])
    heads, groups = int(r["num_heads"]), int(r["num_key_value_heads"])
    context, trtllm = r["phase"] == "context", r["kernel_source"].startswith("trtllm")
    device = device_of(r["device"])
    a = plain(batch, heads, groups, q_len, kv_len, int(r["head_dim"]))._replace(packs=True)
    if not context and trtllm:
        each = _each_head(load_device(device), batch * groups, heads // groups, kv_len)
        a = a._replace(stacks=not each, v_in_k=True)
    case = attention(a)
    if context and trtllm:
        case = pass_over(batch * q_len * (heads + 2 * groups) * a.head_dim) + case
    family = "attention_prefill" if context else "attention_decode"
    shape = f"{batch},{q_len},{kv_len},{heads},{groups}"
    if device.startswith("h") and r["kernel_source"].startswith("vllm"):
        device += ":tuned"  # FlashAttention-3
    yield Row(data, family, device, shape, float(r["latency_ms"]) * 1e3, case)


def _each_head(device: Device, units: int, repeats: int, kv_len: int) -> bool:
    """Whether TensorRT-LLM takes its kernel of single heads: where stacked ones are too many
    for a block, or their parts fill less than a quarter of the cores (decoderXQARunner.h)."""
    parts = units * max(1, kv_len // PART_KEYS)
    return repeats > MOST_STACKED or 4 * parts < device.cube_cores


COLLECTIVES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "alltoall": "AllToAll",
    "send_recv": "Send",
}


def _collective(data: str, device: str, kind: str, size: int, cards: int, us: float) -> Row:
    family = "collective_over_1mb" if size > 1_000_000 else "collective_under_1mb"
    case = collective(COLLECTIVES[kind], size, cards)
    return Row(data, family, device, f"{kind},{size},{cards}", us, case)


def aiconfigurator_nccl(data: str, r: Record) -> Iterator[Row]:
    """Sizes are counted in elements of two bytes."""
    if r["op_name"] not in COLLECTIVES:
        raise LeaveOut(f"collective {r['op_name']}")
    size, cards = 2 * int(r["message_size"]), int(r["num_gpus"])
    us = float(r["latency_ms"]) * 1e3
    yield _collective(data, device_of(r["device"]), r["op_name"], size, cards, us)


def vidur_network(data: str, r: Record) -> Iterator[Row]:
    """Sizes in bytes; only what stays within one server, and one pair of bridged cards."""
    cards, near = int(r["num_workers"]), int(r["devices_per_node"])
    if cards > near:
        raise LeaveOut("between servers")
    if "pairwise" in r["network"] and cards > 2:
        raise LeaveOut("between pairs of bridged cards")
    us = float(r["median_ms"]) * 1e3
    yield _collective(data, device_of(r["network"]), r["collective"], int(r["size"]), cards, us)


UNRESOLVED = "ops below the resolution of the clock"
RESOLVED_US = 2.0
"""Times to the microsecond below this say little: their rounding alone is a quarter and more."""


def vidur_mlp(data: str, r: Record) -> Iterator[Row | str]:
    """Kernel times of one layer's parts, to the microsecond."""
    device = device_of(r["device"])
    t, tp = int(r["num_tokens"]), int(r["tp"])
    heads, groups = int(r["n_head"]), int(r["n_kv_head"])
    d, wide = int(r["n_embd"]), int(r["n_expanded_embd"]) // tp
    qkv = (heads + 2 * groups) * HEAD // tp

    def us(name: str) -> float:
        return float(r[f"{name}_ms"] or 0) * 1e3

    for name, n, k in (
        ("attn_pre_proj", qkv, d),
        ("attn_post_proj", d, d // tp),
        ("mlp_up_proj", 2 * wide, d),
        ("mlp_down_proj", d, wide),
    ):
        if us(name) >= RESOLVED_US:
            yield _product(data, device, us(name), t, n, k)
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
    t, tp, name, us = int(r["tokens"]), int(r["tp_size"]), r["layer_name"], float(r["latency_ns"])
    us /= 1e3
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
        yield _product(data, device, us, t, *products[name])
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


def plain(
    batch: int, heads: int, groups: int, q_len: int, kv_len: int, depth: int = HEAD
) -> Attention:
    """Causal attention by a kernel that neither stacks heads nor splits keys."""
    return Attention(
        batch,
        heads,
        groups,
        q_len,
        kv_len,
        depth,
        depth,
        DType.F16,
        right=0,
        offset=kv_len - q_len,
        packs=False,
    )


def llmservingsim_attention(data: str, r: Record) -> Iterator[Row]:
    """``kv_cache_size`` counts the tokens of the whole batch: times at a given one of them fall
    in inverse proportion to the batch as long as every head has a core of its own."""
    device = device_of(r["device"])
    heads, groups = int(r["n_q_head"]) // int(r["tp"]), int(r["n_kv_head"]) // int(r["tp"])
    prefill = r["is_prefill"] == "True"
    batch = int(r["batch_size"])
    q_len = int(r["prefill_chunk_size"]) if prefill else 1
    kv_len = int(r["kv_cache_size"]) // batch
    if kv_len < q_len:
        raise LeaveOut("less than a token for each sequence")
    case = attention(plain(batch, heads, max(1, groups), q_len, kv_len))
    family = "attention_prefill" if prefill else "attention_decode"
    shape = f"{batch},{q_len},{kv_len},{heads},{groups}"
    yield Row(data, family, device, shape, float(r["time_ms"]) * 1e3, case)


def deepgemm(data: str, r: Record) -> Iterator[Row]:
    """fp8 products; a grouped one has M rows for each of its weights."""
    batch, m, n, k = int(r["groups"]), int(r["M"]), int(r["N"]), int(r["K"])
    case = gemm(m, n, k, DType.F8E4M3FN, DType.BF16, batch)
    us = float(r["time_us"])
    device = device_of(r["device"])
    yield Row(data, _gemm_family(us), device, f"{batch},{m},{n},{k}", us, case)


def ascend_gemm(data: str, r: Record) -> Iterator[Row]:
    """Products alone; those with a collective in the same kernel are of another kind."""
    if r["op"] not in ("gemm", "gemm only"):
        raise LeaveOut("a product and a collective in one kernel")
    m, n, k = int(r["M"]), int(r["N"]), int(r["K"])
    out = DType.F32 if r["dtype"].endswith("fp32") else DType.F16
    case = gemm(m, n, k, DType.F16, out)
    yield _product(data, device_of(r["device"]), float(r["time_us"]), m, n, k, case)


def ascend_attention(data: str, r: Record) -> Iterator[Row]:
    """One head; the vendor's kernel or the hand-tuned one, timed by calls of the host."""
    kinds = {"npu": "vendor", "pto": "tuned"}
    kind = kinds.get(r["kernel"][:3])
    if kind is None:
        raise LeaveOut("attention that is not fused")
    device = f"{device_of(r['device'])}:{kind}"
    q_len, kv_len = int(r["sq"]), int(r["sk"])
    heads = int(r["heads"])
    case = attention(Attention(int(r["batch"]), heads, heads, q_len, kv_len, HEAD, HEAD, DType.F16))
    yield Row(
        data,
        f"attention_{kind}",
        device,
        f"{q_len},{kv_len}",
        float(r["time_us"]),
        case,
        method=f"{kind} {r['host'].split('(')[0]}",
    )


def llmcompass(data: str, r: Record) -> Iterator[Row]:
    """Times on the host, with a synchronisation after each call."""
    kind, us = r["op"], float(r["time_us"])
    device = device_of(r["device"])
    cards = 4 if "x4" in r["device"] else 1
    if kind == "all_reduce":
        yield _collective(data, device, kind, int(r["N"]), cards, us)
        return
    if not r["N"]:
        raise LeaveOut("sizes not stated in the row")
    n, m = int(r["N"]), int(r["M"])
    if kind == "matmul":
        yield _product(data, device, us, m, n, int(r["K"]), method=kind)
        return
    x, w = tensor("f16", (m, n)), tensor("f16", (n,))
    found = {
        "softmax": ("softmax", lambda: op("Softmax", [x], x)),
        "layernorm": ("norm", lambda: op("LayerNormalization", [x, w, w], x)),
        "gelu": ("elementwise", lambda: op("Gelu", [x], x, approximate="tanh")),
    }
    if kind not in found:
        raise LeaveOut(f"op {kind}")
    family, case = found[kind]
    yield Row(data, family, device, f"{kind},{m},{n}", us, case(), method=kind)


Reader = Callable[[str, Record], Iterator[Row | str] | Iterator[Row]]
"""Gives rows, or the reasons for which parts of a record are left out."""
READERS: dict[str, Reader] = {
    "aiconfigurator_attention_ms": aiconfigurator_attention,
    "aiconfigurator_gemm_ms": aiconfigurator_gemm,
    "aiconfigurator_nccl_ms": aiconfigurator_nccl,
    "ascend_attention_square_us": ascend_attention,
    "ascend_flash_attention_us": ascend_attention,
    "ascend_gemm_overlap_us": ascend_gemm,
    "deepgemm_h800_fp8": deepgemm,
    "llmcompass_measured": llmcompass,
    "llmservingsim_attention_ms": llmservingsim_attention,
    "llmservingsim_layers_ns": llmservingsim_layers,
    "vidur_mlp_median_ms": vidur_mlp,
    "vidur_network_h100_median_ms": vidur_network,
    "vidur_network_median_ms": vidur_network,
}
"""By the name of the file without its ending."""
