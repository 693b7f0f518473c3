"""A first guess of a layout's time, to look at the promising ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device
    from gecompiler.planning.facts import ModelFacts
    from gecompiler.planning.layouts import Layout


def estimated_us(
    facts: ModelFacts, layout: Layout, device: Device, link_bytes_per_us: float, training: bool
) -> float:
    """Arithmetic, memory and communication one after the other, stretched by the bubble.

    2 flop a parameter and token, three times that with a backward pass; weights read once a
    micro-batch, a KV cache once; all-reduces of tp twice a layer, KV gathered by sp once (in a
    decode step what attention made is summed), gradients reduced by dp and sp once.
    """
    cards = layout.tp * layout.sp * layout.dp * layout.pp * layout.ep
    passes = 3.0 if training else 1.0
    peak = device.cube_flop_per_us(DType.F16) * device.cube_cores
    shared = cards / (layout.sp if facts.seq < 2 else 1)
    work = passes * 2.0 * facts.parameters * facts.tokens / shared / peak
    weights = facts.weight_bytes / (layout.tp * layout.ep * layout.pp)
    read = passes * layout.micro_batches * weights / device.hbm_bytes_per_us
    kept = facts.state_bytes / (layout.tp * layout.sp * layout.dp * layout.pp)
    read += kept / device.hbm_bytes_per_us
    one = facts.seq < 2
    tokens = facts.tokens / ((1 if one else layout.sp) * layout.dp)
    per_layer = 0.0
    if layout.tp > 1:
        per_layer += 8.0 * facts.hidden * tokens * (layout.tp - 1) / layout.tp
    if layout.sp > 1:
        made = 4.0 * facts.hidden / layout.sp if one else 2.0 * facts.kv_width
        per_layer += made / layout.tp * tokens * (layout.sp - 1)
    talk = passes * per_layer * facts.layers / layout.pp
    replicas = layout.dp * layout.sp
    if training and replicas > 1:
        talk += 2.0 * weights * (replicas - 1) / replicas
    bubble = (layout.pp - 1) / (layout.chunks * layout.micro_batches)
    return (max(work, read) + talk / link_bytes_per_us) * (1 + bubble)
