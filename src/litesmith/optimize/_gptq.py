# SPDX-License-Identifier: Apache-2.0
"""GPTQ: round the weights of a layer one after another, and let those that follow make up for the error so far.

For the rows w of a layer and the columns X that it reads, the rounded rows ŵ shall minimize

    ‖w X − ŵ X‖²  =  (w − ŵ) H (w − ŵ)ᵀ,      H = X Xᵀ / n.

Weight i is rounded, and its error e moves the weights after it by −e · U[i, i+1:] / U[i, i], where UᵀU = H⁻¹ is the
Cholesky factorization (Frantar et al., arXiv:2210.17323). H is damped by 1 % of its mean diagonal; inputs that are always
zero are left out. Where bias correction follows, it takes care of the mean: H is then the covariance of the columns.
Layers go in order of execution, each sees what the rounded layers before it give.

A row takes, of rounding to nearest and GPTQ, each with the scales of the range method and with those of "mse", the one
with the least error on a fifth of the columns that were held back. So no row gets worse by what the samples can tell.

Cost: one pass of the float model over at most ``_SAMPLES`` samples, at most 20,000 sampled columns a layer, and O(k³)
for the k weights of an output channel. Memory: one layer's H, and the activations at the cut.
Scope: weights of 6 bits or fewer, or of 8 where activations are finer, with a scale a channel (not in blocks), of CONV_2D,
FULLY_CONNECTED and DEPTHWISE_CONV_2D, where each channel has an H of its own. It needs samples, no labels. It does not
reorder weights by their activation, quantize activations on the way, or change biases: bias correction goes well with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.errors import OptimizeError
from litesmith.model import Model
from litesmith.optimize._arithmetic import largest_integer
from litesmith.optimize._layer_inputs import LayerInputs, layers_with_inputs
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._run import Data
from litesmith.optimize._weight_ranges import weight_scales
from litesmith.optimize._weights import Overrides, WeightOverride
from litesmith.progress import task

if TYPE_CHECKING:
    from litesmith.optimize._request import Request

Array = np.ndarray[Any, Any]
STAGE = "weights"
_SAMPLES = 64
_DAMPING = 0.01
_HELD_BACK = 0.2
_BLOCK = 128


def apply(model: Model, request: Request, ranges: Ranges | None, data: Data | None) -> Overrides:
    """Return the rounded weights of every layer whose error is mostly that of their rounding."""
    if data is None:
        raise OptimizeError("GPTQ needs samples; give data, or leave 'gptq' out of the recovery passes")
    found: dict[tuple[int, int], WeightOverride] = {}
    with task("GPTQ") as advance:
        for layer in layers_with_inputs(
            model, request, ranges, data, samples=_SAMPLES, only_where_rounding_matters=True
        ):
            integers, scales = _best_rows(layer, request)
            layer.replace(integers * scales.reshape(-1, 1))
            found[layer.key] = layer.override(integers, scales)
            advance(1)
    return found


def _best_rows(layer: LayerInputs, request: Request) -> tuple[Array, Array]:
    """Return the integers and scales of a layer: for each row, or for all with one scale, what loses least."""
    held_back, seen = split_columns(layer)
    h, judge = (hessian(layer, places, centered=request.add_biases) for places in (seen, held_back))
    best: tuple[Array, Array, Array] | None = None
    for method in dict.fromkeys((request.weight_ranges, "mse")):
        scales = layer_scales(layer, request, method)
        for integers in (layer.nearest(scales), round_rows(layer.values, scales, h, layer.scheme.bits)):
            error = row_errors(layer.values - integers * scales.reshape(-1, 1), judge)
            if scales.size == 1:
                error = np.full_like(error, error.sum())
            if best is None:
                best = integers, scales, error
                continue
            better = error < best[2]
            best = (
                np.where(better[:, None], integers, best[0]),
                scales if scales.size == 1 and better[0] else np.where(better[: scales.size], scales, best[1]),
                np.where(better, error, best[2]),
            )
    assert best is not None
    return best[0], best[1].astype(np.float32)


def layer_scales(layer: LayerInputs, request: Request, method: str) -> Array:
    """Return the scales of a layer's weights: one a channel, or one."""
    return weight_scales(layer.values, 0 if request.per_channel else None, layer.scheme.bits, method=method)


def split_columns(layer: LayerInputs) -> tuple[Array, Array]:
    """Return the places of a fifth of the columns, to judge by, and of the others, to learn from."""
    order = np.random.default_rng(0).permutation(len(layer.columns))
    count = min(max(int(_HELD_BACK * len(order)), 1), len(order) - 1)
    return (order[:count], order[count:]) if count else (order, order)


def hessian(layer: LayerInputs, places: Array, *, centered: bool = False) -> Array:
    """Return H of a layer, by some of its columns: (channel, weight, weight), or 1 in front for all channels."""
    columns = layer.columns[places]
    if centered:
        columns = columns - columns.mean(axis=0)
    if layer.is_depthwise:
        product: Array = np.einsum("ntc,nuc->ctu", columns, columns, optimize=True)
    else:
        product = (columns.T @ columns)[None]
    return product.astype(np.float64) / max(len(columns), 1)


def row_errors(errors: Array, h: Array) -> Array:
    """Return the mean square error of each output channel, for the errors of its weights."""
    moved = errors @ h[0] if len(h) == 1 else np.einsum("ck,ckj->cj", errors, h)
    return np.asarray(np.sum(moved * errors, axis=1))


def round_rows(rows: Array, scales: Array, h: Array, bits: int) -> Array:
    """Return the integers for rows of weights; ``h`` is one matrix for all rows, or one for each. Zeros stay zeros."""
    limit = largest_integer(bits)
    work = np.array(rows, np.float64)
    steps = np.broadcast_to(np.asarray(scales, np.float64).reshape(-1), len(work))
    factor = _inverse_factor(h)
    count = work.shape[1]
    integers = np.empty_like(work)
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        errors = np.empty((len(work), last - first))
        for i in range(first, last):
            integers[:, i] = np.where(rows[:, i] == 0, 0, np.clip(np.rint(work[:, i] / steps), -limit, limit))
            errors[:, i - first] = (work[:, i] - integers[:, i] * steps) / factor[:, i, i]
            work[:, i + 1 : last] -= errors[:, i - first, None] * factor[:, i, i + 1 : last]
        if last < count:
            ahead = factor[:, first:last, last:]
            work[:, last:] -= errors @ ahead[0] if len(ahead) == 1 else np.einsum("rb,rbk->rk", errors, ahead)
    return integers


def _inverse_factor(h: Array) -> Array:
    """Return U with UᵀU = H⁻¹, upper triangular, after damping."""
    h = np.array(h)
    diagonal = np.einsum("...ii->...i", h)
    dead = diagonal <= 0
    diagonal += _DAMPING * np.maximum(diagonal.mean(axis=-1, keepdims=True), 1e-12)
    diagonal[dead] = np.maximum(diagonal[dead], 1e-12)
    upper: Array = np.swapaxes(np.linalg.cholesky(np.linalg.inv(h)), -1, -2)
    return upper
