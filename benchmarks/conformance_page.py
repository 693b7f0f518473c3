"""The page on ONNX conformance: what passes per operator and opset, and why the rest does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from benchmarks.conformance_ops import Subject
from benchmarks.conformance_run import Outcome

CATEGORIES = {
    "Node": "node tests",
    "Simple": "simple models",
    "PyTorchConverted": "converted PyTorch models",
    "PyTorchOperator": "PyTorch operators",
    "Real": "light real models",
}

CAUSES: tuple[tuple[str, str], ...] = (
    (
        "^Node/test_bernoulli",
        "Drawn at random. ONNX says of Bernoulli that implementations need not agree, even on a "
        "seed; the tests compare with one draw of numpy's. No backend passes them.",
    ),
    (
        "^Node/test_loop16_seq_none$",
        "The suite cannot tell: it asks for the length of a tensor without axes in the sequence "
        "that it expects. No backend passes it.",
    ),
    (
        "^Node/test_attention_4d_causal_fp16_expanded$",
        "Two of 192 numbers are 2 units of float16's last place away, the tolerance is 1e-3. "
        "What is expected was rounded to float16 within Softmax, which here is rounded once; the "
        "largest error against exact arithmetic is 4.0e-4 here and 4.9e-4 in what is expected.",
    ),
)
"""Why a test of ours does not pass, by the pattern of its name."""


def cause(test: str) -> str | None:
    """Why the test does not pass; None when nobody knows."""
    return next((why for pattern, why in CAUSES if re.search(pattern, test)), None)


def page(results: Mapping[str, Sequence[Outcome]], about: Mapping[str, Subject]) -> str:
    """The whole page. ``results`` are outcomes by backend, ours first."""
    ours = next(iter(results.values()))
    used = ", ".join(f"{name} {version(name)}" for name in ("onnx", "onnxruntime", "numpy"))
    parts = [
        "# ONNX conformance",
        "`make conformance` writes this page. It runs the whole of `onnx.backend.test` through "
        "three backends on one machine, with the suite's own tolerances: the simulated NPU "
        "(`gecompiler.backends.onnx_backend`: import, passes, streams and syncs, memory plan, "
        "verification, simulation, execution at the planned addresses), onnxruntime's own "
        "(`onnxruntime.backend`, operator sets that are not released allowed), and onnx's "
        "`ReferenceEvaluator`, fed as onnx's own tests feed it. Each test runs in a process that "
        "is replaced if it dies.",
        f"Measured with {used}.",
        "## Passed",
        *_table(_counts(results)),
        "## What does not pass, and why",
        *_failures(ours),
        "## Node tests per operator and opset",
        "Passed of all, for the simulated NPU; one number where all pass. Opsets are those that "
        "the tests' models import. An operator's tests include those of its definition by other "
        "operators (`_expanded`).",
        *_table(_operators(ours, about)),
    ]
    return "\n\n".join(parts) + "\n"


def passed(outcomes: Sequence[Outcome], category: str = "") -> tuple[int, int]:
    """How many passed, and of how many."""
    chosen = [o for o in outcomes if category in ("", o.category)]
    return sum(o.how == "passed" for o in chosen), len(chosen)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return ["\n".join(lines)]


def _counts(results: Mapping[str, Sequence[Outcome]]) -> list[list[str]]:
    rows = [["", "tests", *results]]
    for category, title in (*CATEGORIES.items(), ("", "all")):
        found = [passed(outcomes, category) for outcomes in results.values()]
        rows.append([title, str(found[0][1]), *(str(count) for count, _ in found)])
    crashed = [sum(o.how in ("crashed", "hung") for o in found) for found in results.values()]
    rows.append(["crashed or hung", "", *map(str, crashed)])
    return rows


def _failures(ours: Sequence[Outcome]) -> list[str]:
    by_cause: dict[str, list[str]] = {}
    for outcome in ours:
        if outcome.how != "passed":
            why = cause(outcome.test) or f"Not explained: {outcome.how}."
            by_cause.setdefault(why, []).append(outcome.test)
    if not by_cause:
        return ["Everything passes."]
    return ["\n".join(f"- {_names(t)}: {why}" for why, t in sorted(by_cause.items()))]


def _names(tests: Sequence[str]) -> str:
    return ", ".join(f"`{test}`" for test in tests)


def _operators(ours: Sequence[Outcome], about: Mapping[str, Subject]) -> list[list[str]]:
    counts: dict[str, dict[int, list[int]]] = {}
    for outcome in ours:
        subject = about.get(outcome.test.removeprefix("Node/"))
        if outcome.category == "Node" and subject is not None:
            count = counts.setdefault(subject.op, {}).setdefault(subject.opset, [0, 0])
            count[0] += outcome.how == "passed"
            count[1] += 1
    rows = [["operator", "tests", "by opset"]]
    for op in sorted(counts, key=lambda name: (name.count("."), name)):
        by_opset = sorted(counts[op].items())
        every = [sum(c[k] for _, c in by_opset) for k in (0, 1)]
        shown = ", ".join(f"{opset}: {_of(*count)}" for opset, count in by_opset)
        rows.append([op, _of(*every), shown])
    return rows


def _of(good: int, count: int) -> str:
    return str(count) if good == count else f"**{good} of {count}**"
