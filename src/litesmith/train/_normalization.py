# SPDX-License-Identifier: Apache-2.0
"""Batch normalization for the time of the training: it stands behind each convolution and is folded away at the end.

A `.tflite` has its normalization folded into the weights. That is right for a trained net, and hopeless for one with
random weights: without normalization deep nets hardly begin to learn (Ioffe and Szegedy, arXiv:1502.03167). A net that
lost zeros or channels recovers faster with it too. There it begins with factors and offsets that undo it, so that the
net computes what it did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from litesmith.model import ABSENT
from litesmith.train._feed import Samples
from litesmith.train._head_chain import head_layers
from litesmith.train._module import GraphModule

_EPSILON = 1e-3
_MOMENTUM = 0.1
_MEASURED = 128
"""Samples whose statistics a trained net begins with."""


class Normalization(nn.Module):
    """Batch normalization of the last axis."""

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(channels))
        self.offset = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.measures = False

    @torch.no_grad()
    def _undo(self, x: Tensor) -> None:
        rows = x.reshape(-1, x.shape[-1])
        self.mean.copy_(rows.mean(dim=0))
        self.variance.copy_(rows.var(dim=0, unbiased=False))
        self.factor.copy_(torch.sqrt(self.variance + _EPSILON))
        self.offset.copy_(self.mean)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize by the batch in training, by what was seen otherwise."""
        if self.measures:
            self._undo(x)
            return x
        order = (0, x.ndim - 1, *range(1, x.ndim - 1))
        image = x.permute(order)
        by_batch = self.training and x.numel() > x.shape[-1]  # a single value has no variance
        done = nnf.batch_norm(image, self.mean, self.variance, self.factor, self.offset, by_batch, _MOMENTUM, _EPSILON)
        return done.permute(0, *range(2, x.ndim), 1)

    def folded(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return what to multiply the layer's result by, and what to add."""
        with torch.no_grad():
            factor = self.factor / torch.sqrt(self.variance + _EPSILON)
            return factor.numpy(), (self.offset - self.mean * factor).numpy()


def normalize(module: GraphModule, samples: Samples | None = None) -> int:
    """Put normalization behind every convolution but the head; return how many there are.

    With samples, the module goes on computing what it did: their statistics are undone by factors and offsets.
    """
    graph = module.graph
    head = head_layers(graph)
    uses: dict[str, int] = {}
    for op in graph.operators:
        for tensor in op.inputs:
            key = module.key(tensor) if tensor != ABSENT else None
            if key is not None:
                uses[key] = uses.get(key, 0) + 1
    for index, op in enumerate(graph.operators):
        if op.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D") or index in head or len(op.inputs) < 3:
            continue
        keys = [module.key(t) if t != ABSENT else None for t in op.inputs[1:3]]
        if all(key is not None and uses[key] == 1 for key in keys):
            module.norms[str(index)] = Normalization(graph.tensors[op.outputs[0]].shape[-1])
    if samples is not None and len(module.norms):
        _undo(module, samples)
    return len(module.norms)


@torch.no_grad()
def _undo(module: GraphModule, samples: Samples) -> None:
    norms: list[Any] = list(module.norms.values())
    for norm in norms:
        norm.measures = True
    module.run(module.feed(samples.inputs(np.arange(min(_MEASURED, len(samples))))))
    for norm in norms:
        norm.measures = False
