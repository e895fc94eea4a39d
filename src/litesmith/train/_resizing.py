# SPDX-License-Identifier: Apache-2.0
"""Resizing of images, in LiteRT's three ways to map pixels (tflite/kernels/internal/reference/resize_*.h).

Plainly ``source = target · in / out``; with ``align_corners`` the outer pixels meet, ``(in − 1) / (out − 1)``; with
``half_pixel_centers`` it is the pixels' centres that are mapped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from litesmith.train._operators import Compute, Node, makes


def _scale(source: int, target: int, *, align: bool) -> float:
    return (source - 1) / (target - 1) if align and target > 1 else source / target


def _places(source: int, target: int, *, align: bool, half: bool) -> Tensor:
    steps = torch.arange(target, dtype=torch.float32)
    scale = _scale(source, target, align=align)
    return (steps + 0.5) * scale - 0.5 if half else steps * scale


def _lerp(x: Tensor, axis: int, target: int, *, align: bool, half: bool) -> Tensor:
    source = x.shape[axis]
    if source == target:
        return x
    place = _places(source, target, align=align, half=half)
    low = torch.floor(place)
    share = (place - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    first = torch.clamp(low.long(), 0, source - 1)
    second = torch.clamp(low.long() + 1, 0, source - 1)
    below = torch.index_select(x, axis, first)
    return below + (torch.index_select(x, axis, second) - below) * share


@makes("RESIZE_BILINEAR")
def resize_bilinear(node: Node) -> Compute:
    """Make a bilinear resize."""
    height, width = node.output_shape()[1:3]
    align, half = bool(node.options.align_corners), bool(node.options.half_pixel_centers)

    def compute(x: Tensor, _size: Tensor) -> Tensor:
        return _lerp(_lerp(x, 1, height, align=align, half=half), 2, width, align=align, half=half)

    return compute


def _nearest(source: int, target: int, *, align: bool, half: bool) -> Tensor:
    steps = torch.arange(target, dtype=torch.float32) + (0.5 if half else 0.0)
    place = steps * _scale(source, target, align=align)
    whole = torch.floor(place + 0.5) if align else torch.floor(place)
    return torch.clamp(whole.long(), 0, source - 1)


@makes("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(node: Node) -> Compute:
    """Make a resize that repeats or drops pixels."""
    height, width = node.output_shape()[1:3]
    align, half = bool(node.options.align_corners), bool(node.options.half_pixel_centers)

    def compute(x: Tensor, _size: Tensor) -> Tensor:
        rows = torch.index_select(x, 1, _nearest(x.shape[1], height, align=align, half=half))
        return torch.index_select(rows, 2, _nearest(x.shape[2], width, align=align, half=half))

    return compute
