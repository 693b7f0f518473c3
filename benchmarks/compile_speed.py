"""How long ``gec compile`` takes beside onnxruntime's optimizer, onnxscript and onnxsim.

    python -m benchmarks.compile_speed [MODEL.onnx ...] [--runs 3] [--layers 96]

Each tool is a process of its own, from start to end, in turn A B C D A B C D, so that a change
in the machine's speed meets all of them. What each does is not the same: gecompiler also
schedules and simulates; the others only simplify or fuse, and write the model. A BERT-like model
of many layers is built and measured first, then the models given. Needs the extra ``bench``; a
tool that is not installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bert_model import HEADS, HIDDEN, save_bert

TOOLS = {
    "gecompiler": "from gecompiler.cli import main; main(['compile', MODEL, '--json'])",
    "onnxruntime": (
        "from onnxruntime.transformers import optimizer\n"
        f"optimizer.optimize_model(MODEL, model_type=KIND, num_heads={HEADS},"
        f" hidden_size={HIDDEN}, opt_level=0).save_model_to_file(OUT)"
    ),
    "onnxscript": (
        "import onnx_ir as ir\n"
        "from onnxscript.rewriter.ort_fusions import optimize_for_ort\n"
        "model = ir.load(MODEL)\n"
        "model = optimize_for_ort(model)\n"
        "model = model[0] if isinstance(model, tuple) else model\n"
        "ir.save(model, OUT)"
    ),
    "onnxsim": (
        "import onnx, onnxsim\nmodel, _ = onnxsim.simplify(onnx.load(MODEL))\nonnx.save(model, OUT)"
    ),
}
"""What each tool is run with."""

NEEDED = {"onnxruntime": ("onnxruntime", "sympy"), "onnxscript": ("onnxscript",)}
AT_LEAST = {"onnxruntime": 10.0, "onnxscript": 20.0, "onnxsim": 0.25}
"""How many times our time the others should take."""


Seconds = tuple[float, float]
"""By the clock, and of processors."""


def once(tool: str, model: Path, folder: Path, kind: str) -> Seconds:
    """What one whole process takes; raises when the tool fails."""
    out = folder / "out.onnx"
    head = f"MODEL, OUT, KIND = {str(model)!r}, {str(out)!r}, {kind!r}\n"
    start, before = time.perf_counter(), os.times()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", head + TOOLS[tool]],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    after = os.times()
    used = after.children_user + after.children_system
    return time.perf_counter() - start, used - before.children_user - before.children_system


def installed() -> list[str]:
    """The tools that can be run; tells which cannot."""
    found = []
    for tool in TOOLS:
        needed = NEEDED.get(tool, (tool,))
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            print(f"{tool}: left out, {', '.join(missing)} is not installed")
        else:
            found.append(tool)
    return found


def measure(
    model: Path, tools: list[str], runs: int, folder: Path, kind: str
) -> dict[str, list[Seconds]]:
    """What each run of each tool took; a tool that fails has none."""
    seconds: dict[str, list[Seconds]] = {tool: [] for tool in tools}
    for _ in range(runs):
        for tool in tools:
            try:
                seconds[tool].append(once(tool, model, folder, kind))
            except subprocess.CalledProcessError as error:
                last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
                print(f"  {tool} failed: {' '.join(last)}", file=sys.stderr)
    return seconds


def show(name: str, seconds: dict[str, list[Seconds]]) -> None:
    """A line for each tool: its medians, how it compares, and what is aimed at."""
    if not seconds.get("gecompiler"):
        return
    ours = [statistics.median(column) for column in zip(*seconds["gecompiler"], strict=True)]
    for tool, times in seconds.items():
        if not times:
            continue
        clock, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        aim = AT_LEAST.get(tool)
        verdict = "" if aim is None else f"{aim:g}: {'yes' if clock >= aim * ours[0] else 'no'}"
        ratios = f"{clock / ours[0]:>10.2f}{cpu / ours[1]:>8.2f}"
        print(f"{name:<28}{tool:<13}{clock:>9.2f}{cpu:>8.2f}{ratios}{verdict:>12}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=96, help="layers of the BERT-like model")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = folder / f"bert-{given.layers}-layers.onnx"
        nodes = save_bert(built, given.layers)
        tools = installed()
        print(f"{built.stem}: {nodes} nodes")
        head = f"{'clock s':>9}{'CPU s':>8}{'x clock':>10}{'x CPU':>8}{'at least':>12}"
        print(f"{'model':<28}{'tool':<13}{head}")
        for model in (built, *given.models):
            kind = "bert" if "bert" in model.stem else "gpt2"
            show(model.stem, measure(model, tools, given.runs, folder, kind))


if __name__ == "__main__":
    main()
