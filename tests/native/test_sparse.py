# SPDX-License-Identifier: Apache-2.0
"""Pruned float networks: the same result up to summation order, taken only where the estimate says it pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Model, Value
from litesmith.model._sparsity import sparsify

Array = np.ndarray[Any, Any]


def pruned(random: np.random.Generator, shape: tuple[int, ...], zeros: float, block: int) -> Array:
    keep = random.random((shape[0] // block, *shape[1:])) >= zeros
    scale = np.sqrt(2.0 / max(shape[-1] * (1 - zeros), 1))
    weights: Array = (random.standard_normal(shape) * scale * np.repeat(keep, block, 0)).astype(np.float32)
    return weights


def network(zeros: float, block: int, *, size: int = 32, head: int = 40) -> Model:
    """A small MobileNet with a residual, a squeeze-and-excite branch, an odd image and a dense tail."""
    random = np.random.default_rng(0)
    b = Builder("pruned", seed=0)

    def conv(x: Value, filters: int, activation: str = "RELU6") -> Value:
        return b.conv2d(
            x, filters, weight=pruned(random, (filters, 1, 1, x.shape[-1]), zeros, block), activation=activation
        )

    x = b.conv2d(b.input("image", (1, size + 1, size - 3, 3)), 32, kernel=3, stride=2, activation="RELU6")
    x = conv(b.depthwise_conv2d(x, activation="RELU6"), 128)
    x = conv(b.op("PAD", x, np.array([[0, 0], [1, 1], [1, 2], [0, 0]], np.int32)), 128)
    y = conv(b.depthwise_conv2d(x, kernel=5), 128, "NONE")
    x = b.op("ADD", x, y, fused_activation_function="NONE")
    x = b.op("HARD_SWISH", x)
    gate = b.op("LOGISTIC", conv(b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=True), 128, "NONE"))
    x = b.op("MUL", x, gate, fused_activation_function="NONE")
    x = conv(b.depthwise_conv2d(x, stride=2, activation="RELU"), 256)
    x = b.op("MAX_POOL_2D", x, padding="SAME", stride_h=1, stride_w=1, filter_height=3, filter_width=3)
    x = conv(x, 256)
    x = b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=False)
    x = b.fully_connected(x, head, weight=pruned(random, (head, x.shape[-1]), zeros, block))
    return b.build({"scores": b.op("SOFTMAX", x, beta=1.0)})


def compare(model: Model, stock: Any, delegated: Any, **options: Any) -> Any:
    want = stock(model.to_bytes()).outputs()[0]
    for threads in (1, 2):
        got = delegated(model.to_bytes(), threads=threads, **options)
        result = got.outputs()[0]
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-6)
        assert result.argmax() == want.argmax()
    return got


@pytest.mark.parametrize("zeros", [0.8, 0.95])
@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("isa", ["auto", "scalar"])
def test_a_pruned_network_is_taken_and_equal(zeros: float, block: int, isa: str, stock: Any, delegated: Any) -> None:
    got = compare(network(zeros, block), stock, delegated, isa=isa)
    assert got.taken().count("CONV_2D") == 7
    assert "SOFTMAX" not in got.taken()
    kernels = {d["note"] for d in got.decisions() if d["taken"] and d["op"] == "CONV_2D"}
    assert any(k.startswith("f32_spmm_4x" if block == 4 else "f32_spmm_1x") for k in kernels)


def test_a_dense_network_is_left_to_xnnpack(stock: Any, delegated: Any) -> None:
    got = compare(network(0.0, 1), stock, delegated)
    assert got.taken() == []
    assert any("estimated" in d["note"] for d in got.decisions())


def test_sparse_can_be_switched_off(delegated: Any) -> None:
    assert delegated(network(0.95, 1).to_bytes(), sparse="off").taken() == []


def with_sparse_tensors(model: Model, block: tuple[int, int] | None) -> Model:
    """Store the FULLY_CONNECTED weights as a sparse tensor behind a DENSIFY node."""
    from litesmith.model import Operator

    main = model.main
    tensors, operators = list(main.tensors), []
    for op in main.operators:
        if op.kind == "FULLY_CONNECTED":
            weight = tensors[op.inputs[1]]
            tensors.append(replace(sparsify(weight, block), name=weight.name + "/sparse"))
            tensors[op.inputs[1]] = replace(weight, buffer=None)
            operators.append(Operator(kind="DENSIFY", inputs=(len(tensors) - 1,), outputs=(op.inputs[1],)))
        operators.append(op)
    return model.with_main(replace(main, tensors=tuple(tensors), operators=tuple(operators)))


@pytest.mark.parametrize("block", [None, (4, 1)])
def test_sparse_tensors_are_read_through_densify(block: tuple[int, int] | None, stock: Any, delegated: Any) -> None:
    model = with_sparse_tensors(network(0.95, 4), block)
    got = compare(model, stock, delegated)
    assert "FULLY_CONNECTED" in got.taken()
