"""The meaning of the ops that a training step adds: losses, gradients, steps of optimisers.

All are in the domain ``gecompiler``; they compute in float32 (float64 for float64) and round
once. dV is the gradient of the loss by V, of V's shape and type. ``?`` marks what may be left
out. The names are those of the Ascend operator library where it has such an op.

Gradients of fused ops, whose attributes they share (`block_ops`, `flash_attention`)::

    FlashAttentionGrad    dO, Q, K, V, O, lse, mask?, sinks?   -> dQ, dK, dV, dsinks?, dmask?
    RMSNormGrad, LayerNormGrad    dY, X, scale?                -> dX, dscale?, dshift?
    RotaryEmbeddingGrad   dY, cos, sin                         -> dX
    GeluGrad, SiluGrad, ReluGrad, ...    dY, X, bias?          -> dX
    GeluMulGrad, SiluMulGrad, ...        dY, X, up?, bias?     -> dX, dup?
    SoftmaxGrad, LogSoftmaxGrad          dY, Y                 -> dX      axis

``lse`` is the second output of FlashAttention. The X of a norm is what it normalises, a
residual included; ``dscale`` and ``dshift`` have the shape of the normalised axes. Of the
attributes of a norm ``axis``, ``epsilon`` and ``offset`` count.

Gradients of ops that pick elements: zeros of ``shape`` to which dY is added where the elements
came from::

    GatherGrad, GatherElementsGrad    dY, indices              -> dX      axis, shape
    GatherNDGrad                      dY, indices              -> dX      batch_dims, shape
    SliceGrad                         dY                       -> dX      shape, starts, steps

``starts`` and ``steps`` have one number for every axis. Gradients of a Conv, whose attributes
they share, with ``pads`` written out::

    ConvGradInput         dY, W                                -> dX      ..., shape
    ConvGradWeight        dY, X                                -> dW      ..., shape

Loss: the mean over all labels but ``ignore_index`` of lse(logits) - logits[label], where lse is
the log-sum-exp over the last axis. With ``shift`` = 1 the logits of a position are held against
the label of the next one, and the last position has none::

    CrossEntropy          logits (..., V), labels (...)        -> loss (), lse? (...)
    CrossEntropyGrad      dloss, logits, labels, lse           -> dlogits

Both take a ``count`` () as their sixth input, the number to divide by in the place of that of
their own labels: of a part of a batch, as many labels as the parts have in the mean.

Of logits that ranks have by words (Shoeybi et al. 2019, section 3) each makes its part; then lse
and the logits of the labels (hits) are summed over the ranks, and the loss follows of these.
``words`` are the numbers, from 1, of a rank's words, 0 for those that count elsewhere. The
gradient is of the sum of the losses of all ``ranks``, which are equal::

    CrossEntropyPart      logits (..., W), labels (...), words (W)      -> lse (...), hit (...)
    CrossEntropy          logits, labels, words, lse, hit               -> loss ()    ranks
    CrossEntropyGrad      dloss, logits, labels, lse, words             -> dlogits

Steps of optimisers. ``g`` is the gradient times ``grad_scale``; ``master`` is the parameter in
float32, from which a 16-bit parameter is rounded; it and the moments are of one type. ``step``
counts from 1, ``rate`` is the learning rate::

    ApplySgd        param, grad, rate, master?                 -> param, master?
    ApplyMomentum   param, grad, rate, m, master?              -> param, m, master?
    ApplyAdam       param, grad, rate, step, m, v, master?     -> param, m, v, master?
    ApplyAdamW      the same

Sgd: p - rate (g + decay p). Momentum: m = momentum m + g + decay p; p - rate m, with
``nesterov`` p - rate (g + decay p + momentum m). Adam (Kingma & Ba 2015): g + decay p in the
place of g; AdamW (Loshchilov & Hutter 2019): p - rate decay p first::

    m = beta1 m + (1 - beta1) g             v = beta2 v + (1 - beta2) g g
    p = p - rate (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon)

as torch.optim has them.
"""

from __future__ import annotations

from gecompiler.ir.block_ops import ACTIVATIONS
from gecompiler.ir.op import GE_DOMAIN, Op

FORWARD, RECOMPUTE, BACKWARD, SYNC, OPTIMIZER = (
    "forward",
    "recompute",
    "backward",
    "sync",
    "optimizer",
)
PHASES = (FORWARD, RECOMPUTE, BACKWARD, SYNC, OPTIMIZER)
"""The parts of a training step, as `OpInfo.phase` has them."""

GRADIENT_SYNC, PARAMETER_GATHER = "GradientSync", "ParameterGather"
"""`OpInfo.group` of what sums gradients over ranks, and of what gathers parameters from them."""

FLASH_ATTENTION_GRAD = "FlashAttentionGrad"
RMS_NORM_GRAD, LAYER_NORM_GRAD = "RMSNormGrad", "LayerNormGrad"
NORM_GRADS = (RMS_NORM_GRAD, LAYER_NORM_GRAD)
ROTARY_GRAD = "RotaryEmbeddingGrad"
ACTIVATION_GRADS = tuple(f"{name}Grad" for name in ACTIVATIONS)
SOFTMAX_GRADS = ("SoftmaxGrad", "LogSoftmaxGrad")
GATHER_GRADS = ("GatherGrad", "GatherElementsGrad", "GatherNDGrad")
SLICE_GRAD = "SliceGrad"
CONV_GRADS = ("ConvGradInput", "ConvGradWeight")
CROSS_ENTROPY, CROSS_ENTROPY_GRAD = "CrossEntropy", "CrossEntropyGrad"
CROSS_ENTROPY_PART = "CrossEntropyPart"
OPTIMIZERS = ("ApplySgd", "ApplyMomentum", "ApplyAdam", "ApplyAdamW")

MOMENTS = {"ApplySgd": 0, "ApplyMomentum": 1, "ApplyAdam": 2, "ApplyAdamW": 2}
"""How many moments each optimiser keeps of a parameter."""

ARITY: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    FLASH_ATTENTION_GRAD: ((6, 8), (3, 5)),
    **dict.fromkeys(NORM_GRADS, ((2, 3), (1, 3))),
    ROTARY_GRAD: ((3, 3), (1, 1)),
    **{n: ((2, 4), (1, 2)) if "Mul" in n else ((2, 3), (1, 1)) for n in ACTIVATION_GRADS},
    **dict.fromkeys(SOFTMAX_GRADS, ((2, 2), (1, 1))),
    **dict.fromkeys(GATHER_GRADS, ((2, 2), (1, 1))),
    SLICE_GRAD: ((1, 1), (1, 1)),
    **dict.fromkeys(CONV_GRADS, ((2, 2), (1, 1))),
    CROSS_ENTROPY: ((2, 6), (1, 2)),
    CROSS_ENTROPY_PART: ((3, 3), (2, 2)),
    CROSS_ENTROPY_GRAD: ((4, 6), (1, 1)),
    **{n: ((3 + k + (k > 1), 4 + k + (k > 1)), (1 + k, 2 + k)) for n, k in MOMENTS.items()},
}
"""Fewest and most inputs, fewest and most outputs."""


def is_training_op(op: Op) -> bool:
    """Whether the op is one that a training step adds."""
    return op.domain == GE_DOMAIN and op.op_type in ARITY


def is_optimizer(op: Op) -> bool:
    """Whether the op is an optimiser's step of one parameter."""
    return op.domain == GE_DOMAIN and op.op_type in OPTIMIZERS


def master_slot(op: Op) -> int:
    """Which input of an optimiser's step holds the master copy, if there is one."""
    moments = MOMENTS[op.op_type]
    return 3 + moments + (moments > 1)
