"""What is emitted for the real graph engine: parsed, and compared with the schedule."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

import gecompiler as ge
from gecompiler.compiled import CompiledModel
from gecompiler.emit_atc import emit_atc
from gecompiler.emit_torchair import emit_torchair
from gecompiler.ir import load_onnx
from gecompiler.request import Controls

STRATEGIES = ("default", "critical_path", "load_balance:3", "main_stream:2", "heft", "cv")


def compiled(path: Path, session: ge.Session | None = None, **options: object) -> CompiledModel:
    session = session or ge.Session()
    options = {"device": "ascend910b", "stream_strategy": "load_balance:3", **options}
    return session.compile(path, batch=2, seq=64, **options)


def function(text: str, name: str) -> ast.FunctionDef:
    tree = ast.parse(text)
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)


def steps(
    body: list[ast.stmt], label: str = "", cores: tuple[int, ...] = ()
) -> Iterator[tuple[str, tuple[int, ...], str, list[object]]]:
    """(label of the scope around, cores around, function called, constant arguments)."""
    for node in body:
        if isinstance(node, ast.With):
            call = node.items[0].context_expr
            assert isinstance(call, ast.Call)
            values = [ast.literal_eval(a) for a in call.args]
            if ast.unparse(call.func) == "npu_stream_switch":
                assert not label
                yield from steps(node.body, values[0], cores)
            else:
                assert ast.unparse(call.func) == "limit_core_num"
                yield from steps(node.body, label, tuple(values))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            names = [ast.unparse(a) for a in call.args]
            yield label, cores, ast.unparse(call.func), names


def placed(text: str, name: str) -> dict[str, list[str]]:
    """The ops that run in the scopes of each label."""
    found: dict[str, list[str]] = {}
    for label, _, called, arguments in steps(function(text, name).body):
        if called == "run":
            found.setdefault(label, []).append(ast.literal_eval(str(arguments[0])))
    return found


def by_stream(model: CompiledModel) -> dict[str, list[str]]:
    return {
        f"gec_stream_{stream}": [op for task in tasks for op in task.ops]
        for (_, stream), tasks in model.schedule.streams.items()
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_scopes_cover_exactly_the_ops_of_each_stream_in_order(
    tiny_path: Path, strategy: str
) -> None:
    model = compiled(tiny_path, stream_strategy=strategy)
    text = emit_torchair(model.compilation)
    if len(model.schedule.streams) == 1:
        pytest.skip("one stream")
    assert placed(text, "place") == by_stream(model)
    assert placed(text, "place_with_events") == by_stream(model)
    labels = next(
        ast.literal_eval(n.value)
        for n in ast.parse(text).body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "STREAM_LABELS"
    )
    assert labels == {op: label for label, ops in by_stream(model).items() for op in ops}
    assert set(labels) == {op.name for op in model.graph.ops}


def read_events(text: str) -> tuple[nx.DiGraph, dict[str, int], set[tuple[str, str]]]:
    """As the runtime reads it: a wait is for what was recorded last under its event.

    The order of the steps, the step that runs each op, and the tensors kept for a stream.
    """
    net: nx.DiGraph = nx.DiGraph()
    last: dict[str, int] = {}
    recorded: dict[str, int] = {}
    run: dict[str, int] = {}
    kept: set[tuple[str, str]] = set()
    body = function(text, "place_with_events").body
    for i, (label, _, called, arguments) in enumerate(steps(body)):
        net.add_node(i)
        if label in last:
            net.add_edge(last[label], i)
        last[label] = i
        first = str(arguments[0])
        if called == "run":
            run[ast.literal_eval(first)] = i
        elif called.endswith("event_record"):
            recorded[first] = i
        elif called.endswith("event_wait"):
            net.add_edge(recorded[first], i)
        else:
            assert called == "torchair.ops.npu_record_tagged_stream"
            name = first.removeprefix("values[").removesuffix("]")
            kept.add((ast.literal_eval(name), ast.literal_eval(str(arguments[1]))))
    return net, run, kept


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_events_order_whatever_one_stream_makes_for_another(
    tiny_path: Path, strategy: str
) -> None:
    model = compiled(tiny_path, stream_strategy=strategy)
    if len(model.schedule.streams) == 1:
        pytest.skip("one stream")
    net, run, kept = read_events(emit_torchair(model.compilation))
    ahead = {n: nx.descendants(net, n) for n in net}
    graph = model.graph
    for op in graph.ops:
        for before in graph.predecessors(op):
            assert run[op.name] in ahead[run[before.name]], (before.name, op.name)
    stream = {op: label for label, ops in by_stream(model).items() for op in ops}
    for task in model.schedule.tasks:
        label = f"gec_stream_{task.stream}"
        makers = {tensor: graph.producer(tensor) for tensor in task.reads}
        wanted = {(t, label) for t, op in makers.items() if op and stream[op.name] != label}
        assert wanted <= kept


def test_core_limits_sync_points_and_options(tiny_path: Path) -> None:
    session = ge.Session()
    session.limit_core_num({"FlashAttention": (8, None), "MLP up": (4096, 2)})
    first, second = (
        next(op.name for op in load_onnx(tiny_path).ops if op.info.group == group)
        for group in ("MLP up", "MLP gate")
    )
    session.add_sync_point(first, second)
    model = compiled(tiny_path, session)
    text = emit_torchair(model.compilation)
    limits = {
        model.graph.op(ast.literal_eval(str(arguments[0]))).op_type: cores
        for _, cores, called, arguments in steps(function(text, "place").body)
        if called == "run" and cores and arguments
    }
    assert limits["FlashAttention"] == (8, 48)
    assert (24, 2) in limits.values()  # no more than there is
    waits = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    names = [ast.unparse(n.func) for n in waits]
    assert names.count("npu_wait_tensor") == 1
    assert "topology_sorting_strategy" in text
    assert "enable_single_stream" not in text


def test_one_stream_needs_an_option_and_no_scopes(tiny_path: Path) -> None:
    model = compiled(tiny_path, stream_strategy="single")
    text = emit_torchair(model.compilation)
    assert "enable_single_stream = True" in text
    assert "npu_stream_switch(" not in text
    assert placed(text, "place") == {"": [op for t in model.schedule.tasks for op in t.ops]}


def test_names_of_a_hostile_model_stay_names(tiny_path: Path) -> None:
    graph = load_onnx(tiny_path)
    graph.name = 'x"""\nimport os  # '
    name = next(op.name for op in graph.ops if op.op_type == "MatMul")
    evil = "a')\nimport os\nrun('b\\"
    op = graph.op(name)
    graph.replace_op(name, op.with_(name=evil))
    text = emit_torchair(compiled(graph).compilation)
    tree = ast.parse(text)
    assert evil in {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    imports = [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert all("torchair" in line for line in imports)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream_strategy": "pipeline", "num_streams": 2}, "micro-batches"),
        ({"device": "a100"}, "does not compile for a100"),
        ({"sync_primitive": "notify"}, "no option for notifies"),
    ],
)
def test_what_torchair_cannot_be_asked_for(
    tiny_path: Path, options: dict[str, object], said: str
) -> None:
    model = compiled(tiny_path, **options)
    with pytest.raises(ge.UsageError, match=said):
        emit_torchair(model.compilation)


def test_core_limits_need_a_card_that_has_them(tiny_path: Path) -> None:
    session = ge.Session()
    session.limit_core_num({"FlashAttention": (8, 16)})
    with pytest.raises(ge.UsageError, match="Atlas A2 and A3 only"):
        emit_torchair(compiled(tiny_path, session, device="ascend910").compilation)


def test_loads_ahead_are_refused(tiny_path: Path) -> None:
    compilation = compiled(tiny_path).compilation
    schedule = compilation.result.schedule
    tasks = (replace(schedule.tasks[0], kind="load"), *schedule.tasks[1:])
    result = replace(compilation.result, schedule=replace(schedule, tasks=tasks))
    with pytest.raises(ge.UsageError, match="compute_overlap") as error:
        emit_torchair(replace(compilation, result=result))
    assert "task of its own" in error.value.message


def flags(text: str) -> dict[str, str]:
    command = "".join(line for line in text.splitlines() if not line.startswith("#"))
    words = shlex.split(command.replace("\\", " "))
    assert words[0] == "atc"
    return dict(word.removeprefix("--").split("=", 1) for word in words[1:])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stream_strategy": "single"}, {"enable_single_stream": "true"}),
        ({"stream_strategy": "load_balance:3"}, {"multi_stream_parallel_mode": "LoadBalance:3"}),
        (
            {"stream_strategy": "main_stream", "num_streams": 2},
            {"multi_stream_parallel_mode": "MainStream:2"},
        ),
    ],
)
def test_flags_of_atc(
    tiny_path: Path, options: dict[str, object], expected: dict[str, str]
) -> None:
    found = flags(emit_atc(compiled(tiny_path, **options).compilation, "tiny.onnx", Controls()))
    assert found == {
        "model": "tiny.onnx",
        "framework": "5",
        "output": "tiny",
        "soc_version": "Ascend910B1",
        "input_shape": found["input_shape"],
        "topo_sorting_mode": "3",
        **expected,
    }
    assert "input_ids:2,64" in found["input_shape"]


def test_notifies_go_by_raw_options(tiny_path: Path) -> None:
    compilation = compiled(tiny_path, sync_primitive="notify").compilation
    text = emit_atc(compilation, "tiny.onnx", Controls())
    assert '"ge.event": "notify"' in text
    assert flags(text)["raw_ge_options"] == "options.json"


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        ("set_stream_assignment", {"MLP up": 1}, "places single ops"),
        ("set_stream_labels", {"MLP up": "a"}, "places single ops"),
        ("limit_core_num", {"MLP up": (1, 1)}, "--aicore_num"),
    ],
)
def test_what_atc_has_no_flag_for(tiny_path: Path, call: str, given: object, said: str) -> None:
    session = ge.Session()
    getattr(session, call)(given)
    _, controls = session.snapshot()
    with pytest.raises(ge.UsageError, match=said):
        emit_atc(compiled(tiny_path, session).compilation, "tiny.onnx", controls)


def test_atc_has_no_mode_for_our_own_strategies(tiny_path: Path) -> None:
    model = compiled(tiny_path, stream_strategy="heft")
    assert model.compilation.result.used > 1
    with pytest.raises(ge.UsageError, match="no mode that places as heft does"):
        emit_atc(model.compilation, "tiny.onnx", Controls())


def test_a_built_in_model_is_to_be_written_first() -> None:
    model = ge.Session().compile("gpt2", batch=1, seq=64, stream_strategy="default")
    text = emit_atc(model.compilation, "gpt2", Controls())
    assert text.splitlines()[0] == "# gec compile gpt2 -o gpt2 writes the model"
    found = flags(text)
    assert (found["model"], found["output"]) == ("gpt2/model.onnx", "gpt2")
