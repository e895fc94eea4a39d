# SPDX-License-Identifier: Apache-2.0
"""How values are expected to vary: mean and variance of each channel, carried through operators without any data.

Values before an activation are taken as Gaussian, which sums over many inputs are; the moments behind it follow by
Gauss–Hermite quadrature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LEAK = {"LEAKY_RELU_0.1": 0.1, "LEAKY_RELU_0.2": 0.2}
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda x: x,
    "RELU": lambda x: np.maximum(x, 0),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "HARD_SWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "HARD_SIGMOID": lambda x: np.clip(x + 3, 0, 6) / 6,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "LEAKY_RELU_0.1": lambda x: np.maximum(x, 0.1 * x),
    "LEAKY_RELU_0.2": lambda x: np.maximum(x, 0.2 * x),
}

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class Spread:
    """Mean and variance of each channel of a tensor; a single number stands for all channels."""

    mean: Array
    variance: Array

    @staticmethod
    def of(mean: float, variance: float, channels: int) -> Spread:
        """Return the same mean and variance for all channels."""
        return Spread(np.full(channels, mean), np.full(channels, variance))

    def scaled(self, factor: float) -> Spread:
        """Return the spread with its variance multiplied, the mean kept: what averaging does."""
        return Spread(self.mean, self.variance * factor)

    def through(self, activation: str) -> Spread:
        """Return the spread behind an activation.

        Example:
            >>> Spread.of(0, 1, 1).through("RELU").mean.round(2)
            array([0.4])
        """
        points = self.mean[:, None] + np.sqrt(self.variance)[:, None] * _NODES
        values = _FUNCTIONS[activation](points)
        mean = values @ _WEIGHTS
        return Spread(mean, np.maximum((values**2) @ _WEIGHTS - mean**2, 1e-6))

    def __add__(self, other: Spread) -> Spread:
        return Spread(self.mean + other.mean, self.variance + other.variance)

    def __mul__(self, other: Spread) -> Spread:
        second = (self.variance + self.mean**2) * (other.variance + other.mean**2)
        mean = self.mean * other.mean
        return Spread(mean, second - mean**2)

    @staticmethod
    def joined(parts: Sequence[Spread]) -> Spread:
        """Return the spread of tensors joined along the channels."""
        return Spread(np.concatenate([p.mean for p in parts]), np.concatenate([p.variance for p in parts]))
