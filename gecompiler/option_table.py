"""Every option: its type, its default, what it does. `Options` checks each value it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gecompiler import option_checks as checks
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.option import Option
from gecompiler.option_table_parallel import PARALLEL_OPTIONS
from gecompiler.option_table_training import TRAINING_OPTIONS

TABLE: tuple[Option, ...] = (
    Option(
        "device",
        "ascend910",
        "name of a profile or path of a YAML file",
        "The device to compile for and to simulate (`gec devices` lists the profiles).",
        checks.text,
    ),
    Option(
        "launch_mode",
        "profile",
        "'profile', 'sunk' or 'host'",
        "Who issues tasks: the device, with the graph sunk into it, or the host one by one; by "
        "default what the device's profile says.",
        checks.one_of("profile", "sunk", "host"),
    ),
    Option(
        "enable_stream_parallel",
        True,
        "true or false",
        "Whether work may be spread over several streams; false means one stream.",
        checks.boolean,
    ),
    Option(
        "num_streams",
        None,
        "a number from 1 to 4096, or 'auto'",
        "How many streams; more than the device has gives the device's maximum, with a warning.",
        checks.or_auto(checks.whole(1, 4096)),
    ),
    Option(
        "stream_strategy",
        "auto",
        "name of a strategy (`gec strategies`, packages' own included), load_balance:N, "
        "main_stream:N",
        "How tasks are placed on streams.",
        checks.text,
    ),
    Option(
        "overlap_ratio",
        0.7,
        "a number from 0 to 1",
        "compute_overlap: the largest share of a task's load bytes that may be issued ahead.",
        checks.number(0, 1),
    ),
    Option(
        "pipeline_depth",
        2,
        "a number from 1 to 4096",
        "pipeline: how many micro-batches are in flight.",
        checks.whole(1, 4096),
    ),
    Option(
        "auto_min_gain",
        0.05,
        "a number from 0 to 1",
        "auto: a schedule on more streams must be faster than this share to be preferred, "
        "unless num_streams asks for a number.",
        checks.number(0, 1),
    ),
    Option(
        "solver_seconds",
        10.0,
        "a number of seconds, up to 86400",
        "optimal: how long the solver may take (in its deterministic time).",
        checks.seconds,
    ),
    Option(
        "custom_seconds",
        60.0,
        "a number of seconds, up to 86400",
        "How long a strategy or pass of your own may take before it is ended.",
        checks.seconds,
    ),
    Option(
        "seed",
        0,
        "a whole number from 0 to 2147483647",
        "Seed of whatever is drawn at random while searching for a schedule.",
        checks.whole(0, (1 << 31) - 1),
    ),
    Option(
        "search_tasks",
        30_000,
        "a whole number from 0 to 1000000000",
        "auto, pipeline: how many tasks are simulated in all to improve the best schedule found; "
        "0 for none, more for better schedules of large models.",
        checks.whole(0, 10**9),
    ),
    Option(
        "engine_streams",
        {},
        "streams by engine (AIcoreEngine, VectorEngine, DNN_VM_AICPU, DNN_VM_GE_LOCAL, DNN_HCCL), "
        "1 to 4096 each, as VectorEngine=2,DNN_HCCL=2",
        "default: how many streams an engine may have (GE's streamMaxParallelNum); 1 where not "
        "given.",
        checks.engine_streams,
    ),
    Option(
        "memory_priority",
        False,
        "true or false",
        "default: tasks take their predecessors' streams whoever else waits for them, which takes "
        "less memory (GE's memory priority).",
        checks.boolean,
    ),
    Option(
        "sync_primitive",
        "event",
        "'event' or 'notify'",
        "What waits use: events, whose record many may wait for, or notifies, one for each wait.",
        checks.one_of("event", "notify"),
    ),
    Option(
        "merge_waits",
        False,
        "true or false",
        "Merge waits where the simulated time does not grow: fewer events, more orders.",
        checks.boolean,
    ),
    Option(
        "disable_passes",
        (),
        "names of passes, a list or separated by commas",
        "Passes left out of the pipeline (`gec passes` lists them).",
        checks.names,
    ),
    Option(
        "attention_block_q",
        None,
        "a number from 16 to 4096, or 'auto'",
        "Queries that fused attention takes at a time (auto: what is fastest on the device).",
        checks.or_auto(checks.whole(16, 4096)),
    ),
    Option(
        "attention_block_k",
        None,
        "a number from 16 to 4096, or 'auto'",
        "Keys, with their values, that it takes at a time; as attention_block_q where not given.",
        checks.or_auto(checks.whole(16, 4096)),
    ),
    Option(
        "durations",
        None,
        "path of msprof's op_summary or torch_npu's kernel_details, or 'none'",
        "Times a profiler measured, which replace modelled ones where they are of the same ops.",
        checks.text_or_none,
    ),
    Option(
        "strict_memory",
        False,
        "true or false",
        "Refuse a model that does not fit the device's memory, instead of warning.",
        checks.boolean,
    ),
    Option(
        "check_fusions",
        False,
        "true or false",
        "Run every fusion against the ops it replaced, on adversarial inputs, and undo one that "
        "differs, with a warning.",
        checks.boolean,
    ),
    Option(
        "host_memory",
        None,
        "a size such as 8GiB, or 'auto'",
        "How much of the host's memory a run with numbers may take, and in proportion to it how "
        "much arithmetic it may do (auto: 512 MiB, or what weights and inputs account for).",
        checks.or_auto(checks.memory_size),
    ),
    Option(
        "target_opset",
        None,
        "a version of ai.onnx from 7 to the newest that is installed, or 'auto'",
        "The opset of the exported model.onnx; auto keeps the source's, or what its ops need.",
        checks.opset,
    ),
    *PARALLEL_OPTIONS,
    *TRAINING_OPTIONS,
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
