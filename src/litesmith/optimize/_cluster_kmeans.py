# SPDX-License-Identifier: Apache-2.0
"""k-means on numbers in a row: clusters of sorted values are intervals, so prefix sums give each step in O(k log n).

Lloyd's iteration on one dimension, with a weight for each value where some matter more. Three starts: *linear* spreads
the centroids evenly over the range, *density* evenly over the values, *k-means++* draws them far apart (Arthur &
Vassilvitskii 2007). An empty cluster takes the value that is worst served.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litesmith.errors import UsageError

Array = np.ndarray[Any, Any]
STARTS = ("k-means++", "density", "linear")
_ITERATIONS = 100


def kmeans(
    values: Array, clusters: int, *, start: str = "k-means++", weights: Array | None = None, seed: int = 0
) -> Array:
    """Return at most ``clusters`` centroids for the values, ascending.

    Example:
        >>> kmeans(np.array([0.0, 0.1, 5.0, 5.1]), 2).round(2).tolist()
        [0.05, 5.05]
    """
    if start not in STARTS:
        raise UsageError(f"there is no start {start!r}; choose one of {', '.join(STARTS)}")
    order = np.argsort(values, kind="stable")
    ordered = values[order].astype(np.float64)
    mass = np.ones(len(ordered)) if weights is None else weights[order].astype(np.float64) + 1e-30
    distinct, first = np.unique(ordered, return_index=True)
    if len(distinct) <= clusters:
        return distinct
    mass = np.add.reduceat(mass, first)
    ordered = distinct
    centroids = _STARTS[start](ordered, mass, clusters, np.random.default_rng(seed))
    sums = _Sums(ordered, mass)
    for _ in range(_ITERATIONS):
        cuts = _cuts(ordered, centroids)
        following = np.sort(_filled(sums, ordered, mass, cuts, centroids))
        if np.array_equal(following, centroids):
            break
        centroids = following
    return np.unique(centroids)


def nearest(values: Array, centroids: Array) -> Array:
    """Return the index of the nearest centroid, of ascending ones, for each value."""
    middles = (centroids[1:] + centroids[:-1]) / 2
    return np.searchsorted(middles, values)


class _Sums:
    """Sums of mass and mass × value over intervals of the sorted values."""

    def __init__(self, ordered: Array, mass: Array) -> None:
        self.mass = np.concatenate([[0.0], np.cumsum(mass)])
        self.moment = np.concatenate([[0.0], np.cumsum(mass * ordered)])


def _cuts(ordered: Array, centroids: Array) -> Array:
    middles = (centroids[1:] + centroids[:-1]) / 2
    return np.concatenate([[0], np.searchsorted(ordered, middles, side="right"), [len(ordered)]])


def _filled(sums: _Sums, ordered: Array, mass: Array, cuts: Array, centroids: Array) -> Array:
    """Return the means of the clusters; an empty one moves to the value that costs most."""
    total = np.diff(sums.mass[cuts])
    means = np.where(total > 0, np.diff(sums.moment[cuts]) / np.maximum(total, 1e-300), centroids)
    empty = np.flatnonzero(np.diff(cuts) == 0)
    if len(empty):
        costs = mass * (ordered - centroids[nearest(ordered, centroids)]) ** 2
        means[empty] = ordered[np.argsort(-costs, kind="stable")[: len(empty)]]
    return means


def _linear(ordered: Array, _mass: Array, clusters: int, _random: np.random.Generator) -> Array:
    return np.linspace(ordered[0], ordered[-1], clusters)


def _density(ordered: Array, mass: Array, clusters: int, _random: np.random.Generator) -> Array:
    share = np.cumsum(mass) / mass.sum()
    places = np.searchsorted(share, (np.arange(clusters) + 0.5) / clusters)
    return np.sort(ordered[np.minimum(places, len(ordered) - 1)])


def _far_apart(ordered: Array, mass: Array, clusters: int, random: np.random.Generator) -> Array:
    chosen = [ordered[random.choice(len(ordered), p=mass / mass.sum())]]
    distance = (ordered - chosen[0]) ** 2
    for _ in range(clusters - 1):
        chances = np.cumsum(mass * distance)
        if chances[-1] <= 0:
            break
        place = int(np.searchsorted(chances, random.random() * chances[-1], side="right"))
        chosen.append(ordered[min(place, len(ordered) - 1)])
        distance = np.minimum(distance, (ordered - chosen[-1]) ** 2)
    return np.sort(np.array(chosen))


_STARTS = {"k-means++": _far_apart, "density": _density, "linear": _linear}
