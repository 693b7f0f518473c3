"""Changes to data that YAML or JSON spells, and to the texts themselves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import yaml
from fuzz_bytes import damaged
from fuzz_model import NAMES

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3.5, 1e308, -0.0, 2**31, 2**63, 2**64, -(2**63), 10**40),
    *(float("nan"), float("inf"), float("-inf"), 5e-324, "", "1", "1e400", "nan", "x", "auto"),
    *([], {}, [1, 2], {"a": 1}, [[]], [None], ["x"] * 1000, {"x": {"x": {"x": {}}}}, "a" * 100_000),
    *("../../secret.yaml", "/etc/passwd", "evil.py", "{in}/evil.py", "ascend910", "2026-01-01"),
    *NAMES,
)

Path_ = tuple[Any, ...]


def changed_data(data: Any, rng: random.Random) -> Any:
    """The data after one to three changes at places in it."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(data, ()))
        path = rng.choice(places)
        if not path:
            if rng.random() < 0.05:
                return rng.choice(VALUES)
            continue
        holder = data
        for step in path[:-1]:
            holder = holder[step]
        _change(holder, path[-1], rng)
    return data


def _places(data: Any, path: Path_) -> Any:
    yield path
    if isinstance(data, dict):
        for key in data:
            yield from _places(data[key], (*path, key))
    elif isinstance(data, list):
        for index in range(min(len(data), 20)):
            yield from _places(data[index], (*path, index))


def _change(holder: Any, key: Any, rng: random.Random) -> None:
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[_misspelt(str(key), rng)] = holder.pop(key)
        case 2 if isinstance(holder, dict):
            holder[rng.choice((None, 1, True, 1.5, *NAMES))] = rng.choice(VALUES)
        case 2:
            holder.extend([holder[key]] * rng.choice((1, 2, 500)))
        case 3 if isinstance(holder[key], int | float):
            number = holder[key] * rng.choice((-1, 0, 10, 1e6, 1e-9, 2**40))
            holder[key] = int(number) if rng.random() < 0.5 and abs(number) < 1e300 else number
        case 4:
            for _ in range(rng.choice((1, 3, 60))):
                holder[key] = [holder[key]] if rng.random() < 0.5 else {"x": holder[key]}
        case 5:
            holder[key] = str(holder[key])
        case _:
            holder[key] = rng.choice(VALUES)


def _misspelt(key: str, rng: random.Random) -> str:
    at = rng.randrange(len(key) + 1)
    return rng.choice((key[:at] + key[at + 1 :], key[:at] + "x" + key[at:], key.upper(), key + " "))


def yaml_text(data: Any) -> bytes:
    """The data as YAML, without anchors."""
    dumper = yaml.SafeDumper
    dumper.ignore_aliases = lambda *_: True  # type: ignore[assignment,method-assign]
    return yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True).encode(
        "utf-8", "surrogatepass"
    )


def json_text(data: Any) -> bytes:
    """The data as JSON, NaN and infinities as Python spells them."""
    return json.dumps(data, skipkeys=True).encode()


Trick = Callable[[bytes, random.Random], bytes]


def changed_yaml(text: bytes, rng: random.Random) -> bytes:
    """A YAML file changed: its data, its spelling, or its bytes."""
    way = rng.random()
    if way < 0.55:
        return yaml_text(changed_data(yaml.safe_load(text), rng))
    if way < 0.75:
        return damaged(text, rng)
    return rng.choice(_YAML_TRICKS)(text, rng)


def changed_json(text: bytes, rng: random.Random) -> bytes:
    """A JSON file changed: its data, its spelling, or its bytes."""
    way = rng.random()
    if way < 0.65:
        return json_text(changed_data(json.loads(text), rng))
    if way < 0.85:
        return damaged(text, rng)
    return rng.choice(_JSON_TRICKS)(text, rng)


def _line_twice(text: bytes, rng: random.Random) -> bytes:
    lines = text.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]])


def _line_in(line: bytes) -> Trick:
    def trick(text: bytes, rng: random.Random) -> bytes:
        lines = text.split(b"\n")
        at = rng.randrange(len(lines) + 1)
        return b"\n".join([*lines[:at], line, *lines[at:]])

    return trick


def _around(before: bytes, after: bytes = b"") -> Trick:
    return lambda text, _: before + text + after


def _encoded(name: str) -> Trick:
    return lambda text, _: text.decode(errors="replace").encode(name)


def _instead(text: bytes) -> Trick:
    return lambda _text, _rng: text


def _tagged(text: bytes, rng: random.Random) -> bytes:
    tag = rng.choice(
        (b"!!python/object/apply:os.system ['touch INJECTED'] ", b"!!set ", b"!!binary ", b"!x ",
         b"!!timestamp ", b"!!int ", b"!!float ", b"!!python/name:os.system ", b"&a ", b"*a ")
    )  # fmt: skip
    return text.replace(b": ", b": " + tag, rng.choice((1, 2, 5)))


def _bomb() -> bytes:
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]".encode() for i in range(1, 30)]
    return b"\n".join(lines)


_DEEP = 100_000
_COMMON: tuple[Trick, ...] = (
    _line_twice,
    *(_around(b"\xef\xbb\xbf"), _around(b"\x00"), _around(b"", b"\x00"), _around(b"\t")),
    *(_encoded("utf-16"), _encoded("utf-32"), _instead(b""), _instead(b"\xff" * 1000)),
    *(_instead(b"[" * _DEEP), _instead(b'{"a":' * _DEEP), _instead(b"[" * _DEEP + b"]" * _DEEP)),
    *(_instead(b"[" + b"1," * 3_000_000 + b"1]"), _instead(b'"' + b"a" * 20_000_000 + b'"')),
    *(_instead(b"9" * 100_000), _instead(b"1e" + b"9" * 50), _instead(b"null"), _instead(b"[]")),
)
_YAML_TRICKS: tuple[Trick, ...] = (
    *(
        _tagged,
        _tagged,
        _tagged,
        _instead(_bomb()),
        _line_in(b"<<: {a: 1}"),
        _line_in(b"? [1]\n: 2"),
    ),
    *(
        _line_in(b"<<: *x"),
        _line_in(b"---"),
        _line_in(b"..."),
        _line_in(b"%YAML 9.9"),
        _line_in(b"- x"),
    ),
    *(_around(b"x: &x\n"), _line_in(b"1: 2"), _line_in(b"~: 2"), _line_in(b"on: yes")),
    *(_line_in(b"? " * 2000), _line_in(b"- " * 2000), _line_in(b"x: 1e400"), _line_in(b"x: .nan")),
    *(_line_in(b"x: 0o777777777777777777777777"), _line_in(b"x: 1:2:3"), _line_in(b"a: |\n b")),
    *(
        _line_in(b"x: 190:20:30.15"),
        _line_in(
            b"x: =",
        ),
        _line_in(b"x: 0x"),
        _line_in(b"x: 0b_"),
    ),
    *_COMMON,
)
_JSON_TRICKS: tuple[Trick, ...] = (
    *(_around(b"[", b"]"), _around(b"", b"{}"), _around(b"//\n"), _encoded("utf-8-sig")),
    *(_instead(b'{"a": 1, "a": 2}'), _instead(b"NaN"), _instead(b"-"), _instead(b'"\\ud800"')),
    *_COMMON,
)


def changed_csv(text: bytes, rng: random.Random) -> bytes:
    """A table changed: its cells, its columns, or its bytes."""
    way = rng.random()
    if way < 0.2:
        return damaged(text, rng)
    if way < 0.35:
        return rng.choice(_CSV_TRICKS)(text, rng)
    rows = [line.split(b",") for line in text.split(b"\n")]
    for _ in range(rng.choice((1, 2, 5, 50))):
        row = rng.choice(rows[: rng.choice((1, len(rows)))])
        at = rng.randrange(len(row))
        match rng.randrange(4):
            case 0:
                del row[at]
                row.extend([b""] * (not row))
            case 1:
                row.insert(at, rng.choice(row))
            case _:
                row[at] = rng.choice(_CELLS)
    return b"\n".join(b",".join(row) for row in rows)


_CELLS = (
    *(b"", b"N/A", b"-1", b"0", b"nan", b"inf", b"1e400", b"1e308", b"9" * 400, b"0x10", b"1_000"),
    *(b'"', b'""', b'"a\nb"', b"\x1b]0;INJECTED\x07", b'"x\nINJECTED: line"', b"\x00", b"\xff\xfe"),
    *(
        b'"4611686018427387904,4611686018427387904"',
        b'"-1,2"',
        b'";;;"',
        b'"1,2;3"',
        b"a" * 200_000,
    ),
    *(b"=cmd|' /C calc'!A0", b"[red]x[/]", b"\xd9\xa4", b"1736412474730135222", b"-1e300", b"true"),
)
_CSV_TRICKS: tuple[Trick, ...] = (
    *_COMMON[:12],
    *(_around(b'"'), _instead(b"Op Name,Task Duration(us)\n" + b"a,1\n" * 300_000)),
    *(_instead(b"," * 3_000_000), _instead(b"a" * 30_000_000), _instead(b"\n" * 3_000_000)),
    *(_instead(b'"' + b"a," * 3_000_000), _encoded("utf-8-sig"), _around(b"x\n")),
)
