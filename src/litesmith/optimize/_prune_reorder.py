# SPDX-License-Identifier: Apache-2.0
"""Put channels in another order, so that blocks of four neighbours are alike: blocks then vanish at a lower price.

A block of 4x1 goes if its four weights, of four output channels, are small together. Which channels are neighbours is
up to us: channels of a group (`_channels_groups.py`) can change places in every tensor that has them, without any effect
on what the model computes. Pool and Yu did so for other patterns (NeurIPS 2021, "Channel permutations for N:M sparsity").
Here pairs of channels change places as long as what lies above the threshold of pruning, summed over all blocks, grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.model import Model
from litesmith.model._expose import expose
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._channels_groups import Group, find_groups
from litesmith.optimize._channels_rewrite import with_order
from litesmith.optimize._channels_trace import Trace
from litesmith.optimize._layer_rules import WeightLayer, op_input
from litesmith.optimize._prune_patterns import BLOCK, units_to_zero
from litesmith.optimize._run import Data, Feed, GraphRunner
from litesmith.optimize._segments import spread_samples
from litesmith.optimize._shared_constants import held_elsewhere
from litesmith.progress import task

Array = np.ndarray[Any, Any]
_SAMPLES = 64
_SWEEPS = 4
_MOST_ROWS = 4096
_MOST_SCORES = 1 << 19
_COLUMNS = (64, 512)
"""A sample of so many columns tells as much as all: the fewer, the more rows there are."""


def reordered(model: Model, shares: Mapping[WeightLayer, float], data: Data | None) -> tuple[Model, int]:
    """Return the model with channels in an order that suits 4x1 blocks, and how many groups of them changed.

    ``shares`` has the sparsity of the layers that will be pruned. With data, weights count by how much their inputs vary.
    """
    signature, subgraph = entry_points(model)[0]
    layers = {layer.operator: (layer, share) for layer, share in shares.items() if layer.subgraph == subgraph}
    trace = Trace(model.subgraphs[subgraph], held_elsewhere(model, subgraph))
    groups = [group for group in find_groups(trace) if _is_free(trace, group, layers)]
    variances: dict[int, Array] = {}
    if data is not None and groups:
        fed = spread_samples(model, data, _SAMPLES, signature=signature)
        variances = _input_variances(model, subgraph, fed, [layer for layer, _ in layers.values()]) if fed else {}
    moves: dict[int, int] = {}
    changed = 0
    with task("Reordering channels", total=len(groups)) as advance:
        for group in groups:
            found = _moves(model, trace, group, layers, variances)
            changed += any(old != new for old, new in found.items())
            moves.update(found)
            advance(1)
    if not changed:
        return model, 0
    graphs = (*model.subgraphs[:subgraph], with_order(trace, moves), *model.subgraphs[subgraph + 1 :])
    return replace(model, subgraphs=graphs, source=None), changed


def _input_variances(
    model: Model, subgraph: int, fed: Sequence[Feed], layers: Sequence[WeightLayer]
) -> dict[int, Array]:
    """Return the variance of what each column of a layer's rows is multiplied with, by operator."""
    graph = model.subgraphs[subgraph]
    read = {layer.operator: op_input(graph.operators[layer.operator]) for layer in layers}
    inside = [tensor for tensor in dict.fromkeys(read.values()) if tensor not in graph.inputs]
    runner = GraphRunner(expose(model, inside, subgraph=subgraph), subgraph=subgraph)
    sums: dict[int, Array] = {}
    for feed in fed:
        runner.run(feed)
        for tensor in set(read.values()):
            values = feed[tensor] if tensor in feed else runner.view(tensor)
            rows = values.reshape(-1, values.shape[-1])
            added = np.stack([np.full(rows.shape[1], len(rows)), rows.sum(axis=0), np.square(rows).sum(axis=0)])
            sums[tensor] = sums.get(tensor, 0.0) + added.astype(np.float64)
    variances = {}
    for layer in layers:
        count, total, squares = sums[read[layer.operator]]
        variance = np.maximum(squares / count - (total / count) ** 2, 0.0).astype(np.float32)
        columns = int(np.prod(graph.tensors[layer.weight].shape[1:]))
        if columns % len(variance) == 0:  # taps of a kernel see the same channels; features may come from several rows
            variances[layer.operator] = np.tile(variance, columns // len(variance))
    return variances


def _is_free(trace: Trace, group: Group, layers: Collection[int]) -> bool:
    """Say whether channels of a group may change places, and the layers that write them have nothing else and one order."""
    if group.reason or not any(writer in layers for writer in group.writers):
        return False
    if group.width % BLOCK or not BLOCK < group.width <= _MOST_ROWS:
        return False
    written = [trace.atoms[trace.graph.operators[w].outputs[0]] for w in group.writers if w in layers]
    return len(written[0]) == group.width and all(np.array_equal(atoms, written[0]) for atoms in written)


def _moves(
    model: Model,
    trace: Trace,
    group: Group,
    layers: Mapping[int, tuple[WeightLayer, float]],
    variances: Mapping[int, Array],
) -> dict[int, int]:
    scores, shares = [], []
    for writer in group.writers:
        if writer not in layers:
            continue
        layer, share = layers[writer]
        rows = model.subgraphs[layer.subgraph].tensors[layer.weight].array().reshape(group.width, -1)
        squares = np.square(rows, dtype=np.float32) * variances.get(writer, np.float32(1))
        scores.append(squares / max(float(squares.sum()), 1e-30) * rows.size)
        shares.append(share)
    table = np.concatenate(scores, axis=1)
    columns = int(np.clip(_MOST_SCORES // group.width, *_COLUMNS))
    if table.shape[1] > columns:
        table = table[:, np.linspace(0, table.shape[1] - 1, columns).astype(int)]
    order = block_order(table, float(np.mean(shares)))
    atoms = trace.atoms[trace.graph.operators[next(w for w in group.writers if w in layers)].outputs[0]]
    return dict(zip(atoms.tolist(), atoms[order].tolist(), strict=True))


def block_order(scores: Array, sparsity: float) -> Array:
    """Return an order of rows with which blocks of four neighbours lose less at a sparsity."""
    scores = np.ascontiguousarray(scores, np.float32)
    order = np.arange(len(scores))
    for _ in range(_SWEEPS):
        blocks = scores[order].reshape(-1, BLOCK, scores.shape[1]).sum(axis=1)
        gone = units_to_zero(blocks.size, sparsity)
        if not 0 < gone < blocks.size:
            return order
        threshold = np.partition(blocks, gone - 1, axis=None)[gone - 1]
        if not _sweep(scores, order, blocks, threshold):
            return order
    return order


def _sweep(scores: Array, order: Array, blocks: Array, threshold: float) -> int:
    """Let each row change places with the one where that gains most; return how many did."""
    kept = np.maximum(blocks - threshold, 0).sum(axis=1)
    changed = 0
    for place in range(len(order)):
        own = place // BLOCK
        others = scores[order]
        without = blocks[own] - scores[order[place]]
        here = np.maximum(without + others - threshold, 0).sum(axis=1)
        each = np.repeat(blocks, BLOCK, axis=0)
        there = np.maximum(each - others + scores[order[place]] - threshold, 0).sum(axis=1)
        gain = here + there - kept[own] - np.repeat(kept, BLOCK)
        gain[own * BLOCK : (own + 1) * BLOCK] = 0
        best = int(np.argmax(gain))
        if gain[best] <= 1e-6 * max(float(kept.sum()), 1e-30):
            continue
        other = best // BLOCK
        difference = scores[order[best]] - scores[order[place]]
        blocks[own] += difference
        blocks[other] -= difference
        kept[[own, other]] = np.maximum(blocks[[own, other]] - threshold, 0).sum(axis=1)
        order[place], order[best] = order[best], order[place]
        changed += 1
    return changed
