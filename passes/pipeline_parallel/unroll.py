"""The program of all micro-batches, from the program of one.

The program given has one piece of the model on each place of the axis ``pp``, written for one
micro-batch. Here each stage gets the pieces it has (several under the interleaved order) once a
micro-batch, in the order of its schedule: values and ops are named ``mb3/`` and what they were
(``mb3/c1/`` where stages have several chunks), constants are shared. What belongs to no
micro-batch (the phases ``sync`` and ``optimizer`` of a training step) comes last, once, and reads
sums of the gradients of all micro-batches.
"""

from __future__ import annotations

from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.passes.pipeline_parallel.abreast import AbreastWriter, require_alike
from gecompiler.passes.pipeline_parallel.orders import PipelineShape, Step
from gecompiler.passes.pipeline_parallel.sequence import Duration, sequence
from gecompiler.passes.pipeline_parallel.stage import StageWriter
from gecompiler.passes.pipeline_parallel.tags import Tags, goes_round


def unroll(
    program: ParallelProgram, shape: PipelineShape, duration: Duration | None = None
) -> ParallelProgram:
    """The same for all micro-batches, on a mesh of ``shape.stages`` stages.

    ``program`` has ``stages * chunks`` pieces along ``pp``. ``duration`` tells how long a stage
    takes for a step, for the order in which transfers are posted; by default a backward takes
    twice a forward. UsageError where the pieces do not fit the shape, ModelError for ranks whose
    micro-batches cannot take turns. O(ops * micro-batches).
    """
    pieces = program.mesh.axis_size("pp")
    if pieces != shape.stages * shape.chunks:
        raise UsageError(
            f"{pieces} pieces for {shape.stages} stages of {shape.chunks} chunks", where="unroll"
        )
    mesh = Mesh.of(**{**dict(program.mesh.axes), "pp": shape.stages})
    placed = sequence(shape, duration or _usual)
    tags, rounds = Tags.of(program), Tags.of(program, goes_round)
    joined = shape.abreast == 1 or require_alike(program)
    found: dict[tuple[int, ...], int] = {}
    templates: list[Template] = []
    template_of: list[int] = []
    for rank in range(mesh.size):
        place = mesh.coordinates(rank)
        stage = place.get("pp", 0)
        key = (stage, *(_held(program, shape, place, stage, c) for c in range(shape.chunks)))
        if key not in found:
            found[key] = len(templates)
            chunks = [program.templates[k] for k in key[1:]]
            kind = AbreastWriter if shape.abreast > 1 else StageWriter
            writer = kind(chunks, stage, shape, placed, tags, rounds)
            writer.joined = joined
            templates.append(writer.write())
        template_of.append(found[key])
    return ParallelProgram(mesh, tuple(templates), tuple(template_of), program.notes)


def _held(
    program: ParallelProgram, shape: PipelineShape, place: dict[str, int], stage: int, chunk: int
) -> int:
    """The template of one chunk of a rank."""
    piece = chunk * shape.stages + stage
    return program.template_of[program.mesh.rank({**place, "pp": piece})]


def _usual(stage: int, step: Step) -> float:
    return 1.0 if step.phase == "forward" else 2.0
