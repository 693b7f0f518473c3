"""What one compilation is asked to do, gathered from the API or the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecompiler.option_table import Options

if TYPE_CHECKING:
    from gecompiler.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """An order the user demands between two names (see interfaces: how names match)."""

    producer: str
    consumer: str
    sync_type: str = "data_ready"


@dataclass(frozen=True)
class Controls:
    """What the user decided about streams, beside the options."""

    assignment: Mapping[str, int] = field(default_factory=dict)
    sync_points: tuple[SyncPoint, ...] = ()
    strategy: Any = None
    """A `StreamAssignStrategy`, or None."""
    labels: Mapping[str, str] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    core_limits: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """(cube cores, vector cores) by name, None for no limit."""


@dataclass(frozen=True)
class Request:
    """One compilation. Sizes left out follow interfaces.md (batch 1, others 128)."""

    source: Any
    """A path, the name of a model, an onnx.ModelProto, bytes, or a Graph."""
    batch: int | None = None
    seq: int | None = None
    input_shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    arrays: Mapping[str, Any] | None = None
    """Inputs whose sizes decide, when there are any."""
    observe: bool = False
    """Whether sizes that only a run can tell are found by running the model on `arrays`."""
    options: Options = field(default_factory=Options)
    controls: Controls = field(default_factory=Controls)
    stop_after: str | None = None
    dump: Callable[[str, Graph], None] | None = None
    base: Path | None = None
    """Folder that relative paths in `source` start from (default: the current one)."""
