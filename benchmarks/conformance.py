"""ONNX conformance: the same suite through three backends, and the page on it.

    python -m benchmarks.conformance [--page docs/conformance.md] [PATTERN]

Exits 1 when a test of ours fails without an explanation, when anything of ours crashes, or when
another backend passes as many node tests.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.conformance_backends import NAMES
from benchmarks.conformance_ops import subjects
from benchmarks.conformance_page import cause, page, passed
from benchmarks.conformance_run import Outcome, run_suite


def main() -> int:
    """Runs, prints and writes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="tests whose name matches")
    parser.add_argument("--page", type=Path, help="where to write the page")
    given = parser.parse_args()
    results: dict[str, list[Outcome]] = {}
    for name in NAMES:
        start = time.monotonic()
        results[name] = run_suite(name, given.pattern)
        seconds = time.monotonic() - start
        node, every = passed(results[name], "Node"), passed(results[name])
        lost = sum(o.how in ("crashed", "hung") for o in results[name])
        print(
            f"{name:>15}: {node[0]} of {node[1]} node tests, {every[0]} of {every[1]} in all, "
            f"{lost} crashed or hung, {seconds:.0f} s",
            flush=True,
        )
    if given.page is not None:
        given.page.write_text(page(results, subjects()), encoding="utf-8")
    ours, *others = results.values()
    unexplained = [o for o in ours if o.how != "passed" and cause(o.test) is None]
    for outcome in unexplained:
        print(f"{outcome.test} {outcome.how}: {outcome.why}")
    behind = any(passed(o, "Node")[0] >= passed(ours, "Node")[0] for o in others)
    return int(bool(unexplained) or (behind and not given.pattern))


if __name__ == "__main__":
    sys.exit(main())
