# SPDX-License-Identifier: Apache-2.0
"""Prune on data: measure what each layer can give, then prune layer by layer, each making up for those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import DataError
from litesmith.model import Model, cost
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._layer_fit import fit, with_variance
from litesmith.optimize._layer_moments import Moments
from litesmith.optimize._layer_pairs import fittable, input_moments, layer_pairs, most_samples, single_sample_notes
from litesmith.optimize._layer_rules import WeightLayer, sharing_layers, sharing_notes
from litesmith.optimize._output_error import OutputError
from litesmith.optimize._prune_allocate import Curve, allocate_by_curves
from litesmith.optimize._prune_coupling import SAMPLES as COUPLING_SAMPLES
from litesmith.optimize._prune_coupling import fit_coupled, is_affordable, row_coupling
from litesmith.optimize._prune_patterns import from_rows, keep_mask, rows_of
from litesmith.optimize._prune_second_order import error_weights, prune_rows
from litesmith.optimize._prune_sensitivity import (
    A_RUN,
    SAMPLES,
    affordable_parts,
    error_curve,
    row_importance,
    with_tensors,
)
from litesmith.optimize._run import Data, Feed
from litesmith.optimize._segments import spread_samples
from litesmith.optimize._shared_constants import keep_shared
from litesmith.progress import task

Array = np.ndarray[Any, Any]
_GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_PLAN_SAMPLES = 192
"""Of which every third judges what was fitted to the others."""
_CURVE_MACS = 3e11
_FEWEST = 16


@dataclass(frozen=True)
class PrunePlan:
    """What to prune: the sparsity of each layer, and how errors of its outputs matter, where that was measured."""

    sparsities: dict[WeightLayer, float]
    importance: dict[int, Array]
    coupling: dict[int, Array]


def measured_plan(
    model: Model,
    targets: Mapping[WeightLayer, float | None],
    sparsity: float,
    pattern: str,
    budget: str,
    data: Data,
    samples: int,
    seed: int,
) -> PrunePlan:
    """Return the sparsity of each layer: as a rule says, the same for all, or by what errors they were seen to cause."""
    fixed = {layer: number for layer, number in targets.items() if number is not None}
    free = [layer for layer, number in targets.items() if number is None]
    if pattern == "2:4" or not targets or not any((sparsity, *fixed.values())):
        return PrunePlan({**dict.fromkeys(free, sparsity), **fixed}, {}, {})
    signature, subgraph = entry_points(model)[0]
    graph = model.subgraphs[subgraph]
    able = fittable(model, subgraph)
    wanted = {layer: sparsity if number is None else number for layer, number in targets.items()}
    inside = [t for t, share in wanted.items() if share > 0 and t.subgraph == subgraph and t.operator in able]
    fed = spread_samples(model, data, min(samples, _PLAN_SAMPLES), signature=signature)
    _check_fed(fed)
    held, seen_by_fit = fed[::3], [feed for number, feed in enumerate(fed) if number % 3] or fed
    moments = input_moments(model, subgraph, seen_by_fit, [layer.operator for layer in inside], seed=seed)
    few = _some(held, SAMPLES)
    judge = OutputError(model, few, subgraph=subgraph)
    coupled = OutputError(model, _some(held, COUPLING_SAMPLES), subgraph=subgraph)
    couples = is_affordable(model, inside)
    parts = affordable_parts(model, len(few), len(inside))
    most = (1 + sparsity) / 2  # no layer keeps less than half of what the average one does: curves flatter at the end
    grid = (*(share for share in _GRID if share < most), most)
    runs = max(len(inside) * len(grid), 1) * (cost(model).macs + A_RUN)
    final = OutputError(model, _some(held, max(int(_CURVE_MACS / runs), _FEWEST)), subgraph=subgraph)
    curves, importance, coupling = {}, {}, {}
    with task("Measuring sensitivity", total=len(inside)) as advance:
        for layer in inside:
            seen = moments.pop(layer.operator)
            matter = row_importance(model, layer, seen, max(wanted[layer], 0.5), pattern, judge, parts)
            if layer not in fixed and budget == "global":
                errors = error_curve(model, layer, seen, grid, pattern, matter, final)
                curves[layer] = Curve(graph.tensors[layer.weight].elements, grid, errors)
            importance[layer.operator] = matter
            between = row_coupling(model, layer, seen, coupled) if couples else None
            if between is not None:
                coupling[layer.operator] = between
            advance(1)
    shares = dict(zip(curves, allocate_by_curves(list(curves.values()), sparsity), strict=True))
    return PrunePlan({**dict.fromkeys(free, sparsity), **shares, **fixed}, importance, coupling)


def _some(feeds: Sequence[Feed], count: int) -> list[Feed]:
    """Return so many samples, or all if there are fewer, from all over them."""
    places = np.unique(np.linspace(0, len(feeds) - 1, min(count, len(feeds))).round().astype(int))
    return [feeds[place] for place in places]


def reconstruct(
    model: Model, plan: PrunePlan, pattern: str, data: Data, samples: int, seed: int
) -> tuple[Model, dict[tuple[int, int], float], list[str]]:
    """Return the pruned model, the error of each layer's output by (subgraph, operator), and notes.

    All layers that can be are fitted, also those that stay dense: each sees what the pruned ones before it write.
    """
    sparsities = plan.sparsities
    signature, subgraph = entry_points(model)[0]
    graph = model.subgraphs[subgraph]
    fitted = sorted(fittable(model, subgraph))
    here = {layer.operator: share for layer, share in sparsities.items() if layer.subgraph == subgraph}
    rest = {k: v for k, v in sparsities.items() if k.subgraph != subgraph or k.operator not in fitted}
    unfit = sharing_layers(model, rest)
    unseen = [layer for layer in rest if layer not in unfit]
    notes = [f"{layer.label} was pruned by magnitude: its inputs cannot be looked at" for layer in unseen]
    notes += sharing_notes(unfit, "pruned by magnitude")
    start = keep_shared(model, _by_magnitude(model, rest, pattern), [(t.subgraph, t.weight) for t in rest])
    first = min((index for index in fitted if index in here), default=0)
    layers = [index for index in fitted if index >= first]
    affordable = most_samples(graph)
    fed = spread_samples(model, data, min(samples, affordable), signature=signature)
    _check_fed(fed)
    if len(fed) < min(samples, 50):
        notes.append(f"only {len(fed)} samples: some hundreds would serve better")
    notes += single_sample_notes(len(fed))
    errors: dict[tuple[int, int], float] = {}
    result = start
    with task("Pruning", total=len(layers)) as advance:
        for pair in layer_pairs(model, start, subgraph, fed, layers, seed=seed):
            together = pair.fitted.merged(pair.held)
            mask = None
            rows = pair.rows
            if here.get(pair.operator):
                matter, between = plan.importance.get(pair.operator), plan.coupling.get(pair.operator)
                mask = _mask(together, pair.rows, here[pair.operator], pattern, matter, between)
                rows = pair.rows * mask
                if matter is not None and between is not None:
                    rows = fit_coupled(pair.fitted, pair.held, rows, mask, error_weights(matter), between)
                else:
                    rows = fit(pair.fitted, pair.held, rows, mask)
            else:
                rows = fit(pair.fitted, pair.held, rows)
            rows = with_variance(together, rows if mask is None else np.where(mask, rows, 0.0))
            judge = pair.held if pair.held.count > 1 else together
            if judge.count > 1:
                errors[subgraph, pair.operator] = judge.error(rows)
            pair.replace(rows, together.bias(rows))
            result = replace(start, subgraphs=_with_graph(start, subgraph, pair.walk.graph()), source=None)
            advance(1)
    return result, errors, notes


def _mask(
    moments: Moments, rows: Array, share: float, pattern: str, importance: Array | None, coupling: Array | None
) -> Array:
    """Return the weights to keep: by their effect, or by size where one position tells nothing of that."""
    if moments.count > 1:
        return prune_rows(moments, rows, share, pattern, importance=importance, coupling=coupling)[1]
    mask: Array = keep_mask(rows.reshape(-1, rows.shape[-1]) ** 2, share, pattern).reshape(rows.shape)
    return mask


def _check_fed(fed: Sequence[Feed]) -> None:
    if not fed:
        raise DataError("there are no samples in the data")


def _by_magnitude(model: Model, sparsities: Mapping[WeightLayer, float], pattern: str) -> Model:
    for layer, share in sparsities.items():
        tensor = model.subgraphs[layer.subgraph].tensors[layer.weight]
        values = tensor.array()
        mask = from_rows(keep_mask(rows_of(values, layer.kind) ** 2, share, pattern), layer.kind, tensor.shape)
        changed = tensor.with_array(np.where(mask, values, np.float32(0)))
        model = with_tensors(model, layer.subgraph, {layer.weight: changed})
    return model


def _with_graph(model: Model, subgraph: int, graph: Any) -> tuple[Any, ...]:
    return (*model.subgraphs[:subgraph], graph, *model.subgraphs[subgraph + 1 :])
