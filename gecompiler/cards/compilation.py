"""A model compiled for several cards: bound to a micro-batch, cut, scheduled on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.topology import Topology, load_topology
from gecompiler.cards.batch_cut import not_joined
from gecompiler.cards.request import CardsRequest
from gecompiler.cards.result import schedule_result
from gecompiler.cards.side_by_side import WaySearch
from gecompiler.cards.way_choice import search_ways
from gecompiler.ir.bind.roles import batch_symbols
from gecompiler.ir.errors import UsageError
from gecompiler.passes.memory.advice import report_memory
from gecompiler.passes.parallel import ParallelOptions, parallelise
from gecompiler.passes.rank_schedules import by_template

if TYPE_CHECKING:
    from gecompiler.backends.device import Device
    from gecompiler.cards.batch_cut import BatchCut
    from gecompiler.cards.control import Control
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.ir.diagnostics import Diagnostics
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.parallel import Mesh, ParallelProgram
    from gecompiler.passes.scheduling.schedule_builder import ScheduleResult
    from gecompiler.passes.training import TrainingOptions
    from gecompiler.passes.training.ranks import TrainingProgram


def micro_batch_sizes(
    graph: Graph,
    binding: Mapping[str, int],
    cards: CardsRequest,
    diagnostics: Diagnostics | None = None,
    *,
    training: bool = False,
) -> tuple[dict[str, int], int]:
    """The binding of one micro-batch, and how many there are.

    ``graph`` has its symbols. UsageError where the model has no batch that could be cut, and
    where it must not be; a warning where replicas cannot share it evenly, and where stages get
    the batch in one piece because its parts' outputs could not be joined. Of a ``training`` step
    none are: its micro-batches have losses of their own.
    """
    names = [name for name in batch_symbols(graph) if name in binding]
    batch = binding[names[0]] if names else 1
    if not names and (cards.micro_batches or 1) > 1:
        raise UsageError(
            "the model has no batch that could be cut into micro-batches",
            where="option 'micro_batches'",
            hint="export the model with its first axis dynamic",
        )
    if not names:
        return dict(binding), 1
    count = cards.batch_parts(batch)
    why = "" if training or count == 1 else not_joined(graph, binding, count)
    if why and cards.micro_batches is not None:
        raise UsageError(
            f"the batch cannot be cut into micro-batches: {why}",
            where="option 'micro_batches'",
            hint="leave the batch in one piece (--micro-batches 1)",
        )
    if why:
        count = 1
        if diagnostics is not None:
            diagnostics.warn(
                "batch-in-one-piece",
                f"the batch is not cut into micro-batches: {why}",
                "stages work one after the other; other axes than pp share the work of one batch",
            )
    if diagnostics is not None and cards.uneven(batch, count):
        replicas = cards.mesh.axis_size("dp")
        diagnostics.warn(
            "uneven-batch",
            f"{batch // count} samples cannot be shared evenly by {replicas} replicas (dp): some "
            "compute what others do as well",
            f"give a batch that is a multiple of {replicas * count} (--batch)",
        )
    return {**binding, **{name: binding[name] // count for name in names}}, count


def compile_cards(
    graph: Graph,
    count: int,
    cards: CardsRequest,
    device: Device,
    values: Mapping[str, Any],
    diagnostics: Diagnostics,
    training: TrainingOptions | None = None,
    cutting: BatchCut | None = None,
    control: Control | None = None,
) -> tuple[ScheduleResult, CardsResult]:
    """Schedules the bound graph of one of ``count`` micro-batches on the cards.

    ``cutting`` knows the batch of the whole model, and makes more micro-batches of it where that
    hides communication; ``control`` is what the user decided about streams.

    UsageError for cards that the topology does not have, ModelError for what cannot be cut.
    """
    steps: dict[int, TrainingProgram] = {}
    if training is not None:
        cards = _without_ring(cards, diagnostics)

    def program_of(parts: int) -> ParallelProgram:
        found = program_for(parts)
        return found if control is None else control.marked(found)

    def program_for(parts: int) -> ParallelProgram:
        own = graph if parts == count or cutting is None else cutting.part(parts)
        if training is None:
            return cut(own, cards.pieces, device, cards.cutting)
        stage, size = values["zero_stage"], values["bucket_mib"] * 2**20
        step = cut_training(own, cards.pieces, device, training, stage, size, cards.cutting)
        steps[parts] = step
        return step.program

    cluster = Cluster.of(device, cards.mesh, cards.topology, algorithm=cards.algorithm)
    _tell_growth(cluster.topology, cards, device, diagnostics)
    streams, trains = values["num_streams"], training is not None
    search = WaySearch(program_of, cluster, cards, trains, streams, control, diagnostics)
    found = search_ways(search, graph, count, values, cutting, diagnostics)
    batch = () if cutting is None else cutting.symbols
    found = replace(found, batch_symbols=batch, training=steps.get(count))
    for told in () if found.costs is None else found.costs.told:
        diagnostics.warn(*told)
    _report_memory(found, graph.name, diagnostics, strict=values["strict_memory"])
    for note in found.program.notes:
        diagnostics.warn(f"parallel-{note.kind}", str(note))
    return schedule_result(found, values["num_streams"]), found


def _without_ring(cards: CardsRequest, diagnostics: Diagnostics) -> CardsRequest:
    """Keys that go round have no gradient: they are gathered, and a warning says so."""
    if cards.cutting.sequence != "ring" or cards.mesh.axis_size("sp") == 1:
        return cards
    diagnostics.warn(
        "parallel-sequence",
        "keys that go round (ring) have no gradient: they are gathered",
        "give --sequence-exchange gather or all-to-all in training",
    )
    return replace(cards, cutting=replace(cards.cutting, sequence="gather"))


def _tell_growth(
    topology: Topology, cards: CardsRequest, device: Device, diagnostics: Diagnostics
) -> None:
    """Warns where the topology named has fewer cards than are used: its network is taken on."""
    there = (
        topology.cards if cards.topology is None else load_topology(cards.topology, device).cards
    )
    if topology.cards > there:
        diagnostics.warn(
            "topology-grown",
            f"{topology.name} has {there} cards, {cards.mesh.size} are used: its last tier "
            f"({topology.tiers[-1].name}) is taken to join {topology.cards}",
            "give a topology of as many cards, or fewer ranks",
        )


def _report_memory(
    found: CardsResult, model: str, diagnostics: Diagnostics, *, strict: bool
) -> None:
    """As of one card, of the rank that needs most."""
    plans = [part.memory for part in found.parts]
    plan, rank = max(
        ((p, r) for p, r in zip(plans, by_template(found.program), strict=True) if p is not None),
        key=lambda pair: (pair[0].arena_bytes, -pair[1]),
    )
    place = " ".join(f"{a}{at}" for a, at in found.program.mesh.coordinates(rank).items())
    who = f"rank {rank} ({place})" if place else f"rank {rank}"
    report_memory(plan, found.cluster, model, diagnostics, strict=strict, rank=who)


def cut(
    graph: Graph, mesh: Mesh, device: Device, cutting: ParallelOptions | None = None
) -> ParallelProgram:
    """The program of one micro-batch for the ranks of the mesh.

    Stages of a pipeline are balanced by how long ops take on the device.
    """
    options = replace(
        cutting or ParallelOptions(),
        cost=lambda graph, op: device.alone_us(device.demand(graph, op)),
    )
    return parallelise(graph, mesh, options)


def cut_training(
    graph: Graph,
    mesh: Mesh,
    device: Device,
    training: TrainingOptions,
    zero_stage: int = 0,
    bucket_bytes: float = 25 * 2**20,
    cutting: ParallelOptions | None = None,
) -> TrainingProgram:
    """The training step of one micro-batch for the ranks of the mesh."""
    from gecompiler.passes.training.ranks import training_program
    from gecompiler.passes.training.untie import untied

    cutting = replace(cutting or ParallelOptions(), cached_keys="whole")
    forward = cut(untied(graph, training.parameters), mesh, device, cutting)
    step = training_program(forward, training, bucket_bytes=bucket_bytes, zero_stage=zero_stage)
    return replace(step, program=replace(step.program, made_for=forward.made_for))
