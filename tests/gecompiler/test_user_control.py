"""What users decide lasts: labels, assignments, priorities, core limits, whatever the passes do."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import gecompiler as ge
from gecompiler.ir import load_onnx
from gecompiler.ir.graph import Graph
from gecompiler.passes.streams.ge_allocator import LabelConflictError, ModeConflictError
from gecompiler.passes.streams.registry import STRATEGIES
from gecompiler.passes.user_marks import WEIGHTLESS

MODELS = ("bert-eager-ts", "llama-decode-sdpa-dynamo", "t5-eager-ts", "gemma2-eager-dyn23")


def labelled(graph: Graph, rng: random.Random, share: float) -> dict[str, tuple[str | None, str]]:
    """Labels ops at random, in runs; the label and type of every op of the model as it came."""
    wanted: dict[str, tuple[str | None, str]] = {}
    label: str | None = None
    for op in graph.ops:
        if rng.random() < share:
            label = rng.choice([None, "left", "right"])
        if label is not None:
            graph.replace_op(op.name, op.with_(info=replace(op.info, label=label)))
        wanted.update(dict.fromkeys(op.info.sources, (label, op.op_type)))
    return wanted


def check(graph: Graph, wanted: dict[str, tuple[str | None, str]], strategy: str) -> int:
    """Every op has the label of all that it stands for, and each label one stream."""
    model = ge.Session().compile(graph, stream_strategy=strategy)
    assert not model.compilation.findings
    kept = 0
    for op in model.graph.ops:
        for source in op.info.sources:
            label, kind = wanted.get(source, (op.info.label, ""))
            assert label == op.info.label or (label is None and kind in WEIGHTLESS), (op, source)
        kept += op.info.label is not None
    streams: dict[str | None, set[int]] = {}
    for task in model.schedule.tasks:
        if task.name in model.graph:
            streams.setdefault(model.graph.op(task.name).info.label, set()).add(task.stream)
    for label in {"left", "right"} & streams.keys():
        assert len(streams[label]) == 1
    if {"left", "right"} <= streams.keys():
        assert streams["left"] != streams["right"]
    return kept


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"single", "optimal"}))
def test_random_labels_last_under_every_strategy(tiny_path: Path, strategy: str) -> None:
    kept = 0
    for seed in range(3):
        graph = load_onnx(tiny_path)
        wanted = labelled(graph, random.Random(seed), 0.1 if seed else 1.0)
        kept += check(graph, wanted, strategy)
    assert kept > 20


@pytest.mark.parametrize("name", MODELS)
def test_random_labels_last_on_real_models(corpus: Path, name: str) -> None:
    kept = 0
    for share in (0.02, 0.1, 0.5):
        graph = load_onnx(corpus / "models" / f"{name}.onnx")
        wanted = labelled(graph, random.Random(name), share)
        kept += check(graph, wanted, "critical_path")
    assert kept > 20


def test_fusion_of_one_label_keeps_it_and_of_several_is_refused_and_told(tiny_path: Path) -> None:
    graph = load_onnx(tiny_path)
    session = ge.Session()
    session.set_stream_labels({op.name: "all" for op in graph.ops})
    model = session.compile(tiny_path)
    assert all(op.info.label == "all" for op in model.graph.ops)
    assert [site.fused for site in model.compilation.source.sites] == [True, True]
    session.set_stream_labels({op.name: "soft" for op in graph.ops if op.op_type == "Softmax"})
    sites = session.compile(tiny_path).compilation.source.sites
    assert [site.fused for site in sites] == [False, False]
    assert all("different marks of the user's" in site.reason for site in sites)
    assert all("label 'soft'" in site.reason for site in sites)


def test_a_label_that_only_a_fused_op_can_have(tiny_path: Path) -> None:
    session = ge.Session()
    session.set_stream_labels({"FlashAttention": "attention"})
    model = session.compile(tiny_path, stream_strategy="critical_path")
    found = [t.stream for t in model.schedule.tasks if t.op_type == "FlashAttention"]
    assert found == [1, 1]


def test_a_label_for_nothing_names_what_is_near(tiny_path: Path) -> None:
    session = ge.Session()
    session.set_stream_labels({"FlashAtention": "a"})
    with pytest.raises(ge.UsageError, match="stream label for 'FlashAtention'") as error:
        session.compile(tiny_path)
    assert "FlashAttention" in error.value.hint


@pytest.mark.parametrize("strategy", ["critical_path", "default", "load_balance", "auto"])
def test_more_labels_than_streams_share_one_and_that_is_told(
    tiny_path: Path, strategy: str
) -> None:
    session = ge.Session(num_streams=2, stream_strategy=strategy)
    session.set_stream_labels({"MLP gate": "a", "MLP up": "b", "MLP down": "c"})
    model = session.compile(tiny_path)
    assert len(model.schedule.streams) <= 2
    assert "labels-share-a-stream" in {w.code for w in model.compilation.diagnostics}
    for group in ("MLP gate", "MLP up", "MLP down"):
        assert len({t.stream for t in model.schedule.tasks if t.group == group}) == 1
    if strategy == "critical_path":
        assert {t.stream for t in model.schedule.tasks if t.group.startswith("MLP ")} == {1}


def test_one_stream_and_labels_contradict_each_other_as_in_the_graph_engine(
    tiny_path: Path,
) -> None:
    session = ge.Session()
    session.set_stream_labels({"MLP gate": "a"})
    with pytest.raises(LabelConflictError, match="label 'a'") as error:
        session.compile(tiny_path, stream_strategy="single")
    assert "E10055" in error.value.hint
    with pytest.raises(LabelConflictError):
        session.compile(tiny_path, enable_stream_parallel=False)
    with pytest.raises(ModeConflictError) as other:  # told before the labels
        session.compile(tiny_path, enable_stream_parallel=False, stream_strategy="load_balance:4")
    assert "E10056" in other.value.hint


def test_core_limits_hold_through_fusion_and_take_time(tiny_path: Path) -> None:
    free = ge.Session().compile(tiny_path, batch=8, seq=512, num_streams=1)
    session = ge.Session(num_streams=1)
    session.limit_core_num({"MatMul": (2, None), "FlashAttention": {"cube": 1, "vector": 1}})
    tight = session.compile(tiny_path, batch=8, seq=512)
    for task in tight.schedule.tasks:
        if task.op_type == "MatMul":
            assert task.demand.cube_cores <= 2
        if task.op_type == "FlashAttention":
            assert (task.demand.cube_cores, task.demand.vector_cores) <= (1, 1)
    assert tight.compilation.result.makespan_us > free.compilation.result.makespan_us
    session.limit_core_num({"MatMul": (4096, 4096)})
    wide = session.compile(tiny_path, batch=8, seq=512)
    assert wide.compilation.result.makespan_us == free.compilation.result.makespan_us


@pytest.mark.parametrize(
    "strategy", ["single", "default", "critical_path", "load_balance:2", "auto"]
)
def test_of_what_may_go_the_highest_priority_goes_first(tiny_path: Path, strategy: str) -> None:
    for first, then in (("MLP up", "MLP gate"), ("MLP gate", "MLP up")):
        session = ge.Session(stream_strategy=strategy, num_streams=1)
        session.set_priorities({first: 5, then: -1})
        model = session.compile(tiny_path)
        place = {t.group: t.order for t in model.schedule.tasks if t.op_type == "MatMul"}
        assert place[first] < place[then]
        assert not model.compilation.findings


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        ("set_stream_labels", {"a": 3}, "expected a stream label"),
        ("set_stream_labels", {"a": " "}, "expected a stream label"),
        ("set_stream_labels", ["a"], "expected names and values"),
        ("set_priorities", {"a": "high"}, "expected a priority"),
        ("set_priorities", {"a": True}, "expected a priority"),
        ("limit_core_num", {"a": 8}, "expected numbers of cube and of vector cores"),
        ("limit_core_num", {"a": (0, 8)}, "expected numbers of cube and of vector cores"),
        ("limit_core_num", {"a": {"cubes": 1}}, "expected numbers of cube"),
        ("limit_core_num", {3: (1, 1)}, "expected a name, found 3"),
    ],
)
def test_marks_that_make_no_sense(call: str, given: object, said: str) -> None:
    with pytest.raises(ge.UsageError, match=said):
        getattr(ge.Session(), call)(given)


def test_the_assignment_file_sets_marks(tiny_path: Path, tmp_path: Path) -> None:
    from gecompiler.assign_file import load_assignment

    file = tmp_path / "a.yaml"
    file.write_text(
        "labels: {MLP gate: gate}\npriorities: {MLP up: 2}\n"
        "core_limits: {MatMul: {cube: 4}, Softmax: [null, 8]}\n"
    )
    _, controls = load_assignment(file)
    assert controls.labels == {"MLP gate": "gate"}
    assert controls.priorities == {"MLP up": 2}
    assert controls.core_limits == {"MatMul": (4, None), "Softmax": (None, 8)}
    file.write_text("core_limits: {MatMul: many}")
    with pytest.raises(ge.UsageError, match=r"a\.yaml: limit_core_num"):
        load_assignment(file)


def test_assignments_to_ops_that_became_one_are_obeyed_or_told(tiny_path: Path) -> None:
    graph = load_onnx(tiny_path)
    softmax, *_ = [op for op in graph.ops if op.op_type == "Softmax"]
    product = next(u for u in graph.users(softmax.outputs[0]))
    session = ge.Session()
    session.set_stream_assignment({softmax.name: 1})
    model = session.compile(tiny_path)
    first = next(t for t in model.schedule.tasks if t.op_type == "FlashAttention")
    assert first.stream == 1
    session.set_stream_assignment({softmax.name: 1, product.name: 0})
    codes = {w.code for w in session.compile(tiny_path).compilation.diagnostics}
    assert "assignment-fused" in codes
    session.set_stream_assignment({})
    session.add_sync_point(softmax.name, product.name)
    codes = {w.code for w in session.compile(tiny_path).compilation.diagnostics}
    assert "redundant-sync-point" in codes
