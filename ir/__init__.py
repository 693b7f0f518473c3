"""The IR: Graph, types, dims, ops, text form, ONNX in and out, Schedule and Timeline.

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "Attr": "op",
    "Buffer": "schedule",
    "Constant": "constants",
    "DType": "types",
    "Demand": "schedule",
    "Dim": "dims",
    "Event": "schedule",
    "Evaluator": "target",
    "GecError": "errors",
    "Graph": "graph",
    "GraphError": "errors",
    "Limits": "schedule",
    "ModelError": "errors",
    "Op": "op",
    "OpInfo": "op",
    "Schedule": "schedule",
    "ScheduleError": "errors",
    "State": "graph",
    "Target": "target",
    "Task": "schedule",
    "TensorType": "types",
    "Timeline": "timeline",
    "UsageError": "errors",
    "infer_types": "infer",
    "load_onnx": "onnx_io.importer",
    "parse": "text",
    "save_onnx": "onnx_io.exporter",
    "symbol": "dims",
    "tensor": "types",
    "to_onnx": "onnx_io.exporter",
}

__all__ = sorted(_HOME)  # noqa: PLE0605  (built from the table above)

if TYPE_CHECKING:
    from gecompiler.ir.constants import Constant as Constant
    from gecompiler.ir.dims import Dim as Dim
    from gecompiler.ir.dims import symbol as symbol
    from gecompiler.ir.errors import GecError as GecError
    from gecompiler.ir.errors import GraphError as GraphError
    from gecompiler.ir.errors import ModelError as ModelError
    from gecompiler.ir.errors import ScheduleError as ScheduleError
    from gecompiler.ir.errors import UsageError as UsageError
    from gecompiler.ir.graph import Graph as Graph
    from gecompiler.ir.graph import State as State
    from gecompiler.ir.infer import infer_types as infer_types
    from gecompiler.ir.onnx_io.exporter import save_onnx as save_onnx
    from gecompiler.ir.onnx_io.exporter import to_onnx as to_onnx
    from gecompiler.ir.onnx_io.importer import load_onnx as load_onnx
    from gecompiler.ir.op import Attr as Attr
    from gecompiler.ir.op import Op as Op
    from gecompiler.ir.op import OpInfo as OpInfo
    from gecompiler.ir.schedule import Buffer as Buffer
    from gecompiler.ir.schedule import Demand as Demand
    from gecompiler.ir.schedule import Event as Event
    from gecompiler.ir.schedule import Limits as Limits
    from gecompiler.ir.schedule import Schedule as Schedule
    from gecompiler.ir.schedule import Task as Task
    from gecompiler.ir.target import Evaluator as Evaluator
    from gecompiler.ir.target import Target as Target
    from gecompiler.ir.text import parse as parse
    from gecompiler.ir.timeline import Timeline as Timeline
    from gecompiler.ir.types import DType as DType
    from gecompiler.ir.types import TensorType as TensorType
    from gecompiler.ir.types import tensor as tensor


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(f"gecompiler.ir.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gecompiler.ir' has no attribute {name!r}")
