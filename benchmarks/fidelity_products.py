"""Readers of measured matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fidelity_common import LeaveOut, Record, count, device_of, dtype_of, microseconds
from benchmarks.fidelity_rows import Case, Row, gemm
from gecompiler.ir.types import DType


def gemm_family(us: float) -> str:
    return "gemm_over_50us" if us > 50 else "gemm_under_50us"


def product(
    data: str, device: str, us: float, m: int, n: int, k: int, case: Case | None = None, **more: str
) -> Row:
    return Row(data, gemm_family(us), device, f"{m},{n},{k}", us, case or gemm(m, n, k), **more)


def aiconfigurator_gemm(data: str, r: Record) -> Iterator[Row]:
    """Kernel times of the vendor's library within captured graphs."""
    device = device_of(r["device"])
    dtype = dtype_of(r["dtype"], device)
    m, n, k = count(r, "m"), count(r, "n"), count(r, "k")
    out = DType.F32 if dtype is DType.F32 else DType.BF16
    case = gemm(m, n, k, dtype, out)
    yield product(data, device, microseconds(r, "latency_ms", 1e3), m, n, k, case)


def deepgemm(data: str, r: Record) -> Iterator[Row]:
    """fp8 products; a grouped one has M rows for each of its weights."""
    batch, m, n, k = count(r, "groups"), count(r, "M"), count(r, "N"), count(r, "K")
    case = gemm(m, n, k, DType.F8E4M3FN, DType.BF16, batch)
    us = microseconds(r, "time_us")
    device = device_of(r["device"])
    yield Row(data, gemm_family(us), device, f"{batch},{m},{n},{k}", us, case)


def ascend_gemm(data: str, r: Record) -> Iterator[Row]:
    """Products alone; those with a collective in the same kernel are of another kind."""
    if r["op"] not in ("gemm", "gemm only"):
        raise LeaveOut("a product and a collective in one kernel")
    m, n, k = count(r, "M"), count(r, "N"), count(r, "K")
    out = DType.F32 if r["dtype"].endswith("fp32") else DType.F16
    case = gemm(m, n, k, DType.F16, out)
    yield product(data, device_of(r["device"]), microseconds(r, "time_us"), m, n, k, case)
