"""How the labels of one op are cut, given how its inputs come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Layout, Sharding
from gecompiler.ir.parallel.layout import axes_in, is_exact, without
from gecompiler.passes.parallel.local_values import LocalValues
from gecompiler.passes.parallel.signature import Operand, Signature, compose, decompose, spec_labels

EXPERTS = "ep"


@dataclass
class Cut:
    """How the labels of an op are cut; over the axes ``kept`` its inputs are sums to be made."""

    found: Signature
    layouts: dict[str, Layout]
    kept: tuple[str, ...] = ()
    fixed: frozenset[str] = frozenset()
    """Labels that are not cut but by what ``layouts`` says."""

    def axes_kept(self) -> set[str]:
        """The single axes of ``kept``."""
        return {a for joined in self.kept for a in joined.split("+")}

    def layout(self, operand: Operand) -> tuple[Layout, ...]:
        """The layouts of an operand's dims."""
        return tuple(compose(spec, self.found.sizes, self.layouts) for spec in operand)

    def is_exact(self, label: str, values: LocalValues) -> bool:
        """Whether no rank holds a copy of another's along the label."""
        return is_exact(self.layouts.get(label), self.found.sizes[label], values.mesh)


@dataclass(frozen=True)
class LabelChoice:
    """Chooses for one op after the other."""

    values: LocalValues

    def choose(self, op: Op, found: Signature) -> Cut:
        """Layouts from activations first, large before small; then those wished for constants."""
        cut = Cut(found, {}, self._kept_sums(op, found))
        if found.adapt == "heads":
            self._choose_heads(op, cut)
        self._choose_experts(op, cut)
        for i in sorted(range(len(op.inputs)), key=lambda i: self._weight(op.inputs[i])):
            operand, value = found.inputs[i], op.inputs[i]
            if not value or operand is None:
                continue
            dims = self.values.cut_of(op.name, i, value)
            for spec, layout in zip(operand, dims, strict=True):
                labels = decompose(spec, layout, found.sizes, self.values.mesh) or {}
                for label, sub in labels.items():
                    self._cut_by(op, label, sub, cut)
        self._choose_made(op, op.outputs, cut)
        return cut

    def _cut_by(self, op: Op, label: str, layout: Layout, cut: Cut) -> None:
        """Cuts a label so where it may be; else as ranks of ``ep`` hold it together."""
        size = cut.found.sizes[label]
        for way in (layout, without(layout, size, EXPERTS, self.values.mesh)):
            if way is not None and self._may_cut(op, label, way, cut):
                cut.layouts[label] = way
                return

    def _choose_experts(self, op: Op, cut: Cut) -> None:
        """Experts go before tokens: a rank has some of them, for the tokens of its group."""
        experts = self.values.plan.experts
        if not experts:
            return
        for i, operand in enumerate(cut.found.inputs):
            if operand is None or (op.name, i) not in experts or op.inputs[i] in self.values.home:
                continue
            dims = self.values.plan.wishes[(op.name, i)]
            for spec, layout in zip(operand, dims, strict=True):
                if EXPERTS in axes_in(layout):
                    labels = decompose(spec, layout, cut.found.sizes, self.values.mesh) or {}
                    for label, sub in labels.items():
                        self._cut_by(op, label, sub, cut)
        self._choose_made(op, [v if v in experts else "" for v in op.outputs], cut)

    def _choose_made(self, op: Op, outputs: Sequence[str], cut: Cut) -> None:
        """Dims that an op makes by broadcasting are made as wished for."""
        found = cut.found
        read = {k for o in found.inputs for spec in o or () for k in spec_labels(spec)}
        for value, operand in zip(outputs, found.outputs, strict=True):
            for spec, layout in zip(
                operand or (), self.values.plan.wishes.get(value, ()), strict=False
            ):
                labels = decompose(spec, layout, found.sizes, self.values.mesh) or {}
                for label, sub in labels.items():
                    if sub is not None and label not in read and self._may_cut(op, label, sub, cut):
                        cut.layouts[label] = sub

    def _weight(self, value: str) -> tuple[bool, int]:
        return self.values.is_constant(value), -self.values.elements(value)

    def _choose_heads(self, op: Op, cut: Cut) -> None:
        heads = self.values.plan.heads.get(op.name)
        cut.fixed = frozenset("hg")
        if heads is not None and not cut.axes_kept().intersection(heads.queries.axes.split("+")):
            cut.layouts.update(h=heads.queries, g=heads.keys)

    # ------------------------------------------------------------ what may be cut

    def _may_cut(self, op: Op, label: str, layout: Layout, cut: Cut) -> bool:
        found = cut.found
        if label in cut.layouts or label in cut.fixed:
            return False
        if label in found.whole and not self._are_cut_keys(op, label, layout):
            return False
        if self._collides(op, label, layout, cut):
            return False
        how = found.reduced.get(label)
        if how is None or how in ("max", "min"):
            return True
        if how == "sum" and found.adapt == "bias" and self._has_moving_bias(op):
            return False
        if is_exact(layout, found.sizes[label], self.values.mesh):
            return True
        return how == "sum" and self._has_constant_along(op, label, found)

    def _are_cut_keys(self, op: Op, label: str, layout: Layout) -> bool:
        axes = self.values.plan.keys.get(op.name) if label == "t" else None
        return axes is not None and set(axes_in(layout)) == set(axes.split("+"))

    def _has_constant_along(self, op: Op, label: str, found: Signature) -> bool:
        """Whether a constant can hold zeros where ranks hold copies, so that sums are right."""
        return any(
            operand is not None and self.values.is_constant(value) and (label,) in operand
            for value, operand in zip(op.inputs, found.inputs, strict=True)
        )

    def _has_moving_bias(self, op: Op) -> bool:
        return bool(op.input(2)) and not self.values.is_constant(op.input(2))

    def _collides(self, op: Op, label: str, layout: Layout, cut: Cut) -> bool:
        """Whether an axis of the layout cuts something else that the op has beside the label."""
        axes = set(axes_in(layout))
        barred = self.values.plan.barred.get(op.name, "").split("+")
        if axes & cut.axes_kept() or axes.intersection(barred):
            return True
        return any(
            axes.intersection(axes_in(sub)) and not cut.found.apart(label, other)
            for other, sub in cut.layouts.items()
        )

    # ------------------------------------------------------------ sums

    def _kept_sums(self, op: Op, found: Signature) -> tuple[str, ...]:
        """Axes over which the inputs are sums still to be made, and the output may be too."""
        home = self.values.home
        homes = {i: home[v] for i, v in enumerate(op.inputs) if v in home}
        sums = {i: sharding.partial for i, sharding in homes.items() if sharding.partial}
        if not sums or not found.linear or len(set(sums.values())) > 1:
            return ()
        only = {"first": 0, "second": 1}.get(found.linear)
        if (only is not None and set(sums) != {only}) or (
            found.linear == "product" and len(sums) > 1
        ):
            return ()
        kept = next(iter(sums.values()))
        names = {a for joined in kept for a in joined.split("+")}
        for i, value in enumerate(op.inputs):
            if i in sums or not value or found.inputs[i] is None:
                continue
            if found.linear == "sum" and not self.values.is_constant(value):
                return ()
            dims = self.values.cut_of(op.name, i, value)
            if names & {a for layout in dims for a in axes_in(layout)}:
                return ()
        grows = self.values.elements(op.outputs[0]) > self.values.elements(op.inputs[min(sums)])
        return () if grows else kept

    def sums(self, cut: Cut) -> tuple[str, ...]:
        """The axes over which the outputs are sums still to be made."""
        axes = cut.axes_kept()
        for label, how in cut.found.reduced.items():
            if how == "sum":
                axes.update(axes_in(cut.layouts.get(label)))
        return (self.values.local.joined(sorted(axes)),) if axes else ()

    # ------------------------------------------------------------ operands

    def wanted(self, op: Op, index: int, cut: Cut) -> Sharding | None:
        """How an input must lie; None for whole."""
        operand = cut.found.inputs[index]
        if operand is None:
            return None
        value, dims = op.inputs[index], cut.layout(operand)
        if self.values.is_constant(value):
            return Sharding(dims, self._constant_sums(index, cut), self._once(operand, cut))
        home = self.values.home.get(value)
        kept = home is not None and home.partial == cut.kept
        return Sharding(dims, cut.kept if kept else ())

    def _constant_sums(self, index: int, cut: Cut) -> tuple[str, ...]:
        if cut.found.linear == "sum":
            return cut.kept
        return self.sums(cut) if cut.found.adapt == "bias" and index == 2 else ()

    def _once(self, operand: Operand, cut: Cut) -> tuple[int, ...]:
        summed = {k for k, how in cut.found.reduced.items() if how == "sum"}
        inexact = {(k,) for k in summed if not cut.is_exact(k, self.values)}
        return tuple(n for n, spec in enumerate(operand) if spec in inexact)

    def home(self, operand: Operand, cut: Cut) -> Sharding:
        """How an output lies."""
        return Sharding(cut.layout(operand), self.sums(cut))
