"""`profile`: records the operators called while it is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from types import TracebackType

from gecompiler.backends.counters import OperatorCall, Recorder
from gecompiler.backends.device import Device
from gecompiler.ir.errors import UsageError
from gecompiler.ops.devices import device_named
from gecompiler.profiler.averages import EventList, averages


class ProfilerActivity(Enum):
    """What is profiled: the host's times, the device's modelled ones."""

    CPU = "cpu"
    NPU = "npu"


class profile:  # noqa: N801  (torch's name)
    """Records every attention operator of this context, called directly or by a compiled model.

    ``record_shapes``: shapes of the arguments are kept, shown, and may be grouped by.
    ``profile_memory``: the device memory that results take is shown. ``with_stack``: the lines
    of code that called are kept. ``activities``: default both. ``device``: the one whose model
    gives the counters, by default the one set (`gecompiler.set_option`). ``on_trace_ready`` is
    called with the profile at its end.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        device: str | Device | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
    ) -> None:
        many = isinstance(activities, Iterable)
        chosen = tuple(activities) if many else (activities,)  # type: ignore[arg-type]
        if activities is None:
            chosen = tuple(ProfilerActivity)
        if not chosen or not all(isinstance(a, ProfilerActivity) for a in chosen):
            raise UsageError(
                f"activities must be of ProfilerActivity, found {chosen}",
                where="profile",
                hint="activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]",
            )
        self.activities = frozenset(chosen)
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self._recorder = Recorder(device_named(device), stacks=with_stack)
        self._on_trace_ready = on_trace_ready
        self._stack = ExitStack()
        self._on = False

    def start(self) -> None:
        """Begins to record."""
        if self._on:
            raise UsageError("the profiler is already on", where="profile")
        self._on = True
        self._stack.enter_context(self._recorder.listening())

    def stop(self) -> None:
        """Ends recording; what was recorded stays."""
        if not self._on:
            raise UsageError("the profiler is not on", where="profile", hint="start() it first")
        self._on = False
        self._stack.close()
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def device(self) -> Device:
        """The device whose model gives the counters."""
        return self._recorder.device

    def events(self) -> tuple[OperatorCall, ...]:
        """The calls in order, each with its `AttentionCounters`."""
        return tuple(self._recorder.calls)

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """The calls by operator, or by operator and shapes: sums, and means over their time."""
        if group_by_input_shape and not self.record_shapes:
            raise UsageError(
                "shapes were not recorded", where="profile", hint="profile(record_shapes=True)"
            )
        return averages(
            self._recorder.calls,
            by_shape=group_by_input_shape,
            shapes=self.record_shapes,
            memory=self.profile_memory,
            host=ProfilerActivity.CPU in self.activities,
            device=ProfilerActivity.NPU in self.activities,
        )

    def export_chrome_trace(self, path: str | Path) -> None:
        """Writes a trace for Perfetto or chrome://tracing: host calls, kernels, counters."""
        from gecompiler.files import whole_file
        from gecompiler.profiler.chrome import trace_text

        text = trace_text(
            self._recorder.calls,
            self.device.name,
            shapes=self.record_shapes,
            host=ProfilerActivity.CPU in self.activities,
            device=ProfilerActivity.NPU in self.activities,
        )
        with whole_file(Path(path)) as part:
            part.write_text(text, encoding="utf-8")
