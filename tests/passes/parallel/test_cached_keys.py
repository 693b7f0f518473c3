"""Decode steps on ranks that each hold a part of the KV cache: the numbers of one card."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import Graph
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.graph_base import State
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Mesh
from gecompiler.ir.types import tensor
from gecompiler.passes.parallel import ParallelOptions, parallelise
from tests.passes.parallel.models_help import Arrays, check_equal, collectives, inputs_of, tiny

LANES, WIDTH = 4, 6
PLAIN = FlashAttention(0.5, 1, 1)


@dataclass(frozen=True)
class Step:
    """A decode step of one attention, between the product of its output and a cache."""

    heads: int = 4
    kv_heads: int = 2
    queries: int = 1
    past: int = 8
    batch: int = 2
    mask: Literal["", "bool", "float", "lowest", "column"] = ""
    sinks: bool = False
    product: bool = True
    cross: bool = False
    attention: FlashAttention = PLAIN

    @property
    def keys(self) -> int:
        return self.past if self.cross else self.past + self.queries

    def _lying(self, *sizes: int) -> tuple[int, ...]:
        batch, heads, length, lanes = sizes
        rows_first = self.attention.reads_rows_first
        return (batch, length, heads, lanes) if rows_first else sizes

    def graph(self) -> Graph:
        graph = Graph("step", {"": 20, "gecompiler": 1})
        b, g, n, p = self.batch, self.kv_heads, self.queries, self.past
        graph.add_input("q", tensor("f32", self._lying(b, self.heads, n, LANES)))
        axis = 1 if self.attention.reads_rows_first else 2
        keys = []
        for name, lanes in (("k", LANES), ("v", WIDTH)):
            graph.add_input(f"past_{name}", tensor("f32", self._lying(b, g, p, lanes)))
            keys.append(f"past_{name}")
            if not self.cross:
                graph.add_input(name, tensor("f32", self._lying(b, g, n, lanes)))
                made = f"present_{name}"
                graph.add_op(Op(f"join_{name}", "Concat", (keys.pop(), name), (made,),
                                {"axis": axis}))  # fmt: skip
                keys.append(made)
        inputs = ["q", *keys]
        if self.mask:
            shape = (b, 1, n, 1 if self.mask == "column" else self.keys)
            graph.add_input("mask", tensor("bool" if self.mask == "bool" else "f32", shape))
            inputs.append("mask")
        if self.sinks:
            graph.add_input("sinks", tensor("f32", (self.heads,)))
            inputs += ["sinks"] if self.mask else ["", "sinks"]
        made = replace(self.attention, q_heads=self.heads, kv_heads=g)
        graph.add_op(Op("attention", "FlashAttention", tuple(inputs), ("o",), made.attrs(),
                        GE_DOMAIN))  # fmt: skip
        end = "o"
        if self.product:
            weight = np.random.default_rng(0).standard_normal((WIDTH, 3)).astype(np.float32)
            graph.add_op(Op("out", "MatMul", ("o", graph.constant_of("w", weight)), ("y",)))
            end = "y"
        graph.set_outputs([end, *(v for v in keys if v.startswith("present"))])
        infer_types(graph)
        if not self.cross:
            graph.set_states([State(f"past_{n}", f"present_{n}", axis) for n in "kv"])
        graph.verify()
        return graph

    def arrays(self, seed: int) -> Arrays:
        random = np.random.default_rng(seed)
        graph, found = self.graph(), {}
        for name in graph.inputs:
            type_ = graph.types[name]
            if type_.dtype.is_float:
                found[name] = random.standard_normal(type_.sizes).astype(np.float32)
            else:
                found[name] = random.random(type_.sizes) < 0.5
        if self.mask == "lowest":
            hidden = random.random(found["mask"].shape) < 0.5
            found["mask"] = np.where(hidden, np.finfo(np.float32).min, 0).astype(np.float32)
        return found


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kv_heads, per = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3]))
    cross = draw(st.booleans())
    window = draw(st.sampled_from([(-1, -1), (-1, 0), (3, 0), (2, 1)]))
    rows = draw(st.sampled_from(["zero", "mean", "nan"]))
    return Step(
        kv_heads * per, kv_heads, draw(st.integers(1, 5)), draw(st.integers(4, 13)),
        draw(st.integers(1, 2)), draw(st.sampled_from(["", "bool", "float", "lowest", "column"])),
        draw(st.booleans()), draw(st.booleans()), cross,
        FlashAttention(
            0.5, 1, 1, draw(st.sampled_from([0.0, 3.0])), *window,
            draw(st.sampled_from(["top_left", "bottom_right"])), rows,
            draw(st.sampled_from(["BNSD", "BSND", "BNSD_BSND"])), draw(st.sampled_from([0, 0, 5])),
        ),
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(steps(), st.sampled_from([{"sp": 2}, {"sp": 4}, {"sp": 3}, {"sp": 2, "tp": 2},
                                 {"dp": 2, "sp": 2}]), st.integers(0, 99))  # fmt: skip
def test_ranks_that_hold_a_part_of_the_keys(step: Step, sizes: dict[str, int], seed: int) -> None:
    graph = step.graph()
    program = parallelise(graph, Mesh.of(**sizes))
    held = dict(program.templates[0].inputs)["past_k"].sharding
    assert "sp" in held.axes or program.notes
    check_equal(program, graph, step.arrays(seed))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "sizes",
    [{"sp": 2}, {"sp": 3}, {"sp": 8}, {"sp": 2, "tp": 2}, {"dp": 2, "sp": 2}, {"pp": 2, "sp": 2}],
    ids=str,
)
def test_decode_steps_of_built_in_models(family: str, sizes: dict[str, int]) -> None:
    graph = tiny(family, "decode")
    check_equal(parallelise(graph, Mesh.of(**sizes)), graph, inputs_of(graph))


def test_each_rank_holds_its_share_of_the_cache_and_the_new_keys() -> None:
    program = parallelise(tiny("llama", "decode"), Mesh.of(sp=4))
    (template,) = program.templates
    for name in ("key", "value"):
        assert template.graph.tensor(f"past_key_values.0.{name}").sizes == (2, 2, 2, 8)
        assert template.graph.tensor(f"present.0.{name}").sizes == (2, 2, 3, 8)
    assert len(template.graph.states) == 4
    assert not program.notes


def test_parts_are_put_together_by_one_number_a_query_and_one_sum() -> None:
    """With tensor parallelism the sum over both is made once, after the output's product."""
    graph = tiny("llama", "decode")
    assert collectives(parallelise(graph, Mesh.of(sp=4))) == {"AllGather sp": 2, "AllReduce sp": 2}
    assert collectives(parallelise(graph, Mesh.of(sp=2, tp=2))) == {
        "AllGather sp": 2,
        "AllReduce sp+tp": 2,
        "AllReduce tp": 2,
    }


def test_many_tokens_are_cut_themselves_and_the_cache_stays_whole() -> None:
    causal = replace(PLAIN, window_right=0, align="bottom_right")
    step = Step(queries=64, past=8, attention=causal)
    graph = step.graph()
    program = parallelise(graph, Mesh.of(sp=2))
    assert program.templates[0].inputs["past_k"].sharding.is_whole
    check_equal(program, graph, step.arrays(0))


def test_a_cache_that_others_need_whole_stays_whole_and_is_told() -> None:
    graph = Step().graph()
    graph.add_op(Op("last", "Softmax", ("present_k",), ("soft",), {"axis": 2}))
    graph.set_outputs([*graph.outputs, "soft"])
    infer_types(graph)
    program = parallelise(graph, Mesh.of(sp=2))
    assert program.templates[0].inputs["past_k"].sharding.is_whole
    assert any("'last' needs them whole" in note.message for note in program.notes)
    check_equal(program, graph, Step().arrays(0))


def test_a_cache_stays_whole_where_that_is_asked_for() -> None:
    """As training asks: attention over parts of its keys has no gradient."""
    graph, mesh = Step().graph(), Mesh.of(sp=2)
    kept = parallelise(graph, mesh, ParallelOptions(cached_keys="whole"))
    assert "whole" in next(note.message for note in kept.notes if note.subject == "attention")
    assert not kept.templates[0].inputs["past_k"].sharding.axes
    assert parallelise(graph, mesh).templates[0].inputs["past_k"].sharding.axes == ("sp",)
