"""Profiles from strangers: every mistake is told with its line, and nothing blows up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecompiler.backends.device import load_device
from gecompiler.ir.errors import UsageError

GOOD = """\
version: 1
name: mycard
description: my own
extends: ascend910b
figures:
  hbm_bandwidth_gb_per_s: {value: 1500, source: my test, kind: measured}
"""


def load(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "card.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    load_device(str(path))


def fails(tmp_path: Path, text: str | bytes, message: str, line: int | None = None) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load(tmp_path, text)
    if line is not None:
        assert re.search(rf"card\.yaml:{line}: ", str(caught.value)), str(caught.value)


def test_a_profile_may_extend_a_built_in_one(tmp_path: Path) -> None:
    path = tmp_path / "card.yml"
    path.write_text(GOOD)
    device, base = load_device(str(path)), load_device("ascend910b")
    assert device.name == "mycard"
    assert device.hbm_bandwidth_gb_per_s == 1500
    assert device.cube_cores == base.cube_cores
    own = next(f for f in device.figures() if f.name == "hbm_bandwidth_gb_per_s")
    assert (own.source, own.kind) == ("my test", "measured")


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("figures:", "figure:", "unknown key 'figure'[\\s\\S]*'figures'", 5),
        ("hbm_bandwidth_gb_per_s", "hbm_bandwith_gb_per_s", "did you mean 'hbm_bandwidth_gb", 6),
        ("hbm_bandwidth_gb_per_s", "hbm_bandwidth", "unit is part of the name: hbm_bandwidth_", 6),
        ("1500", "-3", "impossible", 6),
        ("1500", ".inf", "expected a number", 6),
        ("1500", ".nan", "expected a number", 6),
        ("1500", "9" * 5000, "expected a number|value that is not taken|impossible", 6),
        ("1500", "1500 GB/s", "expected a number[\\s\\S]*plain number", 6),
        ("1500", "true", "expected a number", 6),
        ("1500", "[1500]", "expected a number", 6),
        ("1500", "", "expected a number", 6),
        ("value: 1500, ", "", "has no 'value'", 6),
        ("source: my test, ", "", "has no 'source'", 6),
        ("my test", "''", "source of", 6),
        (", kind: measured", "", "has no 'kind'", 6),
        ("measured", "guessed", "vendor, measured, derived", 6),
        ("kind: measured", "kind: measured, note: x", "unknown key 'note'", 6),
        ("{value: 1500, source: my test, kind: measured}", "1500", "must be a mapping", 6),
        ("version: 1", "version: 2", "'version: 1' is expected", 1),
        ("version: 1", "version: true", "'version: 1' is expected", 1),
        ("name: mycard", "name: 7", "name must be given as text", 2),
        ("extends: ascend910b", "extends: ascend911", "no built-in profile", 4),
        ("extends: ascend910b", "extends: ../evil", "no built-in profile", 4),
        ("extends: ascend910b\n", "", "figures are missing", None),
        ("name: mycard", "name: a\nname: b", "twice", 3),
        ("description: my own", "aliases: x", "aliases must be a list", 3),
    ],
)
def test_mistakes_are_told_with_their_line(
    tmp_path: Path, old: str, new: str, message: str, line: int | None
) -> None:
    assert old in GOOD
    fails(tmp_path, GOOD.replace(old, new), message, line)


def figure(name: str, value: str) -> str:
    return GOOD + f"  {name}: {{value: {value}, source: s, kind: derived}}\n"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cube_cores", "2.5", "whole number"),
        ("cube_cores", "0", "impossible"),
        ("hidden_fraction", "1.2", "impossible"),
        ("cube_vector_split", "maybe", "true or false"),
        ("launch_mode", "magic", "sunk or host"),
    ],
)
def test_each_kind_of_figure_is_checked(
    tmp_path: Path, name: str, value: str, message: str
) -> None:
    fails(tmp_path, figure(name, value), message, 7)


def test_a_number_in_the_e_notation_people_write_is_taken(tmp_path: Path) -> None:
    load(tmp_path, GOOD.replace("1500", "1.5e3"))
    load(tmp_path, GOOD.replace("1500", "1e3"))


def test_alias_bomb_is_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    fails(tmp_path, bomb, "anchors and aliases", 1)


def test_depth_size_and_encoding_are_bounded(tmp_path: Path) -> None:
    fails(tmp_path, "[" * 100_000, "levels|no valid YAML")
    fails(tmp_path, "x" * 300_000, "larger than")
    fails(tmp_path, b"\xff\xfe\x00", "UTF-8")
    fails(tmp_path, "", "must be a mapping")
    fails(tmp_path, "!!python/object/apply:os.system ['true']", "tag")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_device(str(tmp_path / "none.yaml"))
    (tmp_path / "dir.yaml").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load_device(str(tmp_path / "dir.yaml"))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, len(GOOD)), st.text(max_size=8), st.integers(0, 12))
def test_any_damage_loads_or_is_a_usage_error(
    tmp_path: Path, at: int, insert: str, cut: int
) -> None:
    text = GOOD[:at] + insert + GOOD[at + cut :]
    message = ""
    try:
        load(tmp_path, text.encode("utf-8", "replace"))
    except UsageError as error:
        message = str(error)
    assert not message or "card.yaml" in message
