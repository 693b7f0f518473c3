"""Small models of several architectures, written with torch's own modules."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
WORDS, WIDTH, HEADS = 37, 32, 4


def heads_of(x: Any, heads: int) -> Any:
    """(B, S, N D) as (B, N, S, D)."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """Scores, softmax, mean of values; back to (B, S, N D)."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    """With fewer heads of keys and a rotation where asked."""

    def __init__(self, kv: int = HEADS, *, causal: bool = True, rotary: bool = False) -> None:
        super().__init__()
        self.kv, self.causal, self.rotary = kv, causal, rotary
        self.q, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = (nn.Linear(WIDTH, kv * WIDTH // HEADS) for _ in range(2))

    def forward(self, x: Any) -> Any:
        q, k, v = heads_of(self.q(x), HEADS), *(heads_of(f(x), self.kv) for f in (self.k, self.v))
        if self.rotary:
            half = q.shape[-1] // 2
            rates = 10000.0 ** (-torch.arange(half) / half)
            angles = torch.arange(x.shape[1])[:, None] * rates
            cos, sin = (torch.cat([f(angles), f(angles)], -1) for f in (torch.cos, torch.sin))
            q, k = (z * cos + torch.cat([-z[..., half:], z[..., :half]], -1) * sin for z in (q, k))
        times = HEADS // self.kv
        k, v = (z.repeat_interleave(times, 1) if times > 1 else z for z in (k, v))
        return self.out(attention(q, k, v, causal=self.causal))


class RMSNorm(nn.Module):  # type: ignore[misc, name-defined]
    """As Llama has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class SwiGLU(nn.Module):  # type: ignore[misc, name-defined]
    """A gated MLP."""

    def __init__(self, inner: int = 48) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):  # type: ignore[misc, name-defined]
    """The two best of four experts for each token, each run over all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList([SwiGLU(24) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        best, which = self.route(x).softmax(-1).topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        shares = torch.zeros_like(x[..., :4]).scatter(-1, which, best)
        return sum(shares[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Decoder(nn.Module):  # type: ignore[misc, name-defined]
    """Norm, attention, norm, MLP, twice; a head of its own."""

    def __init__(self, *, experts: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.mixers = nn.ModuleList([Attention(2, rotary=True) for _ in range(2)])
        self.mlps = nn.ModuleList([Experts() if experts else SwiGLU() for _ in range(2)])
        self.norms = nn.ModuleList([RMSNorm() for _ in range(5)])

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for i, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps, strict=True)):
            x = x + mixer(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.head(self.norms[4](x))


class Encoder(nn.Module):  # type: ignore[misc, name-defined]
    """As BERT: positions, norms behind the sums, GELU, a head behind a transform."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(16, WIDTH)
        self.mixers = nn.ModuleList([Attention(causal=False) for _ in range(2)])
        self.ups = nn.ModuleList([nn.Linear(WIDTH, 64) for _ in range(2)])
        self.downs = nn.ModuleList([nn.Linear(64, WIDTH) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(6)])
        self.turn, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Any) -> Any:
        x = self.norms[4](self.embed(tokens) + self.places(torch.arange(tokens.shape[1])))
        for i, mixer in enumerate(self.mixers):
            x = self.norms[2 * i](x + mixer(x))
            inner = functional.gelu(self.ups[i](x))
            x = self.norms[2 * i + 1](x + self.downs[i](inner))
        return self.head(self.norms[5](functional.gelu(self.turn(x))))


class Vision(nn.Module):  # type: ignore[misc, name-defined]
    """As ViT: patches by a convolution, a token of the class, positions, one block, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH))
        self.mixer = Attention(causal=False)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, pixels: Any) -> Any:
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        x = x + self.mixer(self.norms[0](x))
        x = x + self.down(functional.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x)[:, 0])
