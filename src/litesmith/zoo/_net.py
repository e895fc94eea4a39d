# SPDX-License-Identifier: Apache-2.0
"""The layers that architectures are written in, with weights that keep activations in range at any depth and width.

There is no batch normalization in a `.tflite`, so the weights do its work: every filter is drawn at random, scaled and
given a bias so that, for the expected spread of its input, its output has the mean and the variance asked for (the
idea of weight standardization, arXiv:1903.10520, arXiv:2101.08692). Before an activation that is a mean of 1.5 and a
variance of 1: most units are then active, and a disturbance, such as the rounding of quantization, is passed on without
growing from layer to layer. The last layer of a residual branch gets a quarter of the variance, so that depth adds up
slowly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from litesmith.model import Builder, Value
from litesmith.zoo._spread import LEAK, Array, Spread

Extent = int | tuple[int, int]
FUSED = frozenset({"NONE", "RELU", "RELU6"})
ACTIVE_MEAN = 1.5
BRANCH = 0.5  # standard deviation of what a residual branch adds
_JITTER = 0.05


class Net:
    """A model under construction: the builder, and how each of its values is expected to vary."""

    def __init__(self, name: str, *, seed: int = 0, symmetric_padding: bool = False) -> None:
        self.builder = Builder(name, seed=seed)
        self.random = self.builder.random
        self.symmetric_padding = symmetric_padding
        self._spread: dict[int, Spread] = {}

    def spread(self, x: Value) -> Spread:
        """Return how the values of ``x`` are expected to vary."""
        return self._spread[x.index]

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        """Add an input of mean 0 and variance 1."""
        return self._note(self.builder.input(name, shape, dtype), Spread.of(0, 1, shape[-1]))

    def image(self, resolution: int) -> Value:
        """Add the input of a network for square images in colour."""
        return self.input("image", (1, resolution, resolution, 3))

    def op(self, kind: str, *inputs: Value | Array, spread: Spread, **options: Any) -> Value:
        """Add any operator with one output; the caller says how that varies."""
        return self._note(cast(Value, self.builder.op(kind, *inputs, **options)), spread)

    def conv(
        self,
        x: Value,
        filters: int,
        kernel: Extent = 1,
        stride: Extent = 1,
        *,
        name: str,
        activation: str = "NONE",
        padding: str = "SAME",
        deviation: float = 1.0,
        mean: float | None = None,
    ) -> Value:
        """Add a convolution and its activation."""
        kernel_h, kernel_w = _pair(kernel)
        source, target = self.spread(x), _target(activation, deviation, mean, filters)
        weight = self.random.standard_normal((filters, kernel_h, kernel_w, x.shape[-1]), np.float32)
        bias = self._condition(weight, source, target)
        x, padding = self._pad(x, (kernel_h, kernel_w), _pair(stride), padding, name)
        fused = activation if activation in FUSED else "NONE"
        y = self.builder.conv2d(
            x,
            filters,
            kernel=kernel,
            stride=stride,
            padding=padding,
            activation=fused,
            name=name,
            weight=weight,
            bias=bias,
        )
        return self._activate(self._note(y, target), activation, name)

    def depthwise(
        self,
        x: Value,
        kernel: Extent = 3,
        stride: Extent = 1,
        *,
        name: str,
        activation: str = "NONE",
        padding: str = "SAME",
    ) -> Value:
        """Add a depthwise convolution and its activation."""
        kernel_h, kernel_w = _pair(kernel)
        channels, taps = x.shape[-1], kernel_h * kernel_w
        source, target = self.spread(x), _target(activation, 1.0, None, channels)
        weight = self._depthwise_weight(taps, channels) / np.sqrt(source.variance)
        bias = self._bias(target.mean - source.mean * weight.sum(0))
        x, padding = self._pad(x, (kernel_h, kernel_w), _pair(stride), padding, name)
        fused = activation if activation in FUSED else "NONE"
        y = self.builder.depthwise_conv2d(
            x,
            kernel=kernel,
            stride=stride,
            padding=padding,
            activation=fused,
            name=name,
            weight=weight.astype(np.float32).reshape(1, kernel_h, kernel_w, channels),
            bias=bias,
        )
        return self._activate(self._note(y, target), activation, name)

    def dense(
        self,
        x: Value,
        units: int,
        *,
        name: str,
        activation: str = "NONE",
        deviation: float = 1.0,
        mean: float | None = None,
        keep_num_dims: bool = False,
    ) -> Value:
        """Add a fully connected layer on the last dimension, and its activation."""
        source, target = self.spread(x), _target(activation, deviation, mean, units)
        weight, bias = self.dense_weights(units, source, target)
        fused = activation if activation in FUSED else "NONE"
        y = self.builder.fully_connected(
            x, units, activation=fused, keep_num_dims=keep_num_dims, name=name, weight=weight, bias=bias
        )
        return self._activate(self._note(y, target), activation, name)

    def dense_weights(self, units: int, source: Spread, target: Spread) -> tuple[Array, Array]:
        """Return weight and bias of a fully connected layer."""
        weight = self.random.standard_normal((units, len(source.mean)), np.float32)
        return weight, self._condition(weight, source, target)

    def affine(self, x: Value, *, name: str, activation: str = "NONE") -> Value:
        """Scale and shift each channel, as a normalization does that cannot be folded into a convolution."""
        source, channels = self.spread(x), x.shape[-1]
        target = _target(activation, 1.0, None, channels)
        jitter = 1 + _JITTER * self.random.standard_normal(channels, np.float32)
        scale = (jitter * np.sqrt(target.variance / source.variance)).astype(np.float32)
        offset = self._bias(target.mean - source.mean * scale)
        y = self.op("MUL", x, self.builder.constant(scale, f"{name}/scale"), name=f"{name}/scaled", spread=source)
        offset_value = self.builder.constant(offset, f"{name}/offset")
        return self.op(
            "ADD", y, offset_value, name=name, fused_activation_function=activation, spread=target.through(activation)
        )

    def add(self, x: Value, y: Value, *, name: str, activation: str = "NONE") -> Value:
        """Add two values."""
        spread = (self.spread(x) + self.spread(y)).through(activation)
        return self.op("ADD", x, y, name=name, fused_activation_function=activation, spread=spread)

    def mul(self, x: Value, y: Value, *, name: str) -> Value:
        """Multiply two values."""
        return self.op("MUL", x, y, name=name, spread=self.spread(x) * self.spread(y))

    def concat(self, parts: Sequence[Value], *, name: str) -> Value:
        """Join values along the channels."""
        spread = Spread.joined([self.spread(p) for p in parts])
        return self.op("CONCATENATION", *parts, name=name, axis=len(parts[0].shape) - 1, spread=spread)

    def global_pool(self, x: Value, *, name: str = "pool", keep_dims: bool = False) -> Value:
        """Average over height and width."""
        spread = self.spread(x).scaled(averaging(math.prod(x.shape[1:3])))
        return self.op("MEAN", x, np.array([1, 2], np.int32), name=name, keep_dims=keep_dims, spread=spread)

    def average_pool(self, x: Value, kernel: int, stride: int, *, name: str, padding: str = "SAME") -> Value:
        """Average over a window."""
        spread = self.spread(x).scaled(averaging(kernel * kernel))
        return self._pool("AVERAGE_POOL_2D", x, kernel, stride, padding, name, spread)

    def max_pool(
        self, x: Value, kernel: int, stride: int, *, name: str, padding: str = "SAME", positive: bool = False
    ) -> Value:
        """Take the largest of a window; symmetric padding is with zeros, so only for values that are ``positive``."""
        spread = self.spread(x)
        if kernel > 1:  # about that of four independent Gaussians: neighbours resemble each other
            spread = Spread(spread.mean + 1.03 * np.sqrt(spread.variance), spread.variance * 0.5)
        if positive:
            x, padding = self._pad(x, (kernel, kernel), (stride, stride), padding, name)
        return self._pool("MAX_POOL_2D", x, kernel, stride, padding, name, spread)

    def reshape(self, x: Value, shape: Sequence[int], *, name: str) -> Value:
        """Give the same values another shape with the same last dimension."""
        return self.op(
            "RESHAPE", x, np.array(shape, np.int32), name=name, new_shape=tuple(shape), spread=self.spread(x)
        )

    def _pool(self, kind: str, x: Value, kernel: int, stride: int, padding: str, name: str, spread: Spread) -> Value:
        window = {"filter_height": kernel, "filter_width": kernel, "stride_h": stride, "stride_w": stride}
        return self.op(kind, x, name=name, padding=padding, spread=spread, **window)

    def _activate(self, x: Value, activation: str, name: str) -> Value:
        spread = self.spread(x).through(activation)
        if activation in FUSED:
            return self._note(x, spread)
        kind, options = ("LEAKY_RELU", {"alpha": LEAK[activation]}) if activation in LEAK else (activation, {})
        return self.op(kind, x, name=f"{name}/{kind.lower()}", spread=spread, **options)

    def _pad(
        self, x: Value, kernel: tuple[int, int], stride: tuple[int, int], padding: str, name: str
    ) -> tuple[Value, str]:
        """Pad both sides alike, as PyTorch does; SAME does not where a kernel of odd size moves in steps."""
        odd = all(k % 2 for k in kernel)
        if not self.symmetric_padding or padding != "SAME" or stride == (1, 1) or kernel == (1, 1) or not odd:
            return x, padding
        amounts = np.array([[0, 0], *([k // 2, k // 2] for k in kernel), [0, 0]], np.int32)
        return self.op("PAD", x, amounts, name=f"{name}/pad", spread=self.spread(x)), "VALID"

    def _condition(self, weight: Array, source: Spread, target: Spread) -> Array:
        """Scale each row of ``weight`` in place so that the output varies as ``target``; return the bias."""
        rows = weight.reshape(len(weight), -1)
        taps = rows.shape[1] // len(source.mean)
        mean, variance = (np.tile(a.astype(np.float32), taps) for a in (source.mean, source.variance))
        offset = np.empty(len(rows), np.float32)
        for start in range(
            0, len(rows), 64
        ):  # in pieces that stay in the cache; not by BLAS, whose sums vary with threads
            piece = slice(start, start + 64)
            block = rows[piece]
            block *= np.sqrt(target.variance[piece] / (np.square(block) * variance).sum(1)).astype(np.float32)[:, None]
            offset[piece] = (block * mean).sum(1)
        return self._bias(target.mean - offset)

    def _depthwise_weight(self, taps: int, channels: int) -> Array:
        """Filters whose squares add up to 1 and whose values to ±1: noise and smooth areas pass with equal strength."""
        weight = self.random.standard_normal((taps, channels), np.float32)
        weight -= weight.mean(0)
        weight *= math.sqrt(1 - 1 / taps) / np.sqrt(np.maximum((weight**2).sum(0), 1e-12))
        sign = np.where(self.random.random(channels) < 0.5, -1, 1).astype(np.float32)
        return weight + sign / taps

    def _bias(self, values: Array) -> Array:
        jitter = _JITTER * self.random.standard_normal(len(values), np.float32)
        return cast(Array, (values + jitter).astype(np.float32))

    def _note(self, x: Value, spread: Spread) -> Value:
        self._spread[x.index] = spread
        return x


def averaging(count: int) -> float:
    """Return by how much averaging shrinks the variance: halfway between all alike (1) and independent (1/count)."""
    return 1 / math.sqrt(count)


def _target(activation: str, deviation: float, mean: float | None, channels: int) -> Spread:
    if mean is None:
        mean = 0.0 if activation == "NONE" else ACTIVE_MEAN
    return Spread.of(mean, deviation**2, channels)


def _pair(value: Extent) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
