# SPDX-License-Identifier: Apache-2.0
"""Operators that read and write at places that other tensors name."""

from __future__ import annotations

import torch
from torch import Tensor

from litesmith.train._operators import Compute, Node, makes


@makes("GATHER_ND")
def gather_nd(_node: Node) -> Compute:
    """Make a choice of values or rows, each named by its place along the leading axes."""
    return lambda x, places: x[tuple(places.long().unbind(-1))]


@makes("SCATTER_ND")
def scatter_nd(node: Node) -> Compute:
    """Make zeros with values or rows put into them; those of one place are added."""
    shape = node.integers(2)

    def compute(places: Tensor, values: Tensor, _shape: Tensor) -> Tensor:
        return values.new_zeros(shape).index_put(tuple(places.long().unbind(-1)), values, accumulate=True)

    return compute


@makes("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> Compute:
    """Make a tensor with a part of it replaced; a part that would reach over the end is moved back."""
    whole, size = node.shape(0), node.shape(1)

    def compute(x: Tensor, part: Tensor, start: Tensor) -> Tensor:
        firsts = [
            min(max(first, 0), w - s) for first, w, s in zip(start.reshape(-1).tolist(), whole, size, strict=True)
        ]
        places = [slice(None) if w == s else slice(f, f + s) for f, w, s in zip(firsts, whole, size, strict=True)]
        if x.ndim and whole[0] == size[0]:  # either may be the same for all samples
            batch = max(x.shape[0], part.shape[0])
            x, part = x.expand(batch, *x.shape[1:]), part.expand(batch, *part.shape[1:])
        changed = torch.clone(x)
        changed[tuple(places)] = part
        return changed

    return compute
