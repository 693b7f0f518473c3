"""The loss of a model whose output lies on several ranks."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.collective_ops import ALL_GATHER, ALL_REDUCE
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr
from gecompiler.ir.parallel import ParallelProgram, Sharding
from gecompiler.ir.parallel.layout import held_indices
from gecompiler.ir.parallel.program import Whole
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.loss import chosen_loss, chosen_output, is_causal, labels_type
from gecompiler.passes.training.names import Loss
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.rank_copies import has_copies
from gecompiler.passes.training.tape import Tape

PIPELINE = "pp"


class RankLoss:
    """What the loss is of, and what each rank's counts for.

    ModelError where the rows of the output do not divide evenly over the ranks.
    """

    def __init__(self, forward: ParallelProgram, options: TrainingOptions) -> None:
        self.forward, self.mesh, self.options = forward, forward.mesh, options
        template = forward.templates[self._last()]
        graph = template.graph
        self.output = chosen_output(graph, options.output)
        self.kind: Loss = chosen_loss(graph, self.output, options.loss)
        rank = len(graph.shape(self.output) or ())
        if options.loss == "auto" and self.kind == "cross-entropy" and rank > 2:
            causal = any(is_causal(t.graph) for t in forward.templates)
            self.kind = "next-token" if causal else "cross-entropy"
        whole, kind = template.outputs.get(self.output), graph.tensor(self.output)
        assert kind is not None
        sharding = whole.sharding if whole else Sharding((None,) * len(kind.sizes))
        self.whole = Whole(whole.type if whole else kind, sharding)
        self._check_rows()
        dims = sharding.dims
        self.shifts = self.kind == "next-token" and len(dims) > 1 and dims[-2] is not None
        """Whether labels are given already moved: each rank has a part of the sequence."""
        if self.shifts:
            self.kind = "cross-entropy"

    def _check_rows(self) -> None:
        dims = self.whole.sharding.dims
        for layout, size in zip(dims[:-1], self.whole.type.sizes, strict=False):
            if layout is not None and has_copies(layout, size, self.mesh):
                raise ModelError(
                    f"{size} rows of {self.output!r} do not divide evenly over the ranks",
                    where="+".join(self.whole.sharding.axes),
                    hint="give a batch and a sequence that are multiples of the ranks",
                )

    def _last(self) -> int:
        """The template that has the output: of the last stage."""
        name = self.options.output
        numbers = [
            i
            for i, t in enumerate(self.forward.templates)
            if (name in t.graph.outputs if name else t.graph.outputs)
        ]
        if not numbers:
            raise ModelError("no stage has an output to train on", where="train_output")
        return numbers[-1]

    def weight(self) -> float:
        """What a rank's loss counts for: means over ranks, or one of the copies of a sum."""
        ranks = self.mesh.size // self.mesh.axis_size(PIPELINE)
        if self.kind != "sum":
            return self.options.gradient_weight / ranks
        cut = self.cut_axes(self.whole.sharding)
        parts = self.mesh.axis_size("+".join(cut)) if cut else 1
        return self.options.gradient_weight * parts / ranks

    def cut_axes(self, sharding: Sharding) -> list[str]:
        """The mesh axes that a tensor is cut over, in order."""
        joined = (*sharding.axes, *(a for axes in sharding.partial for a in axes.split("+")))
        return [name for name, _ in self.mesh.axes if name in joined]

    def gathered(self, tape: Tape, value: str) -> str:
        """Logits of which each rank has some words, whole."""
        layout = self.whole.sharding.dims[-1] if self.whole.sharding.dims else None
        if layout is None or self.kind in ("sum", "mean-square"):
            return value
        axes = "+".join(self.cut_axes(Sharding((layout,))))
        ranks, size = self.mesh.group(axes, 0), self.whole.type.sizes[-1]
        kind = tape.type(value)
        shape = (*kind.sizes[:-1], kind.sizes[-1] * len(ranks))
        attrs: dict[str, Attr] = {"communicator": axes, "group_size": len(ranks)}
        attrs["axis"] = last = len(shape) - 1
        joined = tape.own(ALL_GATHER, [value], TensorType(kind.dtype, shape), attrs=attrs)[0]
        held = np.concatenate([held_indices(layout, size, self.mesh, rank) for rank in ranks])
        first = np.unique(held, return_index=True)[1]
        if np.array_equal(first, np.arange(shape[-1])):
            return joined
        made = TensorType(kind.dtype, (*kind.sizes[:-1], size))
        return tape.emit("Gather", [joined, tape.constant(first)], made, attrs={"axis": last})[0]

    def told(self, tape: Tape, loss: str) -> str:
        """The loss of all ranks: their mean, or the sum of the parts."""
        axes = [name for name, _ in self.mesh.axes if name != PIPELINE]
        if self.kind == "sum":
            axes = self.cut_axes(self.whole.sharding)
        if not axes:
            return loss
        joined = "+".join(axes)
        attrs: dict[str, Attr] = {"communicator": joined}
        attrs["group_size"] = self.mesh.axis_size(joined)
        attrs["reduction"] = "sum" if self.kind == "sum" else "mean"
        return tape.own(ALL_REDUCE, [loss], tape.type(loss), attrs=attrs)[0]

    def labels(self) -> Whole:
        """How labels lie: as the rows of the output do."""
        kind = self.whole
        graph = Graph("labels")
        graph.add_input(self.output, kind.type)
        wanted = labels_type(graph, self.output, self.kind)
        assert wanted is not None
        return Whole(wanted, Sharding(kind.sharding.dims[: len(wanted.sizes)]))
