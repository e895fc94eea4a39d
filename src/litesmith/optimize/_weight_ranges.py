# SPDX-License-Identifier: Apache-2.0
"""The ranges of weights: how far each channel reaches before it is cut, so that rounding and cutting lose least.

"minmax" cuts nothing. "mse" tries a row of ranges and takes the one with the smallest square error. "octav" finds the
same optimum by Newton's iteration on its derivative (Sakr et al., arXiv:2206.06501).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.optimize._arithmetic import channel_scales, largest_integer

Array = np.ndarray[Any, Any]
DEFAULT_WEIGHT_METHOD = "minmax"
WEIGHT_METHODS = (DEFAULT_WEIGHT_METHOD, "mse", "octav")
_SHRINKS = np.linspace(1.0, 0.5, 26)


def weight_scales(values: Array, axis: int | None, bits: int, *, method: str = DEFAULT_WEIGHT_METHOD) -> Array:
    """Return the symmetric scales of weights: one for each index along ``axis``, or a single one where it is None."""
    rows = channel_rows(values, axis)
    if method == "minmax" or rows.size == 0:
        return channel_scales(np.abs(rows).max(axis=1, initial=0.0), bits)
    if method == "mse":
        return channel_scales(_searched(rows, bits), bits)
    if method == "octav":
        return channel_scales(_octav(rows, bits), bits)
    raise UsageError(f"there is no range method {method!r} for weights; choose one of {', '.join(WEIGHT_METHODS)}")


def channel_rows(values: Array, axis: int | None) -> Array:
    """Return the weights as one row for each channel; NaN and infinities as 0."""
    array = np.nan_to_num(np.asarray(values, np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    if axis is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _searched(rows: Array, bits: int) -> Array:
    limit = largest_integer(bits)
    widest = np.abs(rows).max(axis=1)
    best: Array = widest.copy()
    best_error: Array = np.full(len(rows), np.inf)
    for shrink in _SHRINKS:
        scale = np.maximum(widest * shrink / limit, 1e-30)[:, None]
        error = np.sum((np.clip(np.rint(rows / scale), -limit, limit) * scale - rows) ** 2, axis=1)
        better = error < best_error
        best, best_error = np.where(better, widest * shrink, best), np.where(better, error, best_error)
    return best


def _octav(rows: Array, bits: int) -> Array:
    magnitude = np.abs(rows.astype(np.float64))
    widest = magnitude.max(axis=1)
    clip = magnitude.mean(axis=1) * 3
    for _ in range(30):
        outside = magnitude > clip[:, None]
        above = np.sum(np.where(outside, magnitude, 0.0), axis=1)
        inside = np.sum(~outside & (magnitude > 0), axis=1)
        following = above / np.maximum(4.0**-bits / 3 * inside + outside.sum(axis=1), 1e-30)
        if np.allclose(following, clip, rtol=1e-5):
            break
        clip = np.where(following > 0, following, widest)
    bounded: Array = np.minimum(np.where(clip > 0, clip, widest), widest)
    return bounded
