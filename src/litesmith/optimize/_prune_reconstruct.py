# SPDX-License-Identifier: Apache-2.0
"""Prune on data: measure what each layer can give, then prune layer by layer, each making up for those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.errors import DataError
from litesmith.model import Model
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._layer_fit import fit
from litesmith.optimize._layer_moments import Moments, from_matrices
from litesmith.optimize._layer_pairs import WALK_BYTES, fittable, input_moments, layer_pairs
from litesmith.optimize._layer_rules import WeightLayer
from litesmith.optimize._output_error import OutputError
from litesmith.optimize._prune_allocate import MOST, Curve, allocate_by_curves
from litesmith.optimize._prune_patterns import from_rows, keep_mask, rows_of
from litesmith.optimize._prune_second_order import error_curve, prune_rows
from litesmith.optimize._run import Data, Feed
from litesmith.optimize._segments import affordable_samples, spread_samples
from litesmith.progress import task

Array = np.ndarray[Any, Any]
_GRID = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, MOST)
_CURVE_SAMPLES = 128
_SENSITIVITY_SAMPLES = 24


def measured_sparsities(
    model: Model,
    targets: Mapping[WeightLayer, float | None],
    sparsity: float,
    pattern: str,
    budget: str,
    data: Data,
    samples: int,
    seed: int,
) -> dict[WeightLayer, float]:
    """Return the sparsity of each layer: as a rule says, the same for all, or by what errors they were seen to cause."""
    fixed = {layer: number for layer, number in targets.items() if number is not None}
    free = [layer for layer, number in targets.items() if number is None]
    if budget != "global" or pattern == "2:4" or not free or sparsity == 0:
        return {**dict.fromkeys(free, sparsity), **fixed}
    signature, subgraph = entry_points(model)[0]
    graph = model.subgraphs[subgraph]
    inside = [layer for layer in free if layer.subgraph == subgraph and fittable(graph, layer.operator)]
    outside = [layer for layer in free if layer not in inside]
    fed = spread_samples(model, data, min(samples, _CURVE_SAMPLES), signature=signature)
    _check_fed(fed)
    moments = input_moments(model, subgraph, fed, [layer.operator for layer in inside], seed=seed)
    judge = OutputError(model, fed[:: max(len(fed) // _SENSITIVITY_SAMPLES, 1)], subgraph=subgraph)
    curves = []
    with task("Measuring sensitivity", total=len(inside)) as advance:
        for layer in inside:
            curves.append(_curve(model, layer, moments.pop(layer.operator), sparsity, pattern, judge))
            advance(1)
    shares = allocate_by_curves(curves, sparsity)
    return {**dict(zip(inside, shares, strict=True)), **dict.fromkeys(outside, sparsity), **fixed}


def _curve(
    model: Model, layer: WeightLayer, moments: Moments, sparsity: float, pattern: str, judge: OutputError
) -> Curve:
    """Return what a layer's sparsity does to the output of the model: its own error, scaled by what reaches the end."""
    tensor = model.subgraphs[layer.subgraph].tensors[layer.weight]
    rows = np.asarray(tensor.array(), np.float64).reshape(moments.yx.shape)
    errors = error_curve(moments, rows, _GRID, pattern)
    probe = max(sparsity, 0.5)
    pruned, _ = prune_rows(moments, rows, probe, pattern, iterations=0)
    own = max(moments.error(pruned), 1e-12)
    changed = tensor.with_array(from_matrices(pruned, layer.kind, tensor.shape))
    reaching = judge.of(_with_tensor(model, layer.subgraph, {layer.weight: changed}))
    return Curve(tensor.elements, _GRID, tuple(error * reaching / own for error in errors))


def reconstruct(
    model: Model, sparsities: Mapping[WeightLayer, float], pattern: str, data: Data, samples: int, seed: int
) -> tuple[Model, dict[tuple[int, int], float], list[str]]:
    """Return the pruned model, the error of each layer's output by (subgraph, operator), and notes.

    All layers that can be are fitted, also those that stay dense: each sees what the pruned ones before it write.
    """
    signature, subgraph = entry_points(model)[0]
    graph = model.subgraphs[subgraph]
    fitted = [index for index in range(len(graph.operators)) if fittable(graph, index)]
    here = {layer.operator: share for layer, share in sparsities.items() if layer.subgraph == subgraph}
    rest = {k: v for k, v in sparsities.items() if k.subgraph != subgraph or k.operator not in fitted}
    notes = [f"{layer.label} was pruned by magnitude: its inputs cannot be looked at" for layer in rest]
    start = _by_magnitude(model, rest, pattern)
    first = min((index for index in fitted if index in here), default=0)
    layers = [index for index in fitted if index >= first]
    affordable = affordable_samples(graph, WALK_BYTES)
    fed = spread_samples(model, data, min(samples, affordable), signature=signature)
    _check_fed(fed)
    if len(fed) < min(samples, 50):
        notes.append(f"only {len(fed)} samples: some hundreds would serve better")
    errors: dict[tuple[int, int], float] = {}
    result = start
    with task("Pruning", total=len(layers)) as advance:
        for pair in layer_pairs(model, start, subgraph, fed, layers, seed=seed):
            together = pair.fitted.merged(pair.held)
            mask = None
            rows = pair.rows
            if here.get(pair.operator):
                rows, mask = prune_rows(together, pair.rows, here[pair.operator], pattern)
                rows = pair.rows * mask
            rows = fit(pair.fitted, pair.held, rows, mask)
            rows = rows if mask is None else np.where(mask, rows, 0.0)
            errors[subgraph, pair.operator] = pair.held.error(rows)
            pair.replace(rows, together.bias(rows))
            result = replace(start, subgraphs=_with_graph(start, subgraph, pair.walk.graph()), source=None)
            advance(1)
    return replace(result, subgraphs=_with_graph(start, subgraph, pair.walk.graph())), errors, notes


def _check_fed(fed: Sequence[Feed]) -> None:
    if not fed:
        raise DataError("there are no samples in the data")


def _by_magnitude(model: Model, sparsities: Mapping[WeightLayer, float], pattern: str) -> Model:
    for layer, share in sparsities.items():
        tensor = model.subgraphs[layer.subgraph].tensors[layer.weight]
        values = tensor.array()
        mask = from_rows(keep_mask(rows_of(values, layer.kind) ** 2, share, pattern), layer.kind, tensor.shape)
        changed = tensor.with_array(np.where(mask, values, np.float32(0)))
        model = _with_tensor(model, layer.subgraph, {layer.weight: changed})
    return model


def _with_tensor(model: Model, subgraph: int, changed: Mapping[int, Any]) -> Model:
    graph = model.subgraphs[subgraph]
    tensors = tuple(changed.get(index, tensor) for index, tensor in enumerate(graph.tensors))
    return replace(model, subgraphs=_with_graph(model, subgraph, replace(graph, tensors=tensors)))


def _with_graph(model: Model, subgraph: int, graph: Any) -> tuple[Any, ...]:
    return (*model.subgraphs[:subgraph], graph, *model.subgraphs[subgraph + 1 :])
