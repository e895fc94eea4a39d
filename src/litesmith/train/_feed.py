# SPDX-License-Identifier: Apache-2.0
"""Samples as tensors: in memory where they fit, read batch by batch where they do not; and how they are varied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
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
    """How each sample is shown once: whether it is mirrored, and by how many pixels it is moved down and right.

    Where samples are mixed, ``other`` is the position of the second one, and ``part`` its share.
    """

    mirrored: Tensor
    down: Tensor
    right: Tensor
    other: Tensor
    part: Tensor


@dataclass(frozen=True)
class Mixed:
    """The labels of samples that are mixed: of the first, of the second, and the share of the second."""

    first: Tensor
    second: Tensor
    part: Tensor

    def blended(self, classes: int) -> Tensor:
        """Return the probabilities of so many classes; values as they lie between the two where there are none."""
        first, second = (nnf.one_hot(y, classes).float() if classes else y for y in (self.first, self.second))
        return torch.lerp(first, second, self.part.reshape(-1, *[1] * (first.ndim - 1)))


@dataclass(frozen=True)
class Augment:
    """How samples are varied, as text: ``flip shift=2 mix=0.5 noise=0.05``.

    Attributes:
        flip: mirror half of the images.
        shift: move images by up to so many pixels each way; the edge is repeated.
        mix: blend each sample with another, whose share is drawn up to this one. A teacher is asked about the blend, so that
            few samples tell more of what it knows (Beyer et al., arXiv:2106.05237); labels are blended alike.
        noise: add Gaussian noise, as a share of the standard deviation of the batch; the teacher does not see it.

    Example:
        >>> Augment.parse("flip shift=2")
        Augment(flip=True, shift=2, mix=0.0, noise=0.0)
    """

    flip: bool = False
    shift: int = 0
    mix: float = 0.0
    noise: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Augment:
        """Read the text form; ``none`` is no augmentation."""
        found: dict[str, Any] = {}
        for word in text.split() if text != "none" else ():
            match = re.fullmatch(r"(flip)|(shift)=(\d+)|(mix|noise)=(\d*\.?\d+)", word)
            if match is None:
                raise UsageError(f"augmentation {word!r} is none of flip, shift=PIXELS, mix=SHARE, noise=SHARE")
            if match[1]:
                found["flip"] = True
            elif match[2]:
                found["shift"] = int(match[3])
            else:
                found[match[4]] = float(match[5])
        if found.get("mix", 0.0) > 0.5:
            raise UsageError(f"mix is the largest share of a second sample, at most 0.5, not {found['mix']:g}")
        return cls(**found)

    def __bool__(self) -> bool:
        return self.flip or self.shift > 0 or self.mix > 0 or self.noise > 0

    def view(self, count: int, generator: torch.Generator) -> View:
        """Decide how each of so many samples is shown."""
        mirrored = torch.rand(count, generator=generator) < (0.5 if self.flip else 0.0)
        down, right = (torch.randint(-self.shift, self.shift + 1, (count,), generator=generator) for _ in range(2))
        other = torch.randperm(count, generator=generator)
        part = self.mix * torch.rand(count, generator=generator)
        return View(mirrored, down, right, other, part)

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


def mixed(first: Inputs, second: Inputs, part: Tensor) -> Inputs:
    """Return two batches as one, with a share of the second for each sample."""
    shares = {name: part.reshape(-1, *[1] * (x.ndim - 1)) for name, x in first.items()}
    return {name: torch.lerp(x, second[name], shares[name]) for name, x in first.items()}


def _shown(x: Tensor, view: View, places: Tensor) -> Tensor:
    if x.ndim != 4 or not x.is_floating_point():
        return x
    height, width = x.shape[1:3]
    rows = torch.clamp(torch.arange(height)[None] + view.down[places, None], 0, height - 1)
    columns = torch.clamp(torch.arange(width)[None] + view.right[places, None], 0, width - 1)
    columns = torch.where(view.mirrored[places, None], width - 1 - columns, columns)
    return x[torch.arange(len(x))[:, None, None], rows[:, :, None], columns[:, None, :]]
