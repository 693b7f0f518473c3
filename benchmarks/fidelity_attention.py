"""Readers of measured attention."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fidelity_common import HEAD, LeaveOut, Record, count, device_of, microseconds
from benchmarks.fidelity_rows import Row, attention, pass_over
from gecompiler.backends.cost.attention import Attention
from gecompiler.backends.device import Device, load_device
from gecompiler.ir.types import DType


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
    batch, q_len, kv_len = count(r, "batch_size"), count(r, "isl"), count(r, "kv_len")
    heads, groups = count(r, "num_heads"), count(r, "num_key_value_heads")
    context, trtllm = r["phase"] == "context", r["kernel_source"].startswith("trtllm")
    device = device_of(r["device"])
    a = plain(batch, heads, groups, q_len, kv_len, count(r, "head_dim"))._replace(packs=True)
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
    yield Row(data, family, device, shape, microseconds(r, "latency_ms", 1e3), case)


def _each_head(device: Device, units: int, repeats: int, kv_len: int) -> bool:
    """Whether TensorRT-LLM takes its kernel of single heads: where stacked ones are too many
    for a block, or their parts fill less than a quarter of the cores (decoderXQARunner.h)."""
    parts = units * max(1, kv_len // PART_KEYS)
    return repeats > MOST_STACKED or 4 * parts < device.cube_cores


def llmservingsim_attention(data: str, r: Record) -> Iterator[Row]:
    """``kv_cache_size`` counts the tokens of the whole batch: times at a given one of them fall
    in inverse proportion to the batch as long as every head has a core of its own."""
    device = device_of(r["device"])
    heads, groups = count(r, "n_q_head") // count(r, "tp"), count(r, "n_kv_head") // count(r, "tp")
    prefill = r["is_prefill"] == "True"
    batch = count(r, "batch_size")
    q_len = count(r, "prefill_chunk_size") if prefill else 1
    kv_len = count(r, "kv_cache_size") // batch
    if kv_len < q_len:
        raise LeaveOut("less than a token for each sequence")
    case = attention(plain(batch, heads, max(1, groups), q_len, kv_len))
    family = "attention_prefill" if prefill else "attention_decode"
    shape = f"{batch},{q_len},{kv_len},{heads},{groups}"
    yield Row(data, family, device, shape, microseconds(r, "time_ms", 1e3), case)


def ascend_attention(data: str, r: Record) -> Iterator[Row]:
    """One head; the vendor's kernel or the hand-tuned one, timed by calls of the host."""
    kinds = {"npu": "vendor", "pto": "tuned"}
    kind = kinds.get(r["kernel"][:3])
    if kind is None:
        raise LeaveOut("attention that is not fused")
    device = f"{device_of(r['device'])}:{kind}"
    q_len, kv_len = count(r, "sq"), count(r, "sk")
    heads = count(r, "heads")
    case = attention(
        Attention(count(r, "batch"), heads, heads, q_len, kv_len, HEAD, HEAD, DType.F16)
    )
    yield Row(
        data,
        f"attention_{kind}",
        device,
        f"{q_len},{kv_len}",
        microseconds(r, "time_us"),
        case,
        method=f"{kind} {r['host'].split('(')[0]}",
    )
