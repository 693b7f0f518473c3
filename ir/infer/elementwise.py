"""Shapes of elementwise ops: outputs like the first input, or inputs broadcast together."""

from __future__ import annotations

from gecompiler.ir.infer.node import Node, Rule, Shapes


def like_first(node: Node) -> Shapes:
    """Every output has the first input's shape."""
    return (node.shape(0),) * len(node.op.outputs)


def broadcast_all(node: Node) -> Shapes:
    """All inputs broadcast together (numpy's rule, multidirectional)."""
    shapes = []
    for index in range(len(node.op.inputs)):
        shape = node.shape(index)
        if shape is None:
            return (None,)
        shapes.append(shape)
    return (node.broadcast(shapes),)


def scalars_beside(node: Node) -> Shapes:
    """The first output like the first input, the others scalars (DynamicQuantizeLinear)."""
    return (node.shape(0), *(() for _ in node.op.outputs[1:]))


_LIKE_FIRST = """
Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh
CumProd CumSum DequantizeLinear Dropout Elu Erf Exp EyeLike Floor Gelu GroupNormalization
HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LeakyRelu Log
LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu QuantizeLinear
RMSNormalization RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence
RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh
Softmax Softplus Softsign Sqrt Swish Tan Tanh TensorScatter ThresholdedRelu Trilu
"""

_BROADCAST = """
Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual
Max Mean Min Mod Mul Or Pow StringConcat Sub Sum Where Xor
"""

RULES: dict[str, Rule] = {
    **dict.fromkeys(_LIKE_FIRST.split(), like_first),
    **dict.fromkeys(_BROADCAST.split(), broadcast_all),
    "DynamicQuantizeLinear": scalars_beside,
}
