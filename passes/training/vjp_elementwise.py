"""Gradients of ops that work element by element, and of what broadcasting repeats."""

from __future__ import annotations

import math
from collections.abc import Callable

from gecompiler.passes.training.site import Gradients, Rule, Site
from gecompiler.passes.training.tape import Tape


def _unary(slope: Callable[[Site, Tape], str]) -> Rule:
    """Gives dY times a slope, which is written in terms of the input or the output."""

    def rule(site: Site) -> Gradients:
        return {0: site.tape.mul(site.dy, slope(site, site.tape))}

    return rule


def _over(divisor: Callable[[Site, Tape], str], factor: float = 1.0) -> Rule:
    """Gives dY over what is given, times a number."""

    def rule(site: Site) -> Gradients:
        t = site.tape
        return {0: t.scaled(t.binary("Div", site.dy, divisor(site, t)), factor)}

    return rule


def _square(t: Tape, x: str) -> str:
    return t.mul(x, x)


def _one_less(t: Tape, x: str) -> str:
    """1 - x^2."""
    return t.shifted(t.negated(_square(t, x)), 1)


def _erf(site: Site, t: Tape) -> str:
    power = t.unary("Exp", t.negated(_square(t, site.x(0))))
    return t.scaled(power, 2 / math.sqrt(math.pi))


def _number(site: Site, name: str, default: float) -> float:
    return float(site.op.attr(name, default))


def _above(site: Site, bound: float = 0.0) -> str:
    """Where X is above a number."""
    t = site.tape
    return t.compare("Greater", site.x(0), t.number(bound, t.dtype(site.op.inputs[0])))


def _leaky_relu(site: Site) -> Gradients:
    t, alpha = site.tape, _number(site, "alpha", 0.01)
    return {0: t.where(_above(site), site.dy, t.scaled(site.dy, alpha))}


def _exponential(site: Site, alpha: float, gamma: float, steepness: float) -> Gradients:
    """Slope of gamma x above 0, gamma alpha (exp(steepness x) - 1) below."""
    t = site.tape
    power = t.unary("Exp", t.scaled(site.x(0), steepness))
    below = t.scaled(t.mul(site.dy, power), gamma * alpha * steepness)
    return {0: t.where(_above(site), t.scaled(site.dy, gamma), below)}


def _elu(site: Site) -> Gradients:
    return _exponential(site, _number(site, "alpha", 1.0), 1.0, 1.0)


def _selu(site: Site) -> Gradients:
    alpha = _number(site, "alpha", 1.67326319217681884765625)
    return _exponential(site, alpha, _number(site, "gamma", 1.05070102214813232421875), 1.0)


def _celu(site: Site) -> Gradients:
    alpha = _number(site, "alpha", 1.0)
    return _exponential(site, alpha, 1.0, 1 / alpha)


def _thresholded_relu(site: Site) -> Gradients:
    return {0: site.tape.where(_above(site, _number(site, "alpha", 1.0)), site.dy)}


def _between(site: Site, low: str, high: str) -> str:
    """Where X is from ``low`` to ``high``, of which either may be absent."""
    t, x = site.tape, site.x(0)
    kept = ""
    for bound, op_type in ((low, "Less"), (high, "Greater")):
        if bound:
            inside = t.unary("Not", t.compare(op_type, x, bound))
            kept = t.binary("And", kept, inside) if kept else inside
    return kept


def _clip(site: Site) -> Gradients:
    t, dtype = site.tape, site.type(0).dtype
    low, high = site.x(1), site.x(2)
    for name in ("min", "max"):
        if site.op.attr(name) is not None:
            bound = t.number(float(site.op.attr(name)), dtype)
            low, high = (bound, high) if name == "min" else (low, bound)
    kept = _between(site, low, high)
    return {0: t.where(kept, site.dy) if kept else site.dy}


def _hard_sigmoid(site: Site) -> Gradients:
    t, dtype = site.tape, site.type(0).dtype
    alpha, beta = _number(site, "alpha", 0.2), _number(site, "beta", 0.5)
    low, high = (t.number(b, dtype) for b in sorted((-beta / alpha, (1 - beta) / alpha)))
    return {0: t.where(_between(site, low, high), t.scaled(site.dy, alpha))}


def _hard_swish(site: Site) -> Gradients:
    """Slope of x (x + 3) / 6 between -3 and 3: (2 x + 3) / 6."""
    t, dtype = site.tape, site.type(0).dtype
    low, high = t.number(-3, dtype), t.number(3, dtype)
    slope = t.shifted(t.scaled(site.x(0), 1 / 3), 0.5)
    inner = t.where(_between(site, low, high), t.mul(site.dy, slope))
    return {0: t.add(inner, t.where(_above(site, 3.0), site.dy))}


def _mish(site: Site) -> Gradients:
    """Slope of x tanh(softplus(x)): tanh + x (1 - tanh^2) sigmoid."""
    t, x = site.tape, site.x(0)
    curve = t.unary("Tanh", t.unary("Softplus", x))
    bend = t.mul(t.mul(x, _one_less(t, curve)), t.unary("Sigmoid", x))
    return {0: t.mul(site.dy, t.add(curve, bend))}


def _softsign(site: Site, t: Tape) -> str:
    return _square(t, t.shifted(t.unary("Abs", site.x(0)), 1))


# -------------------------------------------------------------------- several inputs


def _both(site: Site, index: int, grad: str) -> str:
    return site.tape.sum_to(grad, site.shape(index))


def _sum(site: Site) -> Gradients:
    return {i: _both(site, i, site.dy) for i in range(len(site.op.inputs)) if site.wants(i)}


def _mean(site: Site) -> Gradients:
    count = len(site.op.inputs)
    grad = site.tape.scaled(site.dy, 1 / count)
    return {i: _both(site, i, grad) for i in range(count) if site.wants(i)}


def _sub(site: Site) -> Gradients:
    found = {0: _both(site, 0, site.dy)} if site.wants(0) else {}
    if site.wants(1):
        found[1] = site.tape.negated(_both(site, 1, site.dy))
    return found


def _mul(site: Site) -> Gradients:
    t = site.tape
    return {i: _both(site, i, t.mul(site.dy, site.x(1 - i))) for i in range(2) if site.wants(i)}


def _div(site: Site) -> Gradients:
    t, found = site.tape, {}
    share = t.binary("Div", site.dy, site.x(1))
    if site.wants(0):
        found[0] = _both(site, 0, share)
    if site.wants(1):
        found[1] = t.negated(_both(site, 1, t.mul(share, site.y())))
    return found


def _pow(site: Site) -> Gradients:
    t, dtype, found = site.tape, site.type(0).dtype, {}
    if site.wants(0):
        constant = site.tape.graph.constant(site.op.inputs[1])
        exponent = None if constant is None else constant.scalar()
        if exponent is not None:
            slope = _power_slope(site, float(exponent))
        else:
            power = t.cast(site.x(1), dtype)
            slope = t.mul(power, t.binary("Pow", site.x(0), t.shifted(power, -1)))
        found[0] = _both(site, 0, t.mul(site.dy, slope))
    if site.wants(1):
        rise = t.mul(site.y(), t.unary("Log", site.x(0)))
        found[1] = _both(site, 1, t.cast(t.mul(site.dy, rise), site.type(1).dtype))
    return found


def _power_slope(site: Site, exponent: float) -> str:
    t, x = site.tape, site.x(0)
    if exponent == 2:
        return t.scaled(x, 2)
    lower = t.binary("Pow", x, t.number(exponent - 1, site.type(0).dtype))
    return t.scaled(lower, exponent)


def _extreme(site: Site) -> Gradients:
    """Max, Min: to the inputs that are the result, in equal parts where several are."""
    t, count, dtype = site.tape, len(site.op.inputs), site.type(0).dtype
    if count == 1:
        return {0: site.dy}
    masks = [t.cast(t.compare("Equal", site.x(i), site.y()), dtype) for i in range(count)]
    total = masks[0]
    for mask in masks[1:]:
        total = t.add(total, mask)
    share = t.binary("Div", site.dy, total)
    return {i: _both(site, i, t.mul(share, masks[i])) for i in range(count) if site.wants(i)}


def _where(site: Site) -> Gradients:
    t, condition, found = site.tape, site.x(0), {}
    if site.wants(1):
        found[1] = _both(site, 1, t.where(condition, site.dy))
    if site.wants(2):
        zero = t.number(0, t.dtype(site.dy))
        found[2] = _both(site, 2, t.where(condition, zero, site.dy))
    return found


def _prelu(site: Site) -> Gradients:
    t, found, positive = site.tape, {}, _above(site)
    if site.wants(0):
        found[0] = t.where(positive, site.dy, t.mul(site.dy, site.x(1)))
    if site.wants(1):
        zero = t.number(0, t.dtype(site.dy))
        found[1] = _both(site, 1, t.where(positive, zero, t.mul(site.dy, site.x(0))))
    return found


def _cast(site: Site) -> Gradients:
    kind = site.type(0).dtype
    return {0: site.tape.cast(site.dy, kind)} if kind.is_float else {}


def _flat(site: Site) -> Gradients:
    """Steps: the slope is 0 wherever there is one."""
    return {}


RULES: dict[str, Rule] = {
    "Abs": _unary(lambda s, t: t.unary("Sign", s.x(0))),
    "Neg": lambda s: {0: s.tape.negated(s.dy)},
    "Exp": _unary(lambda s, t: s.y()),
    "Log": _over(lambda s, t: s.x(0)),
    "Sqrt": _over(lambda s, t: s.y(), 0.5),
    "Reciprocal": _unary(lambda s, t: t.negated(_square(t, s.y()))),
    "Sin": _unary(lambda s, t: t.unary("Cos", s.x(0))),
    "Cos": _unary(lambda s, t: t.negated(t.unary("Sin", s.x(0)))),
    "Tan": _unary(lambda s, t: t.shifted(_square(t, s.y()), 1)),
    "Asin": _over(lambda s, t: t.unary("Sqrt", _one_less(t, s.x(0)))),
    "Acos": _over(lambda s, t: t.negated(t.unary("Sqrt", _one_less(t, s.x(0))))),
    "Atan": _over(lambda s, t: t.shifted(_square(t, s.x(0)), 1)),
    "Sinh": _unary(lambda s, t: t.unary("Cosh", s.x(0))),
    "Cosh": _unary(lambda s, t: t.unary("Sinh", s.x(0))),
    "Asinh": _over(lambda s, t: t.unary("Sqrt", t.shifted(_square(t, s.x(0)), 1))),
    "Acosh": _over(lambda s, t: t.unary("Sqrt", t.shifted(_square(t, s.x(0)), -1))),
    "Atanh": _over(lambda s, t: _one_less(t, s.x(0))),
    "Erf": _unary(_erf),
    "Softplus": _unary(lambda s, t: t.unary("Sigmoid", s.x(0))),
    "Softsign": _over(_softsign),
    "LeakyRelu": _leaky_relu,
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "ThresholdedRelu": _thresholded_relu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "Clip": _clip,
    "Add": _sum,
    "Sum": _sum,
    "Mean": _mean,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Pow": _pow,
    "Max": _extreme,
    "Min": _extreme,
    "Where": _where,
    "PRelu": _prelu,
    "Cast": _cast,
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign"), _flat),
}
"""Rules of ai.onnx by op type. ``Not`` and ``And`` work on booleans here."""
