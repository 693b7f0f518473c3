"""The meaning of ``gecompiler.FlashAttention``, the op that attention fusion makes.

Inputs (all 4D, heads before sequence)::

    Q (B, H, S, D)   K (B, G, T, D)   V (B, G, T, Dv)   mask?   sinks?

``mask`` broadcasts (right-aligned) to (B, H, S, T): boolean means True = may attend; float is
added to the scores. ``sinks`` (H,) are logits of one extra key per head whose value is 0.
Batch dims of K and V may be 1. H is a multiple of G; query head h reads KV head h // (H // G).
Output: (B, H, S, Dv), of Q's element type.

    s = softcap(scale * Q K^T)            softcap(x) = c * tanh(x / c) when c > 0
    s = s + mask                          (float mask; a boolean one removes keys)
    p = softmax(s) over the allowed keys  in float32 (float64 for float64 inputs)
    O = p V

Key j is allowed for query i when ``-left <= j - (i + offset) <= right`` (each side only where
its bound is not -1) and the boolean mask, if any, is True. ``offset`` is 0 for ``top_left``
and T - S for ``bottom_right`` alignment. Causal is ``window_right = 0``.

A row with no allowed key gives what the source graph gave (``masked_row``): ``nan`` (it masked
with -inf), ``zero`` (it had a NaN guard, or was an ai.onnx Attention), ``mean`` (it masked with
a finite minimum: the plain mean of V over all T keys).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gecompiler.ir.errors import GraphError
from gecompiler.ir.op import GE_DOMAIN, Op

FLASH_ATTENTION = "FlashAttention"


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

    def attrs(self) -> dict[str, int | float | str]:
        """As attributes of an `Op`."""
        return asdict(self)

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
        if found.kv_heads < 1 or found.q_heads % found.kv_heads:
            raise GraphError(
                f"op {op.name!r}: {found.q_heads} query heads are no multiple of "
                f"{found.kv_heads} KV heads"
            )
        return found
