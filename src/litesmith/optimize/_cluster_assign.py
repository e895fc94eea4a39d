# SPDX-License-Identifier: Apache-2.0
"""Which of a few shared values each weight takes, and what those values are.

Without data: k-means, and the nearest value. With the moments of a layer's inputs, one weight after the other takes its
nearest value and the weights that are still to come make up for the error, as in GPTQ (Frantar et al., arXiv:2210.17323);
then the values move to where the layer's outputs change least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.optimize._cluster_kmeans import kmeans
from litesmith.optimize._layer_moments import Moments

Array = np.ndarray[Any, Any]
_RIDGE = 0.01
_FIT_STEPS = 30


@dataclass(frozen=True)
class Tables:
    """The values that the rows of a layer may take.

    Attributes:
        values: of all rows, one table behind the other.
        places: (rows, most values of a row): where in ``values`` those of a row stand; the last one repeats.
    """

    values: Array
    places: Array


def shared_rows(
    rows: Array, clusters: int, *, per_channel: bool, start: str, seen: Moments | None, spared: Array, seed: int
) -> Array:
    """Return rows (g, r, k) with at most ``clusters`` values each, or all together; ``spared`` ones are zero."""
    weights = np.ones(rows.shape)
    if seen is not None:
        variance = np.einsum("gkk->gk", seen.covariance()[0])
        weights = np.broadcast_to((variance + 0.01 * variance.mean())[:, None, :], rows.shape)
    tables = _tables(rows, clusters, weights, spared, start, seed, per_channel=per_channel)
    if tables is None:
        return np.zeros_like(rows)
    codes = _nearest(rows, tables) if seen is None else _fed_back(rows, tables, seen, spared)
    codes[spared] = -1
    values = tables.values if seen is None else _fitted(rows, codes, tables.values, seen)
    result = np.zeros_like(rows)
    result[codes >= 0] = _short(values)[codes[codes >= 0]]
    return result


def _tables(
    rows: Array, clusters: int, weights: Array, spared: Array, start: str, seed: int, *, per_channel: bool
) -> Tables | None:
    flat, mass, out = (array.reshape(-1, rows.shape[-1]) for array in (rows, weights, spared))
    parts = [slice(n, n + 1) for n in range(len(flat))] if per_channel else [slice(None)]
    found: list[Array] = []
    places = np.zeros((len(flat), clusters), int)
    offset = 0
    for part in parts:
        inside = ~out[part]
        if not inside.any():
            continue
        table = kmeans(flat[part][inside], clusters, start=start, weights=mass[part][inside], seed=seed)
        places[part] = offset + np.minimum(np.arange(clusters), len(table) - 1)
        offset += len(table)
        found.append(table)
    return Tables(np.concatenate(found), places) if found else None


def _nearest(rows: Array, tables: Tables) -> Array:
    flat = rows.reshape(-1, rows.shape[-1])
    values = tables.values[tables.places]
    codes = np.empty(flat.shape, int)
    for number, row in enumerate(flat):
        codes[number] = tables.places[number][np.abs(row[:, None] - values[number]).argmin(axis=1)]
    shaped: Array = codes.reshape(rows.shape)
    return shaped


def _fed_back(rows: Array, tables: Tables, seen: Moments, spared: Array) -> Array:
    """Return the places of the values that weights take one after the other, the rest making up for each error."""
    h = seen.covariance()[0].copy()
    diagonal = np.einsum("gkk->gk", h)
    diagonal += _RIDGE * np.maximum(diagonal.mean(axis=1, keepdims=True), 1e-12)
    upper = np.swapaxes(np.linalg.cholesky(np.linalg.inv(h)), 1, 2)
    values = tables.values[tables.places].reshape(*rows.shape[:2], -1)
    places = tables.places.reshape(values.shape)
    work, codes = rows.copy(), np.empty(rows.shape, int)
    for j in range(rows.shape[2]):
        chosen = np.abs(work[:, :, j, None] - values).argmin(axis=2)[:, :, None]
        codes[:, :, j] = np.take_along_axis(places, chosen, axis=2)[:, :, 0]
        taken = np.where(spared[:, :, j], 0.0, np.take_along_axis(values, chosen, axis=2)[:, :, 0])
        error = (work[:, :, j] - taken) / upper[:, None, j, j]
        work[:, :, j + 1 :] -= error[:, :, None] * upper[:, None, j, j + 1 :]
    return codes


def _short(values: Array) -> Array:
    """Return values rounded to 8 significant bits: an error far below that of clustering, and two bytes fewer to store."""
    fraction, exponent = np.frexp(values)
    rounded: Array = np.ldexp(np.rint(fraction * 256) / 256, exponent)
    return rounded


def _fitted(rows: Array, codes: Array, values: Array, seen: Moments) -> Array:
    """Return the shared values that change the outputs least: conjugate gradients on Σ ½ ŵ H ŵᵀ − ŵ targetᵀ."""
    h, target, _ = seen.covariance()
    h = h.copy()
    diagonal = np.einsum("gkk->gk", h)
    ridge = _RIDGE * np.maximum(diagonal.mean(axis=1, keepdims=True), 1e-12)
    diagonal += ridge
    target = target + ridge[:, None, :] * rows
    inside = codes >= 0
    places = codes[inside]

    def spread(table: Array) -> Array:
        full = np.zeros(rows.shape)
        full[inside] = table[places]
        return full

    def gathered(full: Array) -> Array:
        return np.bincount(places, full[inside], minlength=len(values))

    residual = gathered(target - spread(values) @ h)
    curvature = gathered(np.broadcast_to(np.einsum("gkk->gk", h)[:, None, :], rows.shape))
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
