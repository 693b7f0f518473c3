"""What values of options may be: each check gives the value in its final form or ValueError.

Values come from Python, from YAML and, as text, from the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def boolean(value: Any) -> bool:
    """True or false, also spelled on, off, 1 and 0."""
    spelled = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in spelled:
        return spelled[value.lower()]
    raise ValueError


def text(value: Any) -> str:
    """Text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise ValueError


def text_or_none(value: Any) -> str | None:
    """Text or a path; None, also spelled none."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return None if value is None or value == "none" else text(value)


def names(value: Any) -> tuple[str, ...]:
    """Names in a sequence, or in one text with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise ValueError


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(GiB|MiB|GB|MB|G|M)?", re.IGNORECASE)
_UNITS = {"gib": 2**30, "g": 2**30, "mib": 2**20, "m": 2**20, "gb": 10**9, "mb": 10**6, "": 1}


def memory_size(value: Any) -> int:
    """Bytes of ``64GiB``, ``512MiB``, ``80GB``; a number is of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ValueError
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def one_of(*choices: str) -> Callable[[Any], str]:
    """One of a few words."""

    def check(value: Any) -> str:
        if value in choices:
            return str(value)
        raise ValueError

    return check


def whole(low: int, high: int) -> Callable[[Any], int]:
    """A whole number in [low, high]."""

    def check(value: Any) -> int:
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return check


def number(low: float, high: float) -> Callable[[Any], float]:
    """A number in [low, high]."""

    def check(value: Any) -> float:
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        if not low <= value <= high:
            raise ValueError
        return float(value)

    return check


def or_auto(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """None, also spelled auto, or what ``check`` takes."""
    return lambda value: None if value is None or value == "auto" else check(value)


def seconds(value: Any) -> float:
    """Seconds above 0, up to a day."""
    found = number(0, 86_400)(value)
    if not found:
        raise ValueError
    return found


def engine_streams(value: Any) -> dict[str, int]:
    """Streams by engine, from a mapping or from ``ENGINE=N,ENGINE=N``."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not sign for _, sign, _ in pairs):
            raise ValueError
        value = {engine.strip(): count.strip() for engine, _, count in pairs}
    from gecompiler.backends.cost.engine import CPU, CUBE, HCCL, LOCAL, VECTOR

    if not isinstance(value, Mapping) or not set(value) <= {CUBE, VECTOR, CPU, LOCAL, HCCL}:
        raise ValueError
    found = {str(engine): whole(1, 4096)(count) for engine, count in value.items()}
    return dict(sorted(found.items()))


def opset(value: Any) -> int | None:
    """An opset that can be written; None, also spelled auto."""
    if value is None or value == "auto":
        return None
    from gecompiler.ir.onnx_io.schema import OLDEST_OPSET, newest_opset

    return whole(OLDEST_OPSET, newest_opset())(value)
