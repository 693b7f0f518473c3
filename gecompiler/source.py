"""Finding the model that a user means: a file, a built-in name, a proto or a graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ModelError, UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.request import Request


@contextmanager
def naming_file(source: Any) -> Iterator[None]:
    """Puts the model's file before what a ModelError says of a node, where it is missing."""
    try:
        yield
    except ModelError as error:
        name = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
        if name and name not in str(error):
            error.where = f"{name}: {error.where}" if error.where else name
        raise


def refuse_overwriting(source: Any, path: str | os.PathLike[str] | None) -> None:
    """UsageError where writing to ``path`` would replace the model that is compiled."""
    if path is None or not isinstance(source, str | os.PathLike):
        return
    try:
        same = os.path.samefile(source, path)
    except (OSError, ValueError):  # there is none, or its name cannot be one
        return
    if same:
        raise UsageError(
            "this is the model itself, which it would replace",
            where=os.fspath(path),
            hint="name another place for what is written",
        )


def load_source(request: Request, diagnostics: Diagnostics) -> Graph:
    """The graph of `Request.source`; GecError when there is none.

    A name of ``models/`` wins only when no file of that name exists.
    """
    source = request.source
    if isinstance(source, Graph):
        return source.copy()
    if isinstance(source, str | os.PathLike):
        return _load_named(os.fspath(source), request.batch, request.seq, diagnostics)
    if isinstance(source, bytes) or type(source).__name__ == "ModelProto":
        return _load_onnx(source, diagnostics)
    raise UsageError(
        f"expected a path, a model's name, an onnx.ModelProto or a Graph, found {source!r:.80}",
        where="compile",
    )


def _load_named(name: str, batch: int | None, seq: int | None, diagnostics: Diagnostics) -> Graph:
    from gecompiler.models import build, check_sizes, names

    if Path(name).exists() or name.endswith(".onnx"):
        return _load_onnx(name, diagnostics)
    stem = name.partition(":")[0]
    if stem in names():
        check_sizes(name, batch, seq)
        return build(name)
    raise UsageError(
        "neither a file nor the name of a model",
        where=name,
        hint=f"{nearest(stem, names())} (`gec models` lists them; a file ends in .onnx)",
    )


def _load_onnx(source: Any, diagnostics: Diagnostics) -> Graph:
    from gecompiler.ir.onnx_io.importer import load_onnx

    return load_onnx(source, diagnostics=diagnostics)
