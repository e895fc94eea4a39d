# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a tensor while samples stream past: bounded, deterministic, and cheap beside the inference.

The exact minimum and maximum are always kept. The tail of each sample (its k-th largest value, k a few in 10,000 of
the elements) comes from the maxima of strided blocks: neighbours, which tend to be large together, fall into different
blocks, so that few of the k are hidden behind each other. The distribution is a histogram over a power of two that
doubles as values grow; bins then merge in pairs, so the result does not depend on the order of the samples.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BINS = 2048
_BLOCK = 16
_RARE = 4
"""A tail of less than one value in so many blocks is looked for in their maxima; a longer one in all values."""
_HISTOGRAM_SAMPLES = 8192
_DECAY = 0.95


class TensorStatistics:
    """The running statistics of one tensor."""

    def __init__(self, *, never_negative: bool = False, tail: float = 0.0, distribution: bool = False) -> None:
        self.samples = 0
        self.seen_low, self.seen_high = math.inf, -math.inf
        self.tail_low, self.tail_high = math.inf, -math.inf
        self.average_low = self.average_high = 0.0
        self.not_finite = 0
        self.histogram = Histogram() if distribution else None
        self._never_negative, self._tail = never_negative, tail

    def update(self, values: Array) -> None:
        """Take in the values of one sample."""
        flat = values.reshape(-1)
        if flat.size == 0:
            return
        high, tail_high = _extreme(flat, self._tail, np.maximum)
        low, tail_low = (0.0, 0.0) if self._never_negative else _extreme(flat, self._tail, np.minimum)
        if not (math.isfinite(high) and math.isfinite(low)):
            finite = flat[np.isfinite(flat)]
            self.not_finite += flat.size - finite.size
            if finite.size:
                self.update(finite)
            return
        self.seen_low, self.seen_high = min(self.seen_low, low), max(self.seen_high, high)
        self.tail_low, self.tail_high = min(self.tail_low, tail_low), max(self.tail_high, tail_high)
        keep = _DECAY if self.samples else 0.0
        self.average_low = keep * self.average_low + (1 - keep) * low
        self.average_high = keep * self.average_high + (1 - keep) * high
        if self.histogram is not None:
            self.histogram.update(flat[:: -(-flat.size // _HISTOGRAM_SAMPLES)])
        self.samples += 1


def _extreme(flat: Array, tail: float, toward: Any) -> tuple[float, float]:
    """Return the extreme value and the one with a share of ``tail`` of the values beyond it."""
    beyond = int(flat.size * tail)
    if beyond == 0:
        extreme = float(toward.reduce(flat))
        return extreme, extreme
    if beyond * _RARE * _BLOCK > flat.size:
        return _kept(flat, beyond, toward)
    whole = flat.size - flat.size % _BLOCK
    blocks = toward.reduce(flat[:whole].reshape(_BLOCK, -1), axis=0)
    if whole != flat.size:
        blocks = np.append(blocks, flat[whole:])
    return _kept(blocks, beyond, toward)


def _kept(values: Array, beyond: int, toward: Any) -> tuple[float, float]:
    """Return the extreme of values, and the one that has so many beyond it."""
    extreme = float(toward.reduce(values))
    if not math.isfinite(extreme):
        return extreme, extreme
    position = values.size - 1 - beyond if toward is np.maximum else beyond
    return extreme, float(np.partition(values, position)[position])


class Histogram:
    """Counts over [-reach, reach), where reach is a power of two that grows with the values."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.exponent: int | None = None

    @property
    def reach(self) -> float:
        """Half the width of the histogram."""
        return 2.0 ** (self.exponent or 0)

    def update(self, values: Array) -> None:
        """Count finite values."""
        largest = float(np.max(np.abs(values)))
        needed = max(math.frexp(largest)[1], -60)  # largest < 2 ** needed
        if self.exponent is None:
            self.exponent = needed
        while self.exponent < needed:
            self._double()
        # Division by a power of two is exact, so a value falls into the same bin before and after the bins merge.
        bins = np.floor(values.astype(np.float64) / self.reach * (BINS / 2)).astype(np.int64) + BINS // 2
        self.counts += np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS)

    def _double(self) -> None:
        assert self.exponent is not None
        merged = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts = np.pad(merged, BINS // 4)
        self.exponent += 1

    def centers(self) -> Array:
        """Return the value in the middle of each bin."""
        return ((np.arange(BINS) + 0.5) / (BINS / 2) - 1.0) * self.reach
