"""Mixtures of experts as exporters write them without stacking products: small built graphs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gecompiler.ir import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.types import tensor

BATCH, TOKENS, HIDDEN, INNER = 2, 6, 8, 12
Form = Literal["looked-up", "looked-up-nd", "dense", "joined", "row", "column", "pieces", "picked"]
FORMS: tuple[Form, ...] = (
    *("looked-up", "looked-up-nd", "dense", "joined", "row", "column", "pieces", "picked"),
)


def inputs(batch: int) -> dict[str, np.ndarray]:
    """Tokens of so many samples."""
    random = np.random.default_rng(1)
    return {"x": random.standard_normal((batch, TOKENS, HIDDEN)).astype(np.float32)}


INPUTS = inputs(BATCH)


class _Builder:
    def __init__(self, experts: int, best: int, batch: int = BATCH) -> None:
        self.graph = Graph("mixture", {"": 20, "gecompiler": 1})
        self.experts, self.best, self.random = experts, best, np.random.default_rng(0)
        self.rows = batch * TOKENS

    def weight(self, *shape: int) -> str:
        data = (self.random.standard_normal(shape) * 0.4).astype(np.float32)
        return self.graph.constant_of("w", data)

    def ints(self, *numbers: int) -> str:
        return self.graph.constant_of("n", np.asarray(numbers, np.int64))

    def op(self, op_type: str, *inputs: str, count: int = 1, domain: str = "", **a: object) -> str:
        name = self.graph.fresh(op_type)
        made = tuple(self.graph.fresh(f"{name}_{n}") for n in range(count))
        self.graph.add_op(Op(name, op_type, inputs, made, dict(a), domain))
        return made[0]

    def routing(self, x: str) -> tuple[str, str]:
        """The weights of the best experts of each token, and which they are."""
        best = self.op("TopK", self.op("MatMul", x, self.weight(HIDDEN, self.experts)),
                       self.ints(self.best), count=2, axis=-1)  # fmt: skip
        return self.op("Softmax", best, axis=-1), best.removesuffix("0") + "1"

    def looked_up(self, x: str, routed: str, which: str, nd: bool) -> str:
        """As current exporters do: each token's weights are picked from a stack, biases too."""
        rows = self.rows * self.best
        index = self.op("Reshape", which, self.ints(rows, 1) if nd else self.ints(rows))

        def pick(table: str) -> str:
            return self.op("GatherND" if nd else "Gather", table, index)

        each = self.op("Expand", self.op("Unsqueeze", x, self.ints(1)),
                       self.ints(self.rows, self.best, HIDDEN))  # fmt: skip
        each = self.op("Reshape", each, self.ints(rows, HIDDEN, 1))
        wide = self.op("MatMul", pick(self.weight(self.experts, 2 * INNER, HIDDEN)), each)
        wide = self.op("Squeeze", wide, self.ints(-1))
        wide = self.op("Add", wide, pick(self.weight(self.experts, 2 * INNER)))
        inner = self.op("SiluMul", wide, domain="gecompiler", alpha=1.0, gate="first")
        down = pick(self.weight(self.experts, HIDDEN, INNER))
        made = self.op("MatMul", down, self.op("Unsqueeze", inner, self.ints(-1)))
        made = self.op("Mul", self.op("Squeeze", made, self.ints(-1)),
                       self.op("Reshape", routed, self.ints(rows, 1)))  # fmt: skip
        if self.best == 1:
            return made
        made = self.op("Reshape", made, self.ints(self.rows, self.best, HIDDEN))
        return self.op("ReduceSum", made, self.ints(1), keepdims=0)

    def expert(self, x: str) -> str:
        wide = self.op("MatMul", x, self.weight(HIDDEN, 2 * INNER))
        inner = self.op("SiluMul", wide, domain="gecompiler", alpha=1.0, gate="first")
        return self.op("MatMul", inner, self.weight(INNER, HIDDEN))

    def dense(self, x: str, routed: str, which: str) -> str:
        """Every expert for all tokens, times the weight that it has there."""
        total = ""
        for n in range(self.experts):
            chosen = self.op("Equal", which, self.graph.constant_of("e", np.int64(n)))
            share = self.op("Mul", routed, self.op("Cast", chosen, to=1))
            share = self.op("ReduceSum", share, self.ints(1))
            term = self.op("Mul", self.expert(x), share)
            total = self.op("Add", total, term) if total else term
        return total

    def joined(self, x: str, routed: str, which: str) -> str:
        """Every expert for all tokens; their results are stacked, weighted and summed."""
        zeros = self.graph.constant_of("z", np.zeros((self.rows, self.experts), np.float32))
        shares = self.op("ScatterElements", zeros, which, routed, axis=1)
        each = [self.op("Unsqueeze", self.expert(x), self.ints(1)) for _ in range(self.experts)]
        made = self.op("Mul", self.op("Concat", *each, axis=1),
                       self.op("Unsqueeze", shares, self.ints(2)))  # fmt: skip
        return self.op("ReduceSum", made, self.ints(1), keepdims=0)

    def product(self, x: str, routed: str, which: str, *, row: bool) -> str:
        """Every expert for all tokens; their results are stacked and multiplied by the weights."""
        zeros = self.graph.constant_of("z", np.zeros((self.rows, self.experts), np.float32))
        shares = self.op("ScatterElements", zeros, which, routed, axis=1)
        shares = self.op("Unsqueeze", shares, self.ints(1 if row else 2))
        axis = 1 if row else 2
        each = [self.op("Unsqueeze", self.expert(x), self.ints(axis)) for _ in range(self.experts)]
        joined = self.op("Concat", *each, axis=axis)
        made = self.op("MatMul", *((shares, joined) if row else (joined, shares)))
        return self.op("Squeeze", made, self.ints(axis))

    def row(self, x: str, routed: str, which: str) -> str:
        return self.product(x, routed, which, row=True)

    def column(self, x: str, routed: str, which: str) -> str:
        return self.product(x, routed, which, row=False)

    def pieces(self, x: str, routed: str, which: str) -> str:
        """Every expert for all tokens, times its piece of the weights."""
        zeros = self.graph.constant_of("z", np.zeros((self.rows, self.experts), np.float32))
        shares = self.op("ScatterElements", zeros, which, routed, axis=1)
        ones = self.ints(*[1] * self.experts)
        first = self.op("Split", shares, ones, count=self.experts, axis=1)
        total = ""
        for n in range(self.experts):
            term = self.op("Mul", self.expert(x), f"{first.removesuffix('0')}{n}")
            total = self.op("Add", total, term) if total else term
        return total

    def picked(self, x: str, routed: str, which: str) -> str:
        """Each expert for the tokens that chose it; how many do is not known before."""
        values = self.graph.constant_of("v", np.asarray([0, 1], np.int64))
        depth = self.graph.constant_of("d", np.int64(self.experts))
        hit = self.op("Transpose", self.op("OneHot", which, depth, values), perm=(2, 1, 0))
        total = self.graph.constant_of("zeros", np.zeros((self.rows, HIDDEN), np.float32))
        flat = self.op("Reshape", routed, self.ints(-1))
        for n in range(self.experts):
            own = self.op("Gather", hit, self.graph.constant_of("e", np.int64(n)), axis=0)
            place = self.op("Transpose", self.op("NonZero", own), perm=(1, 0))
            slot = self.op("Split", place, self.ints(1, 1), count=2, axis=1)
            token = slot.removesuffix("0") + "1"
            made = self.expert(self.op("GatherND", x, token))
            at = self.op("Add", self.op("Mul", token, self.ints(self.best)), slot)
            made = self.op("Mul", made, self.op("Gather", flat, at))
            total = self.op("ScatterND", total, token, made, reduction="add")
        return total


def experts(
    form: Form, count: int = 4, best: int = 2, *, residual: bool = True, batch: int = BATCH
) -> Graph:
    """The best experts of each token, between two products that are no experts'."""
    b = _Builder(count, best, batch)
    b.graph.add_input("x", tensor("f32", (batch, TOKENS, HIDDEN)))
    x = b.op("Reshape", "x", b.ints(b.rows, HIDDEN))
    routed, which = b.routing(x)
    if form in ("looked-up", "looked-up-nd"):
        made = b.looked_up(x, routed, which, form == "looked-up-nd")
    else:
        ways = {
            name: getattr(b, name)
            for name in ("dense", "joined", "row", "column", "pieces", "picked")
        }
        made = ways[form](x, routed, which)
    if residual:
        made = b.op("Add", made, x)
    made = b.op("MatMul", b.op("Tanh", made), b.weight(HIDDEN, HIDDEN))
    b.graph.set_outputs([b.op("Reshape", made, b.ints(batch, TOKENS, HIDDEN))])
    infer_types(b.graph)
    b.graph.verify()
    return b.graph
