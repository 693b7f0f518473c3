"""Requests as a chat service gets them, replayed against paged and contiguous KV caches.

    python examples/request_trace.py [TRACE.csv]

TRACE.csv has the columns of Azure's public LLM inference traces (github.com/Azure/
AzurePublicDataset, described in Patel et al., "Splitwise", ISCA 2024): TIMESTAMP,
ContextTokens, GeneratedTokens. Without one, requests are drawn whose lengths are spread like
those of the conversation trace: short questions, many prompts of about a thousand tokens, a few
that fill a context of 4096.
"""

from __future__ import annotations

import csv
import sys
from collections import deque
from datetime import datetime
from typing import NamedTuple

import numpy as np

from gecompiler.ops.paged_attention import (
    CacheFullError,
    ContiguousKVCache,
    PagedAttentionConfig,
    PagedKVCache,
)

SHARES = (0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 1.0)
PROMPT_TOKENS = (2, 170, 380, 1000, 1120, 1350, 4060, 4100)
OUTPUT_TOKENS = (8, 30, 80, 130, 380, 425, 470, 650)
REQUESTS_PER_S = 3.0
STEP_S = 0.05
"""One token for every running request."""

TOKENS, PAGE = 49152, 16
TOKEN_BYTES = 80 * 2 * 8 * 128 * 2
"""Of a 70B model: 80 layers of keys and values, 8 heads of 128 in 16 bits."""


class Request(NamedTuple):
    """One request."""

    arrival_s: float
    prompt: int
    output: int


class Replay(NamedTuple):
    """What a replay came to."""

    utilisation: float
    """Share of the memory taken that holds a token, mean over time."""
    running: float
    """Requests at once, mean over time."""
    copied_tokens: int
    waits: int
    """Steps in which a request waited for memory."""
    preempted: int
    seconds: float
    """Until the last request was done."""


def synthetic(count: int, seed: int = 0) -> list[Request]:
    """Requests at random times, the same for the same seed."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / REQUESTS_PER_S, count))
    prompts = np.interp(rng.random(count), SHARES, PROMPT_TOKENS)
    outputs = np.interp(rng.random(count), SHARES, OUTPUT_TOKENS)
    return [
        Request(float(at), int(prompt), int(output))
        for at, prompt, output in zip(arrivals, prompts, outputs, strict=True)
    ]


def read(path: str) -> list[Request]:
    """Requests of a file with Azure's columns."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    return [
        Request(at - times[0], int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        for at, row in zip(times, rows, strict=True)
    ]


def replay(cache: PagedKVCache | ContiguousKVCache, trace: list[Request]) -> Replay:
    """Serves a trace: prompts as they come and fit, then a token a step for all that run.

    Where a token does not fit, the youngest request is put back; it begins again, and none is
    let in, before another is done.
    """
    waiting, left, admits = deque(enumerate(trace)), {}, True
    samples, waits, preempted, steps = [], 0, 0, 0
    while waiting or left:
        steps += 1
        while admits and waiting and waiting[0][1].arrival_s <= steps * STEP_S:
            number, request = waiting[0]
            prompt = np.zeros((1, request.prompt, 1, 1), np.float16)
            try:
                cache.append(prompt, prompt, number)
            except CacheFullError:
                break
            left[number] = request.output
            waiting.popleft()
        waits += bool(waiting) and waiting[0][1].arrival_s <= steps * STEP_S
        for number in put_back(cache, left):
            waiting.appendleft((number, trace[number]))
            preempted, admits = preempted + 1, False
        left = {number: tokens - 1 for number, tokens in left.items()}
        for number in [number for number, tokens in left.items() if tokens == 0]:
            cache.free(number)
            del left[number]
            admits = True
        admits = admits or not left
        if steps % 20 == 0 and left:
            samples.append((cache.usage().utilisation, len(left)))
    utilisation, running = np.mean(samples, axis=0)
    copied = cache.usage().copied_bytes // cache.config.token_bytes
    return Replay(float(utilisation), float(running), copied, waits, preempted, steps * STEP_S)


def put_back(cache: PagedKVCache | ContiguousKVCache, left: dict[int, int]) -> list[int]:
    """Appends a token to every running request; frees the youngest until they fit."""
    tokens = np.zeros((len(left), 1, 1, 1), np.float16)
    try:
        cache.append(tokens, tokens, list(left))
        return []
    except CacheFullError:
        pass
    gone: list[int] = []
    for number in list(left):  # one by one
        while number in left:
            try:
                cache.append(tokens[:1], tokens[:1], number)
                break
            except CacheFullError:
                gone.append(max(left))
                cache.free(gone[-1])
                del left[gone[-1]]
    return gone


def caches(tokens: int = TOKENS) -> dict[str, PagedKVCache | ContiguousKVCache]:
    """Caches of the same memory. Heads of width 1: what counts here is tokens."""

    def config(page: int) -> PagedAttentionConfig:
        return PagedAttentionConfig(1, 1, page, tokens // page)

    return {
        "contiguous, room for 4800 reserved": ContiguousKVCache(config(PAGE), reserve=4800),
        "contiguous, as long as the sequence": ContiguousKVCache(config(PAGE), "exact"),
        "contiguous, doubled to grow": ContiguousKVCache(config(PAGE), "double"),
        "contiguous, grown by 512": ContiguousKVCache(config(PAGE), 512),
        "pages of 128": PagedKVCache(config(128)),
        "pages of 16": PagedKVCache(config(PAGE)),
    }


def compare(trace: list[Request]) -> dict[str, Replay]:
    """Replays a trace against each cache and prints a line for each."""
    print(f"{'cache':36} {'in use':>7} {'running':>8} {'copied':>12} {'waits':>6} {'put back':>9}")
    found = {}
    for name, cache in caches().items():
        found[name] = done = replay(cache, trace)
        copied = f"{done.copied_tokens * TOKEN_BYTES / 2**30:,.0f} GiB"
        print(
            f"{name:36} {done.utilisation:7.1%} {done.running:8.1f} {copied:>12} {done.waits:6} "
            f"{done.preempted:9}"
        )
    return found


def main() -> None:
    """Compares caches on the trace named, or a drawn one."""
    trace = read(sys.argv[1]) if len(sys.argv) > 1 else synthetic(120)
    prompts, outputs = ([r[i] for r in trace] for i in (1, 2))
    print(
        f"{len(trace)} requests, prompts of {np.mean(prompts):.0f} tokens on average, outputs of "
        f"{np.mean(outputs):.0f}; a cache of {TOKENS} tokens"
    )
    compare(trace)
    print("in use: tokens held / memory taken; copied: of a 70B model, to grow or after a fork")


if __name__ == "__main__":
    main()
