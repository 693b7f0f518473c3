"""The models by name, and building them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from gecompiler.ir.bounded_read import read_text
from gecompiler.ir.dims import Dim, symbol
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.strict_yaml import load_yaml
from gecompiler.models.builder import Builder
from gecompiler.models.model_spec import ModelSpec, Phase, read_spec
from gecompiler.models.weights import AbsentWeights, RandomWeights

__all__ = ["ModelSpec", "build", "build_spec", "check_sizes", "names", "spec"]

MAX_BYTES = 2**20
FOLDER = Path(__file__).resolve().parent


@cache
def names() -> list[str]:
    """The names that `build` knows, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def spec(name: str) -> ModelSpec:
    """The sizes of a named model; UsageError with the nearest names when there is none."""
    if name not in names():
        raise UsageError("no model of that name", where=name, hint=nearest(name, names()))
    path = FOLDER / f"{name}.yaml"
    found = read_spec(load_yaml(path.read_text(encoding="utf-8"), path.name), path.name)
    if found.name != name:
        raise UsageError(f"names itself {found.name!r}", where=path.name)
    return found


def build(
    name: str,
    *,
    batch: int | None = None,
    seq: int | None = None,
    phase: Phase = "prefill",
    layers: int | None = None,
) -> Graph:
    """A named model without weights, as torch's exporter and canonicalisation would leave it.

    ``batch`` and ``seq`` are symbols ``batch`` and ``seq`` where None. In a ``prefill`` ``seq``
    tokens come in; in ``decode`` one comes in, behind a KV cache of ``seq`` (declared as the
    graph's states). The phase may be part of the name: ``llama-7b:decode``. ``layers`` cuts the
    model to so many. UsageError for anything that does not fit.
    """
    stem, _, named = name.partition(":")
    if named and phase not in ("prefill", named):
        raise UsageError(f"phase {phase!r} contradicts the name", where=name)
    return build_spec(spec(stem), batch=batch, seq=seq, phase=named or phase, layers=layers)


def check_sizes(name: str, batch: int | None, seq: int | None) -> None:
    """UsageError where the model cannot have these sizes, such as more positions than learned."""
    stem, _, phase = name.partition(":")
    _check(spec(stem), batch, seq, phase or "prefill")


def build_spec(
    source: ModelSpec | Mapping[str, object] | str | Path,
    *,
    batch: int | None = None,
    seq: int | None = None,
    phase: str = "prefill",
    layers: int | None = None,
    weights: Literal["absent", "random"] = "absent",
    seed: int = 0,
) -> Graph:
    """Like `build`, of a `ModelSpec`, of its data, or of a YAML file that holds it.

    With ``weights="random"`` the constants hold numbers that depend on ``seed`` and their name.
    """
    found = _spec_of(source)
    if layers is not None:
        found = replace(found, layers=layers)
    _check(found, batch, seq, phase)
    maker = AbsentWeights() if weights == "absent" else RandomWeights(seed)
    builder = Builder(found.name, found.element, maker)
    sizes: list[Dim] = [
        symbol(name) if size is None else size for name, size in (("batch", batch), ("seq", seq))
    ]
    return _assemble(builder, found, "decode" if phase == "decode" else "prefill", *sizes)


def _spec_of(source: ModelSpec | Mapping[str, object] | str | Path) -> ModelSpec:
    if isinstance(source, ModelSpec):
        return source
    if isinstance(source, Mapping):
        return read_spec(source, "model spec")
    try:
        text = read_text(source, MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=str(source)) from None
    return read_spec(load_yaml(text, str(source)), str(source))


def _check(found: ModelSpec, batch: int | None, seq: int | None, phase: str) -> None:
    if phase not in found.phases:
        raise UsageError(
            f"cannot be built as {phase!r}", where=found.name, hint=nearest(phase, found.phases)
        )
    for what, size in (("batch", batch), ("seq", seq), ("layers", found.layers)):
        if size is not None and size < 1:
            raise UsageError(f"{what} must be at least 1, found {size}", where=found.name)
    reach = (seq or 1) + (phase == "decode")
    if found.family != "llama" and reach > found.max_positions:
        raise UsageError(
            f"{reach} positions asked for, {found.max_positions} learned",
            where=found.name,
            hint=f"give a seq of at most {found.max_positions - (phase == 'decode')}",
        )


def _assemble(b: Builder, found: ModelSpec, phase: Phase, batch: Dim, seq: Dim) -> Graph:
    from gecompiler.models.bert import build_bert
    from gecompiler.models.cache import token_inputs
    from gecompiler.models.gpt2 import build_gpt2
    from gecompiler.models.llama import build_llama

    tokens = token_inputs(b, found, phase, batch, seq)
    family = {"llama": build_llama, "gpt2": build_gpt2, "bert": build_bert}[found.family]
    logits = family(b, found, tokens)
    b.graph.set_outputs([logits, *(state.output for state in tokens.states)])
    b.graph.set_states(tokens.states)
    return b.graph
