"""A parallel program for people: what each template runs, what it moves, what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel.program import ParallelProgram, Template
from gecompiler.ir.types import TensorType

_MOST_OPS = 6


def describe_program(program: ParallelProgram) -> str:
    """Several lines; the same for equal programs."""
    return "\n".join(_lines(program))


def _lines(program: ParallelProgram) -> Iterator[str]:
    ranks, templates = program.mesh.size, len(program.templates)
    name = program.templates[0].graph.name if program.templates else ""
    yield f"program @{name} on {program.mesh}: {_count(ranks, 'rank')}, " + _count(
        templates, "template"
    )
    for number, template in enumerate(program.templates):
        own = [r for r, of in enumerate(program.template_of) if of == number]
        yield f"  template {number}: {_ranges(own)}"
        yield from (f"    {line}" for line in _template(template))
    for note in program.notes:
        yield f"  note {note}"


def _template(template: Template) -> Iterator[str]:
    graph = template.graph
    kinds = Counter(op.op_type for op in graph.ops if not is_collective_op(op))
    shown = [f"{kind} {count}" for kind, count in kinds.most_common(_MOST_OPS)]
    rest = sum(kinds.values()) - sum(count for _, count in kinds.most_common(_MOST_OPS))
    yield f"{_count(sum(kinds.values()), 'op')}: " + ", ".join(
        [*shown, *([f"others {rest}"] if rest else [])]
    )
    moved: dict[tuple[str, str], list[int]] = {}
    for op in graph.ops:
        if is_collective_op(op):
            key = (op.op_type, str(op.attr("communicator")))
            moved.setdefault(key, []).append(_bytes(graph, op))
    for (kind, axes), sizes in sorted(moved.items()):
        yield f"{kind} over {axes}: {len(sizes)}, {_size(sum(sizes))}"
    whole = sum(c.type.bytes for c in graph.constants.values())
    cut = sum(constant.type.bytes for constant, _ in template.constants.values())
    own_cut = sum(graph.constants[n].type.bytes for n in template.constants)
    yield f"constants: {_size(whole)} of {_size(whole - own_cut + cut)}"
    for title, ends in (("input", template.inputs), ("output", template.outputs)):
        for name, end in ends.items():
            if not end.sharding.is_whole:
                yield f"{title} %{name}: {end.type} as {end.sharding}"


def _bytes(graph: Graph, op: Op) -> int:
    """What a rank brings to a collective, or gets from a Recv."""
    type_ = graph.tensor((op.inputs or op.outputs)[0])
    return type_.bytes if isinstance(type_, TensorType) and type_.is_static else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ranges(numbers: Sequence[int]) -> str:
    """``ranks 0-3, 8``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    text = ", ".join("-".join(str(n) for n in run) for run in runs)
    return f"rank{'' if len(numbers) == 1 else 's'} {text}"


def _size(count: int) -> str:
    number, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{count} B" if unit == "B" else f"{number:.4g} {unit}"
