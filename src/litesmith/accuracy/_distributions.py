# SPDX-License-Identifier: Apache-2.0
"""How far the distribution of a layer's quantized values is from that of its float values.

All are counted at the same points, evenly spaced from minus to plus the next power of two above the largest float value;
a value counts for the two points beside it, more for the nearer one. So steps finer than the points leave no trace, which
they would in bins of sharp edges, while coarser steps, clipping and shifts do. What is quantized to values further out
counts at the ends. The range grows with the values by joining neighbours, which loses nothing: the order of the samples
does not matter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_HALF = 32
_POINTS = 2 * _HALF + 1
_SMALLEST = -60
"""Exponent of the smallest range: all float values below it count as zero."""
_UNSEEN = 0.5
"""Counted at each point besides, so that a value which did not occur is unlikely, not impossible."""


class Distributions:
    """The distribution of a layer's float values, and of their quantized ``versions``, counted sample by sample."""

    def __init__(self, versions: int) -> None:
        self._exponent: int | None = None
        self._counts = np.zeros((1 + versions, _POINTS))

    def add(self, real: Array, *errors: Array) -> None:
        """Count float values, and by how much each version of them is off; what is not finite does not count."""
        values = np.stack([real, *(real + error for error in errors)])
        finite = np.isfinite(values)
        if not finite.all():
            values = values[:, finite.all(axis=0)]
        if values.size:
            self._reach(float(np.abs(values[0]).max()))
            self._count(values)

    def kl(self, version: int) -> float:
        """Return the Kullback-Leibler divergence of a version's distribution from the float one, in nats."""
        p, q = (counts / counts.sum() for counts in self._counts[[0, 1 + version]] + _UNSEEN)
        return max(0.0, float(np.dot(p, np.log(p / q))))

    def _reach(self, peak: float) -> None:
        """Widen the range until it holds the largest value."""
        needed = max(_SMALLEST, math.frexp(peak)[1])
        if self._exponent is None:
            self._exponent = needed
        while self._exponent < needed:
            self._exponent, self._counts = self._exponent + 1, _twice_as_wide(self._counts)

    def _count(self, values: Array) -> None:
        assert self._exponent is not None
        rows, columns = len(values), _POINTS + 1
        place = np.clip(values * np.float32(_HALF * 2.0**-self._exponent) + _HALF, 0, _POINTS - 1)
        below = place.astype(np.intp)
        nearness = (place - below).reshape(-1)
        below += columns * np.arange(rows)[:, None]
        count, above = (
            np.bincount(below.reshape(-1), weights, rows * columns).reshape(rows, columns)
            for weights in (None, nearness)
        )
        self._counts += (count - above)[:, :-1]
        self._counts[:, 1:] += above[:, :-2]


def _twice_as_wide(counts: Array) -> Array:
    """Return counts at points twice as far apart: what was between two of them counts half for each."""
    between = counts[:, 1::2] / 2
    wide = np.zeros_like(counts)
    inner = wide[:, _HALF // 2 : _HALF // 2 + _HALF + 1]
    inner += counts[:, ::2]
    inner[:, :-1] += between
    inner[:, 1:] += between
    return wide
