"""What all ranks of a mesh run, written once for those that run the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel.mesh import Mesh
from gecompiler.ir.parallel.sharding import Sharding
from gecompiler.ir.types import TensorType


@dataclass(frozen=True)
class Whole:
    """A tensor of the whole model, and what of it the ranks hold."""

    type: TensorType
    sharding: Sharding


@dataclass(frozen=True)
class Note:
    """What a user should know of how a model is shared out.

    ``kind``: ``whole`` (an op that runs whole on every rank), ``heads``, ``experts``, ``dp``,
    ``sp``; ``subject``: the op or graph; ``figures``: numbers by name, bytes where not said.
    """

    kind: str
    subject: str
    message: str
    figures: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.message}"


@dataclass(frozen=True)
class Template:
    """What equal ranks run: a bound graph of local shapes, with collective ops.

    ``constants`` names those of the graph that are cut from a constant of the whole model;
    ``inputs`` and ``outputs`` say how the whole model's lie on the ranks.
    """

    graph: Graph
    constants: Mapping[str, tuple[Constant, Sharding]] = field(default_factory=dict)
    inputs: Mapping[str, Whole] = field(default_factory=dict)
    outputs: Mapping[str, Whole] = field(default_factory=dict)


@dataclass(frozen=True)
class ParallelProgram:
    """A program for every rank of the mesh: rank r runs ``templates[template_of[r]]``."""

    mesh: Mesh
    templates: tuple[Template, ...]
    template_of: tuple[int, ...]
    notes: tuple[Note, ...] = ()
    outputs: tuple[str, ...] = ()
    """The whole model's outputs in their order; empty for that of the ranks."""
    made_for: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The op of the whole model that each op of another name was made for."""

    def template(self, rank: int) -> Template:
        """What the rank runs."""
        return self.templates[self.template_of[rank]]

    def graph(self, rank: int) -> Graph:
        """The rank's own graph: the template with the rank's share of each constant.

        Data is cut when it is asked for; a weight-free model stays so.
        """
        template = self.template(rank)
        graph = template.graph.copy()
        for name, (whole, sharding) in template.constants.items():
            graph.set_constant(name, _share(whole, sharding, self.mesh, rank))
        return graph

    def local_inputs(self, rank: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What the rank gets of the whole model's inputs, by the names of its graph."""
        inputs = self.template(rank).inputs
        return {n: w.sharding.take(arrays[n], self.mesh, rank) for n, w in inputs.items()}

    def __str__(self) -> str:
        from gecompiler.ir.parallel.describe import describe_program

        return describe_program(self)

    def join_outputs(self, by_rank: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The whole model's outputs from those of the ranks; see `Sharding.join`."""
        found: dict[str, Array] = {}
        owners: dict[str, Whole] = {}
        for rank in range(self.mesh.size):
            for name, whole in self.template(rank).outputs.items():
                owners.setdefault(name, whole)
        for name in self.outputs or owners:
            whole = owners[name]
            parts = {r: values[name] for r, values in enumerate(by_rank) if name in values}
            found[name] = whole.sharding.join(parts, whole.type.sizes, self.mesh)
        return found


@dataclass(frozen=True)
class _Cut:
    """The data of a rank's share, cut from the whole when it is asked for."""

    whole: Constant
    sharding: Sharding
    mesh: Mesh
    rank: int

    def load(self, type_: TensorType) -> Array:
        """The rank's share; MissingDataError where the model came without its weights."""
        return self.sharding.take(self.whole.array(), self.mesh, self.rank)

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return f"part of rank {self.rank}"


def _share(whole: Constant, sharding: Sharding, mesh: Mesh, rank: int) -> Constant:
    sizes = sharding.local_shape(whole.type.sizes, mesh, rank)
    type_ = TensorType(whole.type.dtype, sizes)
    if whole.data is None and whole.source is None:
        return Constant.absent(type_)
    return Constant(type_, source=_Cut(whole, sharding, mesh, rank))
