"""The pass that finds every attention and makes each one FlashAttention op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from gecompiler.ir.collector import paused_collector
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.passes.attention.anchors import anchors
from gecompiler.passes.attention.attention_op import ATTENTION_OPS, match_attention_op
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.escapes import check_escapes
from gecompiler.passes.attention.kv_cache import Cache, cache_of, caches_of_op, declare_states
from gecompiler.passes.attention.match import Match, match
from gecompiler.passes.attention.narrowing import narrowed
from gecompiler.passes.attention.partials import match_partials, partials
from gecompiler.passes.attention.plan import decide
from gecompiler.passes.attention.refusal import Refusal
from gecompiler.passes.attention.remove import remove_dead, undo
from gecompiler.passes.attention.rewrite import Fused, rewrite
from gecompiler.passes.attention.site import AttentionSite
from gecompiler.passes.attention.sites import Origins
from gecompiler.passes.attention.sizes import Agreement, agreement
from gecompiler.passes.bodies import MAX_DEPTH, rewrite_bodies
from gecompiler.passes.pass_base import Pass, PassContext


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Rewrites attention, however it is spelt, to ``gecompiler.FlashAttention``.

    Every attention found is recorded in ``PassContext.sites``, with the reason where it was
    left alone. KV caches that feed attention become state of the graph.
    """

    name: ClassVar[str] = "fuse-attention"

    def run(self, graph: Graph, context: PassContext) -> int:
        """Fuses what can be fused, bodies included; returns the number of ops made."""
        with paused_collector():
            facts = infer_types(graph)
            notes = _Notes(context.sites, context.left_alone)
            return _fuse(graph, notes, agreement(facts.assumptions), depth=0)


def _fuse(graph: Graph, notes: _Notes, agree: Agreement, depth: int) -> int:
    """Fuses in a graph and in the bodies of its ops."""
    run = _Run(graph, notes, agree)
    count = run.run()
    if depth == 0 and count:
        declare_states(graph, run.caches)
    if depth < MAX_DEPTH:
        count += rewrite_bodies(
            graph, partial(_fuse, notes=notes, agree=agree, depth=depth + 1), lend=True
        )
    return count


class _Notes:
    """The sites; one that an earlier run of the pass refused is told anew in its place."""

    def __init__(self, sites: list[AttentionSite], left_alone: Mapping[str, str]) -> None:
        self._sites = sites
        self.left_alone = left_alone
        self._earlier = {s.name: n for n, s in enumerate(sites) if not s.fused}

    def add(self, site: AttentionSite) -> None:
        place = self._earlier.pop(site.name, None)
        if place is None:
            self._sites.append(site)
        else:
            self._sites[place] = site


class _Run:
    """One run over one graph: what is known of it, and what has been made so far."""

    def __init__(self, graph: Graph, notes: _Notes, agree: Agreement) -> None:
        self.graph = graph
        self.notes = notes
        self.agree = agree
        self._learn()
        self.dead: list[str] = []
        self.caches: list[Cache] = []
        self.fused = 0

    def _learn(self) -> None:
        """Begins with an empty memory of the graph."""
        self.e = Elements(self.graph, self.agree)
        self.origins = Origins(self.e)
        self.builder = Builder(self.graph)

    def run(self) -> int:
        for parts in list(partials(self.e)):
            self._try(parts.op, partial(match_partials, self.e, self.origins, parts))
        gone = set(self.dead)
        found = {
            a.op.name: a
            for a in anchors(self.e)
            if a.output not in gone and self.origins.is_attention(a)
        }
        for op in self.graph.topological():
            if op.name in found:
                self._try(op, partial(match, self.e, self.origins, found[op.name]))
            elif op.kind in ATTENTION_OPS:
                self._try(op, partial(match_attention_op, self.e, self.builder, op))
        # Only now: names of removed values must not come back while they are remembered.
        remove_dead(self.graph, self.dead)
        return self.fused

    def _try(self, op: Op, matched: Callable[[], Match]) -> None:
        """Fuses one attention, or notes why not and leaves no trace."""
        before = len(self.graph), len(self.graph.constants)
        self.builder.scope = f"{op.info.scope}/" if op.info.scope else ""
        try:
            if op.name in self.notes.left_alone:
                raise Refusal(self.notes.left_alone[op.name])
            found = narrowed(self.e, matched())
            asking = check_escapes(self.e, found.ops, found.results)
            plan = decide(self.e, found)
            caches = self._caches(op, found)
            fused = rewrite(self.e, self.builder, plan, asking)
        except Refusal as refusal:
            if before != (len(self.graph), len(self.graph.constants)):
                undo(self.graph, *before)
                self._learn()  # what was taken out may be remembered, and its names come back
            self.notes.add(AttentionSite(op.name, False, str(refusal)))
            return
        self.caches += caches
        self.fused += 1
        self.dead += fused.replaced
        self.dead += [v for o in found.ops for v in self.graph.op(o.name).outputs if v]
        self.notes.add(_site(op, fused, bool(caches)))

    def _caches(self, op: Op, found: Match) -> list[Cache]:
        own = caches_of_op(self.e, op) if op.kind in ATTENTION_OPS else []
        return own or [c for c in (cache_of(self.e, found.k), cache_of(self.e, found.v)) if c]


def _site(op: Op, fused: Fused, cached: bool) -> AttentionSite:
    attrs, plan = fused.attrs, fused.plan
    return AttentionSite(
        name=op.name,
        fused=True,
        q_heads=attrs.q_heads,
        kv_heads=attrs.kv_heads,
        head_dim=fused.width,
        v_head_dim=fused.value_width,
        scale=attrs.scale,
        softcap=attrs.softcap or None,
        mask=plan.kind,
        window=(attrs.window_left, attrs.window_right),
        proven=plan.proven,
        kv_cache=cached,
    )
