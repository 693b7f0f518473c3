"""What a model spec holds, and the strict reading of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_args

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.types import DType

Family = Literal["llama", "gpt2", "bert"]
Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes of a transformer. The names are those of its configuration in the field."""

    name: str
    family: Family
    description: str
    source: str
    """Where the sizes are published."""
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    max_positions: int
    kv_heads: int = 0
    """Heads of K and V; 0 means as many as `heads`."""
    head_dim: int = 0
    """Width of a head; 0 means hidden / heads."""
    norm_epsilon: float = 1e-5
    rope_theta: float = 10000.0
    token_types: int = 0
    dtype: str = "f16"

    @property
    def groups(self) -> int:
        """The number of KV heads."""
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """The width of a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def element(self) -> DType:
        """The element type of weights and activations."""
        return DType.from_short(self.dtype)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What can be built: an encoder has no decode step."""
        return ("prefill",) if self.family == "bert" else ("prefill", "decode")


def read_spec(data: object, where: str) -> ModelSpec:
    """The spec that plain data describes; UsageError names the key at fault."""
    if not isinstance(data, Mapping):
        raise UsageError(f"expected keys and values, found {data!r}", where=where)
    known = {f.name: f for f in fields(ModelSpec)}
    for key in data:
        if key not in known:
            raise UsageError(f"unknown key {key!r}", where=where, hint=nearest(str(key), known))
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in data:
            values[name] = _value(data[name], str(field.type), name, where)
        elif field.default is MISSING:
            raise UsageError(f"key {name!r} is missing", where=where)
    found = ModelSpec(**values)
    _check(found, where)
    return found


def _value(value: object, kind: str, name: str, where: str) -> object:
    wanted: tuple[type, ...] = {"int": (int,), "float": (int, float)}.get(kind, (str,))
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise UsageError(f"key {name!r}: expected {kind}, found {value!r}", where=where)
    return value


def _check(spec: ModelSpec, where: str) -> None:
    if spec.family not in get_args(Family):
        families = get_args(Family)
        raise UsageError(
            f"unknown family {spec.family!r}", where=where, hint=nearest(spec.family, families)
        )
    for name in ("hidden", "layers", "heads", "intermediate", "vocabulary", "max_positions"):
        if getattr(spec, name) < 1:
            raise UsageError(f"key {name!r} must be at least 1", where=where)
    if spec.dtype not in ("f16", "f32", "bf16"):
        raise UsageError(
            f"key 'dtype': expected f16, f32 or bf16, found {spec.dtype!r}", where=where
        )
    if min(spec.kv_heads, spec.head_dim, spec.token_types) < 0:
        raise UsageError("kv_heads, head_dim and token_types cannot be negative", where=where)
    if spec.heads % spec.groups:
        raise UsageError(
            f"{spec.heads} heads are no multiple of {spec.groups} kv_heads", where=where
        )
    if not spec.head_dim and spec.hidden % spec.heads:
        raise UsageError(
            f"hidden {spec.hidden} is no multiple of {spec.heads} heads",
            where=where,
            hint="give head_dim",
        )
    if spec.family == "llama" and spec.width % 2:
        raise UsageError(f"rotary heads need an even width, found {spec.width}", where=where)
    if spec.norm_epsilon <= 0 or spec.rope_theta <= 0:
        raise UsageError("norm_epsilon and rope_theta must be above 0", where=where)
