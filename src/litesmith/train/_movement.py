# SPDX-License-Identifier: Apache-2.0
"""Operators that move data: shapes, slices, joins and padding.

Files are made for a batch of one. Where a constant shape or slice names that one, it is the batch, however many
samples it holds in training: a leading dimension of 1 stands for "all samples".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.errors import ModelError
from litesmith.train._operators import Compute, Node, makes


@makes("RESHAPE")
def reshape(node: Node) -> Compute:
    """Make another shape; the leading dimension takes what is left, so that the batch may be any."""
    shape = node.output_shape()
    if any(d < 0 for d in shape[1:]):
        raise ModelError(f"{node}: its shape {list(shape)} is known only at run time")
    return lambda x, _shape=None: x.reshape(-1, *shape[1:]) if shape else x.reshape(())


@makes("SQUEEZE")
def squeeze(node: Node) -> Compute:
    """Make a shape without some axes of length 1."""
    return reshape(node)


@makes("EXPAND_DIMS")
def expand_dims(node: Node) -> Compute:
    """Make a shape with one more axis of length 1."""
    axis = node.integers(1)[0]
    return lambda x, _axis: x.unsqueeze(axis)


@makes("TRANSPOSE")
def transpose(node: Node) -> Compute:
    """Make another order of axes."""
    order = node.integers(1)
    return lambda x, _order: x.permute(order)


@makes("CONCATENATION")
def concatenation(node: Node) -> Compute:
    """Make one tensor of several, along an axis; one that is the same for all samples is repeated."""
    axis = int(node.options.axis)

    def compute(*inputs: Tensor) -> Tensor:
        along = axis % inputs[0].ndim
        batch = max(x.shape[0] for x in inputs)
        if along != 0:
            inputs = tuple(x if x.shape[0] == batch else x.expand(batch, *x.shape[1:]) for x in inputs)
        return torch.cat(inputs, dim=along)

    return compute


@makes("PACK")
def pack(node: Node) -> Compute:
    """Make one tensor of several, along a new axis."""
    axis = int(node.options.axis)

    def compute(*inputs: Tensor) -> Tensor:
        shape = np.broadcast_shapes(*(tuple(x.shape) for x in inputs))
        return torch.stack([x.expand(shape) for x in inputs], dim=axis)

    return compute


@makes("UNPACK")
def unpack(node: Node) -> Compute:
    """Make several tensors of one, along an axis that vanishes."""
    axis, single = int(node.options.axis), int(node.options.num) == 1
    return lambda x: torch.unbind(x, dim=axis)[0] if single else torch.unbind(x, dim=axis)


@makes("SPLIT")
def split(node: Node) -> Compute:
    """Make equal parts."""
    axis, count = node.integers(0)[0], int(node.options.num_splits)

    def compute(_axis: Tensor, x: Tensor) -> Any:
        parts = torch.split(x, x.shape[axis] // count, dim=axis)
        return parts if count > 1 else parts[0]

    return compute


@makes("SPLIT_V")
def split_v(node: Node) -> Compute:
    """Make parts of given sizes; one size may be -1."""
    sizes, axis = node.integers(1), node.integers(2)[0]
    whole = node.shape(0)[axis]
    sizes = [whole - sum(s for s in sizes if s >= 0) if size < 0 else size for size in sizes]

    def compute(x: Tensor, _sizes: Tensor, _axis: Tensor) -> Any:
        parts = torch.split(x, sizes, dim=axis)
        return parts if len(parts) > 1 else parts[0]

    return compute


@makes("SLICE")
def slice_(node: Node) -> Compute:
    """Make a part of constant place and size."""
    begin, size, shape = node.integers(1), node.integers(2), node.shape(0)
    places = [
        slice(None) if start == 0 and count in (-1, whole) else slice(start, None if count < 0 else start + count)
        for start, count, whole in zip(begin, size, shape, strict=True)
    ]
    return lambda x, _begin, _size: x[tuple(places)]


@makes("STRIDED_SLICE")
def strided_slice(node: Node) -> Compute:
    """Make a part with steps; axes may vanish or appear."""
    options = node.options
    begin, end, strides = (node.integers(p) for p in (1, 2, 3))
    if options.ellipsis_mask or options.new_axis_mask:
        raise ModelError(f"{node}: a slice with an ellipsis or new axes cannot be trained through")
    shape = node.shape(0)
    places: list[Any] = []
    vanish: list[int] = []
    flips: list[int] = []
    for axis, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        if options.shrink_axis_mask >> axis & 1:
            places.append(
                slice(None) if shape[axis] == 1 and axis == 0 else slice(first % shape[axis], first % shape[axis] + 1)
            )
            vanish.append(axis)
            continue
        start = None if options.begin_mask >> axis & 1 else first
        stop = None if options.end_mask >> axis & 1 else last
        chosen = range(shape[axis])[start:stop:step]
        if step < 0:
            flips.append(axis)
            chosen = chosen[::-1]
        everything = len(chosen) == shape[axis] and chosen.step == 1
        places.append(slice(None) if everything else slice(chosen.start, chosen.stop, chosen.step))
    if 0 in vanish and shape[0] == 1:
        raise ModelError(f"{node}: it takes the batch away, which cannot be trained through")

    def compute(x: Tensor, *_: Tensor) -> Tensor:
        part = x[tuple(places)]
        part = torch.flip(part, flips) if flips else part
        for place in reversed(vanish):
            part = part.squeeze(place)
        return part

    return compute


def _padding(node: Node) -> list[int]:
    pairs = np.asarray(node.constant(1)).reshape(-1, 2).tolist()
    return [int(amount) for pair in reversed(pairs) for amount in pair]


@makes("PAD", "PADV2")
def pad(node: Node) -> Compute:
    """Make a tensor with constants around it."""
    amounts = _padding(node)
    value = float(np.ravel(node.constant(2))[0]) if node.has(2) else 0.0

    def compute(x: Tensor, *_: Tensor) -> Tensor:
        if x.ndim == 4 and not any(amounts[:2]) and not any(amounts[6:]):  # channels-last memory stays so
            image = nnf.pad(x.permute(0, 3, 1, 2), amounts[2:6], value=value)
            return image.permute(0, 2, 3, 1)
        return nnf.pad(x, amounts, value=value)

    return compute


@makes("MIRROR_PAD")
def mirror_pad(node: Node) -> Compute:
    """Make a tensor with its mirror image around it."""
    pairs = np.asarray(node.constant(1)).reshape(-1, 2).tolist()
    offset = 1 if node.options.mode == "REFLECT" else 0

    def compute(x: Tensor, _pads: Tensor) -> Tensor:
        for axis, (before, after) in enumerate(pairs):
            if before or after:
                size = x.shape[axis]
                steps = [*range(before - 1 + offset, offset - 1, -1), *range(size)]
                steps += range(size - 1 - offset, size - 1 - offset - after, -1)
                x = torch.index_select(x, axis, torch.tensor(steps))
        return x

    return compute


@makes("TILE")
def tile(node: Node) -> Compute:
    """Make repetitions."""
    counts = node.integers(1)
    return lambda x, _counts: x.repeat(counts)


@makes("BROADCAST_TO")
def broadcast_to(node: Node) -> Compute:
    """Make a larger shape by repetition of axes of length 1."""
    shape = node.output_shape()

    def compute(x: Tensor, _shape: Tensor) -> Tensor:
        lead = x.shape[0] if x.ndim == len(shape) and shape and shape[0] == 1 else None
        return x.expand(shape if lead is None else (lead, *shape[1:]))

    return compute


@makes("GATHER")
def gather(node: Node) -> Compute:
    """Make a choice of rows along an axis."""
    axis = int(node.options.axis) % max(len(node.shape(0)), 1)
    if node.options.batch_dims:
        raise ModelError(f"{node}: a GATHER with batch dimensions cannot be trained through")

    def compute(x: Tensor, places: Tensor) -> Tensor:
        chosen = torch.index_select(x, axis, places.reshape(-1).long())
        return chosen.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])

    return compute


@makes("EMBEDDING_LOOKUP")
def embedding_lookup(_node: Node) -> Compute:
    """Make a choice of rows of a table."""
    return lambda places, table: torch.nn.functional.embedding(places.long(), table)


@makes("DEPTH_TO_SPACE")
def depth_to_space(node: Node) -> Compute:
    """Make larger images of fewer channels."""
    block = int(node.options.block_size)

    def compute(x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        parts = x.reshape(batch, height, width, block, block, channels // block**2)
        return parts.permute(0, 1, 3, 2, 4, 5).reshape(batch, height * block, width * block, channels // block**2)

    return compute


@makes("SPACE_TO_DEPTH")
def space_to_depth(node: Node) -> Compute:
    """Make smaller images of more channels."""
    block = int(node.options.block_size)

    def compute(x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        parts = x.reshape(batch, height // block, block, width // block, block, channels)
        return parts.permute(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, channels * block**2)

    return compute


@makes("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> Compute:
    """Make a batch of the phases of an image, as dilated convolutions are written."""
    (rows, columns), pads = node.integers(1), np.asarray(node.constant(2)).tolist()

    def compute(x: Tensor, *_: Tensor) -> Tensor:
        x = nnf.pad(x, (0, 0, *map(int, pads[1]), *map(int, pads[0])))
        batch, height, width, channels = x.shape
        parts = x.reshape(batch, height // rows, rows, width // columns, columns, channels)
        # The samples stay outermost: each phase of a sample is a neighbour of its other phases.
        return parts.permute(0, 2, 4, 1, 3, 5).reshape(-1, height // rows, width // columns, channels)

    return compute


@makes("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> Compute:
    """Make images of their phases again."""
    (rows, columns), crops = node.integers(1), np.asarray(node.constant(2)).tolist()

    def compute(x: Tensor, *_: Tensor) -> Tensor:
        height, width, channels = x.shape[1:]
        parts = x.reshape(-1, rows, columns, height, width, channels).permute(0, 3, 1, 4, 2, 5)
        image = parts.reshape(-1, height * rows, width * columns, channels)
        top, bottom, left, right = (int(crop) for pair in crops for crop in pair)
        return image[:, top : image.shape[1] - bottom, left : image.shape[2] - right]

    return compute


@makes("REVERSE_V2")
def reverse(node: Node) -> Compute:
    """Make the opposite order along axes."""
    axes = node.axes(1)
    return lambda x, _axes: torch.flip(x, axes)


@makes("SHAPE")
def shape_of(node: Node) -> Compute:
    """Make the shape as the file has it."""
    shape = list(node.shape(0))
    return lambda _x: torch.tensor(shape, dtype=torch.int32)
