"""Options that were given and change nothing, since what they speak of is not asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gecompiler.option_flags import flag_of
from gecompiler.option_table_parallel import CHUNKS

if TYPE_CHECKING:
    from gecompiler.ir.diagnostics import Diagnostics


@dataclass(frozen=True, slots=True)
class _Rule:
    """The option ``name`` works where ``axis`` has several cards; ``unset`` asks for nothing."""

    name: str
    unset: object
    axis: str


_RULES = (
    _Rule("sequence_exchange", "gather", "sp"),
    _Rule("shared_kv_heads", "replicate", "tp"),
    _Rule("embeddings", "replicate", "tp"),
    _Rule("expert_tokens", "split", "ep"),
    _Rule("pipeline_schedule", "1f1b", "pp"),
    _Rule("zero_stage", 0, "dp"),
)


def warn_of_idle(values: Mapping[str, Any], diagnostics: Diagnostics) -> None:
    """Warns of options of several cards whose cards there are none of, and of chunks of none."""
    for name, axis in _idle(values):
        diagnostics.warn(
            "option-without-effect",
            f"option '{name}' ({flag_of(name)}) changes nothing: {axis} is 1",
            f"give --{axis} N as well",
        )
    schedule = values["pipeline_schedule"]
    if values["pipeline_chunks"] != CHUNKS and schedule != "interleaved":
        diagnostics.warn(
            "option-without-effect",
            "option 'pipeline_chunks' (--pipeline-chunks) changes nothing: the pipeline schedule "
            f"is {schedule}",
            "give --pipeline-schedule interleaved as well",
        )


def _idle(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for rule in _RULES:
        if values[rule.name] != rule.unset and values[rule.axis] == 1:
            yield rule.name, rule.axis
