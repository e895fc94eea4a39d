# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors: from TFLite's compressed storage to a dense tensor and back.

The values are the leaves of a tree, one level for each dimension in ``traversal_order``. A DENSE level has every index;
a SPARSE_CSR level has, below node ``p`` of the level above, ``array_indices[array_segments[p] : array_segments[p + 1]]``.
Dimensions behind the tensor's own are blocks: block dimension ``i`` cuts dimension ``block_map[i]`` into equal pieces.

Cost: O(stored values × levels), in NumPy. Source: SparsityParameters in tflite/converter/schema/schema.fbs; what LiteRT
makes of it is tflite/kernels/internal/utils/sparsity_format_converter.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model._dtypes import BITS, decode, encode
from litesmith.model._flatbuffer import Record
from litesmith.model._graph import Buffer, Tensor

_Array = np.ndarray[Any, Any]
_INDEX_VECTORS = (("Uint8Vector", 2**8), ("Uint16Vector", 2**16), ("Int32Vector", 2**31))


@dataclass(frozen=True)
class Level:
    """One level of the tree: the dimension it runs over, its size, and for SPARSE_CSR its segments and indices."""

    dimension: int
    size: int
    segments: _Array | None = None
    indices: _Array | None = None


def densify(tensor: Tensor) -> Tensor:
    """Return the tensor with every value stored; a dense one is returned as it is.

    Example:
        >>> from litesmith.model import constant, sparsify
        >>> sparse = sparsify(constant("w", np.array([[0, 7], [0, 0]], np.int8)))
        >>> len(sparse.buffer), densify(sparse).array().tolist()
        (1, [[0, 7], [0, 0]])
    """
    if tensor.sparsity is None:
        return tensor
    _check_type(tensor)
    if tensor.buffer is None:
        raise ModelError(f"tensor {tensor.name!r} is marked sparse, but the file has no values for it")
    levels = tree(tensor)
    coordinates = _coordinates(levels)
    values = decode(tensor.buffer.data, tensor.dtype, (coordinates.shape[1],))
    dense = np.zeros(tensor.shape, values.dtype)
    dense[tuple(_unblocked(tensor, levels, coordinates))] = values
    return tensor.with_array(dense, tensor.dtype)


def sparsify(tensor: Tensor, block: tuple[int, int] | None = None) -> Tensor:
    """Return the constant tensor with only its non-zero values stored, or the blocks that have one.

    The last dimension is compressed (CSR). ``block=(4, 1)`` keeps whole blocks of 4 along the first dimension, ``(1, 4)``
    along the last. The bytes get fewer only when enough values are zero: compare ``len(tensor.buffer)``.

    Example:
        >>> from litesmith.model import constant
        >>> weights = constant("w", np.diag([1, 2, 3, 4]).astype(np.float32))
        >>> sparsify(weights).sparsity.dim_metadata[1].array_indices.values
        (0, 1, 2, 3)
    """
    dense = densify(tensor)
    _check_type(dense)
    if not dense.shape:
        raise ModelError(f"tensor {tensor.name!r} is a single value and cannot be stored sparse")
    array, rank = dense.array(), len(dense.shape)
    sizes = _block_sizes(dense, block)
    blocked = [dimension for dimension, size in enumerate(sizes) if size > 1]
    grid = [d // s for d, s in zip(array.shape, sizes, strict=True)]
    # (d0 … dn) to (d0/b0, b0, …), then the block dimensions behind all others, as the tree has them.
    split = array.reshape([n for pair in zip(grid, sizes, strict=True) for n in pair])
    ordered = split.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])
    tiles = np.ascontiguousarray(ordered.reshape(*grid, math.prod(sizes)))
    kept = tiles.view(np.uint8).any(axis=-1)  # by bits, so that -0.0 is not lost
    segments = np.concatenate([[0], np.cumsum(kept.reshape(-1, grid[-1]).sum(axis=1))])
    rows = [Record("DimensionMetadata", format="DENSE", dense_size=size) for size in grid[:-1]]
    compressed = Record(
        "DimensionMetadata",
        format="SPARSE_CSR",
        array_segments=_index_vector(segments),
        array_indices=_index_vector(np.nonzero(kept.reshape(-1, grid[-1]))[1]),
    )
    blocks = [Record("DimensionMetadata", format="DENSE", dense_size=sizes[dimension]) for dimension in blocked]
    sparsity = Record(
        "SparsityParameters",
        traversal_order=tuple(range(rank + len(blocked))),
        block_map=tuple(blocked) or None,
        dim_metadata=(*rows, compressed, *blocks),
    )
    return replace(dense, buffer=Buffer(encode(tiles[kept].ravel(), dense.dtype)), sparsity=sparsity)


def tree(tensor: Tensor) -> list[Level]:
    """Return the levels of a sparse tensor, checked: no index leads outside the shape or the values."""
    sparsity, rank = tensor.sparsity, len(tensor.shape)
    assert sparsity is not None
    order, metadata = sparsity.traversal_order or (), sparsity.dim_metadata or ()
    block_map = sparsity.block_map or ()
    if len(order) != rank + len(block_map) or len(metadata) != len(order):
        raise ModelError(
            f"its sparsity has {len(order)} dimensions in order, {len(block_map)} block dimensions and "
            f"{len(metadata)} levels, which does not fit a shape of {rank} dimensions"
        )
    if sorted(order[:rank]) != list(range(rank)) or sorted(order[rank:]) != list(range(rank, len(order))):
        raise ModelError(f"its traversal order {list(order)} is not an order of its dimensions, blocks last")
    sizes = _level_sizes(tensor.shape, order, metadata, block_map)
    levels, nodes = [], 1
    for position, (dimension, record) in enumerate(zip(order, metadata, strict=True)):
        level, nodes = _level(record, dimension, sizes[dimension], nodes, f"level {position} of its sparsity")
        levels.append(level)
    return levels


def stored_values(tensor: Tensor) -> int:
    """Return how many values the checked sparsity of a tensor says are stored."""
    nodes = 1
    for level in tree(tensor):
        nodes = nodes * level.size if level.indices is None else len(level.indices)
    return nodes


def _check_type(tensor: Tensor) -> None:
    if BITS.get(tensor.dtype, 0) < 8:
        raise ModelError(f"tensor {tensor.name!r} is {tensor.dtype}; only types of whole bytes can be stored sparse")


def _level_sizes(shape: tuple[int, ...], order: Sequence[int], metadata: Any, block_map: Sequence[int]) -> list[int]:
    """Return the size of each dimension, blocks behind: blocks divide the dimension they are mapped to."""
    if list(block_map) != sorted(set(block_map)) or any(not 0 <= d < len(shape) for d in block_map):
        raise ModelError(f"its block map {list(block_map)} must name dimensions of {list(shape)} in rising order")
    sizes, rank = list(shape), len(shape)
    for i, dimension in enumerate(block_map):
        record = metadata[order.index(rank + i)]
        size = record.dense_size
        # LiteRT looks the size up by dimension where it should by level: both must agree, else it writes out of bounds.
        if (
            record.format != "DENSE"
            or size <= 0
            or sizes[dimension] % size
            or metadata[order[rank + i]].dense_size != size
        ):
            raise ModelError(f"blocks of {size} do not divide dimension {dimension} of {list(shape)}")
        sizes[dimension] //= size
        sizes.append(size)
    return sizes


def _level(record: Any, dimension: int, size: int, nodes: int, place: str) -> tuple[Level, int]:
    if record.format == "DENSE":
        if record.dense_size != size:
            raise ModelError(f"{place} has size {record.dense_size}, but dimension {dimension} has {size}")
        if nodes * size >= 2**31:
            raise ModelError(f"{place} has {nodes * size:,} nodes, more than LiteRT counts")
        return Level(dimension, size), nodes * size
    segments, indices = _indices(record.array_segments), _indices(record.array_indices)
    if len(segments) != nodes + 1 or segments[0] != 0 or segments[-1] != len(indices) or (np.diff(segments) < 0).any():
        raise ModelError(
            f"{place} has {len(segments)} segments for {nodes} nodes and {len(indices)} indices: they must rise from 0 "
            "to the number of indices"
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        raise ModelError(
            f"{place} has indices {indices.min()} to {indices.max()}, outside dimension {dimension} of {size}"
        )
    return Level(dimension, size, segments, indices), len(indices)


def _indices(vector: Record | None) -> _Array:
    return np.asarray((vector.values if vector is not None else None) or (), np.int64)


def _coordinates(levels: list[Level]) -> _Array:
    """Return the index along each level of every stored value, in the order they are stored: (levels, values)."""
    paths = np.zeros((0, 1), np.int64)
    for level in levels:
        if level.indices is None or level.segments is None:
            below = np.tile(np.arange(level.size), paths.shape[1])
            paths = np.vstack([np.repeat(paths, level.size, axis=1), below])
        else:
            paths = np.vstack([np.repeat(paths, np.diff(level.segments), axis=1), level.indices])
    return paths


def _unblocked(tensor: Tensor, levels: list[Level], coordinates: _Array) -> list[_Array]:
    """Return the index along each dimension of the tensor itself."""
    assert tensor.sparsity is not None
    by_dimension = {level.dimension: (level, row) for level, row in zip(levels, coordinates, strict=True)}
    rank = len(tensor.shape)
    own = [by_dimension[dimension][1] for dimension in range(rank)]
    for i, dimension in enumerate(tensor.sparsity.block_map or ()):
        level, row = by_dimension[rank + i]
        own[dimension] = own[dimension] * level.size + row
    return own


def _block_sizes(tensor: Tensor, block: tuple[int, int] | None) -> list[int]:
    sizes = [1] * len(tensor.shape)
    if block is not None:
        if len(tensor.shape) < 2 or len(block) != 2 or min(block) < 1:
            raise ModelError(f"blocks of {block} need a tensor of two or more dimensions, not {list(tensor.shape)}")
        sizes[0], sizes[-1] = block
    if any(d % s for d, s in zip(tensor.shape, sizes, strict=True)):
        raise ModelError(f"tensor {tensor.name!r} of shape {list(tensor.shape)} does not divide into blocks of {block}")
    return sizes


def _index_vector(values: _Array) -> Record:
    largest = int(values.max(initial=0))
    table = next(name for name, limit in _INDEX_VECTORS if largest < limit)
    return Record(table, values=tuple(values.tolist()))
