"""New keys and values as they are appended: checked, in the order of their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ops.layouts import heads_first, layout_named, sizes
from gecompiler.ops.paged_attention.config import PagedAttentionConfig
from gecompiler.ops.paged_attention.usage import SequenceId
from gecompiler.ops.sequences import cumulative, without_start

_WHERE = "append"


class NewTokens(NamedTuple):
    """Keys (T, G, D) and values (T, G, Dv) of the tokens of all sequences, one after the other."""

    key: Array
    value: Array
    counts: tuple[tuple[SequenceId, int], ...]
    """The sequences, each with its tokens."""


def read_tokens(
    config: PagedAttentionConfig,
    key: Array,
    value: Array,
    sequences: SequenceId | Sequence[SequenceId] | None,
    input_layout: str,
    actual_seq_len: Sequence[int] | None,
) -> NewTokens:
    """What is to be appended; UsageError says what does not fit the cache."""
    layout = layout_named(input_layout, _WHERE)
    parts = []
    for name, given, width in (
        ("key", np.asanyarray(key), config.head_dim),
        ("value", np.asanyarray(value), config.value_dim),
    ):
        if given.dtype != config.element_type:
            hint = f"{name}.astype({str(config.element_type)!r}), or another dtype of the cache"
            _refuse(f"{name} is {given.dtype}, the cache {config.element_type}", hint)
        hint = "kv_heads of PagedAttentionConfig is by default num_heads"
        try:
            found = sizes(name, given.shape, layout, config.kv_head_num, _WHERE)
        except UsageError as error:
            raise UsageError(
                error.message, where=_WHERE, hint="; ".join(filter(None, (error.hint, hint)))
            ) from None
        if found.width != width:
            _refuse(f"{name}'s heads are {found.width} wide, the cache's {width}", hint)
        parts.append((heads_first(given, layout, config.kv_head_num), found))
    (keys, k), (values, v) = parts
    if (k.batch, k.length) != (v.batch, v.length):
        _refuse(f"key has {(k.batch, k.length)} sequences and tokens, value {(v.batch, v.length)}")
    ends = [k.length * (b + 1) for b in range(k.batch)]
    if layout == "TND":
        ends = [k.length]
        if actual_seq_len is not None:
            ends = ends_of(actual_seq_len, k.length, "actual_seq_len", sequences, _WHERE)
    elif actual_seq_len is not None:
        _refuse("actual_seq_len belongs to layout TND")
    names = named(sequences, len(ends), _WHERE)
    lengths = [b - a for a, b in pairwise([0, *ends])]
    return NewTokens(
        keys.swapaxes(1, 2).reshape(-1, *keys.shape[1::2]),
        values.swapaxes(1, 2).reshape(-1, *values.shape[1::2]),
        tuple(zip(names, lengths, strict=True)),
    )


def named(
    sequences: SequenceId | Sequence[SequenceId] | None, count: int, where: str
) -> tuple[SequenceId, ...]:
    """The sequences of a batch of ``count``: 0, 1, ... where none are named."""
    if sequences is None:
        return tuple(range(count))
    names = listed(sequences, where)
    if len(names) != count:
        raise UsageError(
            f"{len(names)} sequences are named, the arrays hold {count}",
            where=where,
            hint="one for each entry of the batch",
        )
    if len(set(names)) != len(names):
        raise UsageError(f"a sequence is named twice: {names}", where=where)
    return tuple(names)


def listed(sequences: SequenceId | Sequence[SequenceId], where: str) -> list[SequenceId]:
    """The names given, one or several."""
    many = isinstance(sequences, Iterable) and not isinstance(sequences, str)
    given: Sequence[Any] = list(sequences) if many else [sequences]  # type: ignore[arg-type]
    return [sequence_id(name, where) for name in given]


def ends_of(
    given: Sequence[int],
    total: int,
    name: str,
    sequences: SequenceId | Sequence[SequenceId] | None,
    where: str,
) -> list[int]:
    """Where each sequence of ``total`` tokens ends, from lengths with or without a leading 0."""
    count = None if sequences is None else len(listed(sequences, where))
    return without_start(cumulative(given, total, name, "the array", where), count)


def prefix(sequence: SequenceId, there: int, length: int | None, where: str) -> int:
    """The tokens asked for of a sequence of ``there``; all of them for None."""
    if length is None:
        return there
    whole = isinstance(length, int | np.integer) and not isinstance(length, bool)
    if not whole or not 0 <= length <= there:
        raise UsageError(f"sequence {sequence!r} has {there} tokens, not {length!r}", where=where)
    return int(length)


def sequence_id(name: Any, where: str) -> SequenceId:
    """A sequence's name, an integer or text."""
    if isinstance(name, str):
        return name
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return int(name)
    raise UsageError(f"a sequence is named by an integer or text, found {name!r}", where=where)


def _refuse(message: str, hint: str = "") -> NoReturn:
    raise UsageError(message, where=_WHERE, hint=hint)
