"""Which figures of a profile are fitted to which measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.fidelity_rows import Row


@dataclass(frozen=True)
class Step:
    """Figures of one profile, and the rows that determine them."""

    profile: str
    figures: tuple[str, ...]
    data_sets: tuple[str, ...]
    families: tuple[str, ...]
    devices: tuple[str, ...]
    methods: tuple[str, ...] = ()
    """Constants of the host's timing that are fitted along, as ``data set/method``."""

    def takes(self, row: Row) -> bool:
        """Whether the row belongs to the step and to the half that fits may see."""
        return (
            row.fitted
            and row.data_set in self.data_sets
            and row.device in self.devices
            and any(row.family.startswith(f) for f in self.families)
        )


_GEMM = (
    "cube_kernel_start_us",
    "cube_efficiency_fraction",
    "tile_start_us",
    "drain_bytes_per_cycle",
    "core_hbm_bytes_per_cycle",
    "l2_read_bytes_per_cycle",
    "l2_efficiency_fraction",
    "hidden_fraction",
    "split_sync_us",
)
_ATTENTION = (
    "vendor_attention_start_us",
    "vendor_attention_efficiency_fraction",
    "attention_block_us",
    "block_sync_us",
)
_VECTOR = (
    "vector_kernel_start_us",
    "row_sync_us",
    "rms_norm_efficiency_fraction",
    "elementwise_efficiency_fraction",
    "gated_efficiency_fraction",
    "rotary_efficiency_fraction",
    "vector_l2_efficiency_fraction",
)
_HOSTS = ("x86_64", "aarch64", "unspecified")
_HALVES = ("ascend_attention_square_us", "ascend_flash_attention_us")

STEPS: Mapping[str, Step] = {
    "a100_rows": Step(
        "a100",
        (
            "hbm_efficiency_fraction",
            "layer_norm_efficiency_fraction",
            "softmax_efficiency_fraction",
        ),
        ("llmcompass_measured",),
        ("norm", "softmax", "elementwise", "gemm"),
        ("a100",),
        tuple(f"llmcompass_measured/{m}" for m in ("layernorm", "softmax", "gelu", "matmul")),
    ),
    "a100_gemm": Step("a100", _GEMM, ("aiconfigurator_gemm_ms",), ("gemm",), ("a100",)),
    "h100_gemm": Step(
        "h100",
        _GEMM,
        ("vidur_mlp_median_ms", "llmservingsim_layers_ns"),
        ("gemm",),
        ("h100",),
    ),
    "h100_f8": Step(
        "h100",
        ("f8_efficiency_fraction", "f8_tile_start_us"),
        ("deepgemm_h800_fp8",),
        ("gemm",),
        ("h800",),
    ),
    "a100_vector": Step(
        "a100",
        _VECTOR,
        ("vidur_mlp_median_ms",),
        ("norm", "elementwise", "rotary"),
        ("a100",),
    ),
    "h100_vector": Step(
        "h100",
        ("hbm_efficiency_fraction", "broadcast_efficiency_fraction", *_VECTOR),
        ("vidur_mlp_median_ms", "llmservingsim_layers_ns"),
        ("norm", "elementwise"),
        ("h100",),
    ),
    "a100_gather": Step(
        "a100", ("gather_efficiency_fraction",), ("vidur_mlp_median_ms",), ("gather",), ("a100",)
    ),
    "h100_gather": Step(
        "h100",
        ("gather_efficiency_fraction",),
        ("vidur_mlp_median_ms", "llmservingsim_layers_ns"),
        ("gather",),
        ("h100",),
    ),
    "h100_rotary": Step(
        "h100",
        ("rotary_efficiency_fraction",),
        ("vidur_mlp_median_ms",),
        ("rotary",),
        ("h100",),
    ),
    "a100_attention": Step(
        "a100", _ATTENTION, ("aiconfigurator_attention_ms",), ("attention_prefill",), ("a100",)
    ),
    "a100_decode": Step(
        "a100",
        ("decode_start_us", "decode_block_us", "decode_join_us"),
        ("aiconfigurator_attention_ms",),
        ("attention_decode",),
        ("a100",),
    ),
    "h100_attention": Step(
        "h100",
        _ATTENTION,
        ("llmservingsim_attention_ms", "llmservingsim_layers_ns"),
        ("attention",),
        ("h100",),
    ),
    "ascend_attention": Step(
        "ascend910b",
        (
            "vendor_attention_efficiency_fraction",
            "tuned_attention_start_us",
            "tuned_attention_efficiency_fraction",
            "attention_block_us",
            "block_sync_us",
            "tuned_block_sync_us",
            "l2_efficiency_fraction",
        ),
        _HALVES,
        ("attention",),
        ("ascend910b2:vendor", "ascend910b2:tuned"),
        (
            *(f"ascend_flash_attention_us/vendor {host}" for host in _HOSTS),
            "ascend_attention_square_us/vendor table",
        ),
    ),
}
