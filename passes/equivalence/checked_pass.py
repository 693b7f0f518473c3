"""A fusion pass with a net under it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from gecompiler.ir.errors import GecError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.passes.equivalence.comparison import Evaluate, Verdict, judge
from gecompiler.passes.equivalence.difference import Change, changes
from gecompiler.passes.equivalence.regions import NotCheckableError, Regions
from gecompiler.passes.pass_base import Pass, PassContext

CHECKED = ("fuse-attention", "fuse-block")
"""Passes that fuse."""

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
            fresh = {n: why for n, why in wrong.items() if n not in context.left_alone}
            if not wrong:
                return self.inner.run(graph, context)
            if not fresh:
                break
            for name, why in fresh.items():
                context.left_alone[name] = f"undone by the check, since it differs {why}"
                context.diagnostics.warn(
                    "fusion-undone",
                    f"{self.inner.name} fused {name!r} wrongly, {why}; that fusion is undone",
                    "the model is compiled without it; please report it with the model",
                )
        context.diagnostics.warn(
            "fusion-undone", f"{self.inner.name} is left out: what it fuses wrongly it keeps fusing"
        )
        return 0

    def _wrong(
        self, graph: Graph, context: PassContext, known: dict[str, Verdict]
    ) -> dict[str, str]:
        """What a trial run gets wrong: by the name that keeps the pass away from it."""
        trial = graph.copy()
        trial.reserve(graph)
        assumptions = infer_types(trial).assumptions
        before = trial.copy()
        noted = PassContext(left_alone=context.left_alone)
        self.inner.run(trial, noted)
        wrong: dict[str, str] = {}
        cutters: dict[int, Regions] = {}
        for change in changes(before, trial):
            site = _site(change, noted)
            if id(change.before) not in cutters:
                cutters[id(change.before)] = Regions(change.before, change.after)
            try:
                region = cutters[id(change.before)].of(change)
                key = region.fingerprint
                if key not in known:
                    known[key] = judge(region, assumptions, self.evaluate)
                verdict = known[key]
            except (NotCheckableError, GecError) as error:
                verdict = Verdict(0, unchecked=str(error))
            _log.info("check: %s: %s", site, verdict)
            if verdict.difference:
                wrong.setdefault(site, verdict.difference)
            elif verdict.unchecked:
                context.diagnostics.warn(
                    "fusion-unchecked", f"{site!r} could not be checked: {verdict.unchecked}"
                )
        return wrong


def _site(change: Change, noted: PassContext) -> str:
    """The attention site that the fused op stands for, else the op itself."""
    sources = set(change.op.info.sources)
    for site in noted.sites:
        if not site.fused or site.name not in change.before:
            continue
        op: Op = change.before.op(site.name)
        if site.name in sources or sources.issuperset(op.info.sources or (site.name,)):
            return site.name
    return change.op.name

