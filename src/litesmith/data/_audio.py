# SPDX-License-Identifier: Apache-2.0
"""Audio files as arrays of mono samples between −1 and 1, at the rate the model was trained for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.errors import DataError

SUFFIXES = frozenset((".flac", ".ogg", ".wav"))


def read_audio(path: Path, sample_rate: int | None) -> NDArray[np.float32]:
    """Return the mean of all channels, resampled to ``sample_rate`` with an anti-aliasing filter where it differs."""
    import soundfile

    if sample_rate is None:
        raise DataError(
            f"audio needs a declared sample rate: add sample_rate=N to the preprocessing, with the N the model was "
            f"trained for (this file has {audio_rate(path)})"
        )
    try:
        samples, file_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise _unreadable(error) from error
    if len(samples) == 0:
        raise DataError("the audio file has no samples; remove it")
    mono: NDArray[np.float32] = samples.mean(axis=1)
    if file_rate == sample_rate:
        return mono
    from scipy.signal import resample_poly

    divisor = math.gcd(sample_rate, file_rate)
    resampled: NDArray[Any] = resample_poly(mono, sample_rate // divisor, file_rate // divisor)
    return resampled.astype(np.float32)


def audio_rate(path: Path) -> int:
    """Return the samples per second that the file declares."""
    import soundfile

    try:
        return int(soundfile.info(str(path)).samplerate)
    except (OSError, soundfile.SoundFileError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> DataError:
    return DataError(f"the audio cannot be read ({error}); replace or remove the file")
