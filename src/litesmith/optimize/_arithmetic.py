# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of quantization: from ranges to scales, from reals to integers and back.

It follows LiteRT's 8-bit quantization specification: activations are asymmetric int8 or symmetric int16, weights
symmetric int8 in [-127, 127] per channel, biases int32 (int64 beside int16 activations) with the scale input × weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import Quantization

Array = np.ndarray[Any, Any]

SMALLEST_SCALE = 1e-9
"""Below this the products of scales leave the range in which float32 multipliers are exact."""
LARGEST_SCALE = 1e30
LARGEST_BIAS = {"int32": 1 << 30, "int64": 1 << 46}
"""Largest magnitude of a stored bias: it leaves the accumulator room for the products (int16 kernels reduce to 48)."""
_LIMITS = {"int8": (-128, 127), "int16": (-32767, 32767), "int4": (-8, 7), "int2": (-2, 1)}


@dataclass(frozen=True)
class Affine:
    """One scale and zero point for a whole tensor."""

    dtype: str
    scale: float
    zero_point: int

    def quantization(self) -> Quantization:
        """Return it as the file stores it."""
        return Quantization((self.scale,), (self.zero_point,))

    def limits(self) -> tuple[float, float]:
        """Return the smallest and the largest real that can be represented."""
        low, high = _LIMITS[self.dtype]
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale


def affine(low: float, high: float, dtype: str, *, smallest_scale: float = SMALLEST_SCALE) -> Affine:
    """Return the scale and zero point that represent [low, high] and exactly 0; a range without width is widened.

    Example:
        >>> affine(0.0, 6.0, "int8").zero_point, round(affine(-1.0, 1.0, "int16").scale * 32767, 6)
        (-128, 1.0)
    """
    low = min(float(np.nan_to_num(low, nan=0.0)), 0.0)
    high = max(float(np.nan_to_num(high, nan=0.0)), 0.0)
    least, most = _LIMITS[dtype]
    if dtype == "int16":
        scale = _positive(max(-low, high) / most, smallest_scale)
        return Affine(dtype, scale, 0)
    scale = _positive((high - low) / (most - least), smallest_scale)
    zero_point = round(min(max(least - low / scale, least), most))
    return Affine(dtype, scale, int(zero_point))


def _positive(scale: float, smallest: float) -> float:
    """Return the scale as the float32 that the file holds, large enough to be worked with."""
    usable = max(scale, smallest, SMALLEST_SCALE) if math.isfinite(scale) else LARGEST_SCALE
    return float(np.float32(min(usable, LARGEST_SCALE)))


def quantize_array(values: Array, parameters: Affine) -> Array:
    """Return the integers nearest to ``values``; what lies outside saturates, NaN becomes 0."""
    low, high = _LIMITS[parameters.dtype]
    real = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    integers: Array = np.clip(np.rint(real / parameters.scale) + parameters.zero_point, low, high)
    return integers.astype(np.int16 if parameters.dtype == "int16" else np.int8)


def largest_integer(bits: int) -> int:
    """Return the largest integer of symmetric weights: 127 for 8 bits, 7 for 4 bits."""
    return int((1 << (bits - 1)) - 1)


def channel_scales(magnitudes: Array, bits: int) -> Array:
    """Return scales for symmetric weights whose largest magnitudes are given; channels of zeros get a usable one.

    A dead channel takes the scale of the largest one, so that no multiplier of the layer becomes extreme.
    """
    magnitudes = np.nan_to_num(np.asarray(magnitudes, np.float64), nan=0.0, posinf=3e38)
    largest = float(magnitudes.max(initial=0.0))
    scales = np.where(magnitudes > 0, magnitudes, largest or 1.0) / largest_integer(bits)
    usable: Array = np.maximum(scales, SMALLEST_SCALE).astype(np.float32)
    return usable


def along(scales: Array, rank: int, axis: int) -> Array:
    """Return scales shaped to multiply a tensor of ``rank`` along ``axis``; one scale multiplies everything."""
    scales = np.asarray(scales)
    return scales.reshape(()) if scales.size == 1 else scales.reshape([-1 if i == axis else 1 for i in range(rank)])


def quantize_weights(values: Array, scales: Array, axis: int, bits: int, *, taps: tuple[int, ...] = ()) -> Array:
    """Return symmetric integers of ``bits`` for weights; along ``taps`` their sum is kept, to half a step.

    What a filter sees at neighbouring positions is alike, so that the sum of its rounding errors counts for more than
    their squares: a filter that takes differences would otherwise no longer cancel what is constant. Where the errors
    add up to n steps, the n weights that are nearest to the other integer are rounded the other way.
    """
    limit = largest_integer(bits)
    real = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
    steps = np.clip(real / along(np.asarray(scales, np.float64), real.ndim, axis), -limit, limit)
    integers = np.rint(steps)
    if taps and math.prod(real.shape[t] for t in taps) > 1:
        integers = integers + _kept_sums(steps - integers, taps)
    return np.clip(integers, -limit, limit).astype(np.int8)


def _kept_sums(errors: Array, taps: tuple[int, ...]) -> Array:
    """Return steps of -1, 0 or 1 that bring the sum of the errors along ``taps`` to half a step or less."""
    order = [*(a for a in range(errors.ndim) if a not in taps), *taps]
    moved = errors.transpose(order)
    rows = moved.reshape(-1, math.prod(moved.shape[-len(taps) :]))
    wanted = np.rint(rows.sum(axis=1, keepdims=True))
    rank = np.argsort(np.argsort(-rows * np.sign(wanted), axis=1, kind="stable"), axis=1, kind="stable")
    steps = np.where(rank < np.abs(wanted), np.sign(wanted), 0.0).reshape(moved.shape)
    kept: Array = steps.transpose(np.argsort(order))
    return kept


def quantize_bias(values: Array, scales: Array, dtype: str) -> Array:
    """Return the stored integers of a bias."""
    limit = LARGEST_BIAS[dtype]
    integers = np.rint(np.nan_to_num(np.asarray(values, np.float64), nan=0.0) / np.asarray(scales, np.float64))
    return np.clip(integers, -limit, limit).astype(np.int32 if dtype == "int32" else np.int64)


def dequantize_array(integers: Array, quantization: Quantization) -> Array:
    """Return the reals that stored integers stand for."""
    rank = integers.ndim
    scale = along(np.asarray(quantization.scale, np.float64), rank, quantization.axis)
    zero = along(np.asarray(quantization.zero_point or (0,), np.float64), rank, quantization.axis)
    return ((integers.astype(np.float64) - zero) * scale).astype(np.float32)


def per_channel(scales: Sequence[float] | Array, axis: int) -> Quantization:
    """Return the symmetric quantization of weights as the file stores it."""
    values = tuple(float(s) for s in np.ravel(scales))
    return Quantization(values, (0,) * len(values), axis if len(values) > 1 else 0)
