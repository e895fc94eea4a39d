# SPDX-License-Identifier: Apache-2.0
"""How much each layer gives: one budget of zeros for all layers, spent where it costs least.

With data each layer has a curve, the error that it was measured to cause at a few sparsities; the budget goes down the
steepest parts of their lower convex hulls, which is optimal for the hulls. Without data the score of a weight is its
square over the sum of the squares of its layer that are not smaller (LAMP, Lee et al., arXiv:2010.07611), and one
threshold for all layers decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.optimize._prune_patterns import unit_scores, units_to_zero

Array = np.ndarray[Any, Any]
MOST = 0.98
"""No layer gives more than this share of its weights where layers differ."""


@dataclass(frozen=True)
class Curve:
    """The error of one layer by sparsity: ``errors[i]`` at ``sparsities[i]``, which rise from 0."""

    weights: int
    sparsities: tuple[float, ...]
    errors: tuple[float, ...]


def allocate_by_curves(curves: Sequence[Curve], sparsity: float) -> list[float]:
    """Return the sparsity of each layer that together make ``sparsity`` with the least error by the curves."""
    segments = []
    for number, curve in enumerate(curves):
        hull = _lower_hull(list(zip(curve.sparsities, curve.errors, strict=True)))
        for (s0, e0), (s1, e1) in itertools.pairwise(hull):
            segments.append(((e1 - e0) / (curve.weights * (s1 - s0)), number, s0, s1))
    chosen = [0.0] * len(curves)
    left = sparsity * sum(curve.weights for curve in curves)
    for _, number, start, end in sorted(segments):
        room = (end - start) * curves[number].weights
        taken = min(room, max(left, 0.0))
        chosen[number] += taken / curves[number].weights
        left -= taken
    return _topped_up(chosen, [curve.weights for curve in curves], left)


def allocate_by_weights(rows: Sequence[Array], sparsity: float, pattern: str) -> list[float]:
    """Return the sparsity of each layer by the sizes of its weights alone."""
    scores = [_lamp(np.sort(unit_scores(layer.astype(np.float32) ** 2, pattern), axis=None)) for layer in rows]
    total = sum(map(len, scores))
    gone = units_to_zero(total, sparsity)
    if not gone:
        return [0.0] * len(rows)
    may_go = [layer[: units_to_zero(len(layer), MOST)] for layer in scores]
    together = np.concatenate(may_go)
    threshold = np.partition(together, gone - 1)[gone - 1] if gone <= len(together) else np.inf
    chosen = [int(np.searchsorted(layer, threshold, side="left")) for layer in may_go]
    left = gone - sum(chosen)
    for number, layer in enumerate(may_go):  # units at the threshold itself, and where layers give all they may
        more = min(left, int(np.searchsorted(layer, threshold, side="right")) - chosen[number])
        chosen[number] += more
        left -= more
    shares = [count / len(layer) for count, layer in zip(chosen, scores, strict=True)]
    return _topped_up(shares, [len(layer) for layer in scores], float(left))


def _lamp(ascending: Array) -> Array:
    """Return the scores of squares that ascend; they ascend as well."""
    not_smaller = np.cumsum(ascending[::-1], dtype=np.float64)[::-1]
    scores: Array = ascending / np.maximum(not_smaller, 1e-300)
    return np.maximum.accumulate(scores)


def _lower_hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) >= 2:
            (x0, y0), (x1, y1) = hull[-2], hull[-1]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def _topped_up(chosen: list[float], weights: list[int], left: float) -> list[float]:
    """Spread what the curves have no room for evenly over what the layers still have."""
    room = [(1 - c) * w for c, w in zip(chosen, weights, strict=True)]
    share = min(left / sum(room), 1.0) if left > 1e-9 and sum(room) > 0 else 0.0
    return [min(c + share * (1 - c), 1.0) for c in chosen]
