"""Counters of a parallel attention from shapes alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gecompiler.backends.device import Device
from gecompiler.ops.parallel.ranks import Ranks
from gecompiler.ops.parallel.result import (
    ParallelAttention,
    check_choice,
    check_ranks,
    finish,
    read_parallel,
)
from gecompiler.ops.parallel.sequence import PLACEMENTS, SEQUENCE_ALGORITHMS, run_sequence
from gecompiler.ops.parallel.tensor import COMBINES, KV_SOURCES, run_tensor
from gecompiler.ops.shapes import check_countable, shaped_arrays

_WHERE = "parallel_counters"

ALGORITHMS = (*SEQUENCE_ALGORITHMS, "heads")


def parallel_counters(
    algorithm: str,
    query_shape: Sequence[int],
    key_shape: Sequence[int],
    value_shape: Sequence[int] | None = None,
    *,
    head_num: int,
    ranks: int,
    dtype: DTypeLike = np.float16,
    placement: str = "contiguous",
    gather_output: bool = True,
    kv: str = "replicated",
    combine: str = "all_reduce",
    device: str | Device | None = None,
    **options: Any,
) -> ParallelAttention:
    """What arrays of these shapes would give, without any arithmetic; ``out`` is None.

    ``algorithm``: one of `sequence_parallel`, for which ``placement`` and ``gather_output``
    count, or ``"heads"``: `tensor_parallel`, with ``kv`` and ``combine``. The same code moves
    arrays of which only the shape exists, so that the bytes are those of a real call.
    """
    started_ns = time.perf_counter_ns()
    check_choice(algorithm, ALGORITHMS, "algorithm", _WHERE)
    check_choice(placement, PLACEMENTS, "placement", _WHERE)
    check_choice(kv, KV_SOURCES, "kv", _WHERE)
    check_choice(combine, COMBINES, "combine", _WHERE)
    q, k, v = shaped_arrays(query_shape, key_shape, value_shape, dtype, _WHERE)
    request = read_parallel((q, k, v), head_num, options, _WHERE)
    check_countable(request, _WHERE)
    group = Ranks(check_ranks(ranks, _WHERE), dry=True)
    if algorithm == "heads":
        out = run_tensor(request, group, kv, combine)
        return finish("tensor_parallel", request, group, out, started_ns, device)
    out = run_sequence(request, group, algorithm, placement, gather_output)
    return finish(f"sequence_parallel.{algorithm}", request, group, out, started_ns, device)
