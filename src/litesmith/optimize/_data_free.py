# SPDX-License-Identifier: Apache-2.0
"""Ranges without data: bounds of activations where there are any, and the spread of a Gaussian passed through layers.

An input is taken as standard normal unless its range is given. A layer with weights turns a mean and variance into
others per channel (inputs as independent); what a bounded activation or a clipped Gaussian can reach is the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import ABSENT, Model, Operator, Subgraph
from litesmith.optimize._calibrate import entry_points, observed_tensors
from litesmith.optimize._input_range import ASSUMED_DEVIATIONS
from litesmith.optimize._lstm import CELL_STATE
from litesmith.optimize._ranges import Range, Ranges, tensor_counts
from litesmith.optimize._rules import LSTM_KINDS, RULES

Array = np.ndarray[Any, Any]
_SPREAD = ASSUMED_DEVIATIONS
_LSTM_CELL = 16.0
_BOUNDED = {
    "LOGISTIC": (0.0, 1.0), "SOFTMAX": (0.0, 1.0), "TANH": (-1.0, 1.0), "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0), "L2_NORMALIZATION": (-1.0, 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class _Spread:
    """Mean, variance and hard bounds of a tensor."""

    mean: float
    variance: float
    low: float = -math.inf
    high: float = math.inf

    def range(self) -> tuple[float, float]:
        deviation = _SPREAD * math.sqrt(max(self.variance, 0.0))
        low, high = max(self.mean - deviation, self.low), min(self.mean + deviation, self.high)
        return min(low, high), max(low, high)

    def clipped(self, low: float, high: float) -> _Spread:
        """Return the spread of the values cut to [low, high], by sampling the Gaussian at fixed quantiles."""
        points = self.mean + math.sqrt(max(self.variance, 0.0)) * _QUANTILES
        cut = np.clip(points, max(low, self.low), min(high, self.high))
        return _Spread(float(cut.mean()), float(cut.var()), max(low, self.low), min(high, self.high))


def _quantiles() -> Array:
    grid = np.linspace(-4, 4, 2001)
    mass = np.cumsum(np.exp(-(grid**2) / 2))
    return np.interp((np.arange(200) + 0.5) / 200, mass / mass[-1], grid)


_QUANTILES = _quantiles()


def data_free_ranges(model: Model, *, inputs: Mapping[str, tuple[float, float]] | None = None) -> Ranges:
    """Return ranges for a model without running it; ``inputs`` gives those of inputs by tensor name where known."""
    entries = []
    for _, number in entry_points(model):
        graph = model.subgraphs[number]
        spreads = _propagate(graph, inputs or {})
        for tensor in observed_tensors(graph):
            low, high = spreads[tensor].range() if tensor in spreads else (-_SPREAD, _SPREAD)
            entries.append(Range(number, tensor, graph.tensors[tensor].name, low, high, low, high))
        for op in graph.operators:
            if op.kind in LSTM_KINDS:  # a gate adds at most 1 to the cell at each step; the clip bounds it where set
                reach = float(getattr(op.options, "cell_clip", 0.0)) or _LSTM_CELL
                cell = op.inputs[CELL_STATE]
                entries.append(Range(number, cell, graph.tensors[cell].name, -reach, reach, -reach, reach))
    return Ranges("data-free", 0, tuple(entries), tensor_counts(model))


def _propagate(graph: Subgraph, given: Mapping[str, tuple[float, float]]) -> dict[int, _Spread]:
    spreads: dict[int, _Spread] = {}
    for index in graph.inputs:
        low, high = given.get(graph.tensors[index].name, (-math.inf, math.inf))
        if math.isfinite(low) and math.isfinite(high):
            spreads[index] = _Spread((low + high) / 2, ((high - low) / 2) ** 2 / 3, low, high)
        else:
            spreads[index] = _Spread(0.0, 1.0)
    for index, tensor in enumerate(graph.tensors):
        if tensor.buffer is not None and tensor.dtype == "float32" and tensor.sparsity is None and tensor.elements:
            values = np.nan_to_num(tensor.array().astype(np.float64))
            spreads[index] = _Spread(
                float(values.mean()), float(values.var()), float(values.min()), float(values.max())
            )
    for op in graph.operators:
        result = _operator(graph, op, spreads)
        for output in op.outputs:
            spreads[output] = result
    return spreads


def _operator(graph: Subgraph, op: Operator, spreads: Mapping[int, _Spread]) -> _Spread:
    rule = RULES.get(op.kind)
    inputs = [spreads[t] for t in op.inputs if t != ABSENT and t in spreads and graph.tensors[t].dtype == "float32"]
    if not inputs:
        return _Spread(0.0, 1.0)
    if op.kind in _BOUNDED and op.kind not in ("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"):
        low, high = _BOUNDED[op.kind]
        return _Spread((low + high) / 2, ((high - low) / 2) ** 2 / 3, low, high)
    if op.kind in _BOUNDED:
        return inputs[0].clipped(*_BOUNDED[op.kind])
    if op.kind in ("RELU", "HARD_SWISH", "GELU", "ELU"):
        return inputs[0].clipped(0.0 if op.kind == "RELU" else -1.0, math.inf)
    if rule is not None and rule.weight is not None and graph.tensors[op.inputs[rule.weight]].buffer is not None:
        return _activated(op, _layer(graph, op, spreads))
    return _activated(op, _elementwise(op, inputs))


def _elementwise(op: Operator, inputs: list[_Spread]) -> _Spread:
    first, last = inputs[0], inputs[-1]
    if op.kind in ("ADD", "SUB"):
        sign = 1.0 if op.kind == "ADD" else -1.0
        return _Spread(first.mean + sign * last.mean, first.variance + last.variance)
    if op.kind == "MUL":
        variance = first.variance * last.variance + first.variance * last.mean**2 + last.variance * first.mean**2
        return _Spread(first.mean * last.mean, variance)
    if len(inputs) == 1:
        return first
    bounds = [spread.range() for spread in inputs]
    mean = float(np.mean([spread.mean for spread in inputs]))
    low, high = min(b[0] for b in bounds), max(b[1] for b in bounds)
    return _Spread(mean, max(s.variance + (s.mean - mean) ** 2 for s in inputs), low, high)


def _layer(graph: Subgraph, op: Operator, spreads: Mapping[int, _Spread]) -> _Spread:
    """Return the widest channel of a layer: each a weighted sum of independent inputs."""
    rule = RULES[op.kind]
    assert rule.weight is not None
    data = spreads.get(op.inputs[(rule.inputs or (0,))[0]], _Spread(0.0, 1.0))
    weight = np.moveaxis(graph.tensors[op.inputs[rule.weight]].array().astype(np.float64), rule.axis, 0)
    rows = np.nan_to_num(weight.reshape(weight.shape[0], -1))
    means, variances = rows.sum(axis=1) * data.mean, (rows**2).sum(axis=1) * data.variance
    bias = graph.tensor(op.inputs[rule.bias] if rule.bias is not None and len(op.inputs) > rule.bias else ABSENT)
    if bias is not None and bias.buffer is not None:
        means = means + np.nan_to_num(bias.array().astype(np.float64).reshape(-1))
    deviation = _SPREAD * np.sqrt(variances)
    low, high = float((means - deviation).min(initial=0.0)), float((means + deviation).max(initial=0.0))
    return _Spread(float(means.mean()), float(variances.mean() + means.var()), low, high)


def _activated(op: Operator, spread: _Spread) -> _Spread:
    fused = getattr(op.options, "fused_activation_function", "NONE") if op.options is not None else "NONE"
    bounds = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "TANH": (-1.0, 1.0)}.get(fused)
    return spread.clipped(*bounds) if bounds else spread
