"""Attention whose heads or queries are cut.

Heads: query head h reads KV head h // (H // G), so that keys and values are cut like the query
heads that read them, and neighbours share a KV head where there are fewer than ranks.

Queries cut by tokens see all keys (gathered). The rows of a rank are not the first ones, which
its window must count from: ``row_offset`` says where they begin. The work of causal ranks
differs, and so do their templates.

Source: Korthikanti et al. 2022 (sequence parallel), Jacobs et al. 2023 (Ulysses).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, Split
from gecompiler.passes.parallel.local_graph import LocalGraph
from gecompiler.passes.parallel.plan import HeadCut


def head_cut(heads: int, groups: int, axes: str, mesh: Mesh) -> HeadCut | None:
    """How heads are shared out over the axes; None where a rank's would straddle KV heads.

    With fewer KV heads than ranks neighbours hold the same one; with fewer heads than ranks, or
    a number that does not divide, the last ranks hold copies whose results nobody uses.
    """
    ranks, per = mesh.axis_size(axes), heads // groups
    held = -(-heads // ranks)
    if held % per == 0:
        return HeadCut(
            _split(axes, heads, held, 1, ranks), _split(axes, groups, held // per, 1, ranks)
        )
    if per % held:
        return None
    return HeadCut(_split(axes, heads, held, 1, ranks), _split(axes, groups, 1, per // held, ranks))


def straddling(attention: FlashAttention, ranks: int) -> str:
    """Why `head_cut` cannot be."""
    return (
        f"{attention.q_heads} query heads with {attention.kv_heads} KV heads are not cut "
        f"over {ranks} ranks: a rank's would straddle KV heads"
    )


def _split(axes: str, size: int, held: int, shared: int, ranks: int) -> Split:
    usual = shared == 1 and held == -(-size // ranks)
    return Split(axes, 0 if usual else held, shared)


def local_attention(local: LocalGraph, op: Op, inputs: Sequence[str]) -> Op:
    """The op on local inputs, of which Q has the first rows."""
    attention = FlashAttention.of(op)
    axis = 2 if attention.reads_rows_first else 1
    heads, groups = (local.shape(inputs[i])[axis] for i in (0, 1))
    made = replace(attention, q_heads=heads, kv_heads=groups)
    return op.with_(inputs=tuple(inputs), attrs=made.attrs())


def with_row_offsets(graph: Graph, offsets: Mapping[str, int]) -> Graph:
    """The graph with those row offsets, by attention; itself where it has them already."""
    changed = [
        graph.op(name)
        for name, offset in offsets.items()
        if name in graph and graph.op(name).attr("row_offset", 0) != offset
    ]
    if not changed:
        return graph
    twin = graph.copy()
    for op in changed:
        made = replace(FlashAttention.of(op), row_offset=offsets[op.name])
        twin.replace_op(op.name, op.with_(attrs=made.attrs()))
    return twin
