# SPDX-License-Identifier: Apache-2.0
"""Sequential bias correction: take the mean error of each channel off its bias, layer by layer.

Rounded weights and clipped activations shift the mean of a channel, and the shifts of many layers add up. With x̂ and
ŷ(x̂) as the quantized model computes them with all earlier layers corrected, and y in the float model, each layer gets

    b ← b + λ · (E[y] − E[ŷ]) / a,      λ = d² / (d² + s²),

where the means run over samples and positions, a is the share of outputs that the activation does not cut (the
derivative of E[ŷ] by b), d is the mean error of the channel and s the standard error of it over the samples: what few
samples cannot tell from chance is left alone. Each layer is then measured again, and a channel whose mean error did not
shrink keeps its old bias.

The idea is Nagel et al., arXiv:1906.04721 §4.2 ("empirical bias correction"), and the order of NNCF's full correction.
All means are of the integer kernels in LiteRT, not of a simulation.

Cost: one pass of the float model and ``_ROUNDS`` + 2 of the quantized one over at most ``_SAMPLES`` samples.
Scope: convolutions, transposed ones and fully connected layers with a constant bias; float biases beside integer
weights too. It does not change weights, scales, or layers inside control flow; what has no error it leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.errors import OptimizeError
from litesmith.model import ABSENT, Model, Tensor
from litesmith.model._expose import expose
from litesmith.optimize._arithmetic import LARGEST_BIAS
from litesmith.optimize._calibrate import MEMORY_BUDGET_BYTES, entry_points, within_budget
from litesmith.optimize._rules import RULES
from litesmith.optimize._run import Data, Feed, GraphRunner
from litesmith.optimize._segments import Walk, affordable_samples, as_fed, spread_samples
from litesmith.progress import task

if TYPE_CHECKING:
    from litesmith.optimize._build import Quantized
    from litesmith.optimize._request import Request

Array = np.ndarray[Any, Any]
STAGE = "result"
_SAMPLES = 64
_ROUNDS = 1
_LEAST_ACTIVE = 0.1
"""A channel that is nearly always cut is corrected as if this share of it were not, or its bias would run away."""


def apply(model: Model, quantized: Quantized, _request: Request, data: Data | None) -> Model:
    """Return the quantized model with corrected biases."""
    if data is None:
        raise OptimizeError("bias correction needs samples; give data, or leave 'bias' out of the recovery passes")
    result = quantized.model
    for signature, subgraph in entry_points(model):
        affordable = affordable_samples(result.subgraphs[subgraph], MEMORY_BUDGET_BYTES)
        samples = spread_samples(model, data, min(affordable, _SAMPLES), signature=signature)
        if samples:  # those of one entry may not fit another
            result = correct(model, result, samples, subgraph=subgraph)
    return result


def correct(
    model: Model, quantized: Model, samples: Sequence[Feed], *, subgraph: int = 0, rounds: int = _ROUNDS
) -> Model:
    """Return the quantized model with the biases of one subgraph corrected."""
    walk = Walk(quantized, subgraph, [as_fed(quantized.subgraphs[subgraph], feed) for feed in samples])
    layers = _layers(model, walk, subgraph)
    wanted = _float_means(model, subgraph, [layer.output for layer in layers.values()], samples)
    with task("Correcting biases", total=len(layers)) as advance:
        for piece in walk.pieces(layers):
            here = [layers[i] for i in piece if i in layers]
            tried = {layer: _Correction(walk, layer, wanted[layer.output]) for layer in here}
            for _ in range(rounds if here else 0):
                means, active = _observed(walk, piece, here)
                for layer, correction in tried.items():
                    correction.step(means[layer.output], active[layer.output])
                    advance(1 / (rounds + 1))
            if here:
                means, active = _observed(walk, piece, here)
                for layer, correction in tried.items():
                    correction.settle(means[layer.output])
                    advance(1 / (rounds + 1))
            for _ in walk.run(piece, keep=True):
                pass
    graphs = (*quantized.subgraphs[:subgraph], walk.graph(), *quantized.subgraphs[subgraph + 1 :])
    return replace(quantized, subgraphs=graphs)


@dataclass(frozen=True)
class _Layer:
    """A layer whose bias can be corrected: its bias and its output, the same tensor in both models."""

    bias: int
    output: int


def _layers(model: Model, walk: Walk, subgraph: int) -> dict[int, _Layer]:
    """Return the layers by the index of their operator; a bias that several share is copied first."""
    known = len(model.subgraphs[subgraph].tensors)
    seen: set[int] = set()
    found = {}
    for index, op in enumerate(walk.operators):
        rule = RULES.get(op.kind)
        if rule is None or rule.bias is None or rule.weight is None or op.outputs[0] >= known:
            continue
        bias = op.inputs[rule.bias] if rule.bias < len(op.inputs) else ABSENT
        if bias == ABSENT:
            if op.kind == "TRANSPOSE_CONV":
                continue
            channels = walk.tensors[op.inputs[rule.weight]].shape[rule.axis]
            zero = Tensor(f"{walk.tensors[op.outputs[0]].name}/bias", ()).with_array(np.zeros(channels, np.float32))
            bias = _replace_bias(walk, index, rule.bias, zero)
        elif walk.tensors[bias].buffer is None:
            continue
        elif bias in seen:
            bias = _replace_bias(walk, index, rule.bias, walk.tensors[bias])
        seen.add(bias)
        found[index] = _Layer(bias, op.outputs[0])
    return found


def _replace_bias(walk: Walk, operator: int, position: int, bias: Tensor) -> int:
    walk.tensors.append(bias)
    inputs = (*walk.operators[operator].inputs[:position], len(walk.tensors) - 1)
    walk.operators[operator] = replace(walk.operators[operator], inputs=inputs)
    return len(walk.tensors) - 1


def _float_means(model: Model, subgraph: int, tensors: list[int], samples: Sequence[Feed]) -> dict[int, Array]:
    """Return the mean of each channel in each sample."""
    found: dict[int, list[Array]] = {tensor: [] for tensor in tensors}
    for part in within_budget(model.subgraphs[subgraph], list(found), MEMORY_BUDGET_BYTES):
        runner = GraphRunner(expose(model, part, subgraph=subgraph), subgraph=subgraph)
        for feed in samples:
            runner.run(feed)
            for tensor in part:
                values = runner.view(tensor)
                found[tensor].append(values.reshape(-1, values.shape[-1]).mean(axis=0, dtype=np.float64))
    return {tensor: np.array(means) for tensor, means in found.items()}


def _observed(walk: Walk, piece: range, layers: Iterable[_Layer]) -> tuple[dict[int, Array], dict[int, Array]]:
    """Return the mean of each channel in each sample, and the share of its outputs that nothing cuts."""
    watched = [layer.output for layer in layers]
    means: dict[int, list[Array]] = {t: [] for t in watched}
    active: dict[int, list[Array]] = {t: [] for t in watched}
    for views in walk.run(piece, watched, keep=False):
        for tensor, values in zip(watched, views, strict=True):
            rows = values.reshape(-1, values.shape[-1])
            means[tensor].append(_real_mean(rows, walk.tensors[tensor]))
            active[tensor].append(_share_inside(rows))
    return (
        {t: np.array(found) for t, found in means.items()},
        {t: np.mean(found, axis=0) for t, found in active.items()},
    )


def _real_mean(rows: Array, tensor: Tensor) -> Array:
    mean: Array = rows.mean(axis=0, dtype=np.float64)
    if rows.dtype.kind == "f" or tensor.quantization is None:
        return mean
    return (mean - tensor.quantization.zero_point[0]) * tensor.quantization.scale[0]


def _share_inside(rows: Array) -> Array:
    """Return the share of values of each channel that are not at the lowest or highest one of the tensor."""
    low, high = rows.min(), rows.max()
    share: Array = 1.0 - ((rows == low) | (rows == high)).mean(axis=0)
    return share


class _Correction:
    """The search for one layer's bias: shift, look again, and keep for each channel what came closest."""

    def __init__(self, walk: Walk, layer: _Layer, wanted: Array) -> None:
        self._walk, self._layer, self._wanted = walk, layer, wanted
        bias = walk.tensors[layer.bias]
        self._start = bias
        self._shift = np.zeros(bias.elements)
        self._best = self._shift
        self._error = np.full(bias.elements, np.inf)

    def step(self, observed: Array, active: Array) -> None:
        """Shift the bias by the mean error that the last shift left."""
        errors = self._compare(observed)
        mean = errors.mean(axis=0)
        chance = errors.var(axis=0, ddof=1) / len(errors) if len(errors) > 1 else np.zeros_like(mean)
        trusted = mean**2 / np.maximum(mean**2 + chance, 1e-30)
        shift = trusted * mean / np.maximum(active, _LEAST_ACTIVE)
        self._store(
            self._shift + np.where(np.isfinite(shift), shift, 0.0)
        )  # a layer that gives no number keeps its bias

    def settle(self, observed: Array) -> None:
        """Take for each channel the shift with the smallest error."""
        self._compare(observed)
        self._store(self._best)

    def _compare(self, observed: Array) -> Array:
        errors = self._wanted - observed
        size = np.abs(errors.mean(axis=0))
        better = size < self._error * 0.98
        self._best, self._error = np.where(better, self._shift, self._best), np.where(better, size, self._error)
        return errors

    def _store(self, shift: Array) -> None:
        self._shift = shift
        values = self._start.array()
        shaped = shift.reshape(values.shape)
        if values.dtype.kind == "f":
            moved = (values + shaped).astype(np.float32)
        else:
            assert self._start.quantization is not None
            limit = LARGEST_BIAS[self._start.dtype]
            steps = np.rint(shaped / np.asarray(self._start.quantization.scale).reshape(-1))
            moved = np.clip(values + steps, -limit, limit).astype(values.dtype)
        self._walk.tensors[self._layer.bias] = self._start.with_array(moved)
