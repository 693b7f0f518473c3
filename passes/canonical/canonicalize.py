"""The canonical form: what exporters write in many ways, in one.

All rules run together to a fixpoint, then common subexpressions are merged; what that reveals
is rewritten in the next round. Types are inferred anew only when a round changed something, so
the last inference is the one that proves nothing is left. Bodies of If, Loop and Scan get the
same treatment.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.passes.bodies import MAX_DEPTH, rewrite_bodies
from gecompiler.passes.canonical import (
    constant_folding,
    expand_sinking,
    explicit_broadcast,
    identity_gathers,
    if_inlining,
    inference_mode,
    no_op_removal,
    reshape_merging,
    shape_folding,
    shape_recipes,
    slice_splitting,
    transpose_merging,
)
from gecompiler.passes.canonical.common_subexpressions import merge_common
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import FoldingBudget, Rewriter, merge_tables

_MAX_ROUNDS = 12
_log = logging.getLogger("gecompiler.passes")

RULES = merge_tables(
    inference_mode.RULES,
    if_inlining.RULES,
    no_op_removal.RULES,
    transpose_merging.RULES,
    shape_folding.RULES,
    reshape_merging.RULES,
    expand_sinking.RULES,
    slice_splitting.RULES,
    identity_gathers.RULES,
    explicit_broadcast.RULES,
    constant_folding.RULES,
)
"""Every local rule; `shape_recipes` follows when these have come to rest."""


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Brings a graph into canonical form: folds, merges and removes until nothing is left to do.

    ``max_elements`` bounds each constant that folding makes, ``max_bytes`` all together.
    """

    name = "canonicalize"
    max_elements: int = 1 << 20
    max_bytes: int = 1 << 28

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns the number of rewrites."""
        budget = FoldingBudget(self.max_elements, self.max_bytes, weights=not context.trains)
        return _to_fixpoint(graph, budget, context.diagnostics, 0)


def _to_fixpoint(graph: Graph, budget: FoldingBudget, diagnostics: Diagnostics, depth: int) -> int:
    total = 0
    for _ in range(_MAX_ROUNDS):
        facts = infer_types(graph)
        rewriter = Rewriter(graph, ValueFacts(graph, facts.values), budget, diagnostics)
        changes = rewriter.drop_dead() + _round(rewriter)
        if depth < MAX_DEPTH:
            inner = partial(_to_fixpoint, budget=budget, diagnostics=diagnostics, depth=depth + 1)
            changes += rewrite_bodies(graph, inner)
        if not changes:
            return total
        rewriter.drop_unused_constants()
        total += changes
    _log.warning("no fixpoint after %d rounds", _MAX_ROUNDS)
    return total


def _round(rewriter: Rewriter) -> int:
    """Local rules and merging in turn until both rest, then the shape arithmetic that is left."""
    start = rewriter.changes
    merged = 0
    rewriter.run(RULES)
    for _ in range(_MAX_ROUNDS):
        found = merge_common(rewriter)
        merged += found
        if found:
            rewriter.run(RULES, everywhere=False)
        elif rewriter.run(shape_recipes.RULES):
            rewriter.run(RULES)
        else:
            break
    return rewriter.changes - start + merged
