# SPDX-License-Identifier: Apache-2.0
"""Samples as tensors: in memory where they fit, read batch by batch where they do not; and how they are varied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError
from litesmith.model import Model

Inputs = dict[str, Tensor]
MEMORY_BUDGET_BYTES = 2 << 30


class Samples:
    """A Dataset bound to a model, handed out as batches of tensors by position."""

    def __init__(self, data: Dataset, model: Model, *, memory_budget_bytes: int = MEMORY_BUDGET_BYTES) -> None:
        self.data = data.bind(model)
        self.labels = _labels(data)
        first = self.data[0]
        size = sum(array.nbytes for array in first.inputs.values()) * len(data)
        self._stored: Inputs | None = self._read(np.arange(len(data))) if size <= memory_budget_bytes else None

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, positions: np.ndarray[Any, Any]) -> Inputs:
        """Return the inputs of the samples at these positions."""
        if self._stored is None:
            return self._read(positions)
        places = torch.from_numpy(np.asarray(positions, np.int64))
        return {name: values[places] for name, values in self._stored.items()}

    def _read(self, positions: np.ndarray[Any, Any]) -> Inputs:
        batches = list(self.data.subset(positions).batches(256))
        names = batches[0].inputs
        return {name: torch.from_numpy(np.concatenate([b.inputs[name] for b in batches])) for name in names}


def _labels(data: Dataset) -> Tensor | None:
    labels = data.labels
    if labels is None:
        return None
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iuf":
        raise DataError("training needs labels that are class numbers or arrays of numbers; these are neither")
    return torch.from_numpy(labels.astype(np.int64 if labels.dtype.kind in "iu" else np.float32))


@dataclass(frozen=True)
class View:
    """How each sample is shown once: whether it is mirrored, and by how many pixels it is moved down and right."""

    mirrored: Tensor
    down: Tensor
    right: Tensor


@dataclass(frozen=True)
class Augment:
    """How samples are varied, as text: ``flip shift=2 noise=0.05``.

    Attributes:
        flip: mirror half of the images.
        shift: move images by up to so many pixels each way; the edge is repeated.
        noise: add Gaussian noise, as a share of the standard deviation of the batch; the teacher does not see it.

    Example:
        >>> Augment.parse("flip shift=2")
        Augment(flip=True, shift=2, noise=0.0)
    """

    flip: bool = False
    shift: int = 0
    noise: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Augment:
        """Read the text form; ``none`` is no augmentation."""
        found: dict[str, Any] = {}
        for word in text.split() if text != "none" else ():
            match = re.fullmatch(r"flip|(shift)=(\d+)|(noise)=(\d*\.?\d+)", word)
            if match is None:
                raise UsageError(f"augmentation {word!r} is none of flip, shift=PIXELS, noise=SHARE")
            if word == "flip":
                found["flip"] = True
            elif match[1]:
                found["shift"] = int(match[2])
            else:
                found["noise"] = float(match[4])
        return cls(**found)

    def __bool__(self) -> bool:
        return self.flip or self.shift > 0 or self.noise > 0

    def view(self, count: int, generator: torch.Generator) -> View:
        """Decide how each of so many samples is shown."""
        mirrored = torch.rand(count, generator=generator) < (0.5 if self.flip else 0.0)
        down, right = (torch.randint(-self.shift, self.shift + 1, (count,), generator=generator) for _ in range(2))
        return View(mirrored, down, right)

    def __call__(self, inputs: Inputs, view: View, positions: np.ndarray[Any, Any]) -> Inputs:
        """Return the samples at these positions as a view shows them; images alone are mirrored and moved."""
        places = torch.from_numpy(np.asarray(positions, np.int64))
        return {name: _shown(x, view, places) for name, x in inputs.items()}

    def noisy(self, inputs: Inputs, generator: torch.Generator) -> Inputs:
        """Return the samples with noise, where there is to be any."""
        if not self.noise:
            return inputs
        return {
            name: x + torch.randn(x.shape, generator=generator) * (self.noise * x.std()) if x.is_floating_point() else x
            for name, x in inputs.items()
        }


def _shown(x: Tensor, view: View, places: Tensor) -> Tensor:
    if x.ndim != 4 or not x.is_floating_point():
        return x
    height, width = x.shape[1:3]
    rows = torch.clamp(torch.arange(height)[None] + view.down[places, None], 0, height - 1)
    columns = torch.clamp(torch.arange(width)[None] + view.right[places, None], 0, width - 1)
    columns = torch.where(view.mirrored[places, None], width - 1 - columns, columns)
    return x[torch.arange(len(x))[:, None, None], rows[:, :, None], columns[:, None, :]]
