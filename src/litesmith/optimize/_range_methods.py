# SPDX-License-Identifier: Apache-2.0
"""From the statistics of a tensor to the range it is quantized with: one function a method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from litesmith.optimize._statistics import Histogram, TensorStatistics

Array = np.ndarray[Any, Any]
Bounds = tuple[float, float]
_SHRINKS = np.linspace(1.0, 0.3, 36)


def min_max(statistics: TensorStatistics) -> Bounds:
    """Everything that was seen."""
    return statistics.seen_low, statistics.seen_high


def moving_average(statistics: TensorStatistics) -> Bounds:
    """The exponential moving average of each sample's extremes: depends on the order, and is often too tight."""
    return statistics.average_low, statistics.average_high


def percentile(statistics: TensorStatistics) -> Bounds:
    """In each sample all but a small share of the values, on either side; the widest over the samples."""
    return statistics.tail_low, statistics.tail_high


def mse(statistics: TensorStatistics) -> Bounds:
    """The range in which int8 rounding and clipping together lose least, in the mean square."""
    return _searched(statistics, _square_error)


def entropy(statistics: TensorStatistics) -> Bounds:
    """The range whose int8 distribution diverges least from the original (Kullback and Leibler)."""
    return _searched(statistics, _divergence)


METHODS: dict[str, Callable[[TensorStatistics], Bounds]] = {
    "minmax": min_max,
    "average": moving_average,
    "percentile": percentile,
    "mse": mse,
    "entropy": entropy,
}


def _searched(statistics: TensorStatistics, loss: Callable[[Array, Array, float, float], float]) -> Bounds:
    histogram = statistics.histogram
    low, high = min(statistics.seen_low, 0.0), max(statistics.seen_high, 0.0)
    if histogram is None or high <= low:
        return low, high
    centers, counts = _occupied(histogram)
    candidates = [(low * shrink, high * shrink) for shrink in _SHRINKS]
    if low < 0 < high:  # the two sides may have tails of different weight
        candidates += [(low * s, high) for s in _SHRINKS[1:]] + [(low, high * s) for s in _SHRINKS[1:]]
    return min(candidates, key=lambda bounds: (loss(centers, counts, *bounds), -bounds[1] + bounds[0]))


def _occupied(histogram: Histogram) -> tuple[Array, Array]:
    used = np.flatnonzero(histogram.counts)
    return histogram.centers()[used], histogram.counts[used].astype(np.float64)


def _square_error(centers: Array, counts: Array, low: float, high: float) -> float:
    scale = (high - low) / 255
    clipped = np.clip(centers, low, high)
    # Inside the range the bins are narrower than a step or nearly so: rounding loses a twelfth of its square.
    beyond = (centers - clipped) ** 2
    return float(np.sum(counts * (beyond + scale**2 / 12)))


def _divergence(centers: Array, counts: Array, low: float, high: float) -> float:
    """Return how far the values, with those beyond the range at its ends, are from what 256 levels tell of the rest."""
    inside = (centers >= low) & (centers <= high)
    kept = counts[inside]
    if not kept.size:
        return math.inf
    real = kept.copy()
    real[0] += counts[centers < low].sum()
    real[-1] += counts[centers > high].sum()
    level = np.rint((centers[inside] - low) / (high - low) * 255).astype(np.int64)
    mass, width = np.bincount(level, kept, 256), np.bincount(level, minlength=256)
    spread = mass[level] / width[level]  # each level hands its mass back evenly to its bins
    share, other = real / real.sum(), spread / spread.sum()
    return float(np.sum(share * np.log(share / other)))
