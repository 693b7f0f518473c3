"""DFT and STFT against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.backends.kernels.fourier import dft, stft


def by_definition(signal, axis, *, inverse=False):
    """Sums of products, in double precision, over complex numbers."""
    n = signal.shape[axis]
    k = np.arange(n)
    turns = np.exp((2j if inverse else -2j) * np.pi * np.outer(k, k) / n)
    return np.moveaxis(np.tensordot(turns, signal, (1, axis)), 0, axis) / (n if inverse else 1)


def pairs(signal):
    return np.stack((signal.real, signal.imag), -1)


@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    parts=st.sampled_from((1, 2)),
    inverse=st.booleans(),
    data=st.data(),
)
def test_the_whole_spectrum(shape, parts, inverse, data):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape) - 1).filter(lambda a: a != -1))
    x = np.random.default_rng(0).normal(size=(*shape, parts))
    signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    found = dft(x, None, axis, inverse=inverse, onesided=False)
    where = axis % (len(shape) + 1)
    np.testing.assert_allclose(
        found, pairs(by_definition(signal, where, inverse=inverse)), atol=1e-9
    )


@given(n=st.integers(1, 9), length=st.none() | st.integers(1, 12))
def test_one_side_and_back(n, length):
    x = np.random.default_rng(n).normal(size=(2, n, 1)).astype(np.float32)
    half = dft(x, length, 1, inverse=False, onesided=True)
    count = length or n
    assert half.dtype == np.float32
    assert half.shape == (2, count // 2 + 1, 2)
    back = dft(half, count, 1, inverse=True, onesided=True)
    padded = np.zeros((2, count, 1), np.float32)
    padded[:, : min(n, count)] = x[:, :count]
    np.testing.assert_allclose(back, padded, atol=1e-5)


@given(
    count=st.integers(1, 20),
    length=st.integers(1, 20),
    step=st.integers(1, 7),
    windowed=st.booleans(),
)
def test_frames(count, length, step, windowed):
    rng = np.random.default_rng(count)
    x = rng.normal(size=(2, count, 1))
    window = rng.random(length) if windowed else None
    if length > count:
        with pytest.raises(ValueError, match="no frames"):
            stft(x, step, window, length, onesided=True)
        return
    found = stft(x, step, window, length, onesided=False)
    assert found.shape == (2, (count - length) // step + 1, length, 2)
    for frame in range(found.shape[1]):
        cut = x[:, frame * step : frame * step + length, 0] * (1 if window is None else window)
        np.testing.assert_allclose(found[:, frame], pairs(by_definition(cut + 0j, 1)), atol=1e-9)
    half = stft(x, step, window, length, onesided=True)
    np.testing.assert_allclose(half, found[:, :, : length // 2 + 1], atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "axis", "onesided", "words"),
    [
        ((4, 3), 0, False, "expected"),
        ((4, 2), 1, False, "no signal axis"),
        ((4, 2), 5, False, "no signal axis"),
        ((4, 2), 0, True, "one-sided"),
    ],
)
def test_what_makes_no_sense(shape, axis, onesided, words):
    with pytest.raises(ValueError, match=words):
        dft(np.ones(shape), None, axis, inverse=False, onesided=onesided)


def test_half_precision_is_worked_in_single():
    x = np.ones((1, 5, 1), np.float16)
    found = dft(x, None, 1, inverse=False, onesided=False)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found[0, :, 0], [5, 0, 0, 0, 0])
