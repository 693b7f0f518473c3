"""Cases that tell in words of numbers of nodes and tasks: the cut into physical streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gecompiler.passes.streams.physical import PhysicalStreams, Place, split_streams

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBER = rf"(\d+|{'|'.join(WORDS)})"


def split_rows(part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, expected, got) for the case, and for the same in single-stream mode."""
    told = " ".join(
        f"{k}: {v}" if v is not None else k
        for k, v in part.items()
        if not k.startswith(("expect", "if_"))
    )
    places = _places(told)
    for key, single in (("expect", False), ("if_single_stream", True)):
        if key in part:
            found = split_streams(places, single_stream=single)
            expected = dict(part[key])
            name = f"{told}{', single stream' if single else ''}"
            yield name, expected, {k: _fact(k, found) for k in expected}


def _places(told: str) -> list[Place]:
    each = re.search(r"tasks_each: (\d+)", told)
    tasks = int(each[1]) if each else 1
    both = re.search(
        r"(\d+) nodes each (\d+) tasks on main (\d+) and (\d+) on attached (\d+)", told
    )
    if both:
        count, on_main, main, on_attached, attached = map(int, both.groups())
        places = [Place(main, on_main, attached, on_attached)] * count
        return [*places, Place(main, 1)] if "NetOutput" in told else places
    several = re.search(rf"{NUMBER} streams; S(\d+) has (\d+) nodes", told)
    if several:
        places = [Place(s, tasks) for s in range(_number(several[1])) if s != int(several[2])]
        return [*places, *[Place(int(several[2]), tasks)] * int(several[3])]
    listed = re.findall(rf"{NUMBER} \w+\((\d+) tasks(?: each)?\)", told)
    if listed:
        return [Place(0, int(each_)) for n, each_ in listed for _ in range(_number(n))]
    plain = re.search(r"chain: (\d+)", told)
    if plain is None:
        raise ValueError(f"no form of a case: {told!r}")
    return [Place(0, tasks)] * int(plain[1])


def _number(word: str) -> int:
    return int(word) if word.isdigit() else WORDS.index(word)


def _fact(key: str, found: PhysicalStreams) -> Any:
    if key == "streams":
        return len(found.logical)
    if key == "events":
        return len(found.events)
    if key == "huge":
        return found.huge
    if key == "split_at_index":
        return _first_change(found.main)
    if key == "logical_of":
        last = max(found.logical)
        return {s: found.logical[s] for s in range(min(_cut(found), default=last), last + 1)}
    after = re.fullmatch(r"(main|attached)_after_(\d+)", key)
    if after is None:
        return None
    return (found.main if after[1] == "main" else found.attached)[int(after[2])]


def _cut(found: PhysicalStreams) -> list[int]:
    """The logical streams that were cut."""
    return [of for s, of in found.logical.items() if s != of]


def _first_change(stream: Sequence[int]) -> int | None:
    return next((i for i in range(1, len(stream)) if stream[i] != stream[i - 1]), None)
