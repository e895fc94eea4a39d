# SPDX-License-Identifier: Apache-2.0
"""Second-order pruning of one layer: choose the zeros and move the other weights so that its output changes least.

With H the covariance of the inputs, the pruned rows Ŵ minimize tr((W − Ŵ) H (W − Ŵ)ᵀ) under the pattern of zeros: the
layer-wise problem of optimal brain surgery and ExactOBS (Frantar & Alistarh, arXiv:2208.11580). It is solved for all rows
at once by the alternating direction method of multipliers with a growing penalty (Meng et al., arXiv:2406.07831), which
needs one eigendecomposition of H and then two matrix products an iteration; and by two choices without any search: |w|
times the deviation of its input, and what removing each weight alone would cost. All are then fitted exactly to their
zeros, and the best one is taken; the caller fits it well. Where errors of rows are known to add up at the model's end by a
coupling C (`_prune_coupling.py`), it is tr(C (W − Ŵ) H (W − Ŵ)ᵀ) that is minimized, at the price of one more rotation.

Cost: O(k³) once, O(r k²) an iteration, for r rows of k weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litesmith.optimize._layer_fit import conjugate_gradients, normalized
from litesmith.optimize._layer_moments import Moments
from litesmith.optimize._prune_patterns import keep_mask

Array = np.ndarray[Any, Any]
_RIDGE = 0.01
_ITERATIONS = 90
_QUICK = 12
"""Steps of the fit that tell one choice from another; what is chosen is then fitted well."""
_FIRST_PENALTY = 0.1
_WIDE = 1.5
"""The deviation of the logarithms of the outputs' variances from which outputs differ by orders of magnitude."""


def prune_rows(
    moments: Moments,
    rows: Array,
    sparsity: float,
    pattern: str,
    *,
    importance: Array | None = None,
    coupling: Array | None = None,
    iterations: int = _ITERATIONS,
) -> tuple[Array, Array]:
    """Return the pruned rows (g, r, k) and which of them may be non-zero.

    ``importance`` (g, r, 1) is of square errors; ``coupling`` (r, r) says how errors of rows add up, and is for one group.
    """
    h, target, scale, start = normalized(moments, rows, _RIDGE)
    weight = row_weights(moments) if importance is None else error_weights(importance)
    target, start = target * weight, start * weight
    masks = [_by_magnitude(start, sparsity, pattern)]
    if sparsity > 0 and iterations > 0:
        masks.append(_by_saliency(h, start, sparsity, pattern))
        if len(h) == 1:
            masks.append(_by_alternation(h[0], target[0], masks[0][0], sparsity, pattern, iterations, coupling)[None])
    steps = _QUICK if coupling is None else 2 * _QUICK
    tried = [
        (conjugate_gradients(h, target, start * mask, mask, coupling=coupling, steps=steps), mask) for mask in masks
    ]
    found, mask = min(tried, key=lambda pair: _objective(h, target, pair[0], coupling))
    return found * mask / scale[:, None, :] / weight, mask


def error_weights(importance: Array) -> Array:
    """Return by how much an error, not its square, of each row counts: at most 1."""
    weight: Array = np.sqrt(importance / max(float(importance.max(initial=0.0)), 1e-300))
    return np.maximum(weight, 1e-6)


def row_weights(moments: Moments) -> Array:
    """Return by how much an error of each row counts.

    As a rule all count the same. Where outputs differ in size by orders of magnitude, the layers behind make up for it,
    and errors count relative to how much an output varies.
    """
    variance = moments.covariance()[2][:, :, None]
    floored = np.maximum(variance, 1e-6 * max(float(variance.max(initial=0.0)), 1e-30))
    if float(np.std(np.log(floored))) < _WIDE:
        return np.ones_like(variance)
    weight: Array = 1 / np.sqrt(floored)
    return weight


def _by_magnitude(start: Array, sparsity: float, pattern: str) -> Array:
    """Keep the largest |w| · deviation of the input, over all rows of the layer."""
    flat = start.reshape(-1, start.shape[-1])
    kept: Array = keep_mask(flat**2, sparsity, pattern).reshape(start.shape)
    return kept


def _by_saliency(h: Array, start: Array, sparsity: float, pattern: str) -> Array:
    """Keep the largest w² / (H⁻¹)ⱼⱼ: what removing a single weight costs when all others are moved best."""
    spread = np.einsum("gkk->gk", np.linalg.inv(h))[:, None, :]
    return _by_magnitude(start / np.sqrt(np.maximum(spread, 1e-30)), sparsity, pattern)


def _by_alternation(
    h: Array, target: Array, mask: Array, sparsity: float, pattern: str, iterations: int, coupling: Array | None
) -> Array:
    values, vectors = (a.astype(np.float32) for a in np.linalg.eigh(h))
    values = np.maximum(values, _RIDGE / 2)  # rounding can leave less where inputs hardly vary, and that would diverge
    turned = np.ascontiguousarray(vectors.T)
    goal = target.astype(np.float32)
    left: Array | None = None
    if coupling is not None:  # the eigenvectors of a Kronecker product are products of those of its factors
        others, left = (a.astype(np.float32) for a in np.linalg.eigh(coupling))
        values = np.maximum(others, 1e-3)[:, None] * values
        goal = (coupling @ target).astype(np.float32)

    def solved(right: Array, penalty: float) -> Array:
        across = right if left is None else left.T @ right
        found: Array = (across @ vectors / (values + penalty)) @ turned
        return found if left is None else left @ found

    solution = solved(goal, 0.0)
    sparse = np.where(mask, solution, 0)
    multiplier = np.zeros_like(sparse)
    penalty = _FIRST_PENALTY
    following = mask
    for iteration in range(iterations):
        solution = solved(goal - multiplier + penalty * sparse, penalty)
        wish = solution + multiplier / penalty
        following = keep_mask(wish**2, sparsity, pattern)
        sparse = np.where(following, wish, 0)
        multiplier += penalty * (solution - sparse)
        if iteration % 3 == 2:
            changed = int(np.count_nonzero(following != mask))
            if changed == 0 and iteration > 10:
                break
            mask = following
            share = changed / max(int(np.count_nonzero(following)), 1)
            penalty *= 1.3 if share > 0.1 else 1.2 if share > 0.005 else 1.1
    return following


def _objective(h: Array, target: Array, rows: Array, coupling: Array | None) -> float:
    mixed = rows if coupling is None else coupling @ rows
    return float(0.5 * np.sum((rows @ h) * mixed) - np.sum(mixed * target))
