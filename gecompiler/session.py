"""A Session: options, stream assignment, sync points, strategy, and the last timeline.

The module-level functions of ``gecompiler`` act on one default session; a session of one's
own shares nothing with others, so that several threads can each have theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.mark_values import check_cores, check_label, check_priority, checked_marks
from gecompiler.option_table import Options
from gecompiler.request import Controls, Request, SyncPoint
from gecompiler.sizes import size_of, sizes_of, whole_number

if TYPE_CHECKING:
    from gecompiler.backends.device import Device
    from gecompiler.compiled import CompiledModel
    from gecompiler.execution_timeline import ExecutionTimeline

SYNC_TYPES = ("data_ready", "buffer_free", "control")


class Session:
    """Isolated state of the compiler. Keyword arguments are options (see `set_option`)."""

    def __init__(self, **options: Any) -> None:
        self._lock = threading.RLock()
        self._options = Options(options)
        self._assignment: dict[str, int] = {}
        self._points: list[SyncPoint] = []
        self._strategy: Any = None
        self._marks: dict[str, dict[str, Any]] = {"labels": {}, "priorities": {}, "core_limits": {}}
        self._profiling = False
        self._timeline: ExecutionTimeline | None = None

    # ------------------------------------------------------------- options

    def set_option(self, name: str, value: Any) -> None:
        """Sets an option; UsageError for an unknown name or value."""
        with self._lock:
            self._options.set(name, value)

    def get_option(self, name: str) -> Any:
        """The value of an option."""
        return self._options.get(name)

    def options(self) -> dict[str, Any]:
        """All options and their values."""
        return self._options.as_dict()

    def configure(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Sets many options at once, all or none."""
        with self._lock:
            self._options.update({**_options(values), **more})

    # ------------------------------------------------------------- streams

    def set_stream_assignment(self, assignment: Mapping[str, int]) -> None:
        """Places ops by name on streams; replaces the assignment made before.

        A key is an op's exact name, its type, its group ("MLP gate"), or a glob. Names are
        looked up when a model is compiled.
        """
        if not isinstance(assignment, Mapping):
            raise UsageError(
                f"expected names and streams, found {assignment!r}", where="set_stream_assignment"
            )
        for name, stream in assignment.items():
            if not isinstance(name, str) or whole_number(stream) is None:
                raise UsageError(
                    f"expected a name and the number of a stream, found {name!r}: {stream!r}",
                    where="set_stream_assignment",
                )
            if stream < 0:
                raise UsageError(
                    f"stream {stream} of {name!r} is below 0", where="set_stream_assignment"
                )
        with self._lock:
            self._assignment = {name: int(stream) for name, stream in assignment.items()}

    def set_stream_labels(self, labels: Mapping[str, str]) -> None:
        """Labels ops by name; ops of one label share a stream. Replaces the labels before.

        Names are those of `set_stream_assignment`. The name of an op of the model as it comes
        labels it from the start: fusion then keeps a label that all its members share, and is
        refused, with a word on it, where they differ.
        """
        self._mark("labels", labels, "set_stream_labels", check_label)

    def set_priorities(self, priorities: Mapping[str, int]) -> None:
        """Gives ops priorities by name (default 0); of those that may go the highest goes first."""
        self._mark("priorities", priorities, "set_priorities", check_priority)

    def limit_core_num(self, limits: Mapping[str, Any]) -> None:
        """Limits the cores of ops by name: ``{name: (cube cores, vector cores)}``.

        None is no limit; more than the device has is no limit either. Replaces those before.
        """
        self._mark("core_limits", limits, "limit_core_num", check_cores)

    def _mark(self, kind: str, given: Any, where: str, check: Callable[[Any], Any]) -> None:
        found = checked_marks(given, where, check)
        with self._lock:
            self._marks[kind] = found

    def add_sync_point(self, producer: str, consumer: str, sync_type: str = "data_ready") -> None:
        """Demands that ``consumer`` starts after ``producer`` ended."""
        for end in (producer, consumer):
            if not isinstance(end, str):
                raise UsageError(f"expected a name, found {end!r}", where="add_sync_point")
        if sync_type not in SYNC_TYPES:
            raise UsageError(
                f"no sync type {sync_type!r}",
                where="add_sync_point",
                hint=nearest(sync_type, SYNC_TYPES),
            )
        with self._lock:
            self._points.append(SyncPoint(producer, consumer, sync_type))

    def set_stream_strategy(self, strategy: Any) -> None:
        """Uses a custom `StreamAssignStrategy` (an instance), or a strategy by name."""
        from gecompiler.passes.streams.custom import StreamAssignStrategy

        with self._lock:
            if isinstance(strategy, str):
                self._options.set("stream_strategy", strategy)
                self._strategy = None
            elif strategy is None or isinstance(strategy, StreamAssignStrategy):
                self._strategy = strategy
            else:
                raise UsageError(
                    f"expected an instance of StreamAssignStrategy, found {strategy!r}",
                    where="set_stream_strategy",
                    hint="derive a class from ge.StreamAssignStrategy and give an instance of it",
                )

    def clear(self) -> None:
        """Forgets assignments, marks, sync points and the custom strategy; options stay."""
        with self._lock:
            self._assignment, self._points, self._strategy = {}, [], None
            self._marks = {kind: {} for kind in self._marks}

    # ------------------------------------------------------------- device

    def device(self) -> Device:
        """The profile of the device that is set."""
        from gecompiler.backends.device import load_device

        return load_device(self._options.get("device"))

    def get_device_capability(self, name: str) -> Any:
        """One figure of the device, such as ``max_streams``; UsageError for an unknown name."""
        found = self.device().capabilities()
        if name not in found:
            raise UsageError(
                f"the device {self.device().name} has no capability {name!r}",
                where="get_device_capability",
                hint=nearest(name, found),
            )
        return found[name]

    # ------------------------------------------------------------- compiling

    def snapshot(self) -> tuple[Options, Controls]:
        """Copies of the options and of what was decided about streams."""
        with self._lock:
            controls = Controls(
                dict(self._assignment), tuple(self._points), self._strategy, **self._marks
            )
            return self._options.copy(), controls

    def compile(
        self,
        model: Any,
        *,
        batch: int | None = None,
        seq: int | None = None,
        input_shapes: Mapping[str, Sequence[int | None]] | None = None,
        check: bool | None = None,
        **options: Any,
    ) -> CompiledModel:
        """Compiles a model: a path, a name of ``gec models``, an onnx.ModelProto or a Graph.

        ``options`` hold for this compilation only; ``check`` is short for ``check_fusions``.
        GecError names what is at fault.
        """
        from gecompiler.compiled import CompiledModel

        chosen, controls = self.snapshot()
        chosen.update(options if check is None else {**options, "check_fusions": check})
        request = Request(
            model,
            size_of("batch", batch),
            size_of("seq", seq),
            sizes_of(input_shapes),
            options=chosen,
            controls=controls,
        )
        return CompiledModel.compile(request, self)

    # ------------------------------------------------------------- profiling

    def enable_profiling(self, enabled: bool = True) -> None:
        """Keeps the timeline of every run for `get_execution_timeline`."""
        with self._lock:
            self._profiling = enabled

    def record(self, timeline: ExecutionTimeline) -> None:
        """Called by a model that ran."""
        with self._lock:
            if self._profiling:
                self._timeline = timeline

    def get_execution_timeline(self) -> ExecutionTimeline:
        """The timeline of the last run; UsageError when nothing was profiled."""
        if self._timeline is None:
            hint = (
                "run a compiled model first: model.forward(x)"
                if self._profiling
                else "call enable_profiling() before running the model"
            )
            raise UsageError("no run was profiled", where="get_execution_timeline", hint=hint)
        return self._timeline


def _options(values: Any) -> dict[str, Any]:
    if values is None or isinstance(values, Mapping):
        return dict(values or {})
    raise UsageError(f"expected option names and values, found {values!r}", where="configure")
