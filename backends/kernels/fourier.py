"""DFT and STFT of ONNX (DFT-20, STFT-17), by numpy's FFT.

It works in the input's precision, in single precision for narrower types. ONNX holds complex
numbers as pairs in the last axis.
"""

from __future__ import annotations

import numpy as np

from gecompiler.ir.constants import Array


def dft(x: Array, length: int | None, axis: int, *, inverse: bool, onesided: bool) -> Array:
    """The transform of pairs (or lone reals) ``[..., 1 or 2]`` along ``axis``.

    ``length`` cuts the axis or fills it with zeros. ``onesided`` forwards keeps the first half of
    the spectrum of a real signal; backwards it makes a real signal ``[..., 1]`` of such a half.
    ValueError for an axis out of range or an empty transform.
    """
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise ValueError(f"expected [..., 1] or [..., 2], found {list(x.shape)}")
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1:
        raise ValueError(f"axis {axis} is no signal axis of {list(x.shape)}")
    axis %= x.ndim
    signal = _complex(x)
    if onesided and inverse:
        real = np.fft.irfft(signal, n=length, axis=axis)
        return real[..., None].astype(x.dtype)
    if onesided:
        if x.shape[-1] != 1:
            raise ValueError("a one-sided spectrum is one of real numbers")
        return _pairs(np.fft.rfft(signal.real, n=length, axis=axis), x)
    transform = np.fft.ifft if inverse else np.fft.fft
    return _pairs(transform(signal, n=length, axis=axis), x)


def stft(signal: Array, step: int, window: Array | None, length: int, *, onesided: bool) -> Array:
    """Spectra ``[batch, frames, bins, 2]`` of frames ``step`` apart of ``[batch, n, 1 or 2]``.

    ValueError for a frame that does not fit, and for one side of a complex signal's spectrum.
    """
    count = signal.shape[1]
    if step < 1 or not 0 < length <= count:
        raise ValueError(f"no frames of {length}, {step} apart, in a signal of {count}")
    starts = np.arange(0, count - length + 1, step)
    frames = _complex(signal)[:, starts[:, None] + np.arange(length)]
    if window is not None:
        if window.shape != (length,):
            raise ValueError(f"a window of {list(window.shape)} for frames of {length}")
        frames = frames * window.astype(frames.real.dtype)
    if not onesided:
        return _pairs(np.fft.fft(frames, axis=-1), signal)
    if signal.shape[-1] != 1:
        raise ValueError("a one-sided spectrum is one of real numbers")
    return _pairs(np.fft.rfft(frames.real, axis=-1), signal)


def _complex(x: Array) -> Array:
    wide = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    found = np.zeros(x.shape[:-1], np.result_type(wide.dtype, np.complex64))
    found.real = wide[..., 0]
    if x.shape[-1] == 2:
        found.imag = wide[..., 1]
    return found


def _pairs(x: Array, like: Array) -> Array:
    return np.stack((x.real, x.imag), axis=-1).astype(like.dtype)
