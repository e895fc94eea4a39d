# SPDX-License-Identifier: Apache-2.0
"""Weights and biases as integers, with scales that keep every bias and multiplier inside what kernels can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import Tensor
from litesmith.optimize._arithmetic import LARGEST_BIAS, quantize_bias, quantize_weights
from litesmith.optimize._weight_ranges import weight_scales

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class WeightOverride:
    """Weights that a recovery pass has quantized already: integers, and a scale for each channel (or one).

    ``axis`` has the channels, and the integers fit into ``bits``; what is not given is judged by the numbers.
    """

    integers: Array
    scales: Array
    axis: int | None = None
    bits: int | None = None

    def fits(self, axis: int, bits: int) -> bool:
        """Say whether an operator can take it that wants so many bits, and a scale for each index along ``axis``."""
        limit, count = 2 ** (bits - 1), np.size(self.scales)
        if self.bits not in (None, bits) or not np.all((self.integers >= -limit) & (self.integers < limit)):
            return False
        return count == 1 or (count == self.integers.shape[axis] and self.axis in (None, axis))


Overrides = Mapping[tuple[int, int], WeightOverride]
"""By subgraph and tensor index of the float weights."""


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The stored form of one layer."""

    integers: Array
    scales: Array
    bias: Array | None
    bias_scales: Array
    widened: bool


def layer_weights(
    weight: Tensor,
    bias: Tensor | None,
    *,
    axis: int | None,
    bits: int,
    input_scale: float,
    output_scale: float,
    bias_dtype: str,
    method: str,
    override: WeightOverride | None = None,
    taps: tuple[int, ...] = (),
) -> LayerWeights:
    """Quantize the weights and the bias of one layer.

    A channel whose bias would not fit its integer type, or whose multiplier would vanish, gets a coarser scale: its
    weights are then so small beside its bias, or its output, that nothing of note is lost.
    """
    values = weight.array()
    scales = np.asarray(override.scales, np.float32) if override else weight_scales(values, axis, bits, method=method)
    reals = None if bias is None else np.nan_to_num(bias.array().astype(np.float64), nan=0.0).reshape(-1)
    needed = np.full(scales.shape, output_scale * 2.0**-30 / input_scale)
    if reals is not None:
        per_channel = np.abs(reals) / (input_scale * LARGEST_BIAS[bias_dtype])
        needed = np.maximum(needed, per_channel if scales.size > 1 else per_channel.max(initial=0.0))
    enough = np.maximum(scales, needed.astype(np.float32) * np.float32(1.0001))
    widened = bool(np.any((needed > scales) & (scales > 0)))
    integers = quantize_weights(values, enough, axis or 0, bits, taps=taps)
    if override is not None and not widened:
        integers = np.asarray(override.integers, np.int8)
    bias_scales = np.float32(input_scale) * enough.astype(np.float32)
    stored = None if reals is None else quantize_bias(reals, bias_scales, bias_dtype)
    return LayerWeights(integers, enough, stored, bias_scales, widened)
