"""Reads the measured files: each row as a `Row`, or a reason to leave it out.

A file is known by its name, or else by its columns, so that other measurements of the same forms
take part under names of their own. Columns are found by the header, in any order.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.fidelity_attention import (
    aiconfigurator_attention,
    ascend_attention,
    llmservingsim_attention,
)
from benchmarks.fidelity_common import LeaveOut, Record
from benchmarks.fidelity_layers import llmcompass, llmservingsim_layers, vidur_mlp
from benchmarks.fidelity_links import aiconfigurator_nccl, vidur_network
from benchmarks.fidelity_products import aiconfigurator_gemm, ascend_gemm, deepgemm
from benchmarks.fidelity_rows import Row, halved


@dataclass
class Found:
    """The rows of all files, and what was left out and why."""

    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, Counter[str]] = field(default_factory=dict)


LONGEST = 100_000
"""Characters of a line; the csv module refuses fields longer than 131,072."""

Reader = Callable[[str, Record], Iterator[Row | str] | Iterator[Row]]
"""Gives rows, or the reasons for which parts of a record are left out."""
READERS: dict[str, Reader] = {
    "aiconfigurator_attention_ms": aiconfigurator_attention,
    "aiconfigurator_gemm_ms": aiconfigurator_gemm,
    "aiconfigurator_nccl_ms": aiconfigurator_nccl,
    "ascend_attention_square_us": ascend_attention,
    "ascend_flash_attention_us": ascend_attention,
    "ascend_gemm_overlap_us": ascend_gemm,
    "deepgemm_h800_fp8": deepgemm,
    "llmcompass_measured": llmcompass,
    "llmservingsim_attention_ms": llmservingsim_attention,
    "llmservingsim_layers_ns": llmservingsim_layers,
    "vidur_mlp_median_ms": vidur_mlp,
    "vidur_network_h100_median_ms": vidur_network,
    "vidur_network_median_ms": vidur_network,
}
"""By the name of the file without its ending."""

COLUMNS: dict[str, tuple[str, ...]] = {
    "aiconfigurator_attention_ms": ("kernel_source", "phase", "batch_size", "isl", "kv_len"),
    "aiconfigurator_gemm_ms": ("device", "dtype", "m", "n", "k", "latency_ms"),
    "aiconfigurator_nccl_ms": ("op_name", "num_gpus", "message_size", "latency_ms"),
    "ascend_flash_attention_us": ("kernel", "host", "sq", "sk", "head_dim", "time_us"),
    "ascend_gemm_overlap_us": ("op", "ranks", "M", "K", "N", "cube_ratio", "time_us"),
    "deepgemm_h800_fp8": ("kind", "groups", "M", "N", "K", "time_us"),
    "llmcompass_measured": ("op", "dtype", "M", "K", "N", "time_us", "source_metric"),
    "llmservingsim_attention_ms": ("prefill_chunk_size", "kv_cache_size", "is_prefill", "time_ms"),
    "llmservingsim_layers_ns": ("layer_name", "tokens", "tp_size", "latency_ns"),
    "vidur_mlp_median_ms": ("num_tokens", "n_expanded_embd", "attn_pre_proj_ms", "mlp_act_ms"),
    "vidur_network_median_ms": ("network", "collective", "num_workers", "size", "median_ms"),
}
"""The columns by which a file of another name is known."""


def form_of(stem: str, header: Sequence[str]) -> str | None:
    """The form of a file: its name if that is known, else the first whose columns it has."""
    if stem in READERS:
        return stem
    there = set(header)
    return next((form for form, columns in COLUMNS.items() if there >= set(columns)), None)


def read(folder: Path) -> Found:
    """All rows of the files in the folder that are known."""
    found = Found()
    for path in sorted(p for p in folder.glob("*.csv") if p.is_file()):
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            lines = csv.reader(_cut(file))
            header = [cell.strip() for cell in next(lines, ())]
            form = form_of(path.stem, header)
            if form is not None:
                skipped = found.skipped.setdefault(path.stem, Counter())
                records = _records(header, lines, skipped)
                found.rows += halved(list(_rows(form, path.stem, records, skipped)))
    return found


def _cut(lines: Iterable[str]) -> Iterator[str]:
    """Lines no longer than any of these files has, and without null bytes."""
    for line in lines:
        yield line[:LONGEST].replace("\0", "")


def _records(
    header: Sequence[str], lines: Iterable[Sequence[str]], skipped: Counter[str]
) -> Iterator[Record]:
    for cells in _until_unreadable(lines, skipped):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) == len(header):
            yield {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
        else:
            skipped["another number of cells than the header"] += 1


def _until_unreadable(
    lines: Iterable[Sequence[str]], skipped: Counter[str]
) -> Iterator[Sequence[str]]:
    try:
        yield from lines
    except csv.Error as error:
        skipped[f"the rest of the file: {error}"] += 1


def _rows(form: str, name: str, records: Iterable[Record], skipped: Counter[str]) -> Iterator[Row]:
    for record in records:
        if record.get("physically_possible", "").lower() in ("false", "0", "no"):
            skipped["physically impossible"] += 1
            continue
        try:
            for row in READERS[form](form, record):
                if isinstance(row, str):
                    skipped[row] += 1
                elif not row.measured_us > 0:
                    skipped["no time"] += 1
                else:
                    yield replace(row, data_set=name, form=form)
        except LeaveOut as reason:
            skipped[str(reason)] += 1
        except KeyError as missing:
            skipped[f"no column {missing.args[0]}"] += 1
        except (ArithmeticError, TypeError, ValueError):
            skipped["sizes or times that are no numbers"] += 1
