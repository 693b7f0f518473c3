"""The figures that a capture may determine, and what it takes to determine each.

Counts (cores, buffers), clocks and datasheet rates are not fitted: where a measured card is
slower than they say, it is an efficiency that differs. Their order is that in which they are
taken: of two figures that a capture cannot tell apart, the earlier one is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.backends.device import Device


@dataclass(frozen=True, slots=True)
class Parameter:
    """A figure and the rows that tell it."""

    name: str
    wanted: str
    """What data would determine it, for whoever has none."""
    families: tuple[str, ...] = ()
    """The families whose times it can change; all, where none is named."""


UNFITTED = ("reduction", "transpose")
"""Families that are predicted and not fitted: what their kernels lose is no figure of a profile,
and would be taken for a slow start-up or memory."""

_CUBE = ("gemm", "convolution")
_ATTENTION = ("attention",)
_VECTOR = (
    *("elementwise", "movement", "fill", "gather", "softmax", "gated", "rotary"),
    *("rms norm", "layer norm"),
)

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "hbm_efficiency_fraction",
        "copies, fills or elementwise ops on tensors larger than L2, in several sizes",
    ),
    Parameter("vector_kernel_start_us", "elementwise ops on tensors below 64 KB", _VECTOR),
    Parameter(
        "cube_efficiency_fraction",
        "matrix products bound by arithmetic: m, n and k of 4096 and more",
        _CUBE,
    ),
    Parameter("cube_kernel_start_us", "matrix products that take less than 30 us", _CUBE),
    Parameter(
        "core_read_efficiency_fraction",
        "matrix products with m or n of a few hundred and large k",
        _CUBE,
    ),
    Parameter("vector_l2_efficiency_fraction", "vector ops on tensors that stay in L2", _VECTOR),
    Parameter("l2_efficiency_fraction", "matrix products with m or n of a few hundred and large k"),
    Parameter(
        "vendor_attention_efficiency_fraction", "fused attention of 4K tokens and more", _ATTENTION
    ),
    Parameter("vendor_attention_start_us", "fused attention of a few hundred tokens", _ATTENTION),
    Parameter(
        "tuned_attention_efficiency_fraction",
        "fused attention of 4K tokens and more by the kernel that attention_kernel names 'tuned'",
        _ATTENTION,
    ),
    Parameter("tuned_attention_start_us", "the same of a few hundred tokens", _ATTENTION),
    Parameter("decode_start_us", "fused attention of one query over a short cache", _ATTENTION),
    Parameter(
        "rms_norm_efficiency_fraction",
        "RMS norms over 10 MB and more, beside plain copies",
        ("rms norm",),
    ),
    Parameter(
        "layer_norm_efficiency_fraction",
        "layer norms over 10 MB and more, beside copies",
        ("layer norm",),
    ),
    Parameter(
        "softmax_efficiency_fraction",
        "softmax over 10 MB and more, beside plain copies",
        ("softmax",),
    ),
    Parameter(
        "elementwise_efficiency_fraction",
        "elementwise ops over 10 MB and more, beside copies or matrix products bound by memory",
        ("elementwise",),
    ),
    Parameter(
        "gated_efficiency_fraction",
        "SwiGlu or GeGlu over 10 MB and more, beside copies",
        ("gated",),
    ),
    Parameter(
        "broadcast_efficiency_fraction",
        "elementwise ops that spread a row or column over 10 MB and more, beside copies",
        ("elementwise",),
    ),
    Parameter(
        "gather_efficiency_fraction", "gathers of 10 MB and more, beside copies", ("gather",)
    ),
    Parameter(
        "rotary_efficiency_fraction",
        "rotary embeddings over 10 MB and more, beside copies",
        ("rotary",),
    ),
    Parameter(
        "vector_bytes_per_cycle",
        "elementwise ops bound by arithmetic: powers, erf or tanh over 10 MB and more",
        (*_VECTOR, *_ATTENTION),
    ),
    Parameter(
        "drain_bytes_per_cycle", "matrix products with large m and n and a k below 256", _CUBE
    ),
)
"""Fitted to durations."""

TASK_GAP = Parameter(
    "task_gap_us", "twenty tasks or more that followed each other at once (a graph sunk whole)"
)
"""Read from the gaps between tasks, not from their durations."""

LINKS = Parameter(
    "hccs_efficiency_fraction, hccs_latency_us, collective_start_us",
    "sizes and ranks of collectives, which neither file has (see communication.json)",
)
"""Never determined by these files."""


def applicable(device: Device) -> tuple[Parameter, ...]:
    """Those that the device's cost depends on: its own attention kernel's, not the other's."""
    other = "vendor_" if device.attention_kernel == "tuned" else "tuned_"
    return tuple(p for p in PARAMETERS if not p.name.startswith(f"{other}attention"))
