"""The campaign: ``python tests/fuzz/fuzz.py --models 10000 --texts 2000``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from fuzz_campaign import Make, run_cases
from fuzz_case import Builder, built_case
from fuzz_extremes import extremes
from fuzz_onnx_cases import bytewise, corpus_cases, mild, structured
from fuzz_text_cases import BUILDERS


def model_makers(count: int, start: int, corpus: Path | None) -> Iterator[Make]:
    """Cases of ONNX files: of small models mostly, and of real ones where they are."""
    builders: list[tuple[str, Builder]] = [
        *(("structured", structured), ("bytewise", bytewise), ("mild", mild)),
    ]
    builders.append(("real", corpus_cases(corpus)) if corpus else ("structured", structured))
    for seed in range(start, start + count):
        kind, builder = builders[seed % len(builders)]
        yield partial(built_case, kind, seed, builder)


def text_makers(count: int, start: int) -> Iterator[Make]:
    """Cases of YAML, JSON and CSV files, of every kind in turn."""
    for seed in range(start, start + count):
        kind, builder = BUILDERS[seed % len(BUILDERS)]
        yield partial(built_case, kind, seed, builder)


def extreme_makers(names: Collection[str] = ()) -> Iterator[Make]:
    """Models made to hurt: all, or those named."""
    for name, builder in extremes(names):
        yield partial(built_case, name, 0, builder)


def main() -> int:
    """Runs what the options ask for; 1 when anything failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", type=int, default=10_000)
    options.add_argument("--texts", type=int, default=2_000)
    options.add_argument("--extremes", action=argparse.BooleanOptionalAction, default=True)
    options.add_argument("--start", type=int, default=0, help="the first seed")
    options.add_argument(
        "--corpus",
        type=Path,
        default=os.environ.get("GECOMPILER_CORPUS"),
        help="a folder of real models",
    )
    options.add_argument("--failures", type=Path, default=Path("build/fuzz"))
    given = options.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        base = Path(folder).resolve()
        for name, makers in (
            ("extremes", extreme_makers() if given.extremes else iter(())),
            ("models", model_makers(given.models, given.start, given.corpus)),
            ("texts", text_makers(given.texts, given.start)),
        ):
            tally = run_cases(makers, base / name, given.failures)
            print(f"{name}: {tally.summary()}")  # noqa: T201
            failed += len(tally.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
