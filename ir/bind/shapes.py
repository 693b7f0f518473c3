"""The spelling of shapes on the command line: ``name:1,128``, ``name:1x128``, ``name:?,128``."""

from __future__ import annotations

import re

from gecompiler.ir.errors import UsageError

MAX_SIZE = 2**31 - 1
"""The largest size of an axis; indices of real kernels are 32 bits wide."""

_SIZES = re.compile(r"(\?|\d+)(,(\?|\d+))*|(\?|\d+)(x(\?|\d+))*", re.IGNORECASE)


def parse_input_shape(text: str) -> tuple[str, tuple[int | None, ...]]:
    """The input's name and its sizes, None for ``?``; UsageError for anything else.

    What follows the last colon are the sizes, since names may hold colons themselves.
    """
    name, colon, sizes = text.rpartition(":")
    name, sizes = name.strip(), re.sub(r"\s+", "", sizes)
    if not colon or not name or not _SIZES.fullmatch(sizes):
        raise UsageError(
            f"expected NAME:SIZE,SIZE,..., found {text!r}",
            where="--input-shape",
            hint="for example input_ids:1,128 or input_ids:1x128; ? leaves a size open",
        )
    found = tuple(None if s == "?" else int(s) for s in re.split("[,x]", sizes.lower()))
    for size in found:
        if size is not None and not 1 <= size <= MAX_SIZE:
            raise UsageError(
                f"size {size} in {text!r} is not between 1 and {MAX_SIZE}",
                where="--input-shape",
                hint="every size is at least 1; ? leaves one open",
            )
    return name, found
