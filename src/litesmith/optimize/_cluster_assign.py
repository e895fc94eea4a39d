# SPDX-License-Identifier: Apache-2.0
"""Which of a few shared values each weight takes, and what those values are.

Without data: k-means, and the nearest value. With the moments of a layer's inputs, one weight after the other takes its
nearest value and the weights that are still to come make up for the error, as in GPTQ (Frantar et al., arXiv:2210.17323);
then the values move to where the layer's outputs change least. Channels get values of their own by a factor for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.optimize._cluster_kmeans import kmeans, nearest
from litesmith.optimize._layer_moments import Moments

Array = np.ndarray[Any, Any]
_RIDGE = 0.01
_FIT_STEPS = 30
_STEP = 2  # of the exponents of factors


@dataclass(frozen=True)
class Table:
    """The values that the rows of a layer may take: the same for all, times a factor for each.

    Factors are powers of 4, which in the bytes of a float change the first one alone: to a compressor all channels still
    have the same values, so that a channel's own ones cost next to nothing.

    Attributes:
        values: ascending.
        factors: (g, r, 1) of each row.
    """

    values: Array
    factors: Array


def shared_rows(
    rows: Array, clusters: int, *, per_channel: bool, start: str, seen: Moments | None, spared: Array, seed: int
) -> Array:
    """Return rows (g, r, k) with at most ``clusters`` values each, or all together; ``spared`` ones are zero."""
    weights = np.ones(rows.shape)
    if seen is not None:
        variance = np.einsum("gkk->gk", seen.covariance()[0])
        weights = np.broadcast_to((variance + 0.01 * variance.mean())[:, None, :], rows.shape)
    table = _table(rows, clusters, weights, spared, start, seed, per_channel=per_channel)
    if table is None:
        return np.zeros_like(rows)
    codes = nearest(rows / table.factors, table.values) if seen is None else _fed_back(rows, table, seen, spared)
    codes[spared] = -1
    values = table.values if seen is None else _fitted(rows, codes, table, seen)
    result = np.zeros_like(rows)
    inside = codes >= 0
    result[inside] = _short(values)[codes[inside]]
    return result * table.factors


def _table(
    rows: Array, clusters: int, weights: Array, spared: Array, start: str, seed: int, *, per_channel: bool
) -> Table | None:
    inside = ~spared
    if not inside.any():
        return None
    factors = _factors(rows, weights, inside) if per_channel else np.ones((*rows.shape[:2], 1))
    values = kmeans((rows / factors)[inside], clusters, start=start, weights=(weights * factors**2)[inside], seed=seed)
    return Table(values, factors)


def _factors(rows: Array, weights: Array, inside: Array) -> Array:
    """Return by what power of 4 the weights of each row are larger than those of the layer."""
    squares, mass = (np.sum(array, axis=2, keepdims=True) for array in (weights * rows**2, weights * inside))
    size = squares / np.maximum(mass, 1e-300)
    middle = squares.sum() / max(mass.sum(), 1e-300)
    ratio = np.where(size > 0, size, 1.0) / (middle if middle > 0 else 1.0)
    factors: Array = np.where(size > 0, 2.0 ** (_STEP * np.rint(np.log2(ratio) / 2 / _STEP)), 1.0)
    return factors


def _fed_back(rows: Array, table: Table, seen: Moments, spared: Array) -> Array:
    """Return the places of the values that weights take one after the other, the rest making up for each error."""
    h = seen.covariance()[0].copy()
    diagonal = np.einsum("gkk->gk", h)
    diagonal += _RIDGE * np.maximum(diagonal.mean(axis=1, keepdims=True), 1e-12)
    upper = np.swapaxes(np.linalg.cholesky(np.linalg.inv(h)), 1, 2)
    factors = table.factors[:, :, 0]
    work, codes = rows.copy(), np.empty(rows.shape, int)
    for j in range(rows.shape[2]):
        codes[:, :, j] = nearest(work[:, :, j] / factors, table.values)
        taken = np.where(spared[:, :, j], 0.0, table.values[codes[:, :, j]] * factors)
        error = (work[:, :, j] - taken) / upper[:, None, j, j]
        work[:, :, j + 1 :] -= error[:, :, None] * upper[:, None, j, j + 1 :]
    return codes


def _short(values: Array) -> Array:
    """Return values rounded to 8 significant bits: an error far below that of clustering, and two bytes fewer to store."""
    fraction, exponent = np.frexp(values)
    rounded: Array = np.ldexp(np.rint(fraction * 256) / 256, exponent)
    return rounded


def _fitted(rows: Array, codes: Array, table: Table, seen: Moments) -> Array:
    """Return the shared values that change the outputs least: conjugate gradients on Σ ½ ŵ H ŵᵀ − ŵ targetᵀ."""
    h, target, _ = seen.covariance()
    h = h.copy()
    diagonal = np.einsum("gkk->gk", h)
    ridge = _RIDGE * np.maximum(diagonal.mean(axis=1, keepdims=True), 1e-12)
    diagonal += ridge
    target = target + ridge[:, None, :] * rows
    inside = codes >= 0
    places = codes[inside]
    values = table.values

    def spread(values: Array) -> Array:
        full = np.zeros(rows.shape)
        full[inside] = values[places]
        return full * table.factors

    def gathered(full: Array) -> Array:
        return np.bincount(places, (full * table.factors)[inside], minlength=len(values))

    residual = gathered(target - spread(values) @ h)
    curvature = gathered(np.einsum("gkk->gk", h)[:, None, :] * table.factors)
    scale = 1 / np.maximum(curvature, 1e-30)
    direction = scale * residual
    power = float(residual @ direction)
    for _ in range(_FIT_STEPS):
        if power <= 1e-20:
            break
        curved = gathered(spread(direction) @ h)
        step = power / max(float(direction @ curved), 1e-30)
        values = values + step * direction
        residual = residual - step * curved
        following = float(residual @ (scale * residual))
        direction = scale * residual + following / power * direction
        power = following
    return values
