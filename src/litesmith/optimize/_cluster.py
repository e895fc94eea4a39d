# SPDX-License-Identifier: Apache-2.0
"""Let the weights of a layer share a few values, so that the file compresses to a fraction; zeros stay zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import DataError, OptimizeError, UsageError
from litesmith.model import Model
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._cluster_assign import shared_rows
from litesmith.optimize._cluster_kmeans import STARTS
from litesmith.optimize._compressed_size import FileSizes, file_sizes
from litesmith.optimize._layer_fit import fit
from litesmith.optimize._layer_moments import from_matrices, groups_of, to_matrices
from litesmith.optimize._layer_pairs import fittable, layer_pairs, most_samples
from litesmith.optimize._layer_rules import (
    LayerRule,
    WeightLayer,
    matching_rules,
    op_input,
    parse_rules,
    sharing_layers,
    sharing_notes,
    weight_layers,
)
from litesmith.optimize._prune import check_runs, refuse_integers
from litesmith.optimize._prune_store import store_sparse, unpack_sparse
from litesmith.optimize._run import Data
from litesmith.optimize._segments import spread_samples
from litesmith.optimize._shared_constants import keep_shared
from litesmith.progress import task
from litesmith.result import Result

Array = np.ndarray[Any, Any]
DEFAULT_SAMPLES = 128
_FEWEST_ZEROS = 0.01


@dataclass(frozen=True)
class ClusteredLayer:
    """One layer with weights, and what became of it.

    Attributes:
        subgraph, index, kind, name: which one; the name is that of the tensor it writes.
        weights: how many it has.
        unique: how many different values the file holds for them, before and after; zero counts as one.
        largest_unique: the most that one output channel has, after.
        zeros: before and after.
        reason: why it was left alone; empty where it was clustered.
    """

    subgraph: int
    index: int
    kind: str
    name: str
    weights: int
    unique: tuple[int, int]
    largest_unique: int
    zeros: tuple[int, int]
    reason: str


@dataclass(frozen=True)
class ClusterCoverage(Result, kind="cluster", schema=1):
    """What clustering did.

    Attributes:
        clusters: values for each tensor, or each output channel; zeros of pruned layers not counted.
        per_channel, start, fitted: how.
        layers: every layer with weights; the numbers are counted in the bytes of the new file.
        sizes: of the whole file before and after, raw and compressed; None where not asked for.
        notes: what else one should know.
    """

    clusters: int
    per_channel: bool
    start: str
    fitted: bool
    layers: tuple[ClusteredLayer, ...]
    sizes: tuple[FileSizes, FileSizes] | None
    notes: tuple[str, ...]

    @property
    def clustered(self) -> tuple[ClusteredLayer, ...]:
        """The layers that were clustered."""
        return tuple(layer for layer in self.layers if not layer.reason)


@dataclass(frozen=True)
class Clustered:
    """The clustered model and what was done."""

    model: Model
    coverage: ClusterCoverage


def cluster(
    model: Model,
    *,
    clusters: int = 32,
    per_channel: bool = False,
    start: str = "k-means++",
    data: Data | None = None,
    rules: Sequence[LayerRule | str] = (),
    all_layers: bool = False,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    sizes: bool = False,
    check: bool = True,
) -> Clustered:
    """Return the model with few different values in each layer's weights, and a report of what became of each layer.

    The first and the last layers stay as they are unless a rule or ``all_layers`` includes them. Where a layer has more
    zeros than chance would give, as pruned ones have, they stay zeros and are not among the clusters.

    Args:
        model: in float, dense or stored sparse.
        clusters: how many values, at least 2.
        per_channel: so many for each output channel, instead of for the whole layer: the same ones times a power of 4,
            which compresses almost as well.
        start: of k-means: "k-means++", "density" or "linear".
        data: unlabelled samples; with them values are fitted to the layers' outputs: weights whose inputs vary more count
            for more, weights make up for the errors of others, and values and biases are moved to where the outputs of
            the layers change least, one layer after the other.
        rules: ``skip:MATCH``, ``include:MATCH`` or ``NUMBER:MATCH`` for layers by kind, #index or name.
        all_layers: cluster the first and the last layers too.
        samples: how many at most.
        seed: of the start, and of the choice of positions that layers are looked at.
        sizes: measure the file raw and compressed too.
        check: compile and run the result in LiteRT.

    Raises:
        UsageError: an option that makes no sense.
        OptimizeError: a rule matches nothing, or weights are not float.
    """
    check_clusters(clusters)
    if start not in STARTS:
        raise UsageError(f"there is no start {start!r}; choose one of {', '.join(STARTS)}")
    source = unpack_sparse(model)
    layers = weight_layers(source)
    targets, reasons = _targets(source, layers, parse_rules(rules), clusters, all_layers=all_layers)
    refuse_integers(source, targets, "clustering")
    options: Any = {"per_channel": per_channel, "start": start, "seed": seed}
    result, fitted = source, set[WeightLayer]()
    with task("Clustering", total=len(targets)) as advance:
        if data is not None:
            result, fitted = _on_data(source, targets, data, samples, options, advance)
        result = _by_weights(result, {t: n for t, n in targets.items() if t not in fitted}, options, advance)
    result = keep_shared(source, result, [(layer.subgraph, layer.weight) for layer in targets])
    if any(tensor.sparsity is not None for graph in model.subgraphs for tensor in graph.tensors):
        result = store_sparse(result)
    if check:
        check_runs(model, result)
    written = unpack_sparse(Model.from_bytes(result.to_bytes()))
    counted = tuple(_counted(source, written, layer, reasons.get(layer, "")) for layer in layers)
    both = (file_sizes(model), file_sizes(result)) if sizes else None
    notes = ["values are fitted to the outputs of the layers"] if fitted else []
    if data is not None:
        notes += sharing_notes(sharing_layers(source, targets), "clustered by their weights alone")
    return Clustered(result, ClusterCoverage(clusters, per_channel, start, bool(fitted), counted, both, tuple(notes)))


def check_clusters(clusters: float) -> None:
    """Refuse a number of clusters that there cannot be."""
    if clusters != int(clusters) or clusters < 2:
        raise UsageError(f"there must be 2 clusters or more, not {clusters:g}")


def _targets(
    model: Model, layers: Sequence[WeightLayer], rules: Sequence[LayerRule], clusters: int, *, all_layers: bool
) -> tuple[dict[WeightLayer, int], dict[WeightLayer, str]]:
    by_rule = matching_rules(model, layers, rules)
    targets: dict[WeightLayer, int] = {}
    reasons: dict[WeightLayer, str] = {}
    for layer in layers:
        rule = by_rule.get((layer.subgraph, layer.operator))
        if rule is not None and rule.number is not None:
            check_clusters(rule.number)
        if layer.is_shared:
            reasons[layer] = "it has the weights of a layer before it"
        elif rule is not None and rule.action == "skip":
            reasons[layer] = f"the rule {rule}"
        elif rule is None and not all_layers and (layer.is_first or layer.is_last):
            reasons[layer] = "the first layer" if layer.is_first else "the last layer"
        else:
            targets[layer] = clusters if rule is None or rule.number is None else int(rule.number)
    if not targets:
        raise OptimizeError(
            "there is no layer to cluster: only first and last layers have constant weights; include them with "
            "all_layers (--all-layers), and make stored weights float with dequantize(model) (--dequantize) first"
        )
    return targets, reasons


def _on_data(
    model: Model,
    targets: Mapping[WeightLayer, int],
    data: Data,
    samples: int,
    options: Any,
    advance: Callable[[int], None],
) -> tuple[Model, set[WeightLayer]]:
    """Cluster the layers whose inputs can be looked at, one after the other, each making up for those before it."""
    signature, subgraph = entry_points(model)[0]
    graph = model.subgraphs[subgraph]
    fed = spread_samples(model, data, min(samples, most_samples(graph)), signature=signature)
    if not fed:
        raise DataError("there are no samples in the data")
    able = fittable(model, subgraph)
    here = {t.operator: t for t in targets if t.subgraph == subgraph and t.operator in able}
    pair = None
    for pair in layer_pairs(model, model, subgraph, fed, here, seed=options["seed"]):
        layer = here[pair.operator]
        spared = _spared(pair.rows, targets[layer])
        rows = fit(pair.fitted, pair.held, pair.rows, ~spared if spared.any() else None)
        together = pair.fitted.merged(pair.held)
        shared = shared_rows(rows, targets[layer], seen=together, spared=spared, **options)
        pair.replace(shared, together.bias(shared))
        advance(1)
    if pair is None:
        return model, set()
    graphs = (*model.subgraphs[:subgraph], pair.walk.graph(), *model.subgraphs[subgraph + 1 :])
    return replace(model, subgraphs=graphs, source=None), set(here.values())


def _by_weights(
    model: Model, targets: Mapping[WeightLayer, int], options: Any, advance: Callable[[int], None]
) -> Model:
    """Cluster layers by their weights alone."""
    graphs = [list(graph.tensors) for graph in model.subgraphs]
    for layer, count in targets.items():
        tensor = graphs[layer.subgraph][layer.weight]
        rows = _rows(model, layer)
        shared = shared_rows(rows, count, seen=None, spared=_spared(rows, count), **options)
        graphs[layer.subgraph][layer.weight] = tensor.with_array(from_matrices(shared, layer.kind, tensor.shape))
        advance(1)
    pairs = zip(model.subgraphs, graphs, strict=True)
    return replace(model, subgraphs=tuple(replace(g, tensors=tuple(t)) for g, t in pairs), source=None)


def _rows(model: Model, layer: WeightLayer) -> Array:
    graph = model.subgraphs[layer.subgraph]
    op = graph.operators[layer.operator]
    tensor = graph.tensors[layer.weight]
    groups = 1
    if layer.kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        groups = groups_of(layer.kind, tensor.shape, graph.tensors[op_input(op)].shape[-1])
    return to_matrices(np.asarray(tensor.array(), np.float64), layer.kind, groups)


def _spared(rows: Array, clusters: int) -> Array:
    """Return the zeros that stay zeros: those of layers that have more of them than chance would give.

    A weight that was trained is never zero, and one that was rounded is it as often as it is the next value. So a percent
    of zeros tells that a layer was pruned, if no other value comes near that.
    """
    zeros: Array = rows == 0
    share = float(np.mean(zeros))
    if share <= 1 / clusters:
        others = np.unique(rows[~zeros], return_counts=True)[1] if share > _FEWEST_ZEROS else np.zeros(0)
        zeros &= share > max(_FEWEST_ZEROS, 2 * others.max(initial=0) / rows.size)
    return zeros


def _counted(before: Model, written: Model, layer: WeightLayer, reason: str) -> ClusteredLayer:
    old = before.subgraphs[layer.subgraph].tensors[layer.weight].array()
    graph = written.subgraphs[layer.subgraph]
    new = graph.tensors[layer.weight].array()
    channels = np.moveaxis(new, 3 if layer.kind == "DEPTHWISE_CONV_2D" else 0, 0).reshape(
        new.shape[3 if layer.kind == "DEPTHWISE_CONV_2D" else 0], -1
    )
    ordered = np.sort(channels, axis=1)
    largest = 1 + int(np.count_nonzero(np.diff(ordered, axis=1), axis=1).max(initial=0))
    return ClusteredLayer(
        layer.subgraph,
        layer.operator,
        layer.kind,
        layer.name,
        new.size,
        (len(np.unique(old)), len(np.unique(new))),
        largest,
        (int(np.sum(old == 0)), int(np.sum(new == 0))),
        reason,
    )
