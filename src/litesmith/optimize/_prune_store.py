# SPDX-License-Identifier: Apache-2.0
"""Zeros left out of the file: weights in TFLite's sparse encoding, made dense again by a DENSIFY when LiteRT loads them.

Of the ways to write a tensor, the one with the fewest bytes is taken: blocks of 4 output channels or single values. What
would not get smaller stays dense. An index takes a byte or more, so that a single float32 with its index takes at least
five: with 80 % zeros more than a quarter of the dense bytes. So "sparse" writes single values in 16 bits, behind a
DEQUANTIZE that XNNPACK folds, and blocks, four of which share an index, in 32; "sparse16" and "sparse32" write all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.model import BITS, Model, Operator, Record, Subgraph, Tensor, sparsify
from litesmith.model._sparsity import densify
from litesmith.optimize._layer_rules import weight_layers
from litesmith.optimize._prune_patterns import BLOCK
from litesmith.result import Result

_Known = dict[Any, tuple[Tensor, Tensor]]
"""Tensors as they were, with what they became, by what tells apart tensors of one buffer."""
STORES = ("dense", "sparse", "sparse16", "sparse32")
_HALF: dict[str, bool | None] = {"sparse": None, "sparse16": True, "sparse32": False}
_INDEX_BYTES = {"Uint8Vector": 1, "Uint16Vector": 2, "Int32Vector": 4}
_HALF_ERROR = 1e-6
"""The relative square error from which 16 bits are too few: weights far below 1e-4 or above 65504."""
_BLOCK_FILL = 0.9
"""The share of non-zeros in the blocks that have one from which weights count as pruned in blocks."""


@dataclass(frozen=True)
class StoreCoverage(Result, kind="store", schema=1):
    """What storing zeros sparse did.

    Attributes:
        sparse, layers: how many layers are stored sparse, of how many.
        constant_bytes: of all constants with the indices of sparse ones, before and after.
        notes: what else one should know.
    """

    sparse: int
    layers: int
    constant_bytes: tuple[int, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """The model with zeros left out, and what was done."""

    model: Model
    coverage: StoreCoverage


def stored(model: Model, *, half: bool | None = None) -> Stored:
    """Return the model with weights that have many zeros stored sparse, and a report of it."""
    places = {(layer.subgraph, layer.weight) for layer in weight_layers(model)}
    packed = store_sparse(model, places, half=half)
    sparse = sum(packed.subgraphs[number].tensors[index].sparsity is not None for number, index in places)
    sizes = _constant_bytes(model), _constant_bytes(packed)
    return Stored(packed, StoreCoverage(sparse, len(places), sizes, tuple(store_notes(model, packed, places))))


def store_notes(before: Model, after: Model, weights: Iterable[tuple[int, int]]) -> list[str]:
    """Return what one should know of weights, by (subgraph, tensor), that were to be stored sparse."""
    pairs = [(m, i, before.subgraphs[m].tensors[i], after.subgraphs[m].tensors[i]) for m, i in sorted(weights)]
    halved = [old.name for _, _, old, new in pairs if new.dtype == "float16" != old.dtype]
    refused = [
        old.name
        for number, index, old, new in pairs
        if new.sparsity is None and old.dtype == "int8" and index in _dense_only(before.subgraphs[number])
        if _is_smaller(_smallest(old, half=False))
    ]
    notes = []
    if halved:
        notes.append(
            f"values stored sparse are rounded to float16, those of {_named(halved)}; to keep all bits, store them as "
            "sparse32 (--store sparse32)"
        )
    if refused:
        notes.append(
            f"zeros stay in the file in {_named(refused)}: LiteRT 2.3.0 does not run FULLY_CONNECTED with int8 weights "
            "stored sparse"
        )
    return notes


def _named(names: list[str]) -> str:
    return repr(names[0]) + (f" and {len(names) - 1} more" if names[1:] else "")


def _constant_bytes(model: Model) -> int:
    buffers = {id(t.buffer): stored_bytes(t) for g in model.subgraphs for t in g.tensors if t.buffer is not None}
    return sum(buffers.values())


def half_of(store: str) -> bool | None:
    """Return whether a store has 16 bits for a value; None where single values have and blocks do not."""
    return _HALF[store]


def store_sparse(model: Model, weights: Iterable[tuple[int, int]] | None = None, *, half: bool | None = None) -> Model:
    """Return the model with weights that have many zeros stored sparse; stock LiteRT loads it.

    Args:
        model: with dense weights, float32 or int8.
        weights: (subgraph, tensor) of those to look at; by default the weights of all layers.
        half: store the values of float weights in 16 bits; by default single values, but not blocks.
    """
    wanted = {(layer.subgraph, layer.weight) for layer in weight_layers(model)} if weights is None else set(weights)
    packed: _Known = {}
    graphs = [
        _stored(graph, sorted(t for g, t in wanted if g == number), half, packed)
        for number, graph in enumerate(model.subgraphs)
    ]
    return replace(model, subgraphs=tuple(graphs), source=None)


def unpack_sparse(model: Model) -> Model:
    """Return the model with sparse weights dense and their DENSIFY gone; tensors keep their index."""
    dense: _Known = {}
    return replace(model, subgraphs=tuple(_unpacked(graph, dense) for graph in model.subgraphs))


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


def _smallest(tensor: Tensor, *, half: bool | None) -> Tensor:
    blocks: list[tuple[int, int] | None] = [None]
    if len(tensor.shape) >= 2 and tensor.shape[0] % BLOCK == 0:
        blocks.append((BLOCK, 1))
    if half is None:
        half = len(blocks) == 1 or not _has_blocks(tensor)
    halved = _halved(tensor) if half and tensor.dtype == "float32" else tensor
    packed = min([sparsify(halved, block) for block in blocks], key=stored_bytes)
    # Fewer bits alone are no reason to store a tensor sparse.
    return packed if _is_smaller(packed) or halved is tensor else _smallest(tensor, half=False)


def _is_smaller(packed: Tensor) -> bool:
    """Say whether a tensor takes fewer bytes than dense in the same type."""
    return stored_bytes(packed) < packed.elements * BITS[packed.dtype] // 8


def _has_blocks(tensor: Tensor) -> bool:
    kept = (tensor.array() != 0).reshape(tensor.shape[0] // BLOCK, BLOCK, -1)
    return bool(np.count_nonzero(kept) >= _BLOCK_FILL * BLOCK * np.count_nonzero(kept.any(axis=1)))


def _halved(tensor: Tensor) -> Tensor:
    """Return the tensor in 16 bits, or as it is where they are too few."""
    values = tensor.array()
    with np.errstate(over="ignore"):
        short = values.astype(np.float16)
    error = np.sum((short.astype(np.float64) - values) ** 2)
    if not error <= _HALF_ERROR * np.sum(values.astype(np.float64) ** 2):
        return tensor
    return replace(tensor, dtype="float16").with_array(short)


def _once(known: _Known, tensor: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what ``make`` makes of a tensor; one that shares its buffer with an earlier one goes on to share it."""
    key = (id(tensor.buffer), tensor.dtype, tensor.shape, make is _widened)
    if key not in known:
        known[key] = tensor, make(tensor)
    before, after = known[key]
    if before.sparsity != tensor.sparsity:
        return make(tensor)
    return replace(tensor, dtype=after.dtype, buffer=after.buffer, sparsity=after.sparsity)


def _stored(graph: Subgraph, weights: list[int], half: bool | None, known: _Known) -> Subgraph:
    tensors, front = list(graph.tensors), []
    renamed: dict[int, int] = {}
    dense_only = _dense_only(graph)
    for index in weights:
        tensor = tensors[index]
        if tensor.buffer is None or tensor.sparsity is not None or tensor.dtype not in ("float32", "int8"):
            continue
        if tensor.dtype == "int8" and index in dense_only:
            continue
        packed = _once(known, tensor, lambda tensor: _smallest(tensor, half=half))
        if not _is_smaller(packed):
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


def _dense_only(graph: Subgraph) -> set[int]:
    """Return weights that stay dense in int8: XNNPACK of LiteRT 2.3.0 fails to prepare a FULLY_CONNECTED behind DENSIFY."""
    return {op.inputs[1] for op in graph.operators if op.kind == "FULLY_CONNECTED"}


def _conversion(kind: str, source: int, target: int) -> Operator:
    options = Record("DensifyOptions" if kind == "DENSIFY" else "DequantizeOptions")
    return Operator(kind, (source,), (target,), options)


def _unpacked(graph: Subgraph, known: _Known) -> Subgraph:
    alias: dict[int, int] = {}
    for op in graph.operators:
        if op.kind == "DENSIFY" and op.outputs[0] not in graph.outputs:
            alias[op.outputs[0]] = op.inputs[0]
        elif op.kind == "DEQUANTIZE" and _widens(graph, op, alias):
            alias[op.outputs[0]] = alias[op.inputs[0]]
    operators = [
        replace(op, inputs=tuple(alias.get(t, t) for t in op.inputs))
        for op in graph.operators
        if not (op.kind in ("DENSIFY", "DEQUANTIZE") and op.outputs[0] in alias)
    ]
    widened = {alias[op.outputs[0]] for op in graph.operators if op.kind == "DEQUANTIZE" and op.outputs[0] in alias}
    tensors = list(graph.tensors)
    for index, tensor in enumerate(tensors):
        if tensor.sparsity is not None and index in alias.values():
            tensors[index] = _once(known, tensor, _widened if index in widened else densify)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _widened(tensor: Tensor) -> Tensor:
    dense = densify(tensor)
    return replace(dense, dtype="float32").with_array(dense.array().astype(np.float32))


def _widens(graph: Subgraph, op: Operator, alias: dict[int, int]) -> bool:
    """Say whether a DEQUANTIZE is all that reads an unpacked constant of 16 bits."""
    source = op.inputs[0]
    if source not in alias or graph.tensors[source].dtype != "float16" or op.outputs[0] in graph.outputs:
        return False
    return sum(source in other.inputs for other in graph.operators) == 1
