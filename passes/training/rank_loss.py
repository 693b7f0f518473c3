"""The loss of a model whose output lies on several ranks."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.collective_ops import ALL_REDUCE
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr
from gecompiler.ir.parallel import ParallelProgram, Sharding
from gecompiler.ir.parallel.program import Whole
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.loss import (
    chosen_loss,
    chosen_output,
    is_causal,
    label_attrs,
    labels_type,
    write_loss,
)
from gecompiler.passes.training.names import Loss
from gecompiler.passes.training.options import TrainingOptions
from gecompiler.passes.training.rank_copies import has_copies
from gecompiler.passes.training.sync_options import Group
from gecompiler.passes.training.tape import Tape
from gecompiler.passes.training.vocabulary import write_parallel_loss

PIPELINE = "pp"


class RankLoss:
    """What the loss is of, and what each rank's counts for.

    ModelError where the rows of the output do not divide evenly over the ranks.
    """

    def __init__(self, forward: ParallelProgram, options: TrainingOptions) -> None:
        self.forward, self.mesh, self.options = forward, forward.mesh, options
        self.words: dict[str, tuple[Constant, Sharding]] = {}
        """Constants that were added: the numbers of the words, from 1, as their logits are cut."""
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

    def write(
        self,
        tape: Tape,
        output: str,
        labels: str,
        loss: Loss,
        options: TrainingOptions,
        count: str = "",
    ) -> str:
        """The loss of a rank, also where it has the logits of some words."""
        layout = self.whole.sharding.dims[-1] if self.whole.sharding.dims else None
        if layout is None or self.kind in ("sum", "mean-square"):
            return write_loss(tape, output, labels, loss, options, count)
        axes = "+".join(self.cut_axes(Sharding((layout,))))
        group = Group(axes, self.mesh.axis_size(axes))
        numbers = Constant.of(np.arange(1, self.whole.type.sizes[-1] + 1))
        words = tape.graph.fresh("loss/words")
        local = TensorType(numbers.type.dtype, tape.shape(output)[-1:])
        tape.graph.add_constant(words, Constant.absent(local))
        self.words[words] = (numbers, Sharding((layout,), once=(0,)))
        attrs = label_attrs(loss, options)
        return write_parallel_loss(tape, (output, labels, words), group, attrs, count)

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
