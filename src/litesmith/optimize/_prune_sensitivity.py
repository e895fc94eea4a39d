# SPDX-License-Identifier: Apache-2.0
"""How much of an error in each output of a layer reaches the end of the model.

Some outputs of a layer are cut off by the activation behind it, others decide the answer: with the same square error they
differ by orders of magnitude. So single outputs are pruned, one after the other, and the error at the model's end is
divided by their own. Where that would take too long, neighbouring outputs are pruned together.

What a whole layer can give is measured in the same way: it alone is pruned, more and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.model import ABSENT, Model, Tensor, cost
from litesmith.optimize._layer_moments import Moments, from_matrices, to_matrices
from litesmith.optimize._layer_rules import WeightLayer, op_bias
from litesmith.optimize._output_error import OutputError
from litesmith.optimize._prune_second_order import prune_rows, row_weights

Array = np.ndarray[Any, Any]
SAMPLES = 24
_MOST_MACS = 2e11
A_RUN = 5e6
"""What a run costs beside its multiply-accumulates, in such."""
_SMALLEST = 1e-3
_TEMPER = 0.5
"""Measured on few samples, how outputs differ from what their variances let expect is trusted by half."""


def affordable_parts(model: Model, samples: int, layers: int) -> int:
    """Return into how many parts the outputs of each layer can be divided, at least 1."""
    return max(int(_MOST_MACS / ((cost(model).macs + A_RUN) * max(samples, 1) * max(layers, 1))), 1)


def row_importance(
    model: Model, layer: WeightLayer, moments: Moments, probe: float, pattern: str, judge: OutputError, parts: int
) -> Array:
    """Return the error of the model's output by the square error of each output of a layer, (g, r, 1)."""
    graph = model.subgraphs[layer.subgraph]
    tensor = graph.tensors[layer.weight]
    rows = rows_of_layer(tensor, layer, moments)
    pruned, _ = prune_rows(moments, rows, probe, pattern, iterations=0)
    xx = moments.covariance()[0]
    lost = rows - pruned
    own = np.sum((lost @ xx) * lost, axis=2).reshape(-1)
    shift = np.einsum("grk,gk->gr", lost, moments.x / max(moments.count, 1)).reshape(-1)
    expected = row_weights(moments).reshape(-1) ** 2
    found = np.zeros(len(own))
    for part in np.array_split(np.arange(len(own)), min(parts, len(own))):
        mixed = rows.reshape(len(own), -1).copy()
        mixed[part] = pruned.reshape(len(own), -1)[part]
        reaching = judge.of(_with_rows(model, layer, mixed.reshape(rows.shape), part, shift))
        found[part] = reaching / max(float(expected[part] @ own[part]), 1e-30)
    importance: Array = (_tempered(found) * expected).reshape(*rows.shape[:2], 1)
    return importance


def error_curve(
    model: Model,
    layer: WeightLayer,
    moments: Moments,
    sparsities: tuple[float, ...],
    pattern: str,
    importance: Array,
    judge: OutputError,
) -> tuple[float, ...]:
    """Return the error at the model's end with this layer alone pruned, at some sparsities, its other weights moved.

    Layers behind it will make up for a part of that error, which is left out as far as the last one can do so.
    """
    rows = rows_of_layer(model.subgraphs[layer.subgraph].tensors[layer.weight], layer, moments)
    errors = []
    for sparsity in sparsities:
        if not sparsity:
            errors.append(0.0)
            continue
        found, _ = prune_rows(moments, rows, sparsity, pattern, importance=importance, iterations=0)
        shift = np.einsum("grk,gk->gr", rows - found, moments.x / max(moments.count, 1)).reshape(-1)
        errors.append(judge.after_refit(_with_rows(model, layer, found, np.arange(len(shift)), shift)))
    return tuple(np.maximum.accumulate(errors).tolist())


def _with_rows(model: Model, layer: WeightLayer, rows: Array, part: Array, shift: Array) -> Model:
    """Return the model with other rows in a layer, and with what the mean of some outputs lost in its bias."""
    graph = model.subgraphs[layer.subgraph]
    tensor, bias = graph.tensors[layer.weight], op_bias(graph.operators[layer.operator])
    changed = {layer.weight: tensor.with_array(from_matrices(rows, layer.kind, tensor.shape))}
    if bias != ABSENT and graph.tensors[bias].elements == len(shift):
        changed[bias] = _shifted(graph.tensors[bias], part, shift)
    return with_tensors(model, layer.subgraph, changed)


def rows_of_layer(tensor: Tensor, layer: WeightLayer, moments: Moments) -> Array:
    """Return the weights of a layer as (group, row, input)."""
    return to_matrices(np.asarray(tensor.array(), np.float64), layer.kind, len(moments.yx))


def with_tensors(model: Model, subgraph: int, changed: Mapping[int, Tensor]) -> Model:
    """Return the model with other tensors in a subgraph."""
    graph = model.subgraphs[subgraph]
    tensors = tuple(changed.get(index, tensor) for index, tensor in enumerate(graph.tensors))
    graphs = (*model.subgraphs[:subgraph], replace(graph, tensors=tensors), *model.subgraphs[subgraph + 1 :])
    return replace(model, subgraphs=graphs)


def _shifted(bias: Tensor, part: Array, shift: Array) -> Tensor:
    values = bias.array().copy()
    values[part] += shift[part].astype(values.dtype)
    return bias.with_array(values)


def _tempered(found: Array) -> Array:
    floored = np.maximum(found, _SMALLEST * max(float(found.max(initial=0.0)), 1e-30))
    tempered: Array = floored**_TEMPER
    tempered *= floored.mean() / tempered.mean()
    return tempered
