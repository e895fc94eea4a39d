# SPDX-License-Identifier: Apache-2.0
"""What a layer sees: sums and products of its inputs, over samples and positions, from which it can be fitted anew.

A layer is a matrix for each of its groups: one for CONV_2D and FULLY_CONNECTED, one a channel for DEPTHWISE_CONV_2D,
one a group for grouped convolutions. With x the inputs of a position and y what the layer shall write there, the means
of x, xxᵀ, y, yxᵀ and y² are all that least squares need, however many samples there are. So memory does not grow with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import Operator, same_padding

Array = np.ndarray[Any, Any]
COLUMNS = 20_000
"""Positions that a layer is looked at, over all samples."""
_MOST_ELEMENTS = 48 << 20
_TOGETHER = 2048


@dataclass
class Moments:
    """Sums over positions, for each group: x (g, k), xx (g, k, k), y (g, r), yx (g, r, k), yy (g, r)."""

    count: float
    x: Array
    xx: Array
    y: Array
    yx: Array
    yy: Array

    @classmethod
    def empty(cls, groups: int, rows: int, width: int) -> Moments:
        """Return the moments of nothing; ``rows`` of 0 where only the inputs matter."""
        shapes = ((groups, width), (groups, width, width), (groups, rows), (groups, rows, width), (groups, rows))
        return cls(0, *(np.zeros(shape) for shape in shapes))

    def add(self, inputs: Array, outputs: Array | None = None) -> None:
        """Add positions: inputs as (g, n, k), and outputs as (g, n, r)."""
        self.count += inputs.shape[1]
        self.x += inputs.sum(axis=1, dtype=np.float64)
        turned = np.swapaxes(inputs, 1, 2)
        self.xx += turned @ inputs
        if outputs is not None:
            self.y += outputs.sum(axis=1, dtype=np.float64)
            self.yx += np.swapaxes(outputs, 1, 2) @ inputs
            self.yy += np.einsum("gnr,gnr->gr", outputs, outputs, dtype=np.float64)

    def add_mean(self, inputs: Array, outputs: Array, weight: float) -> None:
        """Add the mean of positions as if it were ``weight`` positions more."""
        x, y = inputs.mean(axis=1, dtype=np.float64), outputs.mean(axis=1, dtype=np.float64)
        self.count += weight
        self.x += weight * x
        self.xx += weight * x[:, :, None] * x[:, None, :]
        self.y += weight * y
        self.yx += weight * y[:, :, None] * x[:, None, :]
        self.yy += weight * y * y

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both."""
        pairs = ((getattr(self, n), getattr(other, n)) for n in ("count", "x", "xx", "y", "yx", "yy"))
        return Moments(*(a + b for a, b in pairs))

    def covariance(self) -> tuple[Array, Array, Array]:
        """Return the covariance of x, of y with x, and the variance of y: what a fit with a free bias needs."""
        n = max(self.count, 1)
        x, y = self.x / n, self.y / n
        xx = self.xx / n - x[:, :, None] * x[:, None, :]
        yx = self.yx / n - y[:, :, None] * x[:, None, :]
        return xx, yx, np.maximum(self.yy / n - y * y, 0.0)

    def error(self, rows: Array, *, relative: bool = False) -> float:
        """Return the mean square error of rows (g, r, k) with the best bias, over the variance of y.

        With ``relative`` it is the mean over rows of their own ratios.
        """
        xx, yx, yy = self.covariance()
        left = np.maximum(yy - 2 * np.sum(rows * yx, axis=2) + np.sum((rows @ xx) * rows, axis=2), 0.0)
        if relative:
            return float(np.mean(left / np.maximum(yy, 1e-6 * max(float(yy.max(initial=0.0)), 1e-30))))
        return float(left.sum() / max(yy.sum(), 1e-30))

    def bias(self, rows: Array) -> Array:
        """Return the bias (g, r) with which rows have the mean of y."""
        n = max(self.count, 1)
        found: Array = self.y / n - np.einsum("grk,gk->gr", rows, self.x / n)
        return found


class Gathering:
    """Adds positions to moments, many at a time: a product of large matrices costs less than many of small ones."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self._inputs: list[Array] = []
        self._outputs: list[Array] = []
        self._waiting = 0

    def add(self, inputs: Array, outputs: Array | None = None) -> None:
        """Take positions: inputs as (g, n, k), and outputs as (g, n, r)."""
        self._inputs.append(inputs)
        if outputs is not None:
            self._outputs.append(outputs)
        self._waiting += inputs.shape[1]
        if self._waiting >= _TOGETHER:
            self.done()

    def done(self) -> Moments:
        """Add what is waiting and return the moments."""
        if self._inputs:
            outputs = np.concatenate(self._outputs, axis=1) if self._outputs else None
            self.moments.add(np.concatenate(self._inputs, axis=1), outputs)
        self._inputs, self._outputs, self._waiting = [], [], 0
        return self.moments


def groups_of(kind: str, shape: tuple[int, ...], channels: int) -> int:
    """Return how many matrices a layer is, by the shape of its weights and the channels that it reads."""
    if kind == "DEPTHWISE_CONV_2D":
        return channels
    return channels // shape[3] if kind == "CONV_2D" else 1


def to_matrices(values: Array, kind: str, groups: int) -> Array:
    """Return weights, as in the file, as (group, row, input)."""
    if kind == "DEPTHWISE_CONV_2D":
        return np.ascontiguousarray(values.reshape(-1, values.shape[-1]).T).reshape(groups, -1, values[..., 0].size)
    return values.reshape(groups, len(values) // groups, -1)


def from_matrices(matrices: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return (group, row, input) in the layout of the file."""
    rows = matrices.reshape(-1, matrices.shape[-1])
    return np.ascontiguousarray((rows.T if kind == "DEPTHWISE_CONV_2D" else rows).reshape(shape), dtype=np.float32)


class Window:
    """Where a layer looks: which inputs it multiplies for an output position."""

    def __init__(self, op: Operator, shape: tuple[int, ...]) -> None:
        self.kind, self.shape = op.kind, shape
        options = op.options
        if op.kind == "FULLY_CONNECTED":
            return
        self._steps = (options.stride_h, options.stride_w) if options else (1, 1)
        self._dilations = (options.dilation_h_factor, options.dilation_w_factor) if options else (1, 1)
        self._same = options is None or options.padding == "SAME"

    def spots(self, values: Array) -> tuple[int, ...]:
        """Return the size of the output without its channels: (batch, height, width), or (rows,)."""
        if self.kind == "FULLY_CONNECTED":
            return (values.size // self.shape[1],)
        sizes = []
        for size, kernel, step, dilation in self._axes(values):
            reach = (kernel - 1) * dilation + 1
            sizes.append(-(-size // step) if self._same else (size - reach) // step + 1)
        return (len(values), *sizes)

    def columns(self, values: Array, places: Array) -> Array:
        """Return the inputs of some output positions, given by their flat index: (group, position, input)."""
        if self.kind == "FULLY_CONNECTED":
            return values.reshape(-1, self.shape[1])[places][None].astype(np.float32, copy=False)
        batch, row, column = np.unravel_index(places, self.spots(values))
        axes = list(self._axes(values))
        pads = [same_padding(*axis) if self._same else (0, 0) for axis in axes]
        padded = np.pad(values, [(0, 0), *pads, (0, 0)]) if any(map(any, pads)) else values
        (_, height, step_h, dilate_h), (_, width, step_w, dilate_w) = axes
        taps = [
            padded[batch, row * step_h + i * dilate_h, column * step_w + j * dilate_w]
            for i in range(height)
            for j in range(width)
        ]
        stacked = np.stack(taps, axis=1).astype(np.float32, copy=False)  # position, tap, channel
        channels = stacked.shape[2]
        groups = groups_of(self.kind, self.shape, channels)
        split = stacked.reshape(len(stacked), len(taps), groups, channels // groups)
        grouped: Array = split.transpose(2, 0, 1, 3).reshape(groups, len(stacked), -1)
        return grouped

    def _axes(self, values: Array) -> list[tuple[int, int, int, int]]:
        kernel = self.shape[1:3]
        return list(zip(values.shape[1:3], kernel, self._steps, self._dilations, strict=True))


def positions_a_sample(width: int, samples: int, groups: int = 1) -> int:
    """Return at how many positions of a sample a layer with ``width`` inputs is looked at."""
    most = max(min(COLUMNS, _MOST_ELEMENTS // max(width * groups, 1)), 4 * samples)
    return max(most // max(samples, 1), 1)


def chosen_places(total: int, count: int, random: np.random.Generator) -> Array:
    """Return positions to look at: all, or a random choice."""
    return np.arange(total) if total <= count else np.sort(random.choice(total, count, replace=False))
