"""Damage to bytes that knows nothing of what they mean."""

from __future__ import annotations

import random
from collections.abc import Callable

Damage = Callable[[bytearray, random.Random], bytes]

_NUMBERS = (
    *(b"\x00", b"\x7f", b"\xff\x01", b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01"),
    *(b"\x80" * 8 + b"\x40", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"),
)
"""Varints at the limits: 0, 127, 255, -1, the least, 2**62, the largest of 31 and of 32 bits."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes after one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_DAMAGE)(bytearray(data), rng)
    return data


def _flip_bits(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 3, 16)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _truncate(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data) + 1)])


def _splice(data: bytearray, rng: random.Random) -> bytes:
    """Puts a piece of the data somewhere else in it."""
    start, at = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    piece = data[start : start + rng.choice((1, 4, 32, 500))]
    data[at : at + rng.choice((0, len(piece)))] = piece
    return bytes(data)


def _cut_out(data: bytearray, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 2, 10, 100))]
    return bytes(data)


def _overwrite(data: bytearray, rng: random.Random) -> bytes:
    number, at = rng.choice(_NUMBERS), rng.randrange(len(data) + 1)
    data[at : at + rng.choice((1, len(number)))] = number
    return bytes(data)


def _repeat(data: bytearray, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return bytes(data[:at] + data[at : at + 40] * rng.choice((2, 10, 200)) + data[at:])


_DAMAGE: tuple[Damage, ...] = (
    *(_flip_bits, _flip_bits, _truncate, _splice, _cut_out, _overwrite, _overwrite, _repeat),
)
