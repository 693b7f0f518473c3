from __future__ import annotations

import re

import pytest

from gecompiler.ir.errors import UsageError
from gecompiler.option import Option
from gecompiler.option_table import TABLE, Options


def test_every_option_accepts_its_own_default() -> None:
    options = Options()
    for option in TABLE:
        options.set(option.name, option.default)
        assert options.get(option.name) == option.default
        assert option.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("num_streams", "auto", None),
        ("num_streams", "4", 4),
        ("overlap_ratio", "0.5", 0.5),
        ("overlap_ratio", 1, 1.0),
        ("enable_stream_parallel", "off", False),
        ("disable_passes", "a, b", ("a", "b")),
        ("search_tasks", "0", 0),
        ("memory_priority", True, True),
        ("engine_streams", "VectorEngine=2, DNN_HCCL=3", {"DNN_HCCL": 3, "VectorEngine": 2}),
        ("engine_streams", {"AIcoreEngine": "2"}, {"AIcoreEngine": 2}),
        ("tp", "8", 8),
        ("topology", "none", None),
        ("micro_batches", "auto", None),
    ],
)
def test_spellings_that_are_accepted(name: str, value: object, found: object) -> None:
    options = Options({name: value})
    assert options.get(name) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_streams", 0),
        ("num_streams", True),
        ("num_streams", 2.5),
        ("num_streams", "many"),
        ("overlap_ratio", 1.5),
        ("overlap_ratio", "x"),
        ("overlap_ratio", float("nan")),
        ("pipeline_depth", -1),
        ("enable_stream_parallel", "maybe"),
        ("device", 5),
        ("launch_mode", "graph"),
        ("launch_mode", True),
        ("disable_passes", [1]),
        ("search_tasks", -1),
        ("search_tasks", 1.5),
        ("memory_priority", "much"),
        ("engine_streams", "VectorEngine"),
        ("engine_streams", "VectorEngine=0"),
        ("engine_streams", {"VectorEngin": 2}),
        ("engine_streams", 3),
        ("tp", 0),
        ("sp", True),
        ("dp", "two"),
        ("pp", -1),
        ("ep", 1.5),
        ("topology", 8),
        ("micro_batches", 0),
        ("pipeline_schedule", "1f2b"),
        ("pipeline_chunks", 0),
        ("sequence_exchange", "rings"),
        ("shared_kv_heads", "whole"),
        ("embeddings", "cut"),
        ("expert_tokens", "whole"),
        ("collective_algorithm", ""),
    ],
)
def test_a_wrong_value_names_option_expectation_and_find(name: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        Options({name: value})
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert "expected" in str(caught.value)


LIMITED = [
    (option, int(found[1]))
    for option in TABLE
    if (found := re.search(r"\bnumber .*?(?:to|up to) (\d+)", option.accepts))
]


@pytest.mark.parametrize(("option", "most"), LIMITED, ids=lambda v: getattr(v, "name", str(v)))
def test_the_upper_limit_that_is_told_holds(option: Option, most: int) -> None:
    assert _takes(option, most)
    assert not _takes(option, most + 1)


def test_every_option_with_an_upper_limit_tells_it() -> None:
    """What takes 16 or 1 and refuses numbers without end has a limit."""
    told = {option.name for option, _ in LIMITED} | {"target_opset"}
    for option in TABLE:
        takes = any(_takes(option, n) for n in (1, 16, 64) if not isinstance(option.default, bool))
        if takes and not _takes(option, 10**30):
            assert option.name in told, option.accepts


def _takes(option: Option, value: int) -> bool:
    try:
        option.check(value)
    except (ValueError, TypeError):
        return False
    return True


def test_an_unknown_option_gets_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="num_streams"):
        Options().set("num_stream", 2)


def test_an_update_with_one_wrong_value_changes_nothing() -> None:
    options = Options()
    with pytest.raises(UsageError):
        options.update({"num_streams": 3, "overlap_ratio": 7})
    assert options.get("num_streams") is None


def test_a_copy_is_independent() -> None:
    options = Options()
    twin = options.copy()
    twin.set("num_streams", 2)
    assert options.get("num_streams") is None
