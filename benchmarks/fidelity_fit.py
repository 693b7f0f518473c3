"""Fits the few physical parameters of the profiles, on one half of the shapes.

Least mean absolute percentage error by coordinate search in the logarithm of each parameter, a
dozen rounds with shrinking steps: deterministic, without derivatives, and good enough for
functions with the steps that waves and tiles make.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.fidelity_rows import Host, Row
from benchmarks.fidelity_score import METHODS, device_for, hosts
from gecompiler.backends.device import Device, load_device
from gecompiler.backends.device_figures import FIGURES

PROFILES = Path(__file__).resolve().parents[1] / "backends" / "devices"
MOST_ROWS = 160
"""Rows of a family that a fit looks at; more would take longer and move nothing."""


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
_LINKS = (
    "hccs_efficiency_fraction",
    "hccs_latency_us",
    "collective_piece_us",
    "collective_start_us",
    "collective_chunk_mib",
    "collective_copy_gb_per_s",
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
    "a100_links": Step(
        "a100",
        _LINKS,
        ("aiconfigurator_nccl_ms", "llmcompass_measured"),
        ("collective",),
        ("a100",),
    ),
    "h100_links": Step(
        "h100",
        ("hccs_latency_us", "collective_piece_us", "collective_start_us"),
        ("vidur_network_h100_median_ms",),
        ("collective",),
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

Changes = dict[str, float]


def search(
    loss: Callable[[Changes], float], start: Changes, bounds: Mapping[str, tuple[float, float]]
) -> Changes:
    """The values nearest a least loss, by steps up and down in each of them in turn."""
    values, best = dict(start), loss(start)
    steps = dict.fromkeys(values, 0.3)
    for _ in range(14):
        for name, step in steps.items():
            low, high = bounds[name]
            for factor in (1 + step, 1 / (1 + step)):
                changed = {**values, name: min(high, max(low, values[name] * factor))}
                error = loss(changed)
                if error < best - 1e-6:
                    best, values = error, changed
                    steps[name] = min(0.5, step * 1.3)
                    break
            else:
                steps[name] = step * 0.55
    return values


def fit_step(step: Step, rows: Sequence[Row]) -> tuple[Changes, float, float, list[str]]:
    """Fitted values, the error before and after, and the files that determined them."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if step.takes(row):
            groups.setdefault((row.data_set, row.device, row.family), []).append(row)
    seen = [members[:: -(-len(members) // MOST_ROWS)] for members in groups.values()]
    base = load_device(step.profile)
    start = {name: float(getattr(base, name)) for name in step.figures}
    bounds = {name: (FIGURES[name][1].low, FIGURES[name][1].high) for name in step.figures}
    known = hosts()
    for key in step.methods:
        data_set, _, method = key.partition("/")
        host = known.get(data_set, {}).get(method, Host())
        start[key], start[f"{key}/least"] = host.call_us or 20.0, host.least_us or 5.0
        bounds[key] = bounds[f"{key}/least"] = (0.0, 1e4)

    def loss(changes: Changes) -> float:
        figures = {name: changes[name] for name in step.figures}
        devices = {d: dataclasses.replace(device_for(d), **figures) for d in step.devices}
        errors = [_error(members, devices, changes, known) for members in seen]
        return sum(errors) / len(errors)

    if not seen:
        return {}, 0.0, 0.0, []
    before = loss(start)
    values = search(loss, start, bounds)
    return values, before, loss(values), sorted({members[0].data_set for members in seen})


def _error(
    rows: Sequence[Row],
    devices: Mapping[str, Device],
    changes: Changes,
    known: Mapping[str, Mapping[str, Host]],
) -> float:
    total = 0.0
    for row in rows:
        host = known.get(row.form, {}).get(row.method, Host())
        key = f"{row.form}/{row.method}"
        if key in changes:
            host = Host(changes[key], changes[f"{key}/least"])
        us = host.us(row.kernels_us(devices[row.device]))
        total += abs(us / row.measured_us - 1.0)
    return total / len(rows)


def fit_all(rows: Sequence[Row], only: Sequence[str] = ()) -> None:
    """Runs the steps, all or those named, and writes what they find into the profiles."""
    for name, step in STEPS.items():
        if only and name not in only:
            continue
        values, before, after, files = fit_step(step, rows)
        print(f"{name}: {before:.1%} -> {after:.1%} on the half that is fitted")
        for figure in step.figures:
            if figure in values:
                print(f"  {figure} = {values[figure]:.4g}")
        if files:
            write_figures(step.profile, {f: values[f] for f in step.figures}, files)
            write_methods(step.methods, values)
        device_for.cache_clear()
        _forget_profiles()


def _forget_profiles() -> None:
    from gecompiler.backends import device_load

    device_load._built_in.cache_clear()


def write_figures(profile: str, values: Changes, files: Sequence[str]) -> None:
    """Puts the values into the profile's file with their source."""
    path = PROFILES / f"{profile}.yaml"
    text = path.read_text(encoding="utf-8")
    source = f"fitted on half of {' and '.join(files)} (python -m benchmarks.fidelity --fit)"
    for name, value in values.items():
        line = f'  {name}: {{value: {value:.4g}, kind: measured, source: "{source}"}}'
        text, found = re.subn(rf"^  {name}: \{{.*\}}$", line, text, flags=re.MULTILINE)
        if not found:
            text = text.rstrip("\n") + "\n" + line + "\n"
    path.write_text(text, encoding="utf-8")


def write_methods(methods: Sequence[str], values: Changes) -> None:
    """Puts the constants of the host's timing into their file."""
    if not methods:
        return
    data = yaml.safe_load(METHODS.read_text(encoding="utf-8")) or {}
    for key in methods:
        data_set, _, method = key.partition("/")
        data.setdefault(data_set, {})[method] = {
            "call_us": round(values[key], 2),
            "least_us": round(values[f"{key}/least"], 2),
        }
    METHODS.write_text(yaml.safe_dump(data, sort_keys=True), encoding="utf-8")
