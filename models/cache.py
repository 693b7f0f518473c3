"""The inputs of a prefill or of a decode step, and the KV cache between steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from gecompiler.ir.dims import Dim
from gecompiler.ir.graph import State
from gecompiler.ir.types import DType
from gecompiler.models import blocks
from gecompiler.models.builder import Builder
from gecompiler.models.model_spec import ModelSpec, Phase


@dataclass
class Tokens:
    """What goes into a model, and the numbers of the query and key positions.

    ``queries`` (S,) and ``keys`` (T,) are int64 values; T is S in a prefill, past + 1 in decode.
    """

    input_ids: str
    attention_mask: str
    queries: str
    keys: str
    past: list[tuple[str, str]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)


def token_inputs(b: Builder, spec: ModelSpec, phase: Phase, batch: Dim, seq: Dim) -> Tokens:
    """Adds the inputs. In decode ``seq`` is the length of the past, and one token comes in."""
    if phase == "prefill":
        input_ids = b.input("input_ids", DType.I64, (batch, seq))
        mask = b.input("attention_mask", DType.I64, (batch, seq))
        count = blocks.positions(b, mask, 1, seq)
        return Tokens(input_ids, mask, count, count)
    input_ids = b.input("input_ids", DType.I64, (batch, 1))
    mask = b.input("attention_mask", DType.I64, (batch, seq + 1))
    shape = (batch, spec.groups, seq, spec.width)
    past = [
        (
            b.input(f"past_key_values.{i}.key", b.dtype, shape),
            b.input(f"past_key_values.{i}.value", b.dtype, shape),
        )
        for i in range(spec.layers)
    ]
    query = b.binary("Add", b.ints(0), b.size(past[0][0], 2))
    return Tokens(input_ids, mask, query, blocks.positions(b, mask, 1, seq + 1), past)


def with_past(b: Builder, tokens: Tokens, layer: int, k: str, v: str) -> tuple[str, str]:
    """K and V of all keys: the past ones before the new ones. Prefill returns them as they are."""
    if not tokens.past:
        return k, v
    found: list[str] = []
    for past, new, kind in zip(tokens.past[layer], (k, v), ("key", "value"), strict=True):
        present = b.concat([past, new], 2, f"present.{layer}.{kind}")
        tokens.states.append(State(past, present, axis=2))
        found.append(present)
    return found[0], found[1]
