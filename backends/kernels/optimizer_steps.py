"""Steps of optimisers in numbers; `training_ops` defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gecompiler.backends.kernels.gradients import wide_type
from gecompiler.ir.constants import Array
from gecompiler.ir.training_ops import MOMENTS


def optimizer_step(
    op_type: str, inputs: Sequence[Array | None], attrs: Mapping[str, Any]
) -> list[Array]:
    """The parameter, its moments and its master copy after the step, in the op's order."""
    count = MOMENTS[op_type]
    param, grad, rate = (np.asarray(a) for a in inputs[:3])
    rest = [a for a in inputs[3:] if a is not None]
    step = int(rest.pop(0)) if count > 1 else 0
    moments, master = rest[:count], rest[count:]
    wide: Any = wide_type(param)
    p = (master[0] if master else param).astype(wide)
    g = grad.astype(wide) * wide.type(attrs.get("grad_scale", 1.0))
    lr, decay = wide.type(rate), wide.type(attrs.get("weight_decay", 0.0))
    if op_type == "ApplyAdamW":
        p = p - lr * decay * p
    else:
        g = g + decay * p
    m = [a.astype(wide) for a in moments]
    if op_type == "ApplySgd":
        p = p - lr * g
    elif op_type == "ApplyMomentum":
        mu = wide.type(attrs.get("momentum", 0.9))
        m[0] = mu * m[0] + g
        p = p - lr * (g + mu * m[0] if attrs.get("nesterov", 0) else m[0])
    else:
        b1, b2 = float(attrs.get("beta1", 0.9)), float(attrs.get("beta2", 0.999))
        m[0] = wide.type(b1) * m[0] + wide.type(1 - b1) * g
        m[1] = wide.type(b2) * m[1] + wide.type(1 - b2) * g * g
        mean = m[0] / wide.type(1 - b1**step)
        root = np.sqrt(m[1] / wide.type(1 - b2**step))
        p = p - lr * mean / (root + wide.type(attrs.get("epsilon", 1e-8)))
    made = [p.astype(param.dtype)]
    made += [value.astype(old.dtype) for value, old in zip(m, moments, strict=True)]
    return made + [p.astype(master[0].dtype) for _ in master]
