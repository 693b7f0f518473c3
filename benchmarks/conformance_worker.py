"""One process that runs tests of onnx.backend.test by name, and may die of one.

Reads names from stdin, one a line; writes one JSON line for each: how it went, and why not.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import unittest
import warnings
from typing import Any

MESSAGE = 300
"""Characters kept of what a failing test says."""


def collect(name: str) -> dict[str, tuple[str, Any]]:
    """The suite for a backend: category and test function by test name, those for the CPU."""
    warnings.simplefilter("ignore")
    import numpy as np
    from onnx.backend.test import BackendTest

    from benchmarks.conformance_backends import backend

    np.seterr(all="ignore")
    tests: dict[str, tuple[str, Any]] = {}
    for case in BackendTest(backend(name)).test_cases.values():
        category = case.__name__.removeprefix("OnnxBackend").removesuffix("Test")
        for test in sorted(vars(case)):
            if test.startswith("test_") and test.endswith("_cpu"):
                tests[f"{category}/{test.removesuffix('_cpu')}"] = (category, case(test))
    return tests


def outcome(test: unittest.TestCase) -> tuple[str, str]:
    """``passed``, ``skipped`` or ``failed``, and the reason for the last two."""
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test.run(result)
    for _, trace in (*result.errors, *result.failures):
        return "failed", reason(trace)
    if result.skipped:
        return "skipped", result.skipped[0][1][:MESSAGE]
    return "passed", ""


def reason(trace: str) -> str:
    """The last exception's own words, on one line and without addresses."""
    start = max(trace.rfind("\n", 0, m.start()) for m in re.finditer(r"\n[\w.]+(Error|Exception|"
                r"Fail|InvalidGraph|NotImplemented|InvalidArgument|RuntimeException)\b", trace)
                ) if re.search(r"\n[\w.]+(Error|Exception)", trace) else 0
    text = " ".join(trace[start:].split()) if start > 0 else " ".join(trace.split()[-60:])
    return re.sub(r"0x[0-9a-f]+", "0x", text)[:MESSAGE]


def main() -> None:
    """Runs what stdin names until it ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (tests print)
    logging.disable(logging.CRITICAL)
    tests = collect(sys.argv[1])
    out.write(json.dumps({"tests": {name: category for name, (category, _) in tests.items()}}))
    out.write("\n")
    for line in sys.stdin:
        name = line.strip()
        how, why = outcome(tests[name][1])
        out.write(json.dumps({"test": name, "how": how, "why": why}) + "\n")


if __name__ == "__main__":
    main()
