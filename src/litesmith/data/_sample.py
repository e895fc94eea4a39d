# SPDX-License-Identifier: Apache-2.0
"""What a Dataset hands out: one sample, or several stacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.errors import UsageError


@dataclass(frozen=True)
class Sample:
    """One sample: an array for each input of the model.

    Attributes:
        inputs: the arrays by the name of their input.
        label: the class number, a number, text, an array, or None where there are no labels.
        key: names the sample in its source (a path, or ``file.npz[17]``), whatever subset it was read from.
    """

    inputs: dict[str, NDArray[Any]]
    label: Any
    key: str

    @property
    def x(self) -> NDArray[Any]:
        """The array of the only input."""
        return _only(self.inputs)


@dataclass(frozen=True)
class Batch:
    """Several samples: the arrays of each input stacked along the first axis.

    Attributes:
        inputs: the stacked arrays by the name of their input.
        labels: one label a sample, stacked where they are alike; None where there are no labels.
        keys: one key a sample.
    """

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any] | None
    keys: tuple[str, ...]

    @property
    def x(self) -> NDArray[Any]:
        """The stacked array of the only input."""
        return _only(self.inputs)

    def __len__(self) -> int:
        return len(self.keys)


def _only(inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if len(inputs) != 1:
        raise UsageError(
            f".x is for one input, and there are {len(inputs)}: use .inputs[name] with {', '.join(inputs)}"
        )
    return next(iter(inputs.values()))


def plain_label(label: Any) -> Any:
    """Return a NumPy scalar as the Python value it is; leave arrays and everything else."""
    if isinstance(label, np.generic) or (isinstance(label, np.ndarray) and label.ndim == 0):
        return label.item()
    return label
