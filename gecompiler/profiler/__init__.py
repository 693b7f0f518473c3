"""A profiler in the shape of torch's, for the operators of `gecompiler.ops`.

    from gecompiler import ops, profiler
    with profiler.profile(record_shapes=True, profile_memory=True) as prof:
        ops.flash_attention(query, key, value, head_num=64)
    print(prof.key_averages().table(sort_by="npu_time_total"))
    prof.export_chrome_trace("trace.json")

Host times are this process's; device times and counters are those of the device's model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "EventAverage": "gecompiler.profiler.averages",
    "EventList": "gecompiler.profiler.averages",
    "ProfilerActivity": "gecompiler.profiler.profiling",
    "profile": "gecompiler.profiler.profiling",
}

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from gecompiler.profiler.averages import EventAverage as EventAverage
    from gecompiler.profiler.averages import EventList as EventList
    from gecompiler.profiler.profiling import ProfilerActivity as ProfilerActivity
    from gecompiler.profiler.profiling import profile as profile


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gecompiler.profiler' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
