"""Which softmaxes are attention: fed by a product of two activations, and feeding another."""

from __future__ import annotations

from functools import cached_property

from gecompiler.ir.op import Op
from gecompiler.passes.attention.anchors import Anchor
from gecompiler.passes.attention.contraction import Contraction, contraction
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.noops import readers
from gecompiler.passes.attention.origin_kinds import DISTANT, NOTHING, PRODUCT, PROJECTION
from gecompiler.passes.attention.probabilities import PROBABILITY_STEPS
from gecompiler.passes.attention.scores import SCORE_STEPS

MAX_DEPTH = 64

_WEIGHT_VIEWS = ("Identity", "Transpose", "Cast", "Reshape", "DequantizeLinear")

_CONTINUED = {"Where": (1, 2), "Div": (0,), "Clip": (0,), "Expand": (0,), "Dropout": (0,)}
"""Which operands may hold the scores, where not all may."""

_FOREIGN = frozenset(
    (
        *("Abs", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish"),
        *("LeakyRelu", "Log", "LogSoftmax", "Max", "Mean", "Min", "Mish", "Mod", "Neg", "Pow"),
        *("PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Cos"),
        *("Softmax", "Softplus", "Softsign", "Sqrt", "Sum", "Swish", "Tanh", "ThresholdedRelu"),
        *("Add", "Sub", "Mul", "Div", "Clip", "Trilu", "Hardmax"),
    )
)
"""Ops that keep each score or weight in its place, whatever they make of it."""


class Origins:
    """Answers, for one graph, what scores lead back to. Each value is looked at once."""

    def __init__(self, e: Elements) -> None:
        self._e = e
        self._known: dict[str, int] = {}

    def leads(self, value: str, depth: int = 0) -> int:
        """`NOTHING`, `PROJECTION`, `DISTANT` or `PRODUCT`: what lies behind the ops on the way."""
        if value not in self._known:
            self._known[value] = NOTHING  # for what leads back to itself: nothing does
            self._known[value] = self._look(value, depth)
        return self._known[value]

    def _look(self, value: str, depth: int) -> int:
        graph = self._e.graph
        op = graph.producer(value)
        if op is None or depth > MAX_DEPTH:
            return NOTHING
        product = contraction(graph, op)
        if product is not None:
            return self._of_product(product, depth)
        if op.domain:
            return NOTHING
        if op.op_type not in SCORE_STEPS:
            return self._beyond(op, depth)
        single = op.op_type in ("Reshape", "Squeeze", "Unsqueeze")
        indices = (0,) if single else _CONTINUED.get(op.op_type, range(len(op.inputs)))
        return max((self.leads(op.inputs[n], depth + 1) for n in indices if op.input(n)), default=0)

    def _beyond(self, op: Op, depth: int) -> int:
        """Through an op that scores do not go through in any attention."""
        if op.op_type not in _FOREIGN:
            return NOTHING
        shape = self._e.shape(op.outputs[0])
        same = [name for name in op.inputs if name and self._e.shape(name) == shape]
        far = any(self.leads(name, depth + 1) >= DISTANT for name in same)
        return DISTANT if far else NOTHING

    def _of_product(self, product: Contraction, depth: int) -> int:
        """A product of two activations, or a projection, maybe of scores (which mixes heads)."""
        data = [name for name in product.operands if not self._is_weight(name)]
        if len(data) == 2:
            return PRODUCT
        mixed = any(self.leads(name, depth + 1) == PRODUCT for name in data)
        return PRODUCT if mixed else PROJECTION

    @cached_property
    def _order(self) -> dict[str, int]:
        """The place of each op; rewriting attention takes ops out and turns none round."""
        return {op.name: n for n, op in enumerate(self._e.graph.topological())}

    def depends(self, value: str, op: Op) -> bool:
        """Whether a value is computed from what an op makes. Only ops behind it are looked at."""
        first, seen, queue = self._order.get(op.name, 0), dict[str, None](), [value]
        while queue:
            maker = self._e.graph.producer(queue.pop())
            if maker is None or maker.name in seen or self._order.get(maker.name, first) < first:
                continue
            if maker.name == op.name:
                return True
            seen[maker.name] = None
            queue += self._e.graph.reads(maker)
        return False

    def is_projection(self, product: Contraction) -> bool:
        """Whether a product has a stored matrix for one of its operands."""
        return any(map(self._is_weight, product.operands))

    def _is_weight(self, value: str) -> bool:
        """Whether a value is a stored matrix, maybe transposed or dequantised."""
        graph = self._e.graph
        for _ in range(8):
            constant = graph.constant(value)
            if constant is not None:
                return len(constant.type.shape or ()) <= 2
            op = graph.producer(value)
            if op is None or not op.is_(*_WEIGHT_VIEWS):
                return False
            value = op.inputs[0]
        return False

    def is_attention(self, anchor: Anchor) -> bool:
        """Whether this softmax stands between two products of activations."""
        found = self.leads(anchor.input)
        return found >= DISTANT and self._feeds_product(anchor, plain=found == PRODUCT)

    def _feeds_product(self, anchor: Anchor, plain: bool) -> bool:
        """Whether the weights reach a product; ``plain``: one with a stored matrix is enough."""
        seen: dict[str, None] = {}
        queue = [(anchor.output, plain)]
        while queue and len(seen) < MAX_DEPTH:
            value, near = queue.pop()
            if value in seen:
                continue
            seen[value] = None
            for op, name in readers(self._e, value):
                product = contraction(self._e.graph, op)
                if product is not None and name in product.operands:
                    if near or not self.is_projection(product):
                        return True
                elif not op.domain and op.op_type in PROBABILITY_STEPS:
                    queue += [(o, near) for o in op.outputs if o]
                elif not op.domain and op.op_type in _FOREIGN:
                    shape = self._e.shape(name)
                    queue += [(o, False) for o in op.outputs if o and self._e.shape(o) == shape]
        return False
