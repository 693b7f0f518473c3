"""Every option: its type, its default, what it does. `Options` checks each value it is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gecompiler.ir.errors import UsageError, nearest


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``check`` returns the value in its final form or raises ValueError."""

    name: str
    default: Any
    accepts: str
    doc: str
    check: Callable[[Any], Any]


def _boolean(value: Any) -> bool:
    spelled = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in spelled:
        return spelled[value.lower()]
    raise ValueError


def _text(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError


def _block_or_auto(value: Any) -> int | None:
    found = _count_or_auto(value)
    if found is not None and found < 16:
        raise ValueError
    return found


def _text_or_none(value: Any) -> str | None:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return None if value is None or value == "none" else _text(value)


def _count_or_auto(value: Any) -> int | None:
    if value is None or value == "auto":
        return None
    return _count(value)


def _count(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 4096:
        raise ValueError
    return value


def _fraction(value: Any) -> float:
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError
    return float(value)


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise ValueError
    return float(value)


def _tasks(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**9:
        raise ValueError
    return value


def _engine_streams(value: Any) -> dict[str, int]:
    """Streams by engine, from a mapping or from ``ENGINE=N,ENGINE=N``."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not sign for _, sign, _ in pairs):
            raise ValueError
        value = {engine.strip(): number.strip() for engine, _, number in pairs}
    from gecompiler.backends.cost.engine import CPU, CUBE, HCCL, LOCAL, VECTOR

    if not isinstance(value, Mapping) or not set(value) <= {CUBE, VECTOR, CPU, LOCAL, HCCL}:
        raise ValueError
    found = {str(engine): _count(number) for engine, number in value.items()}
    return dict(sorted(found.items()))


def _seed(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError
    return value


def _opset(value: Any) -> int | None:
    if value is None or value == "auto":
        return None
    from gecompiler.ir.onnx_io.schema import OLDEST_OPSET, newest_opset

    found = _count(value)
    if not OLDEST_OPSET <= found <= newest_opset():
        raise ValueError
    return found


def _launch(value: Any) -> str:
    if value in ("profile", "sunk", "host"):
        return str(value)
    raise ValueError


def _primitive(value: Any) -> str:
    if value in ("event", "notify"):
        return str(value)
    raise ValueError


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise ValueError


TABLE: tuple[Option, ...] = (
    Option(
        "device",
        "ascend910",
        "name of a profile or path of a YAML file",
        "The device to compile for and to simulate (`gec devices` lists the profiles).",
        _text,
    ),
    Option(
        "launch_mode",
        "profile",
        "'profile', 'sunk' or 'host'",
        "Who issues tasks: the device, with the graph sunk into it, or the host one by one; by "
        "default what the device's profile says.",
        _launch,
    ),
    Option(
        "enable_stream_parallel",
        True,
        "true or false",
        "Whether work may be spread over several streams; false means one stream.",
        _boolean,
    ),
    Option(
        "num_streams",
        None,
        "a number from 1, or 'auto'",
        "How many streams; more than the device has gives the device's maximum, with a warning.",
        _count_or_auto,
    ),
    Option(
        "stream_strategy",
        "auto",
        "name of a strategy (`gec strategies`, packages' own included), load_balance:N, "
        "main_stream:N",
        "How tasks are placed on streams.",
        _text,
    ),
    Option(
        "overlap_ratio",
        0.7,
        "a number from 0 to 1",
        "compute_overlap: the largest share of a task's load bytes that may be issued ahead.",
        _fraction,
    ),
    Option(
        "pipeline_depth",
        2,
        "a number from 1",
        "pipeline: how many micro-batches are in flight.",
        _count,
    ),
    Option(
        "auto_min_gain",
        0.05,
        "a number from 0 to 1",
        "auto: a schedule on more streams must be faster than this share to be preferred, "
        "unless num_streams asks for a number.",
        _fraction,
    ),
    Option(
        "solver_seconds",
        10.0,
        "a number of seconds, up to 86400",
        "optimal: how long the solver may take (in its deterministic time).",
        _seconds,
    ),
    Option(
        "seed",
        0,
        "a whole number from 0",
        "Seed of whatever is drawn at random while searching for a schedule.",
        _seed,
    ),
    Option(
        "search_tasks",
        30_000,
        "a whole number from 0",
        "auto, pipeline: how many tasks are simulated in all to improve the best schedule found; "
        "0 for none, more for better schedules of large models.",
        _tasks,
    ),
    Option(
        "engine_streams",
        {},
        "streams by engine (AIcoreEngine, VectorEngine, DNN_VM_AICPU, DNN_VM_GE_LOCAL, DNN_HCCL), "
        "as VectorEngine=2,DNN_HCCL=2",
        "default: how many streams an engine may have (GE's streamMaxParallelNum); 1 where not "
        "given.",
        _engine_streams,
    ),
    Option(
        "memory_priority",
        False,
        "true or false",
        "default: tasks take their predecessors' streams whoever else waits for them, which takes "
        "less memory (GE's memory priority).",
        _boolean,
    ),
    Option(
        "sync_primitive",
        "event",
        "'event' or 'notify'",
        "What waits use: events, whose record many may wait for, or notifies, one for each wait.",
        _primitive,
    ),
    Option(
        "merge_waits",
        False,
        "true or false",
        "Merge waits where the simulated time does not grow: fewer events, more orders.",
        _boolean,
    ),
    Option(
        "disable_passes",
        (),
        "names of passes, a list or separated by commas",
        "Passes left out of the pipeline (`gec passes` lists them).",
        _names,
    ),
    Option(
        "attention_block_q",
        None,
        "a number from 16 to 4096, or 'auto'",
        "Queries that fused attention takes at a time (auto: what is fastest on the device).",
        _block_or_auto,
    ),
    Option(
        "attention_block_k",
        None,
        "a number from 16 to 4096, or 'auto'",
        "Keys, with their values, that it takes at a time; as attention_block_q where not given.",
        _block_or_auto,
    ),
    Option(
        "durations",
        None,
        "path of msprof's op_summary or torch_npu's kernel_details, or 'none'",
        "Times a profiler measured, which replace modelled ones where they are of the same ops.",
        _text_or_none,
    ),
    Option(
        "strict_memory",
        False,
        "true or false",
        "Refuse a model that does not fit the device's memory, instead of warning.",
        _boolean,
    ),
    Option(
        "check_fusions",
        False,
        "true or false",
        "Run every fusion against the ops it replaced, on adversarial inputs, and undo one that "
        "differs, with a warning.",
        _boolean,
    ),
    Option(
        "target_opset",
        None,
        "a version of ai.onnx from 7 to the newest that is installed, or 'auto'",
        "The opset of the exported model.onnx; auto keeps the source's, or what its ops need.",
        _opset,
    ),
)

_BY_NAME = {option.name: option for option in TABLE}


class Options:
    """The values of all options, each checked as it is set."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {option.name: option.default for option in TABLE}
        self.update(values or {})

    def set(self, name: str, value: Any) -> None:
        """Sets one option; UsageError for an unknown name or a value it does not accept."""
        self._values.update({name: _checked(name, value)})

    def update(self, values: Mapping[str, Any]) -> None:
        """Sets several options, all or none."""
        self._values.update({name: _checked(name, value) for name, value in values.items()})

    def get(self, name: str) -> Any:
        """The value of an option; UsageError for an unknown name."""
        return self._values[_known(name).name]

    def copy(self) -> Options:
        """An independent copy."""
        twin = Options()
        twin._values = dict(self._values)
        return twin

    def as_dict(self) -> dict[str, Any]:
        """All values by name."""
        return dict(self._values)

    def __iter__(self) -> Iterator[Option]:
        return iter(TABLE)


def _known(name: str) -> Option:
    if not isinstance(name, str) or name not in _BY_NAME:
        hint = nearest(str(name), _BY_NAME)
        raise UsageError("no such option", where=f"option {name!r}", hint=hint)
    return _BY_NAME[name]


def _checked(name: str, value: Any) -> Any:
    option = _known(name)
    try:
        return option.check(value)
    except (ValueError, TypeError):
        raise UsageError(
            f"expected {option.accepts}, found {value!r}",
            where=f"option {name!r}",
            hint=f"the default is {'auto' if option.default is None else option.default!r}",
        ) from None
