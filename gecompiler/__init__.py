"""Compile an ONNX model the way a graph engine does and see it run on a simulated NPU.

    import gecompiler as ge
    model = ge.compile("model.onnx", batch=8, seq=1024)
    model.report()

The functions here act on one default `Session`. Everything is loaded on first use.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a checkout `ir`, `passes`, `backends` and `models` lie beside this folder and are found
# from here; an installed package has them inside.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "ir").is_dir():
    __path__.append(str(_root))

from gecompiler.backends import compiler_slot as _slot  # noqa: E402  (found from here on)

__version__ = "0.1.0"

_HOME = {
    "CompiledModel": "gecompiler.compiled",
    "ExecutionTimeline": "gecompiler.execution_timeline",
    "GecError": "gecompiler.ir.errors",
    "ModelError": "gecompiler.ir.errors",
    "ScheduleError": "gecompiler.ir.errors",
    "Session": "gecompiler.session",
    "StreamAssignStrategy": "gecompiler.passes.streams.custom",
    "UsageError": "gecompiler.ir.errors",
    "assign_to_stream": "gecompiler.passes.streams.custom",
    "set_language": "gecompiler.lang",
}

_OF_SESSION = (
    "add_sync_point",
    "clear",
    "compile",
    "configure",
    "device",
    "enable_profiling",
    "get_device_capability",
    "get_execution_timeline",
    "get_option",
    "limit_core_num",
    "options",
    "set_option",
    "set_priorities",
    "set_stream_assignment",
    "set_stream_labels",
    "set_stream_strategy",
)

_MODULES = ("ops", "profiler")
"""Modules that are loaded on first use."""

__all__ = ["default_session", *_MODULES, *sorted([*_HOME, *_OF_SESSION])]  # noqa: PLE0604

if TYPE_CHECKING:
    from gecompiler import ops as ops
    from gecompiler import profiler as profiler
    from gecompiler.compiled import CompiledModel as CompiledModel
    from gecompiler.execution_timeline import ExecutionTimeline as ExecutionTimeline
    from gecompiler.ir.errors import GecError as GecError
    from gecompiler.ir.errors import ModelError as ModelError
    from gecompiler.ir.errors import ScheduleError as ScheduleError
    from gecompiler.ir.errors import UsageError as UsageError
    from gecompiler.lang import set_language as set_language
    from gecompiler.passes.streams.custom import StreamAssignStrategy as StreamAssignStrategy
    from gecompiler.passes.streams.custom import assign_to_stream as assign_to_stream
    from gecompiler.session import Session as Session

    _typed = Session()
    add_sync_point = _typed.add_sync_point
    clear = _typed.clear
    compile = _typed.compile  # noqa: A001  (the name users expect: ge.compile)
    configure = _typed.configure
    device = _typed.device
    enable_profiling = _typed.enable_profiling
    get_device_capability = _typed.get_device_capability
    get_execution_timeline = _typed.get_execution_timeline
    get_option = _typed.get_option
    limit_core_num = _typed.limit_core_num
    options = _typed.options
    set_option = _typed.set_option
    set_priorities = _typed.set_priorities
    set_stream_assignment = _typed.set_stream_assignment
    set_stream_labels = _typed.set_stream_labels
    set_stream_strategy = _typed.set_stream_strategy


def default_session() -> Session:
    """The session that the module-level functions act on."""
    if "_default_session" not in globals():
        from gecompiler.session import Session as _Session

        globals()["_default_session"] = _Session()
    found: Session = globals()["_default_session"]
    return found


def _compiler() -> _slot.Compile:
    from gecompiler.onnx_runner import compile_model

    return compile_model


_slot.hand_in(_compiler)  # for the ONNX backend interface, which lies below


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _OF_SESSION:
        return getattr(default_session(), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'gecompiler' has no attribute {name!r}")
