# SPDX-License-Identifier: Apache-2.0
"""Operators that reduce axes: sums, means, extremes and their places."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from litesmith.train._operators import Compute, Node, makes


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis, keepdim=keep)
    return x


_REDUCERS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "MEAN": lambda x, axes, keep: torch.mean(x, dim=axes, keepdim=keep),
    "REDUCE_ALL": lambda x, axes, keep: torch.all(x, dim=tuple(axes), keepdim=keep),
    "REDUCE_ANY": lambda x, axes, keep: torch.any(x, dim=tuple(axes), keepdim=keep),
    "REDUCE_MAX": lambda x, axes, keep: torch.amax(x, dim=axes, keepdim=keep),
    "REDUCE_MIN": lambda x, axes, keep: torch.amin(x, dim=axes, keepdim=keep),
    "REDUCE_PROD": _prod,
    "SUM": lambda x, axes, keep: torch.sum(x, dim=axes, keepdim=keep),
}


@makes(*_REDUCERS)
def reduce(node: Node) -> Compute:
    """Make a reduction over constant axes."""
    reducer = _REDUCERS[node.operator.kind]
    axes, keep = node.axes(1), bool(node.options.keep_dims)
    return lambda x, _axes: reducer(x, axes, keep) if axes else x


@makes("ARG_MAX", "ARG_MIN")
def arg_extreme(node: Node) -> Compute:
    """Make the place of the largest or smallest value."""
    find = torch.argmax if node.operator.kind == "ARG_MAX" else torch.argmin
    axis = node.integers(1)[0]
    dtype = torch.int64 if node.output_dtype() == "int64" else torch.int32
    return lambda x, _axis: find(x, dim=axis).to(dtype)


@makes("L2_NORMALIZATION")
def l2_normalization(_node: Node) -> Compute:
    """Make vectors of length 1 along the last axis."""
    return lambda x: x / torch.sqrt(torch.clamp(torch.sum(x * x, dim=-1, keepdim=True), min=1e-6))


@makes("CUMSUM")
def cumsum(node: Node) -> Compute:
    """Make running sums."""
    axis, exclusive, reverse = node.integers(1)[0], bool(node.options.exclusive), bool(node.options.reverse)

    def compute(x: Tensor, _axis: Tensor) -> Tensor:
        y = torch.flip(x, [axis]) if reverse else x
        total = torch.cumsum(y, dim=axis)
        total = total - y if exclusive else total
        return torch.flip(total, [axis]) if reverse else total

    return compute


@makes("TOPK_V2")
def topk(node: Node) -> Compute:
    """Make the largest values of the last axis and their places."""
    count = node.integers(1)[0]

    def compute(x: Tensor, _count: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.topk(x, count, dim=-1)
        return found.values, found.indices.to(torch.int32)

    return compute
