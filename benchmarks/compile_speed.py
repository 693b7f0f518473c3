"""How long ``gec compile`` takes beside the fusion tools of onnxruntime and onnxscript.

    python -m benchmarks.compile_speed [MODEL.onnx ...] [--runs 3]

Each tool is a process of its own, from start to end, in turn A B C A B C, so that a change in
the machine's speed meets all of them. What each does is not the same: gecompiler also
schedules and simulates; the others only fuse, and write the model. Without MODEL a 32-layer
transformer with small random weights is built and exported. Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOOLS = {
    "gecompiler": "from gecompiler.cli import main; main(['compile', MODEL, '--json'])",
    "onnxruntime": (
        "from onnxruntime.transformers import optimizer\n"
        "optimizer.optimize_model(MODEL, model_type=KIND, num_heads=4, hidden_size=HIDDEN,"
        " opt_level=0).save_model_to_file(OUT)"
    ),
    "onnxscript": (
        "import onnx_ir as ir\n"
        "from onnxscript.rewriter.ort_fusions import optimize_for_ort\n"
        "model = ir.load(MODEL)\n"
        "model = optimize_for_ort(model)\n"
        "model = model[0] if isinstance(model, tuple) else model\n"
        "ir.save(model, OUT)"
    ),
}


def once(tool: str, model: Path, folder: Path) -> float:
    """Seconds of one whole process; raises when the tool fails."""
    head = f"MODEL, OUT, KIND, HIDDEN = {str(model)!r}, {str(folder / 'out.onnx')!r}, 'gpt2', 32\n"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", head + TOOLS[tool]],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return time.perf_counter() - start


def built_model(folder: Path, layers: int) -> Path:
    """A many-layer model of small sizes with random weights."""
    from gecompiler.ir.onnx_io.exporter import save_onnx
    from gecompiler.models import build_spec

    spec = {
        "name": f"llama-{layers}l-small",
        "family": "llama",
        "description": "many layers of small sizes",
        "source": "made up",
        "hidden": 32,
        "layers": layers,
        "heads": 4,
        "kv_heads": 2,
        "intermediate": 48,
        "vocabulary": 37,
        "max_positions": 128,
        "dtype": "f32",
    }
    path = folder / "model.onnx"
    save_onnx(build_spec(spec, weights="random"), path)
    return path


def measure(model: Path, runs: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of each run of each tool; a tool that fails has none."""
    seconds: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    for _ in range(runs):
        for tool in TOOLS:
            try:
                seconds[tool].append(once(tool, model, folder))
            except subprocess.CalledProcessError as error:
                last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
                print(f"  {tool} failed: {' '.join(last)}", file=sys.stderr)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'model':<32}{'tool':<14}{'median s':>9}{'x gecompiler':>14}")
        for model in given.models or [built_model(folder, given.layers)]:
            seconds = measure(model, given.runs, folder)
            ours = statistics.median(seconds["gecompiler"])
            for tool, times in seconds.items():
                if times:
                    middle = statistics.median(times)
                    print(f"{model.stem:<32}{tool:<14}{middle:>9.2f}{middle / ours:>14.1f}")


if __name__ == "__main__":
    main()
