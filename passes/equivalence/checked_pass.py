"""A fusion pass with a net under it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.activity import tell
from gecompiler.ir.errors import GecError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.passes.equivalence.comparison import Evaluate, Verdict, judge
from gecompiler.passes.equivalence.difference import Change, changes
from gecompiler.passes.equivalence.region import Region
from gecompiler.passes.equivalence.regions import NotCheckableError, Regions
from gecompiler.passes.pass_base import Pass, PassContext

CHECKED = ("fuse-attention", "fuse-block")
"""Passes that fuse."""


def with_net(instance: Pass, evaluate: Evaluate) -> Pass:
    """The pass with a net under it, if it is one that fuses."""
    return CheckedPass(instance, evaluate) if instance.name in CHECKED else instance


_MAX_ROUNDS = 12
_log = logging.getLogger("gecompiler.passes")


@dataclass(frozen=True)
class CheckedPass(Pass):
    """Runs ``inner`` on a copy, checks what it fused, and then runs it without what differs.

    So the graph is made in one way, checked or not, and is the same when nothing differs. Each
    fusion undone is a warning; the sites left alone are in ``PassContext.left_alone``.
    """

    name: ClassVar[str] = "checked"
    inner: Pass
    evaluate: Evaluate

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.inner.name)

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of rewrites of ``inner``."""
        known: dict[str, Verdict] = {}
        for _ in range(_MAX_ROUNDS):
            wrong = self._wrong(graph, context, known)
            if not wrong:
                return self.inner.run(graph, context)
            progress = False
            for fault in wrong:
                progress |= not context.left_alone.keys() >= set(fault.ops)
                self._leave_alone(fault, context)
            if not progress:
                break
        context.diagnostics.warn(
            "fusion-undone", f"{self.inner.name} is left out: what it fuses wrongly it keeps fusing"
        )
        return 0

    def _leave_alone(self, fault: _Fault, context: PassContext) -> None:
        reason = f"undone by the check, since it differs {fault.why}"
        context.left_alone.update(dict.fromkeys(fault.ops, reason))
        context.diagnostics.warn(
            "fusion-undone",
            f"{self.inner.name} fused {fault.site!r} wrongly, {fault.why}; that fusion is undone",
            "the model is compiled without it; please report it with the model",
        )

    def _wrong(self, graph: Graph, context: PassContext, known: dict[str, Verdict]) -> list[_Fault]:
        """What a trial run gets wrong."""
        trial = graph.copy()
        trial.reserve(graph)
        assumptions = infer_types(trial).assumptions
        before = trial.copy()
        replacements = trial.record_replacements()
        noted = PassContext(left_alone=context.left_alone)
        self.inner.run(trial, noted)
        wrong: list[_Fault] = []
        cutters: dict[int, Regions] = {}
        found = list(changes(before, trial, replacements))
        for number, change in enumerate(found):
            tell(f"checking the fusions of {self.inner.name}", number, len(found))
            if id(change.before) not in cutters:
                inside = [c for c in found if c.before is change.before]
                cutters[id(change.before)] = Regions(change.before, change.after, inside)
            try:
                region = cutters[id(change.before)].of(change)
                key = region.fingerprint
                if key not in known:
                    known[key] = judge(region, assumptions, self.evaluate)
            except (NotCheckableError, GecError) as error:
                self._unchecked(change.op.name, str(error), context)
                continue
            verdict, site = known[key], _site(change, region, noted)
            _log.info("check: %s: %s", site, verdict)
            if verdict.difference:
                wrong.append(_Fault(site, verdict.difference, region.replaced))
            elif verdict.unchecked:
                self._unchecked(site, verdict.unchecked, context)
        return wrong

    def _unchecked(self, site: str, reason: str, context: PassContext) -> None:
        message = f"{self.inner.name}: {site!r} could not be checked: {reason}"
        context.diagnostics.warn("fusion-unchecked", message)


@dataclass(frozen=True, slots=True)
class _Fault:
    """A fusion that differs: its name, how, and the ops it replaced."""

    site: str
    why: str
    ops: tuple[str, ...]


def _site(change: Change, region: Region, noted: PassContext) -> str:
    """The name of the attention that the fused op stands for, else the op's own."""
    replaced = set(region.replaced)
    found = (site.name for site in noted.sites if site.fused and site.name in replaced)
    return next(found, change.op.name)
