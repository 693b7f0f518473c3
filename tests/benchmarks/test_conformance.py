"""The whole of onnx.backend.test: all that can pass does, nothing dies of it."""

from __future__ import annotations

import sys
import unittest

import pytest

from benchmarks import conformance_run
from benchmarks.conformance_ops import Subject, subjects
from benchmarks.conformance_page import cause, page, passed
from benchmarks.conformance_run import Outcome, Worker, run_suite
from benchmarks.conformance_worker import outcome


def test_the_whole_suite_passes_but_for_what_is_explained(monkeypatch) -> None:
    monkeypatch.setattr(conformance_run, "DEADLINE", 3000.0)
    found = run_suite("gecompiler")
    wrong = [f"{o.test} {o.how}: {o.why}" for o in found if o.how != "passed"]
    assert [w for w in wrong if cause(w.split()[0]) is None] == []
    assert len(found) > 2000
    assert not [o for o in found if o.how in ("crashed", "hung")]


@pytest.mark.slow
def test_more_node_tests_pass_than_in_other_backends() -> None:
    ours = passed(run_suite("gecompiler", "^Node/"), "Node")
    for other in ("onnxruntime", "onnx.reference"):
        theirs = run_suite(other, "^Node/")
        assert passed(theirs, "Node")[0] < ours[0]
        assert not [o for o in theirs if o.how in ("crashed", "hung")]


def test_a_process_that_dies_or_hangs_is_replaced(tmp_path, monkeypatch) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, os, sys, time\n"
        "print(json.dumps({'a': 'Node', 'b': 'Node', 'c': 'Node', 'd': 'Node'}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    name = line.strip()\n"
        "    if name == 'b': os.abort()\n"
        "    if name == 'c': time.sleep(600)\n"
        "    print(json.dumps({'test': name, 'how': 'passed', 'why': ''}), flush=True)\n"
    )
    monkeypatch.setattr(conformance_run, "COMMAND", (sys.executable, str(script)))
    run = Worker.run

    def patient_but_for_one(worker: Worker, test: str) -> Outcome:
        monkeypatch.setattr(conformance_run, "DEADLINE", 1.0 if test == "c" else 3000.0)
        return run(worker, test)

    monkeypatch.setattr(Worker, "run", patient_but_for_one)
    found = run_suite("any")
    assert [o.how for o in found] == ["passed", "crashed", "hung", "passed"]
    assert "signal 6" in found[1].why


def test_a_worker_that_does_not_start_says_so(monkeypatch) -> None:
    monkeypatch.setattr(conformance_run, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(RuntimeError, match=r"does not start: .*code 3"):
        Worker("any", ".")


def test_how_a_test_went() -> None:
    def skips() -> None:
        raise unittest.SkipTest("not here")

    def fails() -> None:
        raise ValueError("at 0x7f12ab\n  of  it")

    assert outcome(lambda: None) == ("passed", "")
    assert outcome(skips) == ("skipped", "not here")
    assert outcome(fails) == ("failed", "ValueError: at 0x of it")


def test_the_page_counts_and_explains() -> None:
    ours = [
        Outcome("Node/test_abs", "Node", "passed"),
        Outcome("Node/test_bernoulli", "Node", "failed", "numbers"),
        Outcome("Real/test_vgg", "Real", "crashed", "signal 11"),
    ]
    about = {"test_abs": Subject("Abs", 13), "test_bernoulli": Subject("Bernoulli", 15)}
    text = page({"gecompiler": ours, "other": ours[:1]}, about)
    assert "| node tests | 2 | 1 | 1 |" in text
    assert "| crashed or hung |  | 1 | 0 |" in text
    assert "`Node/test_bernoulli`: Drawn at random." in text
    assert "`Real/test_vgg`: Not explained: crashed." in text
    assert "| Abs | 1 | 13: 1 |" in text
    assert "| Bernoulli | **0 of 1** | 15: **0 of 1** |" in text


def test_every_node_test_is_about_an_operator() -> None:
    found = subjects()
    assert len(found) > 1800
    assert found["test_abs"].op == "Abs"
    assert found["test_affine_grid_2d_expanded"].op == "AffineGrid"
    assert found["test_adam"].op == "ai.onnx.preview.training.Adam"
    assert found["test_training_dropout_mask"].op == "Dropout"
