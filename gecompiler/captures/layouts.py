"""Shapes as models write them, from the layouts that the operator library stores."""

from __future__ import annotations

from gecompiler.captures.read import Operand


def logical(operand: Operand) -> tuple[int, ...]:
    """The shape without blocks: channels and matrices whole, padded as they are stored.

    FRACTAL_NZ (..., N1, M1, M0, N0) is a matrix (..., M, N); NC1HWC0 (N, C1, H, W, C0) is
    (N, C, H, W), NDC1HWC0 likewise with a depth. Other layouts stay as they are.
    """
    shape, layout = operand.shape, operand.layout
    if layout == "FRACTAL_NZ" and len(shape) >= 4:
        *rest, n1, m1, m0, n0 = shape
        return (*rest, m1 * m0, n1 * n0)
    if layout == "NC1HWC0" and len(shape) == 5:
        n, c1, h, w, c0 = shape
        return (n, c1 * c0, h, w)
    if layout == "NDC1HWC0" and len(shape) == 6:
        n, d, c1, h, w, c0 = shape
        return (n, c1 * c0, d, h, w)
    return shape


def channels_first(operand: Operand) -> tuple[int, ...]:
    """An image's shape as (N, C, *pixels)."""
    shape = logical(operand)
    if operand.layout in ("NHWC", "NDHWC") and len(shape) >= 3:
        return (shape[0], shape[-1], *shape[1:-1])
    return shape


def filters(operand: Operand, channels: int) -> tuple[int, ...] | None:
    """A filter's shape as (M, C, *kernel); the kernel flat where blocks hide its sides.

    FRACTAL_Z (C1 * kernel, M1, M0, C0) gives C1 * kernel together; ``channels`` of the image
    (as stored, in whole blocks) tells them apart. None where that does not come out even.
    """
    shape = operand.shape
    if operand.layout.startswith("FRACTAL_Z") and len(shape) == 4:
        rows, m1, m0, c0 = shape
        blocks = -(-channels // c0) if c0 else 0
        if not blocks or rows % blocks:
            return None
        return (m1 * m0, channels, rows // blocks, 1)
    if operand.layout == "HWCN" and len(shape) == 4:
        return (shape[3], shape[2], shape[0], shape[1])
    if operand.layout == "NHWC" and len(shape) == 4:
        return (shape[0], shape[3], shape[1], shape[2])
    return shape if len(shape) >= 3 else None


def turns(a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...]) -> tuple[bool, bool] | None:
    """Which of two matrices is stored turned, so that (m, k) by (k, n) gives ``out``.

    Sizes agree when they are equal, or equal in whole blocks of 16. The plain form is tried
    first; None where no form fits.
    """
    if min(len(a), len(b), len(out)) < 2:
        return None
    for turn_b in (False, True):
        for turn_a in (False, True):
            m, k = (a[-1], a[-2]) if turn_a else (a[-2], a[-1])
            k2, n = (b[-1], b[-2]) if turn_b else (b[-2], b[-1])
            if _agree(k, k2) and _agree(m, out[-2]) and _agree(n, out[-1]):
                return turn_a, turn_b
    return None


def _agree(one: int, other: int) -> bool:
    return one == other or -(-one // 16) == -(-other // 16)
