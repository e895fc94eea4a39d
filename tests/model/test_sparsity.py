# SPDX-License-Identifier: Apache-2.0
"""Sparse storage: what we read out of it is what LiteRT's DENSIFY computes; what we write can be read."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litesmith.errors import ModelError
from litesmith.model import Buffer, Model, Operator, Record, Subgraph, Tensor, constant, densify, sparsify
from litesmith.runtime import Session

Array = np.ndarray[Any, Any]


def _by_litert(tensor: Tensor) -> Array:
    """Return what LiteRT makes of a sparse constant."""
    dense = replace(tensor, name="dense", buffer=None, sparsity=None)
    graph = Subgraph("main", (tensor, dense), (Operator("DENSIFY", (0,), (1,)),), (), (1,))
    with Session(Model((graph,)), kernels="builtin") as session:
        return np.array(session.run()["dense"])


def _encoded(dense: Array, order: tuple[int, ...], sparse: tuple[bool, ...], blocks: dict[int, int]) -> Tensor:
    """Store an array sparse in any way the format knows, one node of the tree at a time."""
    rank = dense.ndim
    sizes = [(dense.shape[d] // blocks.get(d, 1), blocks.get(d, 1)) for d in range(rank)]
    split = dense.reshape([n for pair in sizes for n in pair])
    axes = [2 * d if d < rank else 2 * sorted(blocks)[d - rank] + 1 for d in order]
    gone = [2 * d + 1 for d in range(rank) if d not in blocks]
    nodes = [np.squeeze(split.transpose([*axes, *gone]), axis=tuple(range(len(order), 2 * rank)))]
    levels = []
    for compressed in sparse:
        size = nodes[0].shape[0] if nodes else 0
        if not compressed:
            levels.append(Record("DimensionMetadata", format="DENSE", dense_size=size))
            nodes = [node[i] for node in nodes for i in range(size)]
            continue
        kept = [[i for i in range(size) if node[i].any()] for node in nodes]
        segments = tuple(itertools.accumulate(map(len, kept), initial=0))
        indices = tuple(i for places in kept for i in places)
        vectors = {
            "array_segments": Record("Int32Vector", values=segments),
            "array_indices": Record("Uint8Vector", values=indices),
        }
        levels.append(Record("DimensionMetadata", format="SPARSE_CSR", **vectors))
        nodes = [node[i] for node, places in zip(nodes, kept, strict=True) for i in places]
    sparsity = Record(
        "SparsityParameters", traversal_order=order, block_map=tuple(sorted(blocks)) or None, dim_metadata=tuple(levels)
    )
    values = np.array([node.item() for node in nodes], dense.dtype)
    return replace(constant("w", values), shape=dense.shape, sparsity=sparsity)


@st.composite
def _storages(draw: st.DrawFn) -> tuple[Array, Tensor]:
    rank = draw(st.integers(1, 3))
    blocks = {d: draw(st.sampled_from((2, 3))) for d in range(rank) if draw(st.booleans())}
    shape = tuple(draw(st.integers(1, 3)) * blocks.get(d, 1) for d in range(rank))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = np.where(random.random(shape) < 0.4, random.integers(1, 100, shape), 0)
    dense[(0,) * rank] = 1  # a tree without a single leaf has levels without sizes
    dense = dense.astype(draw(st.sampled_from((np.float32, np.int8, np.float16))))
    order = (*draw(st.permutations(range(rank))), *draw(st.permutations(range(rank, rank + len(blocks)))))
    sparse = (*(draw(st.booleans()) for _ in range(rank)), *(False,) * len(blocks))
    return dense, _encoded(dense, order, sparse, blocks)


@settings(max_examples=60, deadline=None)
@given(_storages())
def test_densify_reads_every_storage_and_agrees_with_litert(storage: tuple[Array, Tensor]) -> None:
    dense, tensor = storage
    try:
        found = densify(tensor)
    except ModelError as error:
        assert "do not divide" in str(error)  # three block dimensions in an order that LiteRT itself misreads
        return

    assert found.sparsity is None
    np.testing.assert_array_equal(found.array(), dense)
    np.testing.assert_array_equal(_by_litert(tensor), dense)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from((None, (4, 1), (1, 4), (2, 2))),
    st.sampled_from((np.float32, np.int8, np.float16, np.float64)),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_sparsify_loses_nothing(
    sizes: list[int], block: tuple[int, int] | None, dtype: type, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    shape = [*sizes]
    if block is not None:
        shape = [sizes[0] * block[0], *sizes[1:-1], sizes[-1] * block[1]]
    values: Array = np.where(random.random(shape) < density, random.integers(-100, 100, shape), 0).astype(dtype)
    tensor = constant("w", values)
    sparse = sparsify(tensor, block)

    assert densify(sparse) == tensor
    assert sparse.buffer is not None
    if dtype is not np.float64:
        np.testing.assert_array_equal(_by_litert(sparse), values)
    tile = np.prod(block or (1, 1))
    assert len(sparse.buffer) <= values.nbytes
    assert len(sparse.buffer) % (tile * values.itemsize) == 0


def test_negative_zero_is_a_value() -> None:
    values = np.array([[0.0, -0.0, 1.0, 0.0]], np.float32)

    assert densify(sparsify(constant("w", values))).array().tobytes() == values.tobytes()


@pytest.mark.parametrize(("width", "table"), [(200, "Uint8Vector"), (300, "Uint16Vector"), (70_000, "Int32Vector")])
def test_indices_take_the_narrowest_type(width: int, table: str) -> None:
    values = np.zeros((2, width), np.int8)
    values[:, -1] = 1
    sparse = sparsify(constant("w", values))

    assert sparse.sparsity is not None
    assert sparse.sparsity.dim_metadata[1].array_indices.table == table
    assert sparse.sparsity.dim_metadata[1].array_segments.table == "Uint8Vector"


def test_what_cannot_be_stored_sparse() -> None:
    with pytest.raises(ModelError, match="single value"):
        sparsify(constant("w", np.float32(1)))
    with pytest.raises(ModelError, match="whole bytes"):
        sparsify(constant("w", np.zeros((2, 2), np.int8), "int4"))
    with pytest.raises(ModelError, match="does not divide into blocks of"):
        sparsify(constant("w", np.zeros((3, 2), np.int8)), (4, 1))
    with pytest.raises(ModelError, match="two or more dimensions"):
        sparsify(constant("w", np.zeros(4, np.int8)), (4, 1))


def _broken(**changes: Any) -> Tensor:
    """Return a sparse 4 × 4 identity with fields of its compressed level, or of the whole, changed."""
    tensor = sparsify(constant("w", np.eye(4, dtype=np.float32)))
    assert tensor.sparsity is not None
    sparsity = tensor.sparsity
    whole = {k: v for k, v in changes.items() if k in sparsity.asdict()}
    level = sparsity.dim_metadata[1].replace(**{k: v for k, v in changes.items() if k not in whole})
    levels = whole.pop("dim_metadata", (sparsity.dim_metadata[0], level))
    return replace(tensor, sparsity=sparsity.replace(dim_metadata=levels, **whole))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"array_indices": Record("Uint8Vector", values=(0, 1, 2, 4))}, "indices 0 to 4, outside dimension 1 of 4"),
        ({"array_indices": Record("Int32Vector", values=(0, 1, 2, -1))}, "indices -1 to 2, outside"),
        ({"array_indices": Record("Uint8Vector", values=(0, 1, 2))}, "must rise from 0 to the number of indices"),
        ({"array_segments": Record("Uint8Vector", values=(0, 3, 2, 3, 4))}, "must rise"),
        ({"array_segments": Record("Uint8Vector", values=(0, 4))}, "2 segments for 4 nodes"),
        ({"traversal_order": (0, 0)}, r"order \[0, 0\] is not an order"),
        ({"traversal_order": (1, 0, 2)}, "does not fit a shape of 2 dimensions"),
        ({"traversal_order": (0, 1, 2), "block_map": (7,), "dim_metadata": (Record("DimensionMetadata"),) * 3}, "block map"),
        ({"dim_metadata": (Record("DimensionMetadata", dense_size=5), Record("DimensionMetadata", dense_size=4))}, "has size 5"),
    ],
)  # fmt: skip
def test_inconsistent_storage_is_refused(changes: dict[str, Any], message: str) -> None:
    tensor = _broken(**changes)
    dense = replace(tensor, name="dense", buffer=None, sparsity=None)
    graph = Subgraph("main", (tensor, dense), (Operator("DENSIFY", (0,), (1,)),), (), (1,))
    with pytest.raises(ModelError, match=message):
        densify(tensor)
    with pytest.raises(ModelError, match="tensor 0 'w': .*" + message):
        Model((graph,)).verify()


def test_too_few_values_are_refused() -> None:
    tensor = sparsify(constant("w", np.eye(4, dtype=np.float32)))
    with pytest.raises(ModelError, match="needs 16 bytes, but its buffer has 12"):
        densify(replace(tensor, buffer=Buffer(bytes(12))))


def test_a_real_sparse_model_has_the_weights_that_litert_sees(assets: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    path = assets / "vision" / "face_detection_full_range_sparse.tflite"
    model = Model.load(path)
    interpreter = Interpreter(
        str(path),
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    interpreter.invoke()
    found = [operator for operator in model.main.operators if operator.kind == "DENSIFY"]
    assert len(found) == 46
    for operator in found:
        ours = densify(model.main.tensors[operator.inputs[0]])
        np.testing.assert_array_equal(ours.array(), interpreter.get_tensor(operator.outputs[0]))
        assert densify(sparsify(ours)) == ours
