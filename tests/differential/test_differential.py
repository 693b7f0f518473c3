"""Random graphs give the same numbers through every pass and the whole compiler.

``make nightly`` runs 2,000 of them; a failure is shrunk and written to ``build/differential``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper
from random_graphs import subjects
from random_graphs.check import check, check_inputs
from random_graphs.compare import difference
from random_graphs.generate import Case, generate
from random_graphs.report import check_seed, write_failure
from random_graphs.shrink import Failing, smallest
from random_graphs.steadiness import unsteady_values
from random_graphs.subjects import Trial

GRAPHS, PART = 200, 10


@pytest.mark.parametrize("first", range(0, GRAPHS, PART))
def test_random_graphs_compute_the_same_every_way(first: int, tmp_path: Path) -> None:
    seeds = [check_seed(seed) for seed in range(first, first + PART)]
    wrong = [(case, outcome) for case, outcome in seeds if outcome.failures]
    told = [
        f"seed {case.seed}: {outcome.failures[0]}\n{_small(case, outcome, tmp_path)}"
        for case, outcome in wrong[:1]
    ]
    assert not wrong, "\n".join(told)
    assert sum(bool(outcome.skipped) for _, outcome in seeds) <= 3


def _small(case: Case, outcome: object, folder: Path) -> str:
    return write_failure(case, outcome, folder).with_suffix(".txt").read_text()


@pytest.mark.parametrize("seed", range(0, 400, 20))
def test_a_seed_gives_the_same_bytes_and_a_valid_model(seed: int) -> None:
    one, other = generate(seed), generate(seed)
    assert one.model.SerializeToString() == other.model.SerializeToString()
    assert one.inputs.keys() == other.inputs.keys()
    for name, array in one.inputs.items():
        assert array.dtype == other.inputs[name].dtype
        assert array.tobytes() == other.inputs[name].tobytes() or array.dtype == object
    onnx.checker.check_model(one.model, full_check=True)


# ---------------------------------------------------------------- the checker bites


def _model(nodes: list[onnx.NodeProto], dtype: int = T.FLOAT) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info("x", dtype, [2, 3])]
    outs = [helper.make_tensor_value_info("y", dtype, [2, 3])]
    graph = helper.make_graph(nodes, "small", infos, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


CHAIN = _model(
    [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Abs", ["b"], ["c"]),
        helper.make_node("Floor", ["c"], ["y"]),
    ]
)
GIVEN = {"x": np.array([[0.5, -0.5, 2.25], [3.0, 0.0, -0.0]], np.float32)}


def test_a_wrong_pass_is_found_and_shrunk_to_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that forgets Neg."""

    def forgets(trial: Trial) -> subjects.Arrays:
        wrong = onnx.ModelProto()
        wrong.CopyFrom(trial.model)
        for node in wrong.graph.node:
            node.op_type = "Identity" if node.op_type == "Neg" else node.op_type
        return trial.run(wrong)

    model = onnx.ModelProto()
    model.CopyFrom(CHAIN)
    model.graph.node[2].op_type = "Identity"
    monkeypatch.setitem(subjects.SUBJECTS, "wrong", forgets)
    outcome = check_inputs(model, GIVEN, 0, ["wrong", "canonicalize", "compile"])
    assert [f.subject for f in outcome.failures] == ["wrong"]
    small = smallest(
        Failing(model, GIVEN),
        lambda f: bool(check_inputs(f.model, f.inputs, 0, ["wrong"]).failures),
    )
    assert [n.op_type for n in small.model.graph.node] == ["Neg"]
    assert set(small.inputs) == {i.name for i in small.model.graph.input}


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(trial: Trial) -> subjects.Arrays:
        raise KeyError("oops")

    monkeypatch.setitem(subjects.SUBJECTS, "crashes", crashes)
    (failure,) = check(Case(0, CHAIN, GIVEN), ["crashes"]).failures
    assert failure.why == "KeyError: 'oops'"


def test_every_registered_pass_is_tried() -> None:
    from gecompiler.passes.registry import PASSES

    assert {*PASSES.names(), "import", "straight", "compile", "export"} <= {*subjects.SUBJECTS}


@pytest.mark.parametrize(
    ("wanted", "found", "steady", "same"),
    [
        ([0.0], [-0.0], True, False),
        ([0.0], [-0.0], False, True),
        ([np.nan], [-np.nan], True, True),
        ([np.nan], [1.0], False, False),
        ([1.0], [1.0000001], True, False),
        ([1.0], [1.0000001], False, True),
        ([1.0], [1.01], False, False),
        ([np.inf], [3e38], False, False),
    ],
)
def test_what_counts_as_the_same(
    wanted: list[float], found: list[float], steady: bool, same: bool
) -> None:
    one, two = np.array(wanted, np.float32), np.array(found, np.float32)
    assert (difference(one, two, steady=steady, others=list) == "") is same


def test_types_and_shapes_count() -> None:
    one = np.zeros((2, 1), np.int32)
    assert difference(one, one.astype(np.int64), steady=True, others=list)
    assert difference(one, one[:, 0], steady=True, others=list)
    assert difference(one, one + 1, steady=True, others=list)


def test_what_is_steady() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["p"]),
        helper.make_node("Mul", ["x", "c"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["contracted"]),
        helper.make_node("Add", ["p", "x"], ["rounded"]),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Reshape", ["e", "s"], ["moved"]),
    ]
    found = unsteady_values(nodes, frozenset())
    assert found == {"contracted", "e", "moved"}
