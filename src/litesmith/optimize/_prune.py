# SPDX-License-Identifier: Apache-2.0
"""Prune a model: make most of its weights zero, let the others make up for it, and say what became of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Model, Tensor
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._check import first_failure
from litesmith.optimize._compressed_size import FileSizes, file_sizes
from litesmith.optimize._coverage import constant_bytes
from litesmith.optimize._layer_rules import LayerRule, WeightLayer, matching_rules, parse_rules, weight_layers
from litesmith.optimize._prune_allocate import allocate_by_weights
from litesmith.optimize._prune_patterns import check_pattern, check_shape, from_rows, keep_mask, rows_of
from litesmith.optimize._prune_reconstruct import measured_plan, reconstruct
from litesmith.optimize._prune_reorder import reordered
from litesmith.optimize._prune_speed import PruneSpeed, measured_speed
from litesmith.optimize._prune_store import check_store, half_of, store_notes, store_sparse, stored_bytes, unpack_sparse
from litesmith.optimize._run import Data
from litesmith.optimize._shared_constants import Place, keep_shared
from litesmith.result import Result

Array = np.ndarray[Any, Any]
METHODS = ("auto", "magnitude", "second-order")
BUDGETS = ("global", "layer")
DEFAULT_SAMPLES = 500


@dataclass(frozen=True)
class PrunedLayer:
    """One layer with weights, and what became of it.

    Attributes:
        subgraph, index, kind, name: which one; the name is that of the tensor it writes.
        weights, zeros: how many it has, and how many of them are zero now.
        stored_bytes: of its weights in the file, before and after, with the indices of the sparse form.
        output_error: mean square error of what it writes over the variance of that, on the samples; None without data,
            or with too few to tell.
        reason: why it was left dense; empty where it was pruned.
    """

    subgraph: int
    index: int
    kind: str
    name: str
    weights: int
    zeros: int
    stored_bytes: tuple[int, int]
    output_error: float | None
    reason: str


@dataclass(frozen=True)
class PruneCoverage(Result, kind="prune", schema=1):
    """What pruning did.

    Attributes:
        sparsity: that was asked for; ``reached`` is what the pruned layers have together.
        pattern, method, budget, store: how.
        layers: every layer with weights.
        constant_bytes: of all constants, before and after.
        sizes: of the whole file before and after, raw and compressed; None where not asked for.
        speed: latency before and after; None where not asked for.
        notes: what else one should know.
    """

    sparsity: float
    reached: float
    pattern: str
    method: str
    budget: str
    store: str
    layers: tuple[PrunedLayer, ...]
    constant_bytes: tuple[int, int]
    sizes: tuple[FileSizes, FileSizes] | None
    speed: PruneSpeed | None
    notes: tuple[str, ...]

    @property
    def pruned(self) -> tuple[PrunedLayer, ...]:
        """The layers that were pruned."""
        return tuple(layer for layer in self.layers if not layer.reason)

    @property
    def left_dense(self) -> tuple[PrunedLayer, ...]:
        """The layers that were not."""
        return tuple(layer for layer in self.layers if layer.reason)


@dataclass(frozen=True)
class Pruned:
    """The pruned model and what was done."""

    model: Model
    coverage: PruneCoverage


def prune(
    model: Model,
    *,
    sparsity: float = 0.8,
    pattern: str = "unstructured",
    data: Data | None = None,
    method: str = "auto",
    budget: str = "global",
    rules: Sequence[LayerRule | str] = (),
    store: str = "dense",
    reorder: bool = False,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    sizes: bool = False,
    speed: bool = False,
    check: bool = True,
) -> Pruned:
    """Return the model with a share of its weights zero, and a report of what became of each layer.

    The first and the last layers and depthwise ones stay dense unless a rule includes them.

    Args:
        model: in float, or in int8 with symmetric weights (by magnitude only).
        sparsity: the share of zeros in the layers that are pruned, at least 0 and below 1.
        pattern: "unstructured"; "4x1", blocks of 4 output channels of the same input; "2:4", two zeros in four inputs.
        data: unlabelled samples, some hundreds, for the second-order method.
        method: "magnitude"; "second-order", which chooses zeros and moves the other weights so that the layers' outputs
            change least, biases included; "auto" takes it where there are data.
        budget: "global" spends the zeros where they cost least, "layer" asks the same of each layer.
        rules: ``skip:MATCH``, ``include:MATCH`` or ``NUMBER:MATCH`` for layers by kind, #index or name; the last counts.
        store: "dense"; "sparse" leaves zeros out of the file, with single values in 16 bits and blocks in 32;
            "sparse16" and "sparse32" have so many bits for all.
        reorder: put channels in another order first, in which 4x1 blocks cost less. The model computes the same, but
            `diagnose` can no longer compare its layers with those of the original.
        samples: how many at most.
        seed: of the choice of positions that layers are looked at.
        sizes: measure the file raw and compressed too, which takes longer than pruning by magnitude.
        speed: measure the latency before and after, on stock LiteRT and with Litesmith's delegate.
        check: compile and run the result in LiteRT.

    Raises:
        UsageError: an option that makes no sense.
        OptimizeError: a rule matches nothing, a pattern does not divide a layer, or weights are quantized otherwise.
    """
    _check_options(sparsity, pattern, method, budget, store, data, reorder)
    source = unpack_sparse(model)
    layers = weight_layers(source)
    targets, reasons = _targets(source, layers, parse_rules(rules), pattern, sparsity)
    notes: list[str] = []
    if reorder:
        shares = {layer: sparsity if number is None else number for layer, number in targets.items()}
        source, changed = reordered(source, shares, data)
        notes.append(_order_note(changed))
        layers = weight_layers(source)  # constants that several operators read may have become several
        targets, reasons = _targets(source, layers, parse_rules(rules), pattern, sparsity)
    chosen = "second-order" if method == "second-order" or (method == "auto" and data is not None) else "magnitude"
    if chosen == "second-order":
        refuse_integers(source, targets, "second-order pruning")
    errors: dict[tuple[int, int], float] = {}
    if chosen == "second-order" and targets:
        assert data is not None
        plan = measured_plan(source, targets, sparsity, pattern, budget, data, samples, seed)
        pruned, errors, found = reconstruct(source, plan, pattern, data, samples, seed)
        notes += found
    else:
        pruned = _by_magnitude(source, _allocated(source, targets, sparsity, pattern, budget), pattern)
    weights = [(layer.subgraph, layer.weight) for layer in targets]
    pruned = keep_shared(source, pruned, weights)
    if store != "dense":
        places = _with_shared(pruned, weights)
        dense, pruned = pruned, store_sparse(pruned, places, half=half_of(store))
        notes += store_notes(dense, pruned, places)
    if check:
        check_runs(model, pruned)
    coverage = _coverage(source, pruned, layers, reasons, errors, sparsity, pattern, chosen, budget, store, notes)
    if sizes:
        coverage = replace(coverage, sizes=(file_sizes(model), file_sizes(pruned)))
    if speed:
        coverage = replace(coverage, speed=measured_speed(model, pruned))
    return Pruned(pruned, coverage)


def _with_shared(model: Model, weights: Sequence[Place]) -> set[Place]:
    """Return weights with those of the layers that share them."""
    buffers = {id(model.subgraphs[number].tensors[index].buffer) for number, index in weights}
    places = {(layer.subgraph, layer.weight) for layer in weight_layers(model)}
    return {(n, i) for n, i in places if id(model.subgraphs[n].tensors[i].buffer) in buffers}


def refuse_integers(model: Model, layers: Sequence[WeightLayer] | dict[WeightLayer, Any], what: str) -> None:
    """Raise where weights are not float32."""
    for layer in layers:
        tensor = model.subgraphs[layer.subgraph].tensors[layer.weight]
        if tensor.dtype != "float32":
            raise OptimizeError(
                f"{what} needs float weights, but those of {layer.label} are {tensor.dtype}: give the float model and "
                "quantize afterwards, make one with dequantize(model) (--dequantize), or prune by magnitude"
            )


def check_runs(before: Model, after: Model) -> None:
    """Raise where LiteRT refuses a model whose original it takes."""
    after.verify()
    entries = [subgraph for _, subgraph in entry_points(after)]
    failure = first_failure(after, entries)
    if failure is not None and first_failure(before, entries) is None:
        raise OptimizeError(f"the new model does not run in LiteRT: {failure.message}")


def _order_note(changed: int) -> str:
    if not changed:
        return "no channels changed places: none may, or none would gain by it"
    groups = "one group of channels is" if changed == 1 else f"{changed} groups of channels are"
    return f"{groups} in another order: layers cannot be compared with those of the original (diagnose)"


def _check_options(
    sparsity: float, pattern: str, method: str, budget: str, store: str, data: Data | None, reorder: bool
) -> None:
    check_pattern(pattern, sparsity)
    if reorder and pattern != "4x1":
        raise UsageError(f"only blocks of 4x1 gain by another order of the channels, not the pattern {pattern}")
    check_store(store)
    if method not in METHODS:
        raise UsageError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    if budget not in BUDGETS:
        raise UsageError(f"there is no budget {budget!r}; choose one of {', '.join(BUDGETS)}")
    if method == "second-order" and data is None:
        raise UsageError("second-order pruning needs samples; give data (some hundreds, no labels), or take magnitude")


Targets = dict[WeightLayer, float | None]
"""The layers to prune, with a sparsity of their own where a rule gives one."""


def _targets(
    model: Model, layers: Sequence[WeightLayer], rules: Sequence[LayerRule], pattern: str, sparsity: float
) -> tuple[Targets, dict[WeightLayer, str]]:
    by_rule = matching_rules(model, layers, rules)
    targets: Targets = {}
    reasons: dict[WeightLayer, str] = {}
    for layer in layers:
        rule = by_rule.get((layer.subgraph, layer.operator))
        reason = _reason(layer, rule)
        if not reason:
            tensor = model.subgraphs[layer.subgraph].tensors[layer.weight]
            number = rule.number if rule is not None else None
            if number is not None:
                check_pattern(pattern, number)
            if (sparsity if number is None else number) > 0:
                check_shape(pattern, tensor.shape, layer.kind, layer.label)
            _check_zero(tensor, layer)
            targets[layer] = number
        else:
            reasons[layer] = reason
    if not targets and not any(rule.action == "skip" for rule in by_rule.values()):
        raise OptimizeError(_nothing(model, layers))
    return targets, reasons


def _reason(layer: WeightLayer, rule: LayerRule | None) -> str:
    if layer.is_shared:
        return "it has the weights of a layer before it"
    if rule is not None:
        return "" if rule.action == "include" else f"the rule {rule}"
    if layer.kind == "DEPTHWISE_CONV_2D":
        return "depthwise: few weights that matter much"
    if layer.is_first:
        return "the first layer"
    return "the last layer" if layer.is_last else ""


def _nothing(model: Model, layers: Sequence[WeightLayer]) -> str:
    stored = any(
        op.kind == "DEQUANTIZE" and graph.tensors[op.inputs[0]].is_constant
        for graph in model.subgraphs
        for op in graph.operators
    )
    if stored:
        return (
            "the weights are stored in another type behind DEQUANTIZE; make them float with dequantize(model) "
            "(--dequantize) first"
        )
    if layers:
        return "only first, last and depthwise layers have weights; include some by a rule, such as include:CONV_2D"
    return f"the model has no layer with constant weights of the kinds {', '.join(('CONV_2D', 'FULLY_CONNECTED'))}"


def _check_zero(tensor: Tensor, layer: WeightLayer) -> None:
    symmetric = tensor.quantization is not None and not any(tensor.quantization.zero_point)
    if tensor.dtype == "float32" or (tensor.dtype == "int8" and symmetric):
        return
    raise OptimizeError(
        f"the weights of {layer.label} are {tensor.dtype}{'' if symmetric else ' with a zero point that is not 0'}, where "
        "zeros cannot be made; make them float with dequantize(model) (--dequantize), prune, and quantize again"
    )


def _real(tensor: Tensor) -> Array:
    values = tensor.array()
    if tensor.dtype == "float32" or tensor.quantization is None:
        return values
    scale = np.asarray(tensor.quantization.scale, np.float32)
    shape = [-1 if axis == tensor.quantization.axis and scale.size > 1 else 1 for axis in range(values.ndim)]
    return values.astype(np.float32) * scale.reshape(shape)


def _allocated(model: Model, targets: Targets, sparsity: float, pattern: str, budget: str) -> dict[WeightLayer, float]:
    free = [layer for layer, number in targets.items() if number is None]
    shares = [sparsity] * len(free)
    if budget == "global" and pattern != "2:4" and free and sparsity > 0:
        rows = [rows_of(_real(model.subgraphs[t.subgraph].tensors[t.weight]), t.kind) for t in free]
        shares = allocate_by_weights(rows, sparsity, pattern)
    return {**dict(zip(free, shares, strict=True)), **{t: n for t, n in targets.items() if n is not None}}


def _by_magnitude(model: Model, sparsities: dict[WeightLayer, float], pattern: str) -> Model:
    graphs = [list(graph.tensors) for graph in model.subgraphs]
    for layer, share in sparsities.items():
        tensor = graphs[layer.subgraph][layer.weight]
        mask = keep_mask(rows_of(_real(tensor), layer.kind) ** 2, share, pattern)
        kept = from_rows(mask, layer.kind, tensor.shape)
        values = tensor.array()
        graphs[layer.subgraph][layer.weight] = tensor.with_array(np.where(kept, values, values.dtype.type(0)))
    pairs = zip(model.subgraphs, graphs, strict=True)
    return replace(model, subgraphs=tuple(replace(g, tensors=tuple(t)) for g, t in pairs), source=None)


def _coverage(
    before: Model,
    after: Model,
    layers: Sequence[WeightLayer],
    reasons: dict[WeightLayer, str],
    errors: dict[tuple[int, int], float],
    sparsity: float,
    pattern: str,
    method: str,
    budget: str,
    store: str,
    notes: Sequence[str],
) -> PruneCoverage:
    dense = unpack_sparse(after)
    found = []
    for layer in layers:
        old, new = (model.subgraphs[layer.subgraph].tensors[layer.weight] for model in (before, after))
        values = dense.subgraphs[layer.subgraph].tensors[layer.weight].array()
        zeros = int(values.size - np.count_nonzero(values))
        sizes = (stored_bytes(old), stored_bytes(new))
        error = errors.get((layer.subgraph, layer.operator))
        place = (layer.subgraph, layer.operator, layer.kind, layer.name)
        found.append(PrunedLayer(*place, values.size, zeros, sizes, error, reasons.get(layer, "")))
    pruned = [layer for layer in found if not layer.reason]
    reached = sum(layer.zeros for layer in pruned) / max(sum(layer.weights for layer in pruned), 1)
    sizes = (constant_bytes(before), constant_bytes(after))
    return PruneCoverage(
        sparsity, reached, pattern, method, budget, store, tuple(found), sizes, None, None, tuple(notes)
    )
