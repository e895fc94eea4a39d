# SPDX-License-Identifier: Apache-2.0
"""Fit the rows of a layer to what it shall write: least squares with a free bias, on the weights that may be non-zero.

The error is ‖(W − Ŵ)X‖² as in optimal brain surgery, plus a pull towards the present weights, without which few samples
would be fitted too well. How hard to pull is decided on samples that the fit does not see; "not at all changed" is among
the choices. The inputs are scaled to equal variance first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litesmith.optimize._layer_moments import Moments

Array = np.ndarray[Any, Any]
RIDGES = (0.003, 0.03, 0.3)
_MOST_GROWTH = 2.0
_STEPS = 50
_TOLERANCE = 1e-4


def fit(fitted: Moments, held: Moments, rows: Array, mask: Array | None = None) -> Array:
    """Return the rows (g, r, k) that do best on the held-out moments; zeros stay where ``mask`` is False."""
    if held.count <= 1:
        return rows  # a bias makes any rows right at one position
    best, least = rows, held.error(rows) * 0.999
    chosen = None
    for ridge in RIDGES:
        tried = solve(fitted, rows, mask, ridge)
        error = held.error(tried)
        if error < least:
            best, least, chosen = tried, error, ridge
    return best if chosen is None else solve(fitted.merged(held), rows, mask, chosen)


def solve(moments: Moments, rows: Array, mask: Array | None, ridge: float) -> Array:
    """Return the least-squares rows, pulled towards ``rows``."""
    h, target, scale, start = normalized(moments, rows, ridge)
    if mask is None:
        found = np.swapaxes(np.linalg.solve(h, np.swapaxes(target, 1, 2)), 1, 2)
    else:
        found = conjugate_gradients(h, target, start * mask, mask)
    return found / scale[:, None, :]


def with_variance(moments: Moments, rows: Array) -> Array:
    """Return the rows enlarged, so that what they write varies more like what they were fitted to.

    Least squares leaves out what the inputs cannot tell, and layer by layer less is left to tell classes by. Half of the
    deviation that an output lost, as a share, is given back: all of it would enlarge its errors too.
    """
    if moments.count <= 1:
        return rows
    xx, _, wanted = moments.covariance()
    found = np.sum((rows @ xx) * rows, axis=2)
    growth = np.clip(np.sqrt(wanted / np.maximum(found, 1e-30)), 1.0, _MOST_GROWTH)
    enlarged: Array = rows * np.sqrt(growth)[:, :, None]
    return enlarged


def normalized(moments: Moments, rows: Array, ridge: float) -> tuple[Array, Array, Array, Array]:
    """Return H and the target of the normal equations with inputs of equal variance, the scale, and scaled rows."""
    xx, yx, _ = moments.covariance()
    diagonal = np.einsum("gkk->gk", xx)
    # An input that never varies would get any weight: give it a little variance of its own.
    floor = 1e-6 * np.maximum(diagonal.max(axis=1, keepdims=True), 1e-12)
    scale = np.sqrt(np.maximum(diagonal, floor))
    h = xx / (scale[:, :, None] * scale[:, None, :])
    start = rows * scale[:, None, :]
    diagonal = np.einsum("gkk->gk", h)
    diagonal += ridge
    return h, yx / scale[:, None, :] + ridge * start, scale, start


def conjugate_gradients(
    h: Array, target: Array, start: Array, mask: Array, *, coupling: Array | None = None, steps: int = _STEPS
) -> Array:
    """Return the minimizer of ½ w H wᵀ − w targetᵀ over the weights under the mask, all rows at once.

    With a ``coupling`` C of the rows (r, r), it is that of ½ tr(C W H Wᵀ) − tr(C W targetᵀ): rows make up for each other.
    """
    axes = 2 if coupling is None else (1, 2)  # rows that are coupled take their steps together
    mix = None if coupling is None else coupling.astype(np.float32)
    # Rows of any size: each is solved at its own scale, so that float32 serves all.
    size: Array = np.maximum(np.sqrt(_squares(target, axes)), 1e-30)
    target = target / size
    found = (start / size).astype(np.float32)
    h32, mask32 = h.astype(np.float32), mask.astype(np.float32)
    residual = _mixed(mix, target.astype(np.float32) - found @ h32) * mask32
    direction = residual.copy()
    power = _squares(residual, axes)
    limit = _TOLERANCE**2 * np.maximum(_squares(target, axes), 1e-30)
    for _ in range(steps):
        ahead = power > limit  # rows that are there would divide noise by noise
        if not ahead.any():
            break
        curved = _mixed(mix, direction @ h32) * mask32
        curvature = np.sum(direction * curved, axis=axes, keepdims=True, dtype=np.float64)
        step = np.where(ahead, power / np.where(ahead & (curvature > 0), curvature, np.inf), 0.0).astype(np.float32)
        found += step * direction
        residual -= step * curved
        following = _squares(residual, axes)
        ratio = np.where(ahead, following / np.where(ahead, power, 1.0), 0.0).astype(np.float32)
        direction = residual + ratio * direction
        power = following
    return found.astype(np.float64) * size


def _mixed(mix: Array | None, rows: Array) -> Array:
    return rows if mix is None else np.asarray(mix @ rows)


def _squares(rows: Array, axes: int | tuple[int, int]) -> Array:
    return np.asarray(np.sum(rows * rows, axis=axes, keepdims=True, dtype=np.float64))
