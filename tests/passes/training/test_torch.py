"""Gradients of whole models against torch's autograd, where torch is there (development only)."""

from __future__ import annotations

import io
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


def imported(data: bytes) -> Graph:
    import onnx

    graph = load_onnx(onnx.load_from_string(data))
    infer_types(graph)
    spec = "fuse-attention,canonicalize,fuse-attention,fuse-block,canonicalize"
    Pipeline.parse(spec).run(graph, PassContext(Diagnostics()))
    return graph
