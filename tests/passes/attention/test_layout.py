"""Layouts follow views exactly: checked against numpy on random chains of views."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
from attention_help import run
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import parse
from gecompiler.ir.dims import symbol
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.relayout import cost, relayout

B, S = symbol("b"), symbol("s")


def test_a_folded_batch_learns_its_heads_where_they_are_told_apart() -> None:
    folded = lay.fresh((B * 4, S, 8))
    split = lay.regroup(folded, (B, 4, S, 8))
    assert split is not None
    assert lay.shape_of(split) == (B, 4, S, 8)
    assert lay.flat(folded[0]) == (*split[0], *split[1])


def test_a_reshape_that_mixes_indices_has_no_layout() -> None:
    assert lay.regroup(lay.fresh((6, 2)), (4, 3)) is None
    assert lay.regroup(lay.fresh((B, S)), (S, B)) is None


def test_equal_sizes_are_no_equal_indices() -> None:
    a = lay.fresh((4, 4))
    assert not lay.same(a, (a[1], a[0]))


def test_axes_of_size_one_have_no_factor() -> None:
    assert lay.fresh((1, 3, 1))[0] == ()
    assert lay.regroup(lay.fresh((1, 3)), (3, 1)) is not None


class ViewMaker:
    """A random chain of views, with what numpy makes of it."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        shape = [draw.choice([1, 2, 3, 4, 6]) for _ in range(draw.randrange(2, 5))]
        self.array = np.arange(prod(shape)).reshape(shape).astype(np.float32)
        self.lines = [f"  input %v0: f32{shape}"]
        self.copies = 1
        current, count = self.array, 0
        for _ in range(draw.randrange(1, 6)):
            kind = draw.choice(["Transpose", "Reshape", "Unsqueeze", "Expand", "Tile"])
            new: Any = None
            if kind == "Transpose":
                perm = list(range(current.ndim))
                draw.shuffle(perm)
                new, line = current.transpose(perm), f"{{perm = {perm}}}"
                text = f"Transpose(%v{count}) {line}"
            elif kind == "Reshape":
                target = self._regrouped(draw, current.shape)
                self.lines.append(f"  const %c{count}: i64[{len(target)}] = {target}")
                new, text = current.reshape(target), f"Reshape(%v{count}, %c{count})"
            elif kind == "Unsqueeze" and current.ndim < 5:
                axis = draw.randrange(current.ndim + 1)
                self.lines.append(f"  const %c{count}: i64[1] = [{axis}]")
                new, text = np.expand_dims(current, axis), f"Unsqueeze(%v{count}, %c{count})"
            elif kind == "Expand" and 1 in current.shape and current.size < 400:
                target = [draw.choice([2, 3]) if d == 1 else d for d in current.shape]
                self.lines.append(f"  const %c{count}: i64[{len(target)}] = {target}")
                new = np.broadcast_to(current, target)
                text = f"Expand(%v{count}, %c{count})"
            elif kind == "Tile" and current.size < 200:
                axis = draw.randrange(current.ndim)
                times = [2 if n == axis else 1 for n in range(current.ndim)]
                self.lines.append(f"  const %c{count}: i64[{len(times)}] = {times}")
                new, text = np.tile(current, times), f"Tile(%v{count}, %c{count})"
            if new is not None:
                count += 1
                self.lines.append(f"  %v{count} = {text}")
                current = new
        self.result, self.count = current, count

    @staticmethod
    def _regrouped(draw: random.Random, shape: tuple[int, ...]) -> list[int]:
        """Two neighbours merged, or one axis split."""
        found = list(shape)
        if len(found) > 1 and draw.random() < 0.5:
            at = draw.randrange(len(found) - 1)
            return [*found[:at], found[at] * found[at + 1], *found[at + 2 :]]
        at = draw.randrange(len(found))
        factor = draw.choice([d for d in (1, 2, 3) if found[at] % d == 0])
        return [*found[:at], factor, found[at] // factor, *found[at + 1 :]]

    def text(self) -> str:
        end = f"  %out = Identity(%v{self.count})\n  return %out"
        return "graph (opset 17) {\n" + "\n".join(self.lines) + f"\n{end}\n}}"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_walking_back_finds_the_element_each_view_takes(seed: int) -> None:
    maker = ViewMaker(seed)
    graph = parse(maker.text())
    infer_types(graph)
    shape = graph.shape("out")
    assert shape is not None
    out = lay.fresh(shape)
    value, layout = "out", out
    while value != "v0":
        op = graph.producer(value)
        assert op is not None
        found = lay.before(graph, op, layout)
        if found is None:
            return
        value, layout = op.inputs[0], found
    draw = random.Random(seed)
    for _ in range(20):
        index = {}
        position = []
        for axis in out:
            place = 0
            for factor in lay.flat(axis):
                index[factor] = draw.randrange(int(str(factor.size)))
                place = place * int(str(factor.size)) + index[factor]
            position.append(place)
        source = []
        for axis in layout:
            place = 0
            for factor in lay.flat(axis):
                place = place * int(str(factor.size)) + index[factor]
            source.append(place)
        assert maker.result[tuple(position)] == maker.array[tuple(source)]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_relayout_moves_every_element_to_its_place(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 3]) for _ in range(draw.randrange(2, 5))]
    source = [lay.Factor(n) for n in sizes if n > 1]
    given_layout = _grouped(draw, source)
    wanted = source[:]
    draw.shuffle(wanted)
    target = _grouped(draw, wanted)
    shape = list(lay.shape_of(given_layout))
    graph = parse(f"graph (opset 17) {{ input %x: f32{shape} %y = Neg(%x) return %y }}")
    infer_types(graph)
    before = len(graph)
    out = relayout(Builder(graph), "y", given_layout, target)
    assert len(graph) - before == cost(given_layout, target)
    assert graph.shape(out) == lay.shape_of(target)
    graph.set_outputs([out])
    x = np.arange(prod(int(str(d)) for d in shape), dtype=np.float32).reshape(shape)
    (found,) = run(graph, {"x": x}).values()
    order = [source.index(f) for f in wanted]
    plain = x.reshape([int(str(f.size)) for f in source]).transpose(order)
    np.testing.assert_array_equal(found, -plain.reshape(lay.shape_of(target)))


def _grouped(draw: random.Random, factors: list[lay.Factor]) -> lay.Layout:
    """The factors in axes of one or more, with axes of size 1 between."""
    axes: list[lay.Axis] = []
    for factor in factors:
        if axes and axes[-1] and draw.random() < 0.35:
            axes[-1] = (*axes[-1], factor)
        else:
            if draw.random() < 0.2:
                axes.append(())
            axes.append((factor,))
    return tuple(axes) or ((),)


def test_sizes_known_only_at_run_time_are_read_then() -> None:
    graph = parse("graph (opset 17) { input %x: f32[b, 4, s, 8] %y = Neg(%x) return %y }")
    infer_types(graph)
    shape = graph.shape("y")
    assert shape is not None
    layout = lay.fresh(shape)
    target = ((*layout[0], *layout[2]), (*layout[1], *layout[3]))
    out = relayout(Builder(graph), "y", layout, target)
    graph.set_outputs([out])
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 8)).astype(np.float32)
    (found,) = run(graph, {"x": x}).values()
    np.testing.assert_array_equal(found, -x.transpose(0, 2, 1, 3).reshape(6, 32))
