# SPDX-License-Identifier: Apache-2.0
"""Outputs of a layer that make up for each other: errors of two channels can cancel at the end of the model.

With G the products of what shifts of two outputs do to the model's output, an error E of the layer's rows costs
tr(G E H Eᵀ), the Kronecker-factored curvature of the whole model (Martens & Grosse, arXiv:1503.05671), where layer-wise
pruning has only H. G is measured by forward runs: each output is shifted in turn. Its diagonal is the importance of the
outputs, which `_prune_sensitivity.py` measures at errors that pruning makes; here is what correlates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from litesmith.model import ABSENT, Model, cost
from litesmith.optimize._layer_fit import RIDGES, conjugate_gradients, normalized
from litesmith.optimize._layer_moments import Moments
from litesmith.optimize._layer_rules import WeightLayer, op_bias
from litesmith.optimize._output_error import OutputError
from litesmith.optimize._prune_sensitivity import A_RUN, with_tensors

Array = np.ndarray[Any, Any]
SAMPLES = 8
_MOST_MACS = 3e11
_SHIFT = 0.5
_TRUSTED = 0.4
"""The share of the measured correlations that is believed: they are of shifts, which all positions have in common."""


def is_affordable(model: Model, layers: Iterable[WeightLayer]) -> bool:
    """Say whether each output of the layers can be shifted in a run of its own."""
    rows = sum(model.subgraphs[layer.subgraph].tensors[layer.weight].shape[0] for layer in layers)
    return rows * SAMPLES * (cost(model).macs + A_RUN) <= _MOST_MACS


def row_coupling(model: Model, layer: WeightLayer, moments: Moments, judge: OutputError) -> Array | None:
    """Return how the effects of a layer's outputs on the model's output correlate, (r, r); None where it cannot be told."""
    graph = model.subgraphs[layer.subgraph]
    bias = op_bias(graph.operators[layer.operator])
    if len(moments.x) > 1 or bias == ABSENT or graph.tensors[bias].elements != moments.y.size:
        return None
    deviations = np.sqrt(moments.covariance()[2].reshape(-1))
    effects = []
    for row, deviation in enumerate(deviations):
        shifted = graph.tensors[bias].array().copy()
        shifted[row] += _SHIFT * deviation
        changed = {bias: graph.tensors[bias].with_array(shifted)}
        effects.append(judge.difference(with_tensors(model, layer.subgraph, changed)))
    table = np.stack(effects)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-30)
    coupling: Array = _TRUSTED * (table @ table.T)
    np.fill_diagonal(coupling, 1.0)
    return coupling


def fit_coupled(fitted: Moments, held: Moments, rows: Array, mask: Array, weight: Array, coupling: Array) -> Array:
    """Return the rows that do best on the held-out moments, as `fit` does, where errors of rows add up by a coupling."""
    if held.count <= 1:
        return rows
    metric = coupling * (weight[0] @ weight[0].T)
    best, least = None, _loss(held, rows, metric)
    for ridge in RIDGES:
        loss = _loss(held, _solved(fitted, rows, mask, ridge, weight, coupling), metric)
        if loss < least:
            best, least = ridge, loss
    return rows if best is None else _solved(fitted.merged(held), rows, mask, best, weight, coupling)


def _solved(moments: Moments, rows: Array, mask: Array, ridge: float, weight: Array, coupling: Array) -> Array:
    h, target, scale, start = normalized(moments, rows, ridge)
    found = conjugate_gradients(h, target * weight, start * weight * mask, mask, coupling=coupling)
    return found / scale[:, None, :] / weight


def _loss(moments: Moments, rows: Array, metric: Array) -> float:
    """Return the error of rows but for what is the same for all."""
    xx, yx, _ = moments.covariance()
    return float(np.sum(metric * ((rows[0] @ xx[0] - 2 * yx[0]) @ rows[0].T)))
