from __future__ import annotations

import pytest

from gecompiler.ir.errors import UsageError
from gecompiler.ir.strict_yaml import load_yaml, load_yaml_lines


def test_plain_data_is_read_with_the_line_of_every_key() -> None:
    data, lines = load_yaml_lines("a:\n  b: [1, 2.5, x]\nc: null\n", "f")
    assert data == {"a": {"b": [1, 2.5, "x"]}, "c": None}
    assert lines["c",] == 3
    assert lines["a", "b"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", r"f\.yaml:2: key 'a' stands there twice"),
        ("a: &x 1\nb: *x", r"f\.yaml:1: anchors"),
        ("a: [", "no valid YAML"),
        ("a: !!python/object/apply:os.system [1]", "not taken"),
        ("{[1]: 2}", "plain word"),
        ("[" * 100 + "]" * 100, "levels"),
        ("a: 2024-99-99", "not taken|no valid"),
        ("\x00", "no valid YAML"),
    ],
)
def test_what_is_refused_names_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_yaml(text, "f.yaml")


def test_many_items_are_refused() -> None:
    with pytest.raises(UsageError, match="items"):
        load_yaml("[" + "1," * 250_000 + "]", "f")
