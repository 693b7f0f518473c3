"""Options that need others: refused or warned of where those are missing."""

from __future__ import annotations

from typing import Any

import pytest

import gecompiler as ge
from gecompiler.cli import gec
from gecompiler.idle_options import warn_of_idle
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError
from gecompiler.option_flags import flag_of
from gecompiler.option_table import Options


@pytest.mark.parametrize(
    ("name", "value", "axis"),
    [
        ("sequence_exchange", "ring", "sp"),
        ("shared_kv_heads", "split", "tp"),
        ("embeddings", "split", "tp"),
        ("expert_tokens", "replicate", "ep"),
        ("pipeline_schedule", "gpipe", "pp"),
        ("zero_stage", 3, "dp"),
    ],
)
def test_an_option_of_cards_that_are_not_there_is_warned_of(
    name: str, value: object, axis: str
) -> None:
    options = Options()
    options.set(name, value)
    told = Diagnostics()
    warn_of_idle(options.as_dict(), told)
    assert [(w.code, w.message, w.hint) for w in told] == [
        (
            "option-without-effect",
            f"option '{name}' ({flag_of(name)}) changes nothing: {axis} is 1",
            f"give --{axis} N as well",
        )
    ]
    options.set(axis, 2)
    told = Diagnostics()
    warn_of_idle(options.as_dict(), told)
    assert list(told) == []


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_chunks_without_interleaved_are_warned_of(schedule: str) -> None:
    told = Diagnostics()
    options = Options({"pipeline_chunks": 4, "pp": 2, "pipeline_schedule": schedule})
    warn_of_idle(options.as_dict(), told)
    wanted = [] if schedule == "interleaved" else [f"the pipeline schedule is {schedule}"]
    assert [w.message.partition("changes nothing: ")[2] for w in told] == wanted


def test_every_warning_names_a_flag_that_there_is() -> None:
    flags = {o for p in gec.commands["compile"].params for o in p.opts}
    told = Diagnostics()
    values = {
        "sequence_exchange": "ring", "shared_kv_heads": "split", "embeddings": "split",
        "expert_tokens": "replicate", "pipeline_schedule": "gpipe", "zero_stage": 3,
        "pipeline_chunks": 4,
    }  # fmt: skip
    warn_of_idle(Options(values).as_dict(), told)
    named = [w.message.partition("(")[2].partition(")")[0] for w in told]
    assert len(named) == len(values)
    assert set(named) <= flags


@pytest.mark.parametrize(
    "asked",
    [
        {"optimizer": "sgd"},
        {"train_loss": "sum"},
        {"train_output": "logits"},
        {"bucket_mib": 1.0},
        {"recompute": "full"},
        {"zero_stage": 1},
    ],
)
def test_options_of_training_are_refused_without_it(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is of training steps") as caught:
        ge.compile("gpt2", batch=1, seq=4, **asked)
    assert caught.value.where == f"option {next(iter(asked))!r}"
