# SPDX-License-Identifier: Apache-2.0
"""Shapes of the StableHLO operators that LiteRT has kernels for, by the rules of their specification.

Source: https://openxla.org/stablehlo/spec (gather, pad, reduce_window, rng_bit_generator, scatter)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litesmith.errors import ModelError
from litesmith.model._graph import Tensor

Outputs = list[tuple[tuple[int, ...], str]]


def equal_shapes(inputs: list[Tensor], _options: Any) -> Outputs:
    """Element-wise without broadcasting: both operands are alike."""
    first, second = inputs
    if first.shape != second.shape or first.dtype != second.dtype:
        raise ModelError(
            f"{first.dtype} of shape {list(first.shape)} and {second.dtype} of shape {list(second.shape)} must be alike"
        )
    return [(first.shape, first.dtype)]


def gather(inputs: list[Tensor], options: Any) -> Outputs:
    """Slices of the operand, at the places that the index vectors say."""
    operand, indices = inputs
    offsets, collapsed = options.offset_dims or (), options.collapsed_slice_dims or ()
    targets, sizes = options.start_index_map or (), options.slice_sizes or ()
    rank = len(operand.shape)
    batch = _batch(indices, options.index_vector_dim, targets, rank)
    _rising("collapsed_slice_dims", collapsed, rank)
    _rising("offset_dims", offsets, len(batch) + len(offsets))
    if len(sizes) != rank or any(not 0 <= s <= d for s, d in zip(sizes, operand.shape, strict=True)):
        raise ModelError(f"slices of {list(sizes)} do not fit an operand of shape {list(operand.shape)}")
    if len(offsets) + len(collapsed) != rank or any(sizes[d] > 1 for d in collapsed):
        raise ModelError(f"slices of {list(sizes)} without {list(collapsed)} do not fill {len(offsets)} dimensions")
    window = [size for d, size in enumerate(sizes) if d not in collapsed]
    return [(_merged(batch, window, offsets), operand.dtype)]


def scatter(inputs: list[Tensor], options: Any) -> Outputs:
    """Updates written over slices of the operand, at the places that the index vectors say."""
    operand, indices, updates = inputs
    windows, inserted = options.update_window_dims or (), options.inserted_window_dims or ()
    rank = len(operand.shape)
    batch = _batch(indices, options.index_vector_dim, options.scatter_dims_to_operand_dims or (), rank)
    _rising("inserted_window_dims", inserted, rank)
    _rising("update_window_dims", windows, len(updates.shape))
    if len(windows) + len(inserted) != rank or len(batch) + len(windows) != len(updates.shape):
        raise ModelError(f"updates of shape {list(updates.shape)} do not fit an operand of shape {list(operand.shape)}")
    if [d for i, d in enumerate(updates.shape) if i not in windows] != batch or updates.dtype != operand.dtype:
        raise ModelError(f"updates of {updates.dtype} {list(updates.shape)} do not fit indices {list(indices.shape)}")
    return [(operand.shape, operand.dtype)]


def pad(inputs: list[Tensor], options: Any) -> Outputs:
    """Values around and between those of the operand; negative amounts crop."""
    operand, value = inputs
    low, high, inner = options.edge_padding_low, options.edge_padding_high, options.interior_padding
    rank = len(operand.shape)
    if any(len(amounts or ()) != rank for amounts in (low, high, inner)) or min(inner or (0,)) < 0:
        raise ModelError(f"paddings {low}, {high} and {inner} do not fit an operand of shape {list(operand.shape)}")
    if value.elements != 1 or value.dtype != operand.dtype:
        raise ModelError(f"the padding must be one value of {operand.dtype}")
    pads = zip(operand.shape, low or (), high or (), inner or (), strict=True)
    shape = tuple(size + a + b + max(size - 1, 0) * c for size, a, b, c in pads)
    if any(not 0 <= size < 2**31 for size in shape) or 0 in operand.shape:
        raise ModelError(f"paddings {low}, {high} and {inner} make a shape of {list(shape)}")
    return [(shape, operand.dtype)]


def reduce_window(inputs: list[Tensor], options: Any) -> Outputs:
    """One value for each place of a window over the operand."""
    operand, start = inputs
    rank = len(operand.shape)
    dimensions, strides = options.window_dimensions or (), options.window_strides or (1,) * rank
    base, dilation = options.base_dilations or (1,) * rank, options.window_dilations or (1,) * rank
    padding = options.padding or (0,) * (2 * rank)
    if any(len(v) != rank for v in (dimensions, strides, base, dilation)) or len(padding) != 2 * rank or not rank:
        raise ModelError(f"a window of {list(dimensions)} does not fit an operand of shape {list(operand.shape)}")
    if min(*dimensions, *strides, *base, *dilation, *operand.shape) < 1:
        raise ModelError("sizes, strides and dilations of a window must be positive, and the operand not empty")
    padded = [
        (size - 1) * b + 1 + before + after
        for size, b, before, after in zip(operand.shape, base, padding[::2], padding[1::2], strict=True)
    ]
    shape = _windows(padded, dimensions, strides, dilation)
    if start.elements != 1 or start.dtype != operand.dtype:
        raise ModelError(f"the initial value must be one value of {operand.dtype}")
    return [(shape, operand.dtype)]


def tflite_reduce_window(inputs: list[Tensor], _options: Any) -> Outputs | None:
    """The same, with window, strides and dilations as constant inputs."""
    operand, start, *parameters = inputs
    if any(p.buffer is None or p.dtype != "int64" or p.shape != (len(operand.shape),) for p in parameters):
        raise ModelError(f"window, strides and dilations must be constants of int64, {len(operand.shape)} each")
    dimensions, strides, dilation = ([int(v) for v in p.array()] for p in parameters)
    if not operand.shape or min(*dimensions, *strides, *dilation, *operand.shape) < 1:
        raise ModelError("sizes, strides and dilations of a window must be positive, and the operand not empty")
    if start.elements != 1 or start.dtype != operand.dtype:
        raise ModelError(f"the initial value must be one value of {operand.dtype}")
    return [(_windows(operand.shape, dimensions, strides, dilation), operand.dtype)]


def _windows(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    if any(not span <= size < 2**31 for size, span in zip(sizes, spans, strict=True)):
        raise ModelError(f"a window of {spans} does not fit into {list(sizes)}")
    return tuple((size - span) // stride + 1 for size, span, stride in zip(sizes, spans, strides, strict=True))


def _batch(indices: Tensor, index_dimension: int, targets: Sequence[int], rank: int) -> list[int]:
    """Return the shape of the indices without the dimension along which an index vector lies."""
    shape = list(indices.shape)
    if not 0 <= index_dimension < len(shape):  # the specification allows one more, on which LiteRT's kernels crash
        raise ModelError(f"its index_vector_dim is {index_dimension}, but the indices have shape {shape}")
    length = shape.pop(index_dimension)
    if len(targets) != length or len(set(targets)) != length or any(not 0 <= t < rank for t in targets):
        raise ModelError(
            f"index vectors of {length} do not fit dimensions {list(targets)} of an operand of rank {rank}"
        )
    return shape


def _rising(name: str, dimensions: Sequence[int], rank: int) -> None:
    if list(dimensions) != sorted(set(dimensions)) or any(not 0 <= d < rank for d in dimensions):
        raise ModelError(f"its {name} {list(dimensions)} must rise and lie below {rank}")


def _merged(batch: list[int], window: list[int], offsets: Sequence[int]) -> tuple[int, ...]:
    rest, inner = iter(batch), iter(window)
    return tuple(next(inner) if d in offsets else next(rest) for d in range(len(batch) + len(offsets)))
