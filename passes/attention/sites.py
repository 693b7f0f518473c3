"""Which softmaxes are attention: fed by a product of two activations, and feeding another."""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.passes.attention.anchors import Anchor
from gecompiler.passes.attention.contraction import Contraction, contraction
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.noops import readers
from gecompiler.passes.attention.probabilities import PROBABILITY_STEPS
from gecompiler.passes.attention.scores import SCORE_STEPS

MAX_DEPTH = 64

NOTHING, PROJECTION, PRODUCT = 0, 1, 2
"""What a value leads back to: no product, one with a weight matrix, one of two activations."""

_WEIGHT_VIEWS = ("Identity", "Transpose", "Cast", "Reshape", "DequantizeLinear")

_CONTINUED = {"Where": (1, 2), "Div": (0,), "Clip": (0,), "Expand": (0,), "Dropout": (0,)}
"""Which operands may hold the scores, where not all may."""


class Origins:
    """Answers, for one graph, what scores lead back to. Each value is looked at once."""

    def __init__(self, e: Elements) -> None:
        self._e = e
        self._known: dict[str, int] = {}

    def leads(self, value: str, depth: int = 0) -> int:
        """`NOTHING`, `PROJECTION` or `PRODUCT`, by way of ops that scores may go through."""
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
        if op.domain or op.op_type not in SCORE_STEPS:
            return NOTHING
        single = op.op_type in ("Reshape", "Squeeze", "Unsqueeze")
        indices = (0,) if single else _CONTINUED.get(op.op_type, range(len(op.inputs)))
        return max((self.leads(op.inputs[n], depth + 1) for n in indices if op.input(n)), default=0)

    def _of_product(self, product: Contraction, depth: int) -> int:
        """A product of two activations, or a projection, maybe of scores (which mixes heads)."""
        data = [name for name in product.operands if not self._is_weight(name)]
        if len(data) == 2:
            return PRODUCT
        mixed = any(self.leads(name, depth + 1) == PRODUCT for name in data)
        return PRODUCT if mixed else PROJECTION

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
        return self.leads(anchor.input) == PRODUCT and self._feeds_product(anchor)

    def _feeds_product(self, anchor: Anchor) -> bool:
        seen: dict[str, None] = {}
        queue = [anchor.output]
        while queue and len(seen) < MAX_DEPTH:
            value = queue.pop()
            if value in seen:
                continue
            seen[value] = None
            for op, name in readers(self._e, value):
                if self._takes_weights(op, name):
                    return True
                if not op.domain and op.op_type in PROBABILITY_STEPS:
                    queue += [o for o in op.outputs if o]
        return False

    def _takes_weights(self, op: Op, value: str) -> bool:
        product = contraction(self._e.graph, op)
        return product is not None and value in product.operands
