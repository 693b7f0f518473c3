"""The worker process: it survives models, deaths, forks and interruptions."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import onnx
import pytest
from onnx import ModelProto, parser

from gecompiler.ir import ModelError, load_onnx, to_onnx
from gecompiler.ir.onnx_io import sandbox

GOOD = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"""
BAD = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, bool[2] m) => (float[2] y) { y = Add(x, m) }"""


def model(text: str) -> ModelProto:
    return parser.parse_model(text)


def test_verdicts() -> None:
    assert sandbox.verdict(model(GOOD)) is None
    found = sandbox.verdict(model(BAD))
    assert found is not None
    assert "op_type:Add" in found.reason
    assert found.model.graph.input == model(BAD).graph.input


def test_a_dead_worker_is_replaced() -> None:
    sandbox.warm_up()
    process = sandbox._worker._process
    assert process is not None
    assert sandbox.verdict(model(GOOD)) is None
    process.kill()
    process.wait()
    sandbox.verdict(model(GOOD))
    assert sandbox.verdict(model(GOOD)) is None


def test_an_interrupted_question_leaves_no_stale_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> bytes:
        raise KeyboardInterrupt

    sandbox.verdict(model(GOOD))
    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "read_block", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sandbox.verdict(model(BAD))
    assert sandbox.verdict(model(GOOD)) is None
    assert sandbox.verdict(model(BAD)) is not None


def test_a_worker_that_cannot_start_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    sandbox._worker.stop()
    monkeypatch.setattr(sandbox, "_SCRIPT", os.path.join(tmp_path, "none.py"))
    assert sandbox.verdict(model(GOOD)) is None
    assert sandbox.verdict(model(BAD)) is not None
    sandbox._worker.stop()


def test_threads_take_turns() -> None:
    with ThreadPoolExecutor(4) as pool:
        texts = [GOOD, BAD] * 10
        found = list(pool.map(lambda t: sandbox.verdict(model(t)) is None, texts))
    assert found == [True, False] * 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX")
def test_a_fork_gets_a_worker_of_its_own() -> None:
    script = f"""
import os
from gecompiler.ir import load_onnx
from onnx import parser
good = parser.parse_model({GOOD!r})
load_onnx(good)
child = os.fork()
load_onnx(good)
if child:
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("done") == 2
    assert done.stderr == ""


def test_ops_with_schemas_registered_here_are_known() -> None:
    schema = onnx.defs.OpSchema(
        "Twice",
        "test.registered",
        1,
        inputs=[onnx.defs.OpSchema.FormalParameter("X", "T")],
        outputs=[onnx.defs.OpSchema.FormalParameter("Y", "T")],
        type_constraints=[("T", ["tensor(float)"], "floats")],
        attributes=[onnx.defs.OpSchema.Attribute("gain", onnx.defs.OpSchema.AttrType.FLOAT, "")],
    )
    text = """<ir_version: 8, opset_import: ["": 17, "test.registered": 1]>
    g (float[2] x) => (float[2] y) { y = test.registered.Twice <gain = 2.0> (x) }"""
    with pytest.raises(ModelError, match="Twice"):
        load_onnx(model(text))
    onnx.defs.register_schema(schema)
    try:
        graph = load_onnx(model(text))
        assert graph.ops[0].kind == "test.registered.Twice"
        assert to_onnx(graph).graph.node[0].attribute[0].f == 2.0
        with pytest.raises(ModelError, match="Required attribute 'gain'"):
            load_onnx(model(text.replace("<gain = 2.0> ", "")))
    finally:
        onnx.defs.deregister_schema("Twice", 1, "test.registered")
