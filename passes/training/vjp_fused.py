"""Gradients of norms, activations, rotary embedding and attention: an op of its own for each."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.block_ops import (
    ACTIVATIONS,
    NORMS,
    ROTARY_EMBEDDING,
    Activation,
    Norm,
    NormInputs,
)
from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.training_ops import (
    FLASH_ATTENTION_GRAD,
    LAYER_NORM_GRAD,
    RMS_NORM_GRAD,
    ROTARY_GRAD,
)
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.site import Gradients, Rule, Site


def _norm_grad(
    site: Site, centred: bool, x: str, scale: str, wanted: tuple[bool, bool], attrs: dict[str, Attr]
) -> tuple[str, str, str]:
    """dX, dscale and dshift; those not ``wanted`` are ``""``."""
    t = site.tape
    kind = t.type(x)
    axis = attrs["axis"]
    assert isinstance(axis, int)
    axis %= len(kind.sizes)
    rows = TensorType(kind.dtype, kind.sizes[axis:])
    if scale:
        rows = TensorType(t.dtype(scale), rows.shape)
    types = [kind, *(rows if want else None for want in wanted)]
    name = LAYER_NORM_GRAD if centred else RMS_NORM_GRAD
    found = t.own(name, [site.dy, x, *([scale] if scale else [])], *types, attrs=attrs)
    return found[0], found[1], found[2]


def _norm(site: Site) -> Gradients:
    """Of a norm behind a sum, the sum's own gradient is added to that of what is normalised."""
    t, op = site.tape, site.op
    spec, names = Norm.of(op), NormInputs.of(op)
    slot = {"scale": 1 + spec.adds, "shift": 2 + spec.adds, "bias": 3 if not spec.adds else 4}
    x = t.saved(op.outputs[1]) if spec.adds else t.saved(names.x)
    scale = t.saved(names.scale) if names.scale else ""
    wanted = (site.wants(slot["scale"]), site.wants(slot["shift"]))
    attrs: dict[str, Attr] = {"axis": spec.axis, "epsilon": spec.epsilon, "offset": spec.offset}
    found: Gradients = {}
    dx = site.grads[1] if len(site.grads) > 1 else None
    if site.grads[0] is not None:
        through, dscale, dshift = _norm_grad(site, spec.centred, x, scale, wanted, attrs)
        dx = through if dx is None else t.add(through, dx)
        if dscale:
            found[slot["scale"]] = t.sum_to(dscale, t.shape(names.scale))
        if dshift:
            shift = t.cast(dshift, t.dtype(names.shift))
            found[slot["shift"]] = t.sum_to(shift, t.shape(names.shift))
    assert dx is not None
    found[0] = dx
    if spec.adds:
        found[1] = dx
    if spec.adds and site.wants(slot["bias"]):
        found[slot["bias"]] = t.sum_to(dx, t.shape(names.bias))
    return found


def _onnx_norm(site: Site) -> Gradients:
    """LayerNormalization and RMSNormalization of ai.onnx."""
    t, op = site.tape, site.op
    if any(grad is not None for grad in site.grads[1:]):
        site.fail("has no gradient here for its mean and deviation")
    axis, epsilon = int(op.attr("axis", -1)), float(op.attr("epsilon", 1e-5))
    attrs: dict[str, Attr] = {"axis": axis, "epsilon": epsilon, "offset": 0.0}
    centred = op.op_type == "LayerNormalization"
    wanted = (site.wants(1), site.wants(2))
    dx, dscale, dshift = _norm_grad(site, centred, site.x(0), site.x(1), wanted, attrs)
    found = {0: dx}
    if dscale:
        found[1] = t.sum_to(dscale, site.shape(1))
    if dshift:
        found[2] = t.sum_to(dshift, site.shape(2))
    return found


def _batch_norm(site: Site) -> Gradients:
    """In inference mode: scale and shift by channel, with the moments as they are."""
    t, shape = site.tape, site.shape(0)
    channels = (shape[1], *(1,) * (len(shape) - 2))
    over = [i for i in range(len(shape)) if i != 1]
    deviation = t.unary("Sqrt", t.shifted(site.x(4), float(site.op.attr("epsilon", 1e-5))))
    found: Gradients = {}
    if site.wants(0):
        factor = t.binary("Div", site.x(1), deviation)
        found[0] = t.mul(site.dy, t.reshape(factor, channels))
    if site.wants(1):
        centred = t.binary("Sub", site.x(0), t.reshape(site.x(3), channels))
        total = t.reduce("ReduceSum", t.mul(site.dy, centred), over)
        found[1] = t.binary("Div", total, deviation)
    if site.wants(2):
        found[2] = t.reduce("ReduceSum", site.dy, over)
    return found


def _activation(site: Site, spec: Activation, up: str, bias: str) -> Gradients:
    """dX, and dup where something else is gated; a bias takes dX summed."""
    t = site.tape
    inputs = [site.dy, site.x(0), *([up] if spec.gated else []), bias]
    types: list[TensorType | None] = [site.type(0)]
    if spec.gated and up:
        types.append(t.type(up))
    made = t.own(f"{spec.op_type}Grad", inputs, *types, attrs=spec.attrs())
    found = {0: made[0]}
    if len(made) > 1:
        found[1] = made[1]
    slot = 2 if spec.gated else 1
    if bias and site.wants(slot):
        found[slot] = t.sum_to(made[0], site.shape(slot))
    return found


def _own_activation(site: Site) -> Gradients:
    spec = Activation.of(site.op)
    return _activation(site, spec, site.x(1) if spec.gated else "", site.x(2 if spec.gated else 1))


def _plain(function: str) -> Rule:
    """An activation of ai.onnx that is one of ours."""

    def rule(site: Site) -> Gradients:
        spec = Activation(function)
        if function == "Gelu" and site.op.attr("approximate") in ("tanh", b"tanh"):
            spec = replace(spec, approximate="tanh")
        if function == "Silu":
            spec = replace(spec, alpha=float(site.op.attr("alpha", 1.0)))
        return _activation(site, spec, "", "")

    return rule


def _rotary(site: Site) -> Gradients:
    if site.wants(1) or site.wants(2):
        site.fail("has no gradient here for its tables")
    inputs = [site.dy, site.x(1), site.x(2)]
    return {0: site.tape.own(ROTARY_GRAD, inputs, site.type(0), attrs=site.op.attrs)[0]}


def _attention(site: Site) -> Gradients:
    t, op = site.tape, site.op
    if len(site.grads) > 1 and site.grads[1] is not None:
        site.fail("has no gradient here for its log-sum-exp (keys in parts)")
    given = [site.x(i) for i in range(3)]
    types = [site.type(i) for i in range(3)]
    mask, sinks = site.x(3), site.x(4)
    more = [site.type(i) if site.wants(i) else None for i in (4, 3)]
    inputs = [site.dy, *given, site.y(0), site.y(1), mask, sinks]
    made = t.own(FLASH_ATTENTION_GRAD, inputs, *types, *more, attrs=op.attrs)
    found = {i: made[i] for i in range(3)}
    if made[3]:
        found[4] = made[3]
    if made[4]:
        found[3] = made[4]
    return found


def needs_more(op: Op) -> bool:
    """Whether the gradient needs an output that the op may have left out."""
    if op.domain != GE_DOMAIN or len(op.outputs) > 1:
        return False
    return op.op_type == FLASH_ATTENTION or (op.op_type in NORMS and Norm.of(op).adds)


RULES: dict[str, Rule] = {
    **{f"{GE_DOMAIN}.{name}": _norm for name in NORMS},
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _onnx_norm),
    "BatchNormalization": _batch_norm,
    **{f"{GE_DOMAIN}.{name}": _own_activation for name in ACTIVATIONS},
    "Gelu": _plain("Gelu"),
    "Relu": _plain("Relu"),
    "Sigmoid": _plain("Sigmoid"),
    "Tanh": _plain("Tanh"),
    "Swish": _plain("Silu"),
    f"{GE_DOMAIN}.{ROTARY_EMBEDDING}": _rotary,
    f"{GE_DOMAIN}.{FLASH_ATTENTION}": _attention,
}
