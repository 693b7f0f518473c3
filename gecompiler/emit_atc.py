"""``--emit atc``: the command line that asks the graph engine's ATC for the same placement.

ATC places by strategy and not op by op: one stream, its automatic modes, and its own way of one
stream an engine can be asked for. Everything else is refused with a sentence.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gecompiler.emit_order import cannot, require_plain, soc_version

if TYPE_CHECKING:
    from gecompiler.driver import Compilation
    from gecompiler.request import Controls

MODES = {"cv": "cv", "load_balance": "LoadBalance", "main_stream": "MainStream"}
"""Our names of the automatic modes, and ATC's."""

MOST = 64
"""The largest N of an automatic mode."""


def emit_atc(compilation: Compilation, model: str, controls: Controls) -> str:
    """The command, one flag a line. UsageError with one sentence for what ATC has no flag for."""
    if compilation.cards is not None:
        raise cannot(
            "ATC compiles what one card runs, and has no flag that shares a model among cards as "
            "--tp, --sp, --dp, --pp and --ep do",
            "use --emit torchair, which writes the placement of every rank",
        )
    schedule = require_plain(compilation)
    soc = soc_version(compilation.device.name)
    _require_no_control(compilation, controls)
    built_in = not model.endswith(".onnx") and not Path(model).is_file()
    flags = [
        ("model", f"{model}/model.onnx" if built_in else model),
        ("framework", "5"),
        ("output", model if built_in else Path(model).stem),
        ("soc_version", soc),
    ]
    shapes = _shapes(compilation)
    if shapes:
        flags.append(("input_shape", shapes))
    flags += _placement(compilation)
    flags.append(("topo_sorting_mode", "3"))
    notes = []
    if built_in:
        notes.append(f"# gec compile {model} -o {model} writes the model\n")
    if schedule.sync_primitive == "notify":
        options = {"compile options": {"global": {"ge.event": "notify"}}}
        notes.append(f"# options.json holds {json.dumps(options)}\n")
        flags.append(("raw_ge_options", "options.json"))
    lines = [f"--{name}={shlex.quote(value)}" for name, value in flags]
    return "".join(notes) + " \\\n  ".join(["atc", *lines]) + "\n"


def _require_no_control(compilation: Compilation, controls: Controls) -> None:
    graph = compilation.graph
    placed = next((op for op in graph.ops if op.info.label), None)
    if controls.assignment or controls.strategy is not None or placed is not None:
        raise cannot(
            "ATC has no flag that places single ops, and this schedule does",
            "use --emit torchair, or leave assignments and labels out",
        )
    if compilation.result.user_points:
        raise cannot("ATC has no flag for sync points", "use --emit torchair")
    if any(op.info.cube_cores or op.info.vector_cores for op in graph.ops):
        raise cannot(
            "ATC limits the cores of the whole model (--aicore_num), not of single ops",
            "use --emit torchair, or leave the limits out",
        )


def _placement(compilation: Compilation) -> list[tuple[str, str]]:
    result = compilation.result
    if result.used < 2:
        return [("enable_single_stream", "true")]
    if result.chosen == "default":
        return []
    name, _, count = result.chosen.partition(":")
    if name not in MODES:
        raise cannot(
            f"ATC has no mode that places as {result.chosen} does",
            "use --emit torchair, or --strategy default, cv, load_balance:N or main_stream:N",
        )
    if name == "cv":
        return [("multi_stream_parallel_mode", "cv")]
    asked = count or str(min(result.requested or compilation.device.limits.max_streams, MOST))
    return [("multi_stream_parallel_mode", f"{MODES[name]}:{asked}")]


def _shapes(compilation: Compilation) -> str:
    """Sizes of the inputs as they were bound: ``ids:1,128;mask:1,128``."""
    graph = compilation.graph
    found = []
    for name in graph.inputs:
        tensor = graph.tensor(name)
        if tensor is not None and tensor.is_static and tensor.shape:
            found.append(f"{name}:{','.join(map(str, tensor.shape))}")
    return ";".join(found)
