# SPDX-License-Identifier: Apache-2.0
"""Gradual pruning: the share of zeros rises by a cubic schedule, and the masks are kept from then on.

``s(t) = s_f · (1 − (1 − t / t_f)³)`` (Zhu and Gupta, arXiv:1710.01878). At each update the weights with the smallest
magnitudes vanish, in units of the pattern; how much each layer gives is decided by one threshold over all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Subgraph
from litesmith.optimize._layer_rules import WEIGHT_KINDS
from litesmith.optimize._prune_allocate import allocate_by_weights
from litesmith.optimize._prune_patterns import PATTERNS, check_pattern, from_rows, keep_mask, rows_of
from litesmith.train._head_chain import head_layers
from litesmith.train._module import GraphModule
from litesmith.train._weight_transforms import chain

_UPDATES = 40


@dataclass(frozen=True)
class PruneTarget:
    """How many zeros and in which pattern, written ``0.8@4x1``.

    Example:
        >>> PruneTarget.parse("0.8@4x1")
        PruneTarget(sparsity=0.8, pattern='4x1')
    """

    sparsity: float
    pattern: str = "unstructured"

    @classmethod
    def parse(cls, text: str) -> PruneTarget:
        """Read the text form; without a pattern single weights vanish."""
        match = re.fullmatch(r"(0?\.\d+|0|\d+%)(?:@(.+))?", text.strip())
        if match is None:
            raise UsageError(f"{text!r} is no sparsity; write 0.8 or 0.8@PATTERN, one of {', '.join(PATTERNS)}")
        number = float(match[1][:-1]) / 100 if match[1].endswith("%") else float(match[1])
        check_pattern(match[2] or "unstructured", number)
        return cls(number, match[2] or "unstructured")

    def __str__(self) -> str:
        return f"prune({self.sparsity:g}, {self.pattern})"


class Mask(nn.Module):
    """Keeps some weights at zero."""

    mask: Tensor

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(shape))

    def forward(self, weight: Tensor) -> Tensor:
        """Set the weights outside the mask to zero."""
        return weight * self.mask


class PruneSchedule:
    """The hook that moves the masks of a module."""

    def __init__(
        self, module: GraphModule, target: PruneTarget, *, until: float = 0.5, zeros_stay: bool = False
    ) -> None:
        self._module, self._target, self._until = module, target, 0.0 if zeros_stay else until
        self._zeros_stay = zeros_stay
        self._kinds = with_zeros(module) if zeros_stay else prunable(module, target.pattern)
        if not self._kinds:
            raise OptimizeError(f"the model has no layers that the pattern {target.pattern} can prune")
        for key in self._kinds:
            module.weight_transforms[key] = chain(module, key, Mask(module.weights[key].shape))
            if zeros_stay:
                self.mask(key).mask.copy_((module.weights[key] != 0).float())
        self.stage = -1

    def update(self, progress: float) -> None:
        """Move the masks where the schedule has reached its next stage."""
        if self._zeros_stay:
            return
        stage = int(min(progress / self._until, 1.0) * _UPDATES)
        if stage == self.stage:
            return
        self.stage = stage
        self._prune(self._target.sparsity * (1 - (1 - stage / _UPDATES) ** 3))

    def is_done(self, progress: float) -> bool:
        """Say whether the final masks are in place."""
        return progress >= self._until

    def sparsity(self) -> float:
        """Return the share of zeros in the pruned layers."""
        masks = [self.mask(key).mask for key in self._kinds]
        return 1.0 - float(sum(float(m.sum()) for m in masks)) / sum(m.numel() for m in masks)

    def mask(self, key: str) -> Mask:
        """Return the mask of a weight."""
        transform: Any = self._module.weight_transforms[key]
        return next(part for part in transform if isinstance(part, Mask))

    @torch.no_grad()
    def _prune(self, sparsity: float) -> None:
        rows = {
            key: rows_of((self._module.weights[key] * self.mask(key).mask).numpy(), kind)
            for key, kind in self._kinds.items()
        }
        if self._target.pattern == "2:4":
            shares = [min(sparsity, 0.5) if sparsity >= 0.5 else 0.0 for _ in rows]
        else:
            shares = allocate_by_weights(list(rows.values()), sparsity, self._target.pattern)
        for (key, values), share in zip(rows.items(), shares, strict=True):
            kept = keep_mask(np.abs(values).astype(np.float64) ** 2, share, self._target.pattern)
            mask = self.mask(key).mask
            mask.copy_(torch.from_numpy(from_rows(kept.astype(np.float32), self._kinds[key], tuple(mask.shape))))


def with_zeros(module: GraphModule) -> dict[str, str]:
    """Return the weights that have zeros, with the kind of their layer."""
    found: dict[str, str] = {}
    for op in module.graph.operators:
        key = module.key(op.inputs[1]) if op.kind in WEIGHT_KINDS else None
        if key is not None and bool((module.weights[key] == 0).any()):
            found[key] = op.kind
    return found


def prunable(module: GraphModule, pattern: str) -> dict[str, str]:
    """Return the weights that are pruned, with the kind of their layer: all large enough, but for the head."""
    graph: Subgraph = module.graph
    head = head_layers(graph)
    found: dict[str, str] = {}
    for index, op in enumerate(graph.operators):
        if op.kind not in WEIGHT_KINDS or index in head:
            continue
        key = module.key(op.inputs[1])
        shape = graph.tensors[op.inputs[1]].shape
        if key is None or op.kind in ("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV") or shape[-1] < 4:
            continue  # few weights, much harm
        outputs = shape[0]
        if (pattern == "4x1" and outputs % 4) or (pattern == "2:4" and shape[-1] % 4):
            continue
        found[key] = op.kind
    return found
