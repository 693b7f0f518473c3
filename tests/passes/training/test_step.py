"""Whole training steps: gradients of models, optimisers, recomputation, accumulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float64_help import in_float64
from tiny_models import Arrays, feeds, tiny

from gecompiler.backends.device import load_device
from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.backends.simulator import Simulator
from gecompiler.ir import Constant, Graph, ModelError, UsageError, symbol, tensor
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.infer import infer_types
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    ScheduleResult,
    UserControl,
    build_schedule,
)
from gecompiler.passes.training import TrainingOptions, TrainingStep, build_training_step
from gecompiler.passes.training.loss import mean_count
from gecompiler.passes.training.parameters import parameters

DEVICE = load_device("ascend910b")
GRADIENTS = TrainingOptions(optimizer="none")


def scheduled(graph: Graph, strategy: str = "single", **options: Any) -> ScheduleResult:
    asked = ScheduleOptions(strategy=strategy, search_tasks=0, **options)
    user = UserControl({}, [], None)
    return build_schedule(graph, DEVICE, Simulator(DEVICE), asked, user, Diagnostics())


def slope_error(step: TrainingStep, given: Arrays, size: float = 1e-5) -> float:
    """The gradients of all parameters along a random direction, against a difference."""
    rng = np.random.default_rng(0)
    found = run_reference(step.graph, given)
    moves = {
        n: rng.standard_normal(given[n].shape) * max(1e-3, float(given[n].std()))
        for n in step.gradients
    }
    losses = []
    for sign in (1, -1):
        moved = {n: given[n] + sign * size * move for n, move in moves.items()}
        losses.append(float(run_reference(step.graph, {**given, **moved})[step.loss]))
    slope = sum(float((found[step.gradients[n]] * move).sum()) for n, move in moves.items())
    expected = (losses[0] - losses[1]) / (2 * size)
    return abs(slope - expected) / max(abs(expected), 1e-3)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_gradients_of_models(family: str, *, fused: bool) -> None:
    step = build_training_step(in_float64(tiny(family, fused=fused)), GRADIENTS)
    step.graph.verify()
    assert len(step.gradients) == len(step.initial) > 10
    assert slope_error(step, feeds(step)) < (1e-6 if fused else 2e-2)


@pytest.mark.parametrize("loss", ["next-token", "cross-entropy", "mean-square", "sum"])
def test_losses(loss: Any) -> None:
    step = build_training_step(in_float64(tiny("llama")), replace(GRADIENTS, loss=loss))
    assert slope_error(step, feeds(step)) < 1e-6


def test_inference_of_a_training_step_agrees_with_what_it_was_built_with() -> None:
    graph = build_training_step(tiny("gpt2")).graph
    built = dict(graph.types)
    infer_types(graph)
    assert dict(graph.types) == built


@pytest.mark.parametrize("mode", ["attention", "selective", "full"])
def test_recomputation_gives_the_same_gradients(mode: Any) -> None:
    whole = build_training_step(tiny("llama"), GRADIENTS)
    again = build_training_step(tiny("llama"), replace(GRADIENTS, recompute=mode))
    assert any(op.info.phase == "recompute" for op in again.graph.ops)
    given = feeds(whole)
    kept, made = (run_reference(s.graph, given) for s in (whole, again))
    for name, value in whole.gradients.items():
        np.testing.assert_array_equal(made[again.gradients[name]], kept[value])


def test_recomputation_takes_less_memory() -> None:
    graph = tiny("llama", batch=16, seq=16, layers=6)
    peaks = {}
    for mode in ("none", "selective", "full"):
        step = build_training_step(graph, TrainingOptions(recompute=mode, optimizer="sgd"))
        peaks[mode] = scheduled(step.graph).live_memory_bytes
    state = sum(c.type.bytes for c in step.initial.values())
    assert peaks["full"] < peaks["selective"] < peaks["none"]
    assert (peaks["full"] - state) < 0.5 * (peaks["none"] - state)


def test_a_recomputed_op_waits_for_the_gradient_that_needs_it() -> None:
    step = build_training_step(tiny("llama"), TrainingOptions(recompute="full"))
    graph, order = step.graph, {}
    for place, op in enumerate(graph.topological()):
        order[op.name] = place
    first_back = min(order[op.name] for op in graph.ops if op.info.phase == "backward")
    assert all(order[op.name] > first_back for op in graph.ops if op.info.phase == "recompute")
    waits = {after for _, after in graph.controls}
    assert any(graph.op(name).info.phase == "recompute" for name in waits)


@pytest.mark.parametrize("strategy", ["single", "default", "critical_path"])
def test_schedules_of_steps_run_in_order_and_give_the_same(strategy: str) -> None:
    step = build_training_step(tiny("llama"), TrainingOptions(recompute="selective"))
    result = scheduled(step.graph, strategy)
    assert result.schedule.findings() == []
    given = feeds(step)
    expected = run_reference(step.graph, given)
    found = execute(step.graph, result.schedule, result.timeline, given)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_the_state_is_written_where_it_lies() -> None:
    step = build_training_step(tiny("gpt2"))
    result = scheduled(step.graph)
    place = {b.tensor: b.offset for b in result.schedule.buffers}
    states = step.graph.states
    assert {s.input for s in states} == set(step.initial)
    assert all(place[s.input] == place[s.output] for s in states)


# -------------------------------------------------------------------- optimisers


def formula(name: str, p: np.ndarray, grads: list[np.ndarray], lr: float) -> np.ndarray:
    """The steps as the papers have them."""
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        if name == "sgd":
            p = p - lr * g
        elif name == "momentum":
            m = 0.9 * m + g
            p = p - lr * m
        else:
            if name == "adamw":
                p = p * (1 - lr * 0.01)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p = p - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p


def quadratic(dtype: str = "f64") -> Graph:
    """y = w x."""
    graph = Graph("line", {"": 20})
    graph.add_input("x", tensor(dtype, (3, 4)))
    kind = {"f64": np.float64, "f16": np.float16}[dtype]
    graph.add_constant("w", Constant.of(np.linspace(-1, 1, 8).reshape(4, 2).astype(kind)))
    y = graph.emit("MatMul", ["x", "w"], tensor(dtype, (3, 2)), stem="y")
    graph.set_outputs([y])
    return graph


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_optimisers_follow_their_formulas(name: Any) -> None:
    options = TrainingOptions(loss="sum", optimizer=name, learning_rate=0.1)
    step = build_training_step(quadratic(), options)
    state, grads = step.initial_state(), []
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((3, 4))
        grads.append(np.repeat(x.sum(axis=0)[:, None], 2, axis=1))
        state = step.next_state(run_reference(step.graph, {"x": x, **state}))
    expected = formula(name, step.initial["w"].array(), grads, 0.1)
    np.testing.assert_allclose(state["w"], expected, rtol=1e-6, atol=1e-8)


def test_sixteen_bit_parameters_have_a_master_copy_and_a_loss_scale() -> None:
    options = TrainingOptions(loss="sum", optimizer="sgd", learning_rate=2**-14, loss_scale=256.0)
    step = build_training_step(quadratic("f16"), options)
    state, x = step.initial_state(), np.ones((3, 4), np.float16)
    for _ in range(4):
        state = step.next_state(run_reference(step.graph, {"x": x, **state}))
    moved = state["w/master"] - step.initial["w"].array().astype(np.float32)
    np.testing.assert_allclose(moved, -4 * 3 * 2**-14, rtol=1e-5)
    assert state["w"].dtype == np.float16
    np.testing.assert_array_equal(state["w"], state["w/master"].astype(np.float16))


def test_training_lowers_the_loss() -> None:
    step = build_training_step(tiny("gpt2"), TrainingOptions(learning_rate=1e-2))
    given, losses = feeds(step), []
    for _ in range(12):
        found = run_reference(step.graph, given)
        losses.append(float(found[step.loss]))
        given.update(step.next_state(found))
    assert losses[-1] < 0.7 * losses[0]


def test_the_learning_rate_may_be_an_input() -> None:
    options = TrainingOptions(loss="sum", optimizer="sgd", learning_rate=None)
    step = build_training_step(quadratic(), options)
    x, rate = np.ones((3, 4)), np.array(0.5, np.float32)
    found = run_reference(step.graph, {"x": x, "learning_rate": rate, **step.initial_state()})
    moved = step.next_state(found)["w"] - step.initial["w"].array()
    np.testing.assert_allclose(moved, -1.5)


# -------------------------------------------------------------------- accumulation


def test_micro_batches_give_the_gradients_of_the_whole_batch() -> None:
    whole = build_training_step(tiny("llama", batch=4), GRADIENTS)
    parts = build_training_step(tiny("llama", batch=2), replace(GRADIENTS, accumulate=2))
    given = feeds(whole)
    split = {n: v for n, v in given.items() if n in whole.initial}
    given["labels"][0, 2:] = given["labels"][3] = -100  # one half has more of them
    for name in set(given) - set(whole.initial):
        split |= {f"mb{i}/{name}": half for i, half in enumerate(np.split(given[name], 2))}
    count = mean_count(np.split(given["labels"], 2), -100, shift=True)
    split |= {f"mb{i}/labels/count": count for i in range(2)}
    expected, found = run_reference(whole.graph, given), run_reference(parts.graph, split)
    np.testing.assert_allclose(found[parts.loss], expected[whole.loss], rtol=1e-5)
    for name, value in whole.gradients.items():
        target = expected[value]
        np.testing.assert_allclose(found[parts.gradients[name]], target, atol=1e-5, rtol=1e-3)


def test_forward_of_one_batch_runs_beside_backward_of_the_one_before() -> None:
    options = TrainingOptions(accumulate=4, phase_streams=True, optimizer="sgd")
    step = build_training_step(tiny("llama", batch=2), options)
    result = scheduled(step.graph, "default")
    assert result.schedule.findings() == []
    spans = {s.task: s for s in result.timeline.spans}
    by_phase: dict[str, list[tuple[int, int]]] = {"forward": [], "backward": []}
    streams: dict[str, set[int]] = {"forward": set(), "backward": set()}
    for task in result.schedule.tasks:
        phase = step.graph.op(task.name).info.phase
        if phase in by_phase and task.kind == "kernel":
            by_phase[phase].append((spans[task.id].start_ns, spans[task.id].end_ns))
            streams[phase].add(task.stream)
    assert len(streams["forward"]) == len(streams["backward"]) == 1
    assert streams["forward"] != streams["backward"]
    both = sum(
        max(0, min(e, f) - max(s, t))
        for s, e in by_phase["forward"]
        for t, f in by_phase["backward"]
    )
    forward = sum(e - s for s, e in by_phase["forward"])
    assert both > 0.5 * forward
    assert result.makespan_us < 0.85 * result.single_stream_us


# -------------------------------------------------------------------- parameters, mistakes


def test_parameters_are_what_is_used_as_weights() -> None:
    names = parameters(tiny("llama", fused=False))
    assert not [n for n in names if "rotary" in n or "inv_freq" in n]
    assert len(parameters(tiny("llama"))) == len(names) == 2 * 9 + 3
    graph = quadratic()
    assert parameters(graph) == parameters(graph, ["w*"]) == ("w",)
    with pytest.raises(UsageError, match="matches no float constant"):
        parameters(graph, ["v"])


def test_mistakes_are_told() -> None:
    for wrong in ({"loss": "l2"}, {"optimizer": "lamb"}, {"recompute": "some"}, {"accumulate": 0}):
        with pytest.raises(UsageError):
            TrainingOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no 'beta1'"):
        TrainingOptions(optimizer="sgd", hyper={"beta1": 0.5})
    with pytest.raises(UsageError, match="is no output of floats"):
        build_training_step(quadratic(), TrainingOptions(output="z"))
    graph = Graph("g", {"": 20})
    graph.add_input("x", tensor("f32", (2,)))
    graph.set_outputs([graph.emit("Relu", ["x"], tensor("f32", (2,)))])
    with pytest.raises(ModelError, match="no parameter"):
        build_training_step(graph)


def test_sizes_must_be_bound() -> None:
    graph = quadratic()
    graph.set_type("x", tensor("f64", (symbol("batch"), 4)))
    graph.set_type(graph.outputs[0], tensor("f64", (symbol("batch"), 2)))
    with pytest.raises(ModelError, match="bind the sizes"):
        build_training_step(graph)


CORPUS_SLOW = ["llama-sdpa-dyn23", "bert-eager-ts", "deepseekv3-sdpa-dynamo", "t5-eager-ts"]


@pytest.mark.parametrize("name", CORPUS_SLOW)
def test_gradients_of_real_exports(corpus: Path, name: str) -> None:
    check_export(corpus / "models" / f"{name}.onnx")


@pytest.mark.slow
def test_gradients_of_every_real_export(corpus_model: Path | None) -> None:
    assert corpus_model is not None
    if corpus_model.parent.name != "models":
        pytest.skip("a case of attention alone")
    check_export(corpus_model)


def check_export(path: Path) -> None:
    from gecompiler.driver import BOUND_PIPELINE, optimise
    from gecompiler.ir.bind import bind, choose_binding
    from gecompiler.passes import PassContext, Pipeline
    from gecompiler.request import Request

    arrays = dict(np.load(path.with_name(f"{path.stem}.inputs.npz")))
    source = optimise(Request(str(path), arrays=arrays)).graph
    sizes = choose_binding(source, arrays=arrays, diagnostics=Diagnostics())
    graph = bind(source, sizes)
    Pipeline.parse(BOUND_PIPELINE).run(graph, PassContext(Diagnostics()))
    step = build_training_step(in_float64(graph), GRADIENTS)
    given = feeds(step)
    given |= {
        n: v.astype(np.float64) if v.dtype == np.float32 else v
        for n, v in arrays.items()
        if n in step.graph.inputs
    }
    if "labels" in given and given["labels"].dtype.kind == "i":
        logits = graph.shape("logits" if graph.has_value("logits") else graph.outputs[0])
        given["labels"] %= logits[-1]  # type: ignore[index]
    # onnxruntime's Erf is of single precision, also for doubles
    coarse = any(op.is_("Gelu", "Erf") for op in step.graph.ops)
    assert slope_error(step, given) < (5e-3 if coarse else 1e-5)
