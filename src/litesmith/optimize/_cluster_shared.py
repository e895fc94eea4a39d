# SPDX-License-Identifier: Apache-2.0
"""Keep shared values shared when they become integers: clustered weights get scales under which equal values stay equal.

A scale for each channel would give a value that many channels share another integer in each. So a layer that shares its
values as a whole gets one scale, repeated for all channels. Where channels share them up to a power of 4, as ``cluster``
makes them for each channel, the scale goes with that power: all channels then have the same few integers, and those of small
weights lose none. A layer that shares values only within channels keeps a scale for each. Zero is always the integer 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from litesmith.model import Model
from litesmith.optimize._arithmetic import channel_scales, quantize_weights
from litesmith.optimize._layer_rules import weight_layers
from litesmith.optimize._scheme import Scheme
from litesmith.optimize._weights import Overrides, WeightOverride

Array = np.ndarray[Any, Any]
_MOST = 256
_FEWER, _FEWER_OTHERS = 4, 2
"""A shared value occurs so often on average: zero among them, and without it."""
_SMALLEST = 256
_ROWS_EACH = 1.5
"""In so many rows a value that the layer shares stands on average; else each row has its own."""
_POWERS = range(-8, 9)
_LOOKED_AT = 1 << 16
BREAKING = frozenset({"equalize", "gptq", "rounding"})
"""Recovery passes after which values that were shared no longer are."""


def shared_weights(model: Model, schemes: Sequence[Scheme]) -> Overrides:
    """Return the integers of weights that share a few values; none where layers would get different numbers of bits."""
    bits = {scheme.bits for scheme in schemes if scheme.bits <= 8}
    if bits != {8}:
        return {}
    found = {}
    for layer in weight_layers(model):
        tensor = model.subgraphs[layer.subgraph].tensors[layer.weight]
        if tensor.dtype != "float32" or tensor.sparsity is not None or tensor.elements < _SMALLEST:
            continue
        values = tensor.array()
        axis = 3 if layer.kind == "DEPTHWISE_CONV_2D" else 0
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
        factors = _factors(rows)
        table = rows / factors
        if _are_shared(table):
            scales = channel_scales(np.array([np.abs(table).max()]), 8) * factors.reshape(-1)
        elif _has_few_values(rows):
            scales = channel_scales(np.abs(rows).max(axis=1), 8)
        else:
            continue
        integers = quantize_weights(values, scales, axis, 8)
        found[layer.subgraph, layer.weight] = WeightOverride(integers, scales, axis, 8)
    return found


def _factors(rows: Array) -> Array:
    """Return the power of 4, (row, 1), that each row is larger than the values that all share; 1 where they share none."""
    none = np.ones((len(rows), 1), np.float32)
    if len(np.unique(rows.reshape(-1)[:_LOOKED_AT])) > _MOST * len(_POWERS):
        return none
    values = [np.unique(row[row != 0]) for row in rows]
    most = len(np.unique(np.concatenate(values)))
    if not 0 < most <= _MOST * len(_POWERS):
        return none
    powers = np.zeros(len(rows), int)
    known: set[float] = set()
    richest_first = sorted(range(len(rows)), key=lambda row: -len(values[row]))  # they have most of what others share
    for number in richest_first:
        scaled = {power: set((values[number] / np.float32(4.0**power)).tolist()) for power in _POWERS}
        powers[number] = max(_POWERS, key=lambda power: (len(scaled[power] & known), -abs(power)))
        known |= scaled[int(powers[number])]
    found: Array = np.float32(4.0) ** powers.reshape(-1, 1).astype(np.float32)
    return found if len(known) < most else none


def _are_shared(rows: Array) -> bool:
    """Say whether a layer shares a few values as a whole, and not each of its rows others."""
    unlike = _unlike(rows)
    if not (_has_few_values(rows.reshape(1, -1)) and _has_few_values(unlike.reshape(1, -1))):
        return False
    in_rows = len(unlike) + np.count_nonzero(np.diff(unlike, axis=1))
    return bool(in_rows >= _ROWS_EACH * len(np.unique(unlike)))


def _unlike(rows: Array) -> Array:
    """Return sorted rows of which no two have the same values: a folded layer has each once for every pixel."""
    return np.unique(np.sort(rows, axis=1), axis=0)


def _has_few_values(rows: Array) -> bool:
    """Say whether the values of each row repeat, also without the zeros: those of a pruned row repeat by themselves."""
    if rows.shape[1] > 4096 and len(np.unique(rows[:, :4096])) > _MOST * len(rows):
        return False
    ordered = np.sort(rows, axis=1)
    distinct = 1 + np.count_nonzero(np.diff(ordered, axis=1), axis=1)
    if distinct.max(initial=1) > min(_MOST, rows.shape[1] // _FEWER):
        return False
    zeros = np.count_nonzero(rows == 0, axis=1)
    others = int(np.sum(distinct - (zeros > 0)))
    return 0 < others <= (rows.size - int(zeros.sum())) // _FEWER_OTHERS
