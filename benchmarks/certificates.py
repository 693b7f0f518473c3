"""How close to the best schedule the product comes, and what each strategy brings.

    python -m benchmarks.certificates [--models llama-7b,gpt2:decode] [--onnx FOLDER]
        [--devices ascend910,ascend910b] [--batches 1,2,4,8,16,32] [--strategies auto,default]
        [--json FILE]

Built-in models at real sizes, prefill and decode, each batch on each device; with ``--onnx`` the
files of a folder at the sizes they were exported with instead. Per case: the makespan of each
strategy and its gain over one stream, the best found, the lower bound, the ratio of these two
and what binds. What cannot be compiled is told, and counts as nothing. The last lines are the
means; ``--json`` writes all rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from gecompiler import models
from gecompiler.driver import Compilation, Source, compile_source, optimise
from gecompiler.ir.errors import GecError
from gecompiler.option_table import Options
from gecompiler.request import Request

STRATEGIES = (
    "auto",
    "default",
    "compute_overlap",
    "pipeline",
    "cv",
    "load_balance",
    "main_stream",
    "critical_path",
    "heft",
)

LONGEST = 1024
"""Tokens of a prefill, and positions in the cache of a decode step, where the model has them."""


class Case(NamedTuple):
    """A model at one size on one device."""

    model: str
    device: str
    batch: int | None
    seq: int | None


def built_in(names: Sequence[str], devices: Sequence[str], batches: Sequence[int]) -> list[Case]:
    """Every named model at every batch on every device."""
    found: list[Case] = []
    for name in names or every_phase():
        spec = models.spec(name.partition(":")[0])
        seq = min(LONGEST, spec.max_positions)
        if ":decode" in name and spec.family != "llama":
            seq = min(seq, spec.max_positions - 1)
        found += [Case(name, device, batch, seq) for device in devices for batch in batches]
    return found


def every_phase() -> Iterator[str]:
    """The built-in models, and the decode step of those that have one."""
    for name in models.names():
        yield name
        if "decode" in models.spec(name).phases:
            yield f"{name}:decode"


def from_folder(folder: Path, devices: Sequence[str]) -> list[Case]:
    """Every ONNX file of a folder."""
    files = sorted(folder.glob("*.onnx"))
    return [Case(str(path), device, None, None) for device in devices for path in files]


def measure(case: Case, strategies: Sequence[str], sources: dict[str, Source]) -> dict[str, Any]:
    """The row of a case; ``error`` says why there is none."""
    row: dict[str, Any] = case._asdict() | {"model": Path(case.model).stem, "makespan_us": {}}
    try:
        for strategy in strategies:
            start = time.perf_counter()
            found = _compiled(case, strategy, sources)
            row["makespan_us"][strategy] = found.result.makespan_us
            if strategy == "auto" or len(strategies) == 1:
                row |= _certificate(found) | {"seconds": round(time.perf_counter() - start, 2)}
    except GecError as error:
        row["error"] = str(error)
    return row


def _compiled(case: Case, strategy: str, sources: dict[str, Source]) -> Compilation:
    options = Options({"device": case.device, "stream_strategy": strategy})
    request = Request(case.model, batch=case.batch, seq=case.seq, options=options)
    if case.model not in sources:
        sources.clear()  # one model at a time: weights are large
        sources[case.model] = optimise(request)
    return compile_source(sources[case.model], request)


def _certificate(found: Compilation) -> dict[str, Any]:
    result = found.result
    bound = result.lower_bound_us
    return {
        "tasks": len(result.schedule.tasks),
        "streams": result.used,
        "chosen": result.chosen,
        "single_us": result.single_stream_us,
        "best_found_us": result.best_found_us,
        "lower_bound_us": bound,
        "ratio": result.best_found_us / bound if bound else 1.0,
        "binds": result.binding_resource,
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"{row['model'][:30]:<30} {row['device']:<11} {row['batch'] or '-':>3}"
    if "ratio" not in row:
        return f"{head}  {row.get('error', 'not measured')}"
    gains = " ".join(
        f"{name} {row['single_us'] / us - 1:+.1%}" for name, us in row["makespan_us"].items() if us
    )
    return (
        f"{head} {row['single_us']:>11.1f} {row['best_found_us']:>11.1f} "
        f"{row['lower_bound_us']:>11.1f} {row['ratio']:.3f} {row['binds']:<13} "
        f"{row['streams']} {row['chosen']:<15} {row['seconds']:>5.1f}s  {gains}"
    )


def means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean ratio of all rows, of each device and of each model."""
    known = [row for row in rows if "ratio" in row]
    groups: dict[str, list[float]] = {"all": [row["ratio"] for row in known]}
    for key in ("device", "model"):
        for row in known:
            groups.setdefault(str(row[key]), []).append(row["ratio"])
    return {name: round(mean(ratios), 4) for name, ratios in groups.items() if ratios}


def _names(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certificates", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", type=_names, default=[])
    parser.add_argument("--onnx", type=Path)
    parser.add_argument("--devices", type=_names, default=["ascend910", "ascend910b"])
    parser.add_argument("--batches", type=_names, default=["1", "2", "4", "8", "16", "32"])
    parser.add_argument("--strategies", type=_names, default=list(STRATEGIES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.onnx:
        cases = from_folder(options.onnx, options.devices)
    else:
        cases = built_in(options.models, options.devices, [int(b) for b in options.batches])
    columns = ("single us", "best us", "bound us")
    print(f"{'model':<30} {'device':<11} {'b':>3} " + " ".join(f"{c:>11}" for c in columns))
    rows: list[dict[str, Any]] = []
    sources: dict[str, Source] = {}
    for case in cases:
        rows.append(measure(case, options.strategies, sources))
        print(line(rows[-1]), flush=True)
    summary = means(rows)
    for name, ratio in summary.items():
        print(f"mean of {name:<24} {ratio:.4f}")
    if options.json:
        text = json.dumps({"means": summary, "rows": rows}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
