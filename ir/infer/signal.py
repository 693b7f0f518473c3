"""Shapes of Fourier transforms and of the ops around them."""

from __future__ import annotations

from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.infer.node import Node, Rule, Shapes


def dft(node: Node) -> Shapes:
    """The axis cut or padded to ``dft_length``, halved by ``onesided``, restored by its inverse."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    rank, old = len(shape), node.version < 20
    given = int(node.op.attr("axis", 1)) if old else node.scalar(2) if node.has(2) else -2
    if not isinstance(given, int):
        return ((None,) * rank,)
    axis = node.front(given, rank)
    length: Dim | None = node.scalar(1) if node.has(1) else shape[axis]
    onesided, inverse = bool(node.op.attr("onesided", 0)), bool(node.op.attr("inverse", 0))
    parts = 1 if onesided and inverse else 2
    if onesided and inverse and not node.has(1):
        length = (shape[axis] - 1) * 2
    elif onesided and not inverse and length is not None:
        length = floordiv(length, 2) + 1
    return ((*shape[:axis], length, *shape[axis + 1 : -1], parts),)


def stft(node: Node) -> Shapes:
    """(batch, frames, bins, 2)."""
    signal, window = node.shape(0), node.shape(2)
    batch, size = (None, None) if signal is None else signal[:2]
    step = node.scalar(1)
    length: Dim | None = node.scalar(3) if node.has(3) else None
    if length is None and window:
        length = window[0]
    bins = length
    if length is not None and node.op.attr("onesided", 1):
        bins = floordiv(length, 2) + 1
    frames = None
    if size is not None and length is not None and step is not None and step != 0:
        frames = floordiv(size - length, step) + 1
    return ((batch, frames, bins, 2),)


def mel_weight_matrix(node: Node) -> Shapes:
    """(floor(dft_length / 2) + 1, num_mel_bins)."""
    bins, length = node.scalar(0), node.scalar(1)
    return ((None if length is None else floordiv(length, 2) + 1, bins),)


def window(node: Node) -> Shapes:
    """As many elements as the scalar input says."""
    return ((node.scalar(0),),)


RULES: dict[str, Rule] = {
    "DFT": dft,
    "STFT": stft,
    "MelWeightMatrix": mel_weight_matrix,
    "HannWindow": window,
    "HammingWindow": window,
    "BlackmanWindow": window,
}
