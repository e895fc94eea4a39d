# SPDX-License-Identifier: Apache-2.0
"""Clustered training: the weights of a layer share a few values, and those values are trained.

The net begins with weights that are clustered already, so that its layers' outputs change least. First each weight
follows its own gradient and takes the value of the nearest centroid, which is the mean of its weights (k-means within
training, Han et al., arXiv:1510.00149). Then the assignment is frozen and the centroids themselves are the parameters.
Zeros of a mask stay zero: 0 is a centroid that does not move.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from litesmith.errors import OptimizeError
from litesmith.optimize._layer_rules import WEIGHT_KINDS
from litesmith.train._module import GraphModule
from litesmith.train._prune_schedule import Mask
from litesmith.train._weight_transforms import chain

_UPDATES = 60


class Clusters(nn.Module):
    """Replaces each weight by its centroid."""

    assignment: Tensor
    frozen: Tensor
    pinned: Tensor

    def __init__(self, weight: Tensor, *, keep_zero: bool) -> None:
        super().__init__()
        self.keep_zero = keep_zero
        values = torch.unique(weight.detach())
        self.centroids = nn.Parameter(values)
        self.register_buffer("assignment", torch.zeros(weight.shape, dtype=torch.int64))
        self.register_buffer("frozen", torch.zeros((), dtype=torch.bool))
        self.register_buffer("pinned", (values == 0) if keep_zero else torch.zeros(len(values), dtype=torch.bool))
        self.assign(weight.detach())

    @torch.no_grad()
    def assign(self, weight: Tensor) -> None:
        """Give each weight its nearest centroid, and move the centroids to the means of their weights."""
        order = torch.argsort(self.centroids)
        ascending = self.centroids[order]
        borders = (ascending[1:] + ascending[:-1]) / 2
        found = order[torch.bucketize(weight, borders)]
        if self.keep_zero and bool(self.pinned.any()):
            zero = int(self.pinned.float().argmax())
            nearest = self.centroids.abs() + torch.where(self.pinned, torch.inf, 0.0)
            # A weight that is not masked does not become a zero by chance, nor a zero anything else.
            others = torch.where(weight.abs() > 0, int(nearest.argmin()), zero)
            found = torch.where(weight == 0, zero, torch.where(found == zero, others, found))
        self.assignment.copy_(found)
        flat = found.reshape(-1)
        sums = torch.zeros_like(self.centroids).index_add_(0, flat, weight.reshape(-1))
        counts = torch.bincount(flat, minlength=len(self.centroids))
        moved = torch.where(counts > 0, sums / counts.clamp(min=1), self.centroids)
        self.centroids.copy_(torch.where(self.pinned, 0.0, moved))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the centroids in the places of the weights."""
        centroids = torch.where(self.pinned, 0.0, self.centroids)
        shared = centroids[self.assignment]
        if bool(self.frozen):
            return shared
        return weight + (shared - weight).detach()


class ClusterSchedule:
    """The hook that moves assignments, and freezes them for the last part of a training."""

    def __init__(self, module: GraphModule, count: int, *, until: float = 0.6) -> None:
        self._module, self._until = module, until
        self._keys: list[str] = []
        for op in module.graph.operators:
            key = module.key(op.inputs[1]) if op.kind in WEIGHT_KINDS else None
            if key is not None and key not in self._keys and _is_clustered(module.weights[key], count):
                self._keys.append(key)
        if not self._keys:
            raise OptimizeError(f"the model has no layer with more than {count} values to cluster")
        self.stage = -1
        for key in self._keys:
            keep_zero = any(isinstance(part, Mask) for part in self._parts(key))
            module.weight_transforms[key] = chain(module, key, Clusters(module.weights[key], keep_zero=keep_zero))

    def _parts(self, key: str) -> list[nn.Module]:
        transforms: Any = self._module.weight_transforms
        return list(transforms[key]) if key in transforms else []

    def clusters(self, key: str) -> Clusters:
        """Return the clusters of a weight."""
        return next(part for part in self._parts(key) if isinstance(part, Clusters))

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Move the assignments where it is time."""
        stage = int(progress * _UPDATES)
        if stage == self.stage:
            return
        self.stage = stage
        for key in self._keys:
            clusters = self.clusters(key)
            if bool(clusters.frozen):
                continue
            weight = self._module.weights[key]
            for part in self._parts(key):
                if part is clusters:
                    break
                weight = part(weight)
            clusters.assign(weight)
            clusters.frozen.fill_(progress >= self._until)

    def is_done(self, progress: float) -> bool:
        """Say whether the assignments are frozen."""
        return progress >= self._until

    def sparsity(self) -> float:
        """Return no share of zeros: that is the masks' to say."""
        return 0.0


def _is_clustered(weight: Tensor, count: int) -> bool:
    return weight.numel() > count and len(torch.unique(weight.detach())) <= count
