"""The ``--assign`` file: stream assignment, sync points and options in YAML.

It looks like this::

    assignment: {FlashAttention: 0, MLP gate: 1}
    sync_points:
      - {producer: FlashAttention, consumer: MLP, sync_type: data_ready}
    labels: {FlashAttention: attention}
    priorities: {FlashAttention: 1}
    core_limits: {MLP: {cube: 16, vector: 32}}
    options: {num_streams: 2}
"""

from __future__ import annotations

import os
from typing import Any

from gecompiler.files import read_text
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.option_table import Options
from gecompiler.request import Controls
from gecompiler.session import Session

SECTIONS = ("assignment", "sync_points", "labels", "priorities", "core_limits", "options")
POINT_KEYS = ("producer", "consumer", "sync_type")


def load_assignment(path: str | os.PathLike[str]) -> tuple[Options, Controls]:
    """What the file sets; UsageError names the file and the key at fault."""
    from gecompiler.ir.strict_yaml import load_yaml

    data = load_yaml(read_text(path, "the assignment file"), str(path))
    try:
        session = _apply(_mapping(data, "the file", SECTIONS))
    except UsageError as error:
        where = f"{path}: {error.where}" if error.where else str(path)
        raise UsageError(error.message, where=where, hint=error.hint) from None
    return session


def _apply(data: dict[str, Any]) -> tuple[Options, Controls]:
    session = Session()
    session.configure(_mapping(data.get("options"), "options"))
    session.set_stream_assignment(_mapping(data.get("assignment"), "assignment"))
    session.set_stream_labels(_mapping(data.get("labels"), "labels"))
    session.set_priorities(_mapping(data.get("priorities"), "priorities"))
    session.limit_core_num(_mapping(data.get("core_limits"), "core_limits"))
    points = data.get("sync_points")
    if points is not None and not isinstance(points, list):
        raise UsageError(f"expected a list, found {points!r}", where="sync_points")
    for point in points or ():
        found = _mapping(point, "sync_points", POINT_KEYS)
        missing = [key for key in POINT_KEYS[:2] if not isinstance(found.get(key), str)]
        if missing:
            raise UsageError(f"{missing[0]!r} is missing or no name", where="sync_points")
        session.add_sync_point(**found)
    return session.snapshot()


def _mapping(value: Any, where: str, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"expected keys and values, found {type(value).__name__}", where=where)
    for key in value:
        if known is not None and key not in known:
            raise UsageError(f"unknown key {key!r}", where=where, hint=nearest(key, known))
    return value
