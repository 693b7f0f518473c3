"""One process that runs tests of onnx.backend.test by name, and may die of one.

Tells all tests first; then reads names from stdin, one a line, and writes one JSON line for
each: how it went, and why not.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import unittest
import warnings
from collections.abc import Callable
from typing import Any

MESSAGE = 400
"""Characters kept of what a failing test says."""

Tests = dict[str, tuple[str, Callable[[], None]]]
"""Category and function by name."""


def collect(name: str) -> Tests:
    """The suite for a backend: those of its tests that are for the CPU."""
    warnings.simplefilter("ignore")
    import numpy as np
    from onnx.backend.test import BackendTest

    from benchmarks.conformance_backends import backend

    np.seterr(all="ignore")
    tests: Tests = {}
    for case in BackendTest(backend(name)).test_cases.values():
        category = case.__name__.removeprefix("OnnxBackend").removesuffix("ModelTest")
        for test in sorted(vars(case)):
            if test.startswith("test_") and test.endswith("_cpu"):
                run = getattr(case(test), test)
                tests[f"{category}/{test.removesuffix('_cpu')}"] = (category, run)
    return tests


def outcome(test: Callable[[], None]) -> tuple[str, str]:
    """``passed``, ``skipped`` or ``failed``, and the reason for the last two."""
    try:
        test()
    except unittest.SkipTest as skip:
        return "skipped", _said(skip)
    except Exception as error:  # whatever a backend raises is its answer
        return "failed", f"{type(error).__name__}: {_said(error)}"
    return "passed", ""


def _said(error: Exception) -> str:
    """The message on one line, without addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x", " ".join(str(error).split()))[:MESSAGE]


def main() -> None:
    """Runs what stdin names until it ends."""
    out: Any = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (tests print)
    logging.disable(logging.CRITICAL)
    tests = collect(sys.argv[1])
    out.write(json.dumps({name: category for name, (category, _) in tests.items()}) + "\n")
    for line in sys.stdin:
        name = line.strip()
        how, why = outcome(tests[name][1])
        out.write(json.dumps({"test": name, "how": how, "why": why}) + "\n")


if __name__ == "__main__":
    main()
