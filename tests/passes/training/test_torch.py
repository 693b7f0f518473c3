"""Gradients of whole models against torch's autograd, where torch is there (development only)."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import Graph, load_onnx
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.infer import infer_types
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.training import TrainingOptions, build_training_step

torch = pytest.importorskip("torch")
torch_models = pytest.importorskip("torch_models")
pytestmark = pytest.mark.slow


def blocks(width: int = 32, heads: int = 4) -> Any:
    """A decoder of two blocks, written with torch's own modules."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 64), nn.Linear(64, width)

        def forward(self, x: Any) -> Any:
            b, s, _ = x.shape
            parts = self.qkv(self.first(x)).reshape(b, s, 3, heads, -1).permute(2, 0, 3, 1, 4)
            q, k, v = parts[0], parts[1], parts[2]
            scores = q @ k.transpose(-1, -2) / (width // heads) ** 0.5
            mask = torch.ones(s, s, dtype=torch.bool).tril()
            weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(b, s, width))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(37, width)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 37, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    return Model()


def test_every_gradient_of_a_decoder_agrees() -> None:
    model, rng = blocks(), np.random.default_rng(0)
    for parameter in model.parameters():  # equal initializers are merged by the exporter
        with torch.no_grad():
            parameter.add_(0.05 * torch.randn_like(parameter))
    tokens = rng.integers(0, 37, (2, 9))
    labels = rng.integers(0, 37, (2, 9))
    logits = model(torch.from_numpy(tokens))
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, 37), torch.from_numpy(labels)[:, 1:].reshape(-1)
    )
    loss.backward()
    buffer = io.BytesIO()
    torch.onnx.export(
        model, (torch.from_numpy(tokens),), buffer, input_names=["tokens"],
        output_names=["logits"], opset_version=17, dynamo=False, do_constant_folding=False,
    )  # fmt: skip
    graph = imported(buffer.getvalue())
    options = TrainingOptions(loss="next-token", optimizer="none")
    step = build_training_step(graph, options)
    given = {"tokens": tokens, "labels": labels, **step.initial_state()}
    found = run_reference(step.graph, given)
    np.testing.assert_allclose(found[step.loss], loss.item(), rtol=1e-5)
    made = {n: found[v] for n, v in step.gradients.items()}
    for name, parameter in model.named_parameters():
        value, grad = parameter.detach().numpy(), parameter.grad.numpy()
        mine = []
        for own, found_grad in made.items():
            start = step.initial[own].array()
            if np.array_equal(start, value):
                mine.append(found_grad)
            elif np.array_equal(start.T, value):
                mine.append(found_grad.T)
        assert len(mine) == 1, name
        np.testing.assert_allclose(mine[0], grad, rtol=1e-3, atol=1e-6, err_msg=name)


ARCHITECTURES: dict[str, tuple[Callable[[], Any], str]] = {
    "grouped rotary RMSNorm SwiGLU": (torch_models.Decoder, "next-token"),
    "encoder LayerNorm GELU": (torch_models.Encoder, "cross-entropy"),
    "experts": (lambda: torch_models.Decoder(experts=True), "next-token"),
    "vision convolution": (torch_models.Vision, "cross-entropy"),
}


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_gradients_and_a_step_of_adamw_agree(name: str) -> None:
    """Each parameter's gradient; then each parameter after torch.optim.AdamW's first step."""
    make, loss = ARCHITECTURES[name]
    torch.manual_seed(0)
    model, rng = make(), np.random.default_rng(0)
    for parameter in model.parameters():  # equal initializers are merged by the exporter
        with torch.no_grad():
            parameter.add_(0.05 * torch.randn_like(parameter))
    vision = name.startswith("vision")
    given = rng.integers(0, 37, (2, 9))
    if vision:
        given = rng.standard_normal((2, 3, 16, 16)).astype(np.float32)
    labels = rng.integers(0, 37, (2,) if vision else (2, 9))
    graph = imported(exported(model, given))
    starts = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    told = loss_of(model(torch.from_numpy(given)), torch.from_numpy(labels), loss)
    told.backward()
    optimizer.step()
    data = {graph.inputs[0]: given, "labels": labels}
    for kind in ("none", "adamw"):
        options = TrainingOptions(loss=loss, optimizer=kind, learning_rate=1e-2)  # type: ignore[arg-type]
        step = build_training_step(graph, options)
        found = run_reference(step.graph, {**data, **step.initial_state()})
        np.testing.assert_allclose(found["loss"], told.item(), rtol=1e-5)
        for own, parameter in model.named_parameters():
            mine, turned = partner(step.initial, starts[own], own)
            grad = parameter.grad.numpy()
            value = found[f"{'grad' if kind == 'none' else 'updated'}/{mine}"]
            value = value.T if turned else value
            if kind == "none":
                np.testing.assert_allclose(value, grad, rtol=1e-3, atol=2e-6, err_msg=own)
                continue
            # the first step is of the rate's size whatever the gradient: where that is rounding
            # alone (a bias of keys shifts all scores of a row alike) it says nothing
            clear = np.abs(grad) > 1e-5
            wanted = parameter.detach().numpy()
            np.testing.assert_allclose(value[clear], wanted[clear], atol=5e-6, err_msg=own)
            assert clear.mean() > 0.2 or own.endswith("k.bias") or "embed" in own or "place" in own


def loss_of(logits: Any, labels: Any, kind: str) -> Any:
    if kind == "next-token":
        logits, labels = logits[:, :-1], labels[:, 1:]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 37), labels.reshape(-1))


def exported(model: Any, given: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    torch.onnx.export(
        model, (torch.from_numpy(given),), buffer, input_names=["given"],
        output_names=["logits"], opset_version=17, dynamo=False, do_constant_folding=False,
    )  # fmt: skip
    return buffer.getvalue()


def partner(initial: Mapping[str, Any], value: np.ndarray, name: str) -> tuple[str, bool]:
    """The state that begins as the parameter, and whether it is transposed."""
    found = [
        (own, turned)
        for own, constant in initial.items()
        for turned in (False, True)[: 1 + (value.ndim == 2 and not np.array_equal(value, value.T))]
        if np.array_equal(constant.array(), value.T if turned else value)
    ]
    assert len(found) == 1, name
    return found[0]


def imported(data: bytes) -> Graph:
    import onnx

    graph = load_onnx(onnx.load_from_string(data))
    infer_types(graph)
    spec = "fuse-attention,canonicalize,fuse-attention,fuse-block,canonicalize"
    Pipeline.parse(spec).run(graph, PassContext(Diagnostics(), trains=True))
    return graph
