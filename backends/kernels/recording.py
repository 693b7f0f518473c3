"""Calls of attention, told to the recorders that listen."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping, Sequence

from gecompiler.backends.counters import OperatorCall, listeners
from gecompiler.backends.kernels.attention_counters import Part, count
from gecompiler.ir.constants import Array


def record(
    name: str,
    parts: Sequence[Part],
    arrays: Sequence[Array | None],
    results: Sequence[Array | None],
    started_ns: int,
    *,
    host_ns: int | None = None,
    backward: bool = False,
    more_reads: Mapping[str, float] | None = None,
) -> None:
    """Tells every listening recorder of a call that has just ended, or took ``host_ns``."""
    if host_ns is None:
        host_ns = time.perf_counter_ns() - started_ns
    for recorder in listeners():
        given = [a for a in arrays if a is not None]
        call = OperatorCall(
            name=name,
            shapes=tuple(tuple(a.shape) for a in given),
            dtypes=tuple(str(a.dtype) for a in given),
            counters=count(
                recorder.device, parts, op=name, backward=backward, more_reads=more_reads
            ),
            started_ns=started_ns,
            host_ns=host_ns,
            memory_bytes=sum(a.nbytes for a in results if a is not None),
            stack=_stack() if recorder.stacks else (),
            thread=threading.get_ident(),
        )
        recorder.calls.append(call)


_OURS = ("gecompiler.backends.kernels.", "gecompiler.ops.")


def _stack() -> tuple[str, ...]:
    """The lines of code that lead to the operator, innermost first, ours left out."""
    return tuple(
        f"{frame.f_code.co_filename}({line}): {frame.f_code.co_name}"
        for frame, line in traceback.walk_stack(None)
        if not str(frame.f_globals.get("__name__")).startswith(_OURS)
    )
