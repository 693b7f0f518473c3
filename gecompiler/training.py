"""Compiling a training step on one card: what is asked, and what the report says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import UsageError
from gecompiler.ir.op import NO_INFO
from gecompiler.ir.training_ops import GRADIENT_SYNC, PARAMETER_GATHER, PHASES, SYNC
from gecompiler.lang import say
from gecompiler.option_table_training import TRAINING_OPTIONS
from gecompiler.units import duration

if TYPE_CHECKING:
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.driver import Compilation
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.schedule import Schedule
    from gecompiler.ir.timeline import Span
    from gecompiler.passes.training import TrainingOptions, TrainingStep
    from gecompiler.passes.training.ranks import TrainingProgram


@dataclass(frozen=True)
class Trained:
    """The step that was compiled, and how it was asked for."""

    options: TrainingOptions
    step: TrainingStep


def training_request(values: Mapping[str, Any]) -> TrainingOptions | None:
    """The training that the options ask for; None where they ask for none.

    UsageError for options of training without it.
    """
    from gecompiler.passes.training import TrainingOptions

    if not values["train"]:
        _refuse_lone(values)
        return None
    return TrainingOptions(
        loss=values["train_loss"],
        output=values["train_output"] or "",
        optimizer=values["optimizer"],
        parameters=values["train_parameters"],
        recompute=values["recompute"],
    )


def _refuse_lone(values: Mapping[str, Any]) -> None:
    for option in TRAINING_OPTIONS:
        if values[option.name] != option.default:
            raise UsageError(
                "is of training steps", where=f"option {option.name!r}", hint="give --train as well"
            )


def accumulated_sizes(
    graph: Graph, sizes: Mapping[str, int], micro_batches: int | None
) -> tuple[dict[str, int], int]:
    """The sizes of one micro-batch and their number; UsageError where the batch does not divide."""
    from gecompiler.ir.bind.roles import batch_symbols

    count = micro_batches or 1
    names = [name for name in batch_symbols(graph) if name in sizes]
    for name in names or [""]:
        if count > 1 and (not name or sizes[name] % count):
            raise UsageError(
                f"a batch of {sizes.get(name, 1)} cannot be cut into {count} micro-batches",
                where="option 'micro_batches'",
                hint="give a batch that is a multiple of it (--batch)",
            )
    return {**sizes, **{name: sizes[name] // count for name in names}}, count


def train(graph: Graph, options: TrainingOptions, micro_batches: int) -> Trained:
    """The training step of the bound graph of one micro-batch."""
    from dataclasses import replace

    from gecompiler.passes.training import build_training_step

    asked = replace(options, accumulate=micro_batches)
    return Trained(asked, build_training_step(graph, asked))


def ops_of(graph: Graph, options: TrainingOptions | None) -> int:
    """How many ops a bound graph has on one card, or its training step where one is asked for."""
    return len(graph if options is None else train(graph, options, 1).step.graph)


def micro_batch_inputs(graph: Graph, count: int, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What each of ``count`` micro-batches is given of inputs of the whole batch.

    ``graph`` is the step, whose inputs are named ``mb0/<input>``, ``mb1/...``. Such names may be
    given as well. UsageError for sizes that cannot be cut so.
    """
    found: dict[str, Any] = {}
    for name, array in inputs.items():
        kind = graph.tensor(f"mb0/{name}") if graph.has_value(f"mb0/{name}") else None
        if count == 1 or kind is None or graph.has_value(name):
            found[name] = array
            continue
        parts = _cut(name, np.asarray(array), kind.sizes, count)
        found.update((f"mb{number}/{name}", part) for number, part in enumerate(parts))
    return {**found, **_label_counts(graph, count, found)}


def _label_counts(graph: Graph, count: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """How many labels a micro-batch has in the mean, where the step asks for it."""
    from gecompiler.passes.training import TrainingOptions
    from gecompiler.passes.training.loss import mean_count
    from gecompiler.passes.training.names import LABEL_COUNT, LABELS

    wanted = [f"mb{number}/{LABEL_COUNT}" for number in range(count)]
    labels = [given.get(f"mb{number}/{LABELS}") for number in range(count)]
    if not graph.has_value(wanted[0]) or any(part is None for part in labels):
        return {}
    shift = any(op.attr("shift", 0) for op in graph.users(wanted[0]))
    parts = [np.asarray(part) for part in labels]
    found = mean_count(parts, TrainingOptions().ignore_index, shift=shift)
    return {name: found for name in wanted if name not in given}


def _cut(name: str, array: Any, sizes: tuple[int, ...], count: int) -> list[Any]:
    """The array in parts of those sizes: along an axis, or whole for each."""
    if array.shape == sizes:
        return [array] * count
    for axis, size in enumerate(sizes):
        if array.shape == (*sizes[:axis], count * size, *sizes[axis + 1 :]):
            return list(np.split(array, count, axis))
    wanted = [count * size if axis == 0 else size for axis, size in enumerate(sizes)]
    raise UsageError(
        f"has sizes {list(array.shape)}, the step is compiled for {wanted}",
        where=f"input {name!r}",
        hint="give these sizes (--batch, --seq) in compiling",
    )


def training_part(compilation: Compilation) -> dict[str, Any]:
    """The part ``training`` of the report: busy time by phase, in us; bytes of the state.

    Of several cards, those of the one that computes longest.
    """
    if compilation.cards is not None and compilation.cards.training is not None:
        return {"training": _of_cards(compilation.cards, compilation.cards.training)}
    found = compilation.trained
    if found is None:
        return {}
    spans = compilation.result.timeline.spans
    busy = _busy(spans, compilation.result.schedule, compilation.graph, "")
    return {"training": _part(found.options, found.options.accumulate, found.step.initial,
                              found.step.gradients, busy)}  # fmt: skip


def _of_cards(cards: CardsResult, made: TrainingProgram) -> dict[str, Any]:
    longest = max(cards.figures, key=lambda f: (f.compute_us, -f.rank)).rank
    spans = [span for span in cards.timeline.spans if span.rank == longest]
    busy = _busy(spans, cards.schedule, cards.program.template(longest).graph, f"{longest}:")
    number = made.program.template_of[longest]
    graph = made.program.templates[number].graph
    own = {*made.steps[number].initial, *made.synced[number].initial}
    names = [n for n in (*graph.inputs, *graph.constants) if n in own]
    state = {n: Constant.absent(k) for n in names if (k := graph.tensor(n)) is not None}
    count = 1 if cards.shape is None else cards.shape.micro_batches
    found = _part(made.options, count, state, made.steps[number].gradients, busy)
    return {"rank": longest, **found}


def _busy(spans: Iterable[Span], schedule: Schedule, graph: Graph, prefix: str) -> dict[str, int]:
    """The time of tasks by phase, in ns; tasks are named as ops behind the prefix."""
    busy = dict.fromkeys(PHASES, 0)
    for span in spans:
        name = schedule.tasks[span.task].name.removeprefix(prefix)
        info = graph.op(name).info if name in graph else NO_INFO
        phase = SYNC if info.group in (GRADIENT_SYNC, PARAMETER_GATHER) else info.phase
        if phase in busy:
            busy[phase] += span.duration_ns
    return busy


def _part(
    options: TrainingOptions,
    micro_batches: int,
    initial: Mapping[str, Constant],
    gradients: Mapping[str, str],
    busy: Mapping[str, int],
) -> dict[str, Any]:
    weights = [n for n in gradients if n in initial]
    buckets = [n for n in initial if n.startswith("zero/") and n.endswith("/param")]
    weights += buckets  # of those a card has a part alone (ZeRO 3)
    return {
        "optimizer": options.optimizer,
        "recompute": options.recompute,
        "micro_batches": micro_batches,
        "parameters": sum(initial[n].size for n in weights),
        "tensors": len(gradients if buckets else weights),
        "parameter_buckets": len(buckets),
        "weight_bytes": sum(initial[n].type.bytes for n in weights),
        "optimizer_bytes": sum(c.type.bytes for n, c in initial.items() if n not in weights),
        "busy_us": {phase: ns / 1000 for phase, ns in busy.items() if ns},
    }


def training_lines(report: dict[str, Any]) -> Iterator[str]:
    """How the time of a step divides, and what is trained."""
    found = report.get("training")
    if found is None:
        return
    if "rank" in found:
        yield say("Of rank {rank}, which computes longest:", rank=found["rank"])
    if found["parameter_buckets"]:
        yield say(
            "Training step: {tensors} tensors in {buckets} buckets, {count} parameters a card, "
            "optimizer {optimizer}",
            tensors=found["tensors"], buckets=found["parameter_buckets"],
            count=found["parameters"], optimizer=found["optimizer"],
        )  # fmt: skip
    else:
        yield say(
            "Training step: {tensors} tensors, {count} parameters, optimizer {optimizer}",
            tensors=found["tensors"], count=found["parameters"], optimizer=found["optimizer"],
        )  # fmt: skip
    total = sum(found["busy_us"].values()) or 1.0
    names = {
        "forward": say("forward"),
        "recompute": say("recomputed"),
        "backward": say("backward"),
        "sync": say("gradient sync"),
        "optimizer": say("optimizer"),
    }
    parts = [
        f"{names[phase]} {duration(us)} ({us / total:.0%})"
        for phase, us in found["busy_us"].items()
    ]
    yield "  " + say("busy time         {parts}", parts=", ".join(parts))
