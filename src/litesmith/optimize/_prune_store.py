# SPDX-License-Identifier: Apache-2.0
"""Zeros left out of the file: weights in TFLite's sparse encoding, made dense again by a DENSIFY when LiteRT loads them.

Of the ways to write a tensor, the one with the fewest bytes is taken: blocks of 4 output channels or single values. What
would not get smaller stays dense. "sparse16" also halves the values, behind a DEQUANTIZE that XNNPACK folds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from litesmith.errors import UsageError
from litesmith.model import BITS, Model, Operator, Record, Subgraph, Tensor, sparsify
from litesmith.model._sparsity import densify
from litesmith.optimize._layer_rules import weight_layers
from litesmith.optimize._prune_patterns import BLOCK

STORES = ("dense", "sparse", "sparse16")
_INDEX_BYTES = {"Uint8Vector": 1, "Uint16Vector": 2, "Int32Vector": 4}
_LARGEST_FLOAT16 = 65504.0


def store_sparse(model: Model, weights: Iterable[tuple[int, int]] | None = None, *, half: bool = False) -> Model:
    """Return the model with weights that have many zeros stored sparse; stock LiteRT loads it.

    Args:
        model: with dense weights, float32 or int8.
        weights: (subgraph, tensor) of those to look at; by default the weights of all layers.
        half: store the values of float weights in 16 bits.
    """
    wanted = {(layer.subgraph, layer.weight) for layer in weight_layers(model)} if weights is None else set(weights)
    graphs = [
        _stored(graph, sorted(t for g, t in wanted if g == number), half)
        for number, graph in enumerate(model.subgraphs)
    ]
    return replace(model, subgraphs=tuple(graphs), source=None)


def unpack_sparse(model: Model) -> Model:
    """Return the model with sparse weights dense and their DENSIFY gone; tensors keep their index."""
    return replace(model, subgraphs=tuple(map(_unpacked, model.subgraphs)))


def stored_bytes(tensor: Tensor) -> int:
    """Return the bytes of a constant with the indices of its sparse form."""
    size = len(tensor.buffer or b"")
    if tensor.sparsity is not None:
        for level in tensor.sparsity.dim_metadata or ():
            for vector in (level.array_segments, level.array_indices):
                size += _INDEX_BYTES[vector.table] * len(vector.values or ()) if vector is not None else 0
    return size


def check_store(store: str) -> None:
    """Refuse a way of storing that does not exist."""
    if store not in STORES:
        raise UsageError(f"weights cannot be stored {store!r}; choose one of {', '.join(STORES)}")


def _smallest(tensor: Tensor, *, half: bool) -> Tensor:
    values = tensor.array()
    if half and tensor.dtype == "float32" and np.abs(values).max(initial=0.0) <= _LARGEST_FLOAT16:
        tensor = replace(tensor, dtype="float16").with_array(values.astype(np.float16))
    blocks: list[tuple[int, int] | None] = [None]
    if len(tensor.shape) >= 2 and tensor.shape[0] % BLOCK == 0:
        blocks.append((BLOCK, 1))
    return min([sparsify(tensor, block) for block in blocks], key=stored_bytes)


def _stored(graph: Subgraph, weights: list[int], half: bool) -> Subgraph:
    tensors, front = list(graph.tensors), []
    renamed: dict[int, int] = {}
    # XNNPACK of LiteRT 2.3.0 fails to prepare an int8 FULLY_CONNECTED whose weights come from a DENSIFY.
    dense_only = {op.inputs[1] for op in graph.operators if op.kind == "FULLY_CONNECTED"}
    for index in weights:
        tensor = tensors[index]
        if tensor.buffer is None or tensor.sparsity is not None or tensor.dtype not in ("float32", "int8"):
            continue
        if tensor.dtype == "int8" and index in dense_only:
            continue
        packed = _smallest(tensor, half=half)
        if stored_bytes(packed) >= tensor.elements * BITS[tensor.dtype] // 8:
            continue
        tensors[index] = packed
        dense = replace(tensor, name=f"{tensor.name}/dense", dtype=packed.dtype, buffer=None, sparsity=None)
        tensors.append(dense)
        front.append(_conversion("DENSIFY", index, len(tensors) - 1))
        if packed.dtype != tensor.dtype:
            tensors.append(replace(dense, name=f"{tensor.name}/float32", dtype=tensor.dtype))
            front.append(replace(_conversion("DEQUANTIZE", len(tensors) - 2, len(tensors) - 1), version=3))
        renamed[index] = len(tensors) - 1
    operators = [replace(op, inputs=tuple(renamed.get(t, t) for t in op.inputs)) for op in graph.operators]
    return replace(graph, tensors=tuple(tensors), operators=(*front, *operators))


def _conversion(kind: str, source: int, target: int) -> Operator:
    options = Record("DensifyOptions" if kind == "DENSIFY" else "DequantizeOptions")
    return Operator(kind, (source,), (target,), options)


def _unpacked(graph: Subgraph) -> Subgraph:
    alias = {op.outputs[0]: op.inputs[0] for op in graph.operators if op.kind == "DENSIFY"}
    alias = {new: old for new, old in alias.items() if new not in graph.outputs}
    operators = [
        replace(op, inputs=tuple(alias.get(t, t) for t in op.inputs))
        for op in graph.operators
        if not (op.kind == "DENSIFY" and op.outputs[0] in alias)
    ]
    tensors = list(graph.tensors)
    for index, tensor in enumerate(tensors):
        if tensor.sparsity is not None and index in alias.values():
            tensors[index] = densify(tensor)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))
