"""The meaning of ``gecompiler.FlashAttention``, the op that attention fusion makes.

Inputs (all 4D; heads before sequence, unless ``layout`` says otherwise)::

    Q (B, H, S, D)   K (B, G, T, D)   V (B, G, T, Dv)   mask?   sinks?

``mask`` broadcasts (right-aligned) to (B, H, S, T): boolean means True = may attend; float is
added to the scores. ``sinks`` (H,) are logits of one extra key per head whose value is 0.
Batch dims of K and V may be 1. H is a multiple of G; query head h reads KV head h // (H // G).
Outputs: (B, H, S, Dv), of Q's element type, and on request the log-sum-exp of the scores, sinks
included, (B, H, S) in float32 (float64 for float64), which the gradient needs.

    s = softcap(scale * Q K^T)            softcap(x) = c * tanh(x / c) when c > 0
    s = s + mask                          (float mask; a boolean one removes keys)
    p = softmax(s) over the allowed keys  in float32 (float64 for float64 inputs)
    O = p V

Key j is allowed for query i when ``-left <= j - (i + offset) <= right`` (each side only where
its bound is not -1) and the boolean mask, if any, is True. ``offset`` is 0 for ``top_left``
and T - S for ``bottom_right`` alignment, and ``row_offset`` more: where Q's rows, or the keys,
are a part of a longer sequence. Causal is ``window_right = 0``.

A row with no allowed key gives what the source graph gave (``masked_row``): ``nan`` (it masked
with -inf), ``zero`` (it had a NaN guard, or was an ai.onnx Attention), ``mean`` (it masked with
a finite minimum: the plain mean of V over all T keys).

``layout`` is how the tensors lie in memory, in the vendor's letters: ``BNSD`` as above, ``BSND``
with the sequence before the heads in Q, K, V and output, ``BNSD_BSND`` so in the output alone.
Mask and sinks stay as they are. These are the 4D ``input_layout`` values that CANN's
FusedInferAttentionScore takes without a rotary part of its own (its FlashAttentionScore, which
trains, takes the first two; BSH and SBH are spelt with 3D tensors). Q, K and V always lie alike,
and no kernel reads BSND and writes BNSD but for latent attention (``query_rope``, D = 128).
Sources: op-plugin, torch_npu.npu_fused_infer_attention_score_v2, parameter input_layout;
MindSpore, ops.speed_fusion_attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from gecompiler.ir.errors import GraphError
from gecompiler.ir.op import GE_DOMAIN, Op

FLASH_ATTENTION = "FlashAttention"

AttentionLayout = Literal["BNSD", "BSND", "BNSD_BSND"]
LAYOUTS: tuple[AttentionLayout, ...] = ("BNSD", "BSND", "BNSD_BSND")
"""Where heads (N) and sequence (S) lie; after an underscore those of the output."""

_T = TypeVar("_T")


def exchanged(axes: Sequence[_T]) -> tuple[_T, _T, _T, _T]:
    """What belongs to four axes with the second and the third exchanged: BNSD to BSND or back."""
    first, second, third, last = axes
    return first, third, second, last


@dataclass(frozen=True, slots=True)
class FlashAttention:
    """The attributes of the op; `of` reads them, `attrs` writes them."""

    scale: float
    q_heads: int
    kv_heads: int
    softcap: float = 0.0
    window_left: int = -1
    window_right: int = -1
    align: Literal["top_left", "bottom_right"] = "top_left"
    masked_row: Literal["nan", "zero", "mean"] = "nan"
    layout: AttentionLayout = "BNSD"
    row_offset: int = 0

    def offset(self, queries: int, keys: int) -> int:
        """The position among the keys that the first query's window counts from."""
        return self.row_offset + (keys - queries if self.align == "bottom_right" else 0)

    def attrs(self) -> dict[str, int | float | str]:
        """As attributes of an `Op`; layout and row offset where they are not the usual ones."""
        found = asdict(self)
        if self.layout == "BNSD":
            del found["layout"]
        if not self.row_offset:
            del found["row_offset"]
        return found

    @property
    def reads_rows_first(self) -> bool:
        """Whether Q, K and V have their sequence before their heads."""
        return self.layout == "BSND"

    @property
    def writes_rows_first(self) -> bool:
        """Whether the output has its sequence before its heads."""
        return self.layout != "BNSD"

    def operand(self, axes: Sequence[_T]) -> tuple[_T, _T, _T, _T]:
        """Four axes of Q, K or V as (B, heads, length, D)."""
        first, second, third, last = axes
        return exchanged(axes) if self.reads_rows_first else (first, second, third, last)

    def result(self, axes: Sequence[_T]) -> tuple[_T, _T, _T, _T]:
        """Four axes of the output as (B, H, S, Dv), or these in the output's order."""
        first, second, third, last = axes
        return exchanged(axes) if self.writes_rows_first else (first, second, third, last)

    @staticmethod
    def of(op: Op) -> FlashAttention:
        """The attributes of a FlashAttention op; GraphError when they make no sense."""
        if not op.is_(FLASH_ATTENTION, domain=GE_DOMAIN):
            raise GraphError(f"op {op.name!r} is {op.kind}, not FlashAttention")
        try:
            attrs: dict[str, Any] = dict(op.attrs)
            found = FlashAttention(**attrs)
        except TypeError as error:
            raise GraphError(f"op {op.name!r}: {error}") from None
        if found.layout not in LAYOUTS:
            raise GraphError(
                f"op {op.name!r} has layout = {found.layout!r}, expected one of {LAYOUTS}"
            )
        if found.kv_heads < 1 or found.q_heads % found.kv_heads:
            raise GraphError(
                f"op {op.name!r}: {found.q_heads} query heads are no multiple of "
                f"{found.kv_heads} KV heads"
            )
        return found
