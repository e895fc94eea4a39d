# SPDX-License-Identifier: Apache-2.0
"""What a set of timings says: its quantiles, its spread, and how sure we may be of its median.

Timings are skewed and drift, so the summary is the median with a bootstrap interval over blocks of neighbours (blocks
keep the drift inside: the timings of one second are not independent); two sets are compared by the ratio of medians.
Block bootstrap: Künsch 1989, doi:10.1214/aos/1176347265.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CONFIDENCE = 0.95
RESAMPLES = 2000
BLOCKS = 20  # at most: enough to resample, long enough to keep slow drift inside


@dataclass(frozen=True)
class Summary:
    """Quantiles, mean and deviation of a set of timings, and the 95 % interval of its median. All in milliseconds."""

    count: int
    minimum: float
    median: float
    p90: float
    p95: float
    p99: float
    mean: float
    deviation: float
    low: float
    high: float

    @property
    def uncertainty(self) -> float:
        """Half the width of the interval as a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def summarize(samples: Sequence[float] | Array, *, seed: int = 0) -> Summary:
    """Return the summary of some timings.

    Example:
        >>> summarize([1.0, 2.0, 3.0]).median
        2.0
    """
    values = np.asarray(samples, np.float64)
    medians = bootstrap_medians(values, seed=seed)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    p50, p90, p95, p99 = np.quantile(values, [0.5, 0.9, 0.95, 0.99])
    return Summary(
        count=len(values),
        minimum=float(values.min()),
        median=float(p50),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99),
        mean=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        low=float(low),
        high=float(high),
    )


def bootstrap_medians(values: Array, *, seed: int = 0) -> Array:
    """Return medians of resamples made of whole blocks of neighbouring values."""
    blocks = np.array_split(values, min(BLOCKS, len(values)))
    length = min(map(len, blocks))
    stacked = np.stack([block[:length] for block in blocks])
    random = np.random.default_rng(seed)
    chosen = random.integers(0, len(blocks), (RESAMPLES, len(blocks)))
    times = np.zeros((RESAMPLES, len(blocks)), np.int64)
    np.add.at(times, (np.arange(RESAMPLES)[:, None], chosen), 1)
    lower, upper = (stacked.size - 1) // 2, stacked.size // 2
    first = _of_rank(stacked, times, lower)
    medians: Array = first if lower == upper else (first + _of_rank(stacked, times, upper)) / 2
    return medians


def _of_rank(blocks: Array, times: Array, rank: int) -> Array:
    """Return the value with ``rank`` smaller ones in each resample, ``times[i, b]`` telling how often it has block b.

    No resample is made: all values are sorted once, and a binary search counts how many of the first m are in each block.
    """
    order = np.argsort(blocks, axis=None, kind="stable")
    of_block = np.zeros((blocks.size + 1, len(blocks)), np.int32)
    of_block[np.arange(1, blocks.size + 1), order // blocks.shape[1]] = 1
    np.cumsum(of_block, axis=0, out=of_block)
    low, high = np.zeros(len(times), np.int64), np.full(len(times), blocks.size)
    while np.any(high - low > 1):  # the first `high` have more than `rank` values of the resample, the first `low` not
        middle = (low + high) // 2
        enough = np.einsum("rb,rb->r", times, of_block[middle]) > rank
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    found: Array = blocks.ravel()[order[high - 1]]
    return found


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians, second / first, and its 95 % interval."""

    value: float
    low: float
    high: float


def compare_medians(first: Array, second: Array, *, paired: bool, seed: int = 0) -> Ratio:
    """Compare two sets of timings by the medians of blocks of neighbours.

    Args:
        first: Timings.
        second: Timings.
        paired: Whether they were taken in interleaved rounds: block i of both then saw the same machine, so what
            slowed one slowed the other, and the blocks are drawn together. Otherwise each is drawn by itself.
        seed: Of the bootstrap.
    """
    a, b = _log_medians(first, second)
    count = len(a)
    random = np.random.default_rng(seed)
    chosen = random.integers(0, count, (RESAMPLES, count))
    other = chosen if paired else random.integers(0, count, (RESAMPLES, count))
    means = b[other].mean(axis=1) - a[chosen].mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
    return Ratio(float(np.exp((b - a).mean())), float(low), float(high))


def chance(first: Array, second: Array, *, paired: bool) -> float:
    """Return how likely so large a difference of two sets of timings is by chance, from the medians of their blocks.

    The test is Wilcoxon's signed ranks for paired blocks, otherwise that of Mann and Whitney.
    """
    from scipy import stats  # which devices that measure for another machine do without

    a, b = _log_medians(first, second)
    if np.array_equal(a, b):
        return 1.0
    return float((stats.wilcoxon(b - a) if paired else stats.mannwhitneyu(a, b)).pvalue)


def _log_medians(first: Array, second: Array) -> tuple[Array, Array]:
    count = min(BLOCKS, len(first), len(second))
    a, b = (np.log([np.median(block) for block in np.array_split(values, count)]) for values in (first, second))
    return a, b
