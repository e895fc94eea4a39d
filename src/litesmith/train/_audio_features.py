# SPDX-License-Identifier: Apache-2.0
"""Mel-frequency cepstral coefficients: what keyword nets take instead of the sound itself.

Windows of the sound, Hann-weighted; the power spectrum summed into triangles of equal width on the mel scale
(2595 · log₁₀(1 + f / 700)); its logarithm; and of that the discrete cosine transform (Davis and Mermelstein, 1980).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SAMPLE_RATE = 16_000
_BANDS, _LOWEST_HZ, _HIGHEST_HZ = 40, 20.0, 4000.0


def takes_coefficients(shape: Sequence[int]) -> bool:
    """Say whether an input for sounds takes coefficients, frame by frame, and not the sound itself."""
    return len(shape) in (3, 4) and shape[1] > 1


def mfcc(sound: Array, frames: int, coefficients: int, *, sample_rate: int = SAMPLE_RATE) -> Array:
    """Return (frames, coefficients) of a sound; windows overlap by half and share the sound out evenly."""
    from scipy.fft import dct

    stride = len(sound) // (frames + 1)
    window = 2 * stride
    places = np.arange(frames)[:, None] * stride + np.arange(window)[None]
    weighted = sound[places] * np.hanning(window + 1)[:-1]
    power = np.abs(np.fft.rfft(weighted, axis=1)) ** 2
    energies = power @ _triangles(window, sample_rate).T
    cepstrum: Array = dct(np.log(energies + 1e-3), type=2, norm="ortho", axis=1)[:, :coefficients]
    return cepstrum.astype(np.float32)


def _triangles(window: int, sample_rate: int) -> Array:
    def mel(hertz: Any) -> Any:
        return 2595.0 * np.log10(1.0 + np.asarray(hertz) / 700.0)

    corners = np.linspace(mel(_LOWEST_HZ), mel(_HIGHEST_HZ), _BANDS + 2)
    bins = mel(np.fft.rfftfreq(window, 1 / sample_rate))[None]
    left, middle, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    triangles: Array = np.maximum(np.minimum(rising, falling), 0.0)
    return triangles
