# SPDX-License-Identifier: Apache-2.0
"""Patterns of zeros: which weights may only vanish together, and which ones to keep by their scores.

Weights are rows, one for each output channel, with the input channels innermost. A *unit* is what vanishes together: a
single weight (unstructured), or 4 output channels of the same input (4x1). Of 2:4, two in four inputs in a row are zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from litesmith.errors import OptimizeError, UsageError

Array = np.ndarray[Any, Any]
PATTERNS = ("unstructured", "4x1", "2:4")
BLOCK = 4


def check_pattern(pattern: str, sparsity: float) -> None:
    """Refuse a pattern that does not exist, and a sparsity that it cannot have."""
    if pattern not in PATTERNS:
        raise UsageError(f"there is no pattern {pattern!r}; choose one of {', '.join(PATTERNS)}")
    if not (isinstance(sparsity, (int, float)) and 0 <= sparsity < 1):
        raise UsageError(f"the sparsity must be at least 0 and below 1, not {sparsity}; 0.8 makes 80 % zeros")
    if pattern == "2:4" and sparsity not in (0.0, 0.5):
        raise UsageError(f"the pattern 2:4 always has a sparsity of 0.5, not {sparsity}")


def check_shape(pattern: str, shape: tuple[int, ...], kind: str, label: str) -> None:
    """Refuse a pattern that does not divide the weights."""
    outputs, inputs = (shape[3], shape[1] * shape[2]) if kind == "DEPTHWISE_CONV_2D" else (shape[0], shape[-1])
    size, what = (outputs, "output channels") if pattern == "4x1" else (inputs, "inputs")
    if pattern != "unstructured" and size % BLOCK:
        raise OptimizeError(
            f"{label} has {size} {what}, which the pattern {pattern} does not divide; leave it dense with the rule "
            f"skip:{label.split()[0]}, or take the pattern unstructured"
        )


def unit_scores(scores: Array, pattern: str) -> Array:
    """Return the scores of the units, (rows of units, columns); scores add up."""
    if pattern == "4x1":
        total: Array = scores.reshape(-1, BLOCK, scores.shape[1]).sum(axis=1)
        return total
    return scores


def units_to_zero(units: int, sparsity: float) -> int:
    """Return how many units must vanish so that at least ``sparsity`` is reached."""
    return min(math.ceil(units * sparsity - 1e-9), units)


def keep_mask(scores: Array, sparsity: float, pattern: str) -> Array:
    """Return which weights stay: those with the largest scores, as many as the sparsity leaves."""
    if sparsity <= 0:
        return np.ones(scores.shape, bool)
    if pattern == "2:4":
        groups = scores.reshape(-1, BLOCK)
        order = np.argsort(-groups, axis=1, kind="stable")
        kept = np.zeros(groups.shape, bool)
        np.put_along_axis(kept, order[:, : BLOCK // 2], True, axis=1)
        shaped: Array = kept.reshape(scores.shape)
        return shaped
    units = unit_scores(scores, pattern)
    gone = units_to_zero(units.size, sparsity)
    flat = np.ones(units.size, bool)
    if gone:
        flat[np.argpartition(units, gone - 1, axis=None)[:gone]] = False
    return spread(flat.reshape(units.shape), pattern)


def spread(units: Array, pattern: str) -> Array:
    """Return a mask of units as a mask of weights."""
    return np.repeat(units, BLOCK, axis=0) if pattern == "4x1" else units


def rows_of(values: Array, kind: str) -> Array:
    """Return the weights of a layer as (output channel, weight)."""
    if kind == "DEPTHWISE_CONV_2D":
        return np.ascontiguousarray(values.reshape(-1, values.shape[-1]).T)
    return values.reshape(len(values), -1)


def from_rows(rows: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return rows in the layout of the file."""
    return np.ascontiguousarray((rows.T if kind == "DEPTHWISE_CONV_2D" else rows).reshape(shape))
