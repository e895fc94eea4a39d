# SPDX-License-Identifier: Apache-2.0
"""Pruned float networks: the same result up to summation order, taken only where the estimate says it pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Model, Value
from litesmith.model._sparsity import sparsify
from litesmith.optimize._prune_store import store_sparse

Array = np.ndarray[Any, Any]


def pruned(random: np.random.Generator, shape: tuple[int, ...], zeros: float, block: int) -> Array:
    keep = random.random((-(-shape[0] // block), *shape[1:])) >= zeros
    scale = np.sqrt(2.0 / max(shape[-1] * (1 - zeros), 1))
    weights: Array = (random.standard_normal(shape) * scale * np.repeat(keep, block, 0)[: shape[0]]).astype(np.float32)
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


def compare(
    model: Model, stock: Any, delegated: Any, *, crews: tuple[int, ...] = (1, 2), atol: float = 1e-6, **options: Any
) -> Any:
    want = stock(model.to_bytes()).outputs()[0]
    for threads in crews:
        got = delegated(model.to_bytes(), threads=threads, **options)
        result = got.outputs()[0]
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=atol)
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


@pytest.mark.parametrize("head", [41, 42, 43])
def test_the_last_block_of_a_classifier_may_have_fewer_rows(head: int, stock: Any, delegated: Any) -> None:
    got = compare(network(0.9, 4, head=head), stock, delegated)
    assert [d["note"] for d in got.decisions() if d["op"] == "FULLY_CONNECTED"] == ["f32_sparse_vector_4x1"]


@pytest.mark.parametrize("isa", ["auto", "scalar"])
@pytest.mark.parametrize(("height", "width"), [(7, 7), (5, 13), (1, 1)])
def test_many_input_channels_are_taken_in_parts(height: int, width: int, isa: str, stock: Any, delegated: Any) -> None:
    b = Builder("parts", seed=0)
    x = b.input("image", (1, height, width, 300))
    for filters in (700, 260):  # three uneven parts, then six
        weight = pruned(b.random, (filters, 1, 1, x.shape[-1]), 0.9, 1)
        x = b.conv2d(x, filters, weight=weight, activation="RELU6")
    got = compare(b.build({"features": x}), stock, delegated, isa=isa)
    assert got.taken() == ["CONV_2D"] * 2


@pytest.mark.parametrize("isa", ["auto", "avx2", "scalar"])
def test_large_images_pass_a_few_channels_at_a_time(isa: str, stock: Any, delegated: Any) -> None:
    """Blocks of weights, then a depthwise convolution: the image between them is never written whole."""
    b = Builder("block", seed=0)
    x = b.input("image", (2, 61, 64, 24))
    for filters, stride, size in ((40, 1, 61), (72, 2, 61)):
        x = b.conv2d(x, filters, weight=pruned(b.random, (filters, 1, 1, x.shape[-1]), 0.8, 4), activation="RELU6")
        assert np.prod(x.shape) * 4 > 512 * 1024
        assert x.shape[1] == size
        x = b.depthwise_conv2d(x, stride=stride, activation="RELU6")
    model = b.build({"features": x})
    got = compare(model, stock, delegated, isa=isa)
    assert got.taken() == ["CONV_2D", "DEPTHWISE_CONV_2D"] * 2
    for shape in ((1, 9, 11, 24), (1, 1, 1, 24)):  # planned anew, down to one pixel
        results = []
        for run in (stock(model.to_bytes()), got):
            run.interpreter.resize_tensor_input(run.interpreter.get_input_details()[0]["index"], shape)
            run.interpreter.allocate_tensors()
            values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
            run.interpreter.set_tensor(run.interpreter.get_input_details()[0]["index"], values)
            run.interpreter.invoke()
            results.append(run.outputs()[0])
        np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("isa", ["auto", "avx2", "scalar"])
@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize(("size", "padding"), [((31, 64), "SAME"), ((67, 37), "SAME"), ((58, 51), "VALID")])
def test_large_images_are_shared_out_by_rows(
    size: tuple[int, int], padding: str, block: int, isa: str, stock: Any, delegated: Any
) -> None:
    """One image and several threads: each makes some rows, of which others read the ones at the border."""
    b = Builder("rows", seed=0)

    def conv(x: Value, filters: int, activation: str = "NONE") -> Value:
        zeros = pruned(b.random, (filters, 1, 1, x.shape[-1]), 0.9, block)
        return b.conv2d(x, filters, weight=zeros, activation=activation)

    x = conv(b.input("image", (1, *size, 24)), 72)
    x = conv(b.depthwise_conv2d(x, padding=padding, activation="RELU6"), 72)
    x = b.op("ADD", x, conv(b.op("HARD_SWISH", x), 72), fused_activation_function="NONE")
    x = conv(b.depthwise_conv2d(x, stride=2, padding=padding, activation="RELU6"), 300)
    # The values lie around 10, and some of them by chance near 0.
    got = compare(b.build({"features": conv(x, 96)}), stock, delegated, isa=isa, crews=(1, 2, 3), atol=1e-5)
    assert got.taken().count("DEPTHWISE_CONV_2D") == 2


@pytest.mark.parametrize("isa", ["auto", "avx2", "scalar"])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("stride", "padding", "width"), [(1, "SAME", 37), (2, "SAME", 50), (2, "VALID", 35)])
def test_the_first_convolution_reads_the_image_as_it_is(
    channels: int, stride: int, padding: str, width: int, isa: str, stock: Any, delegated: Any
) -> None:
    b = Builder("first", seed=0)
    x = b.input("image", (2, 41, width, channels))
    x = b.conv2d(x, 20, kernel=3, stride=stride, padding=padding, activation="RELU")
    for _ in range(3):
        x = b.conv2d(x, 96, weight=pruned(b.random, (96, 1, 1, x.shape[-1]), 0.95, 1), activation="RELU")
    got = compare(b.build({"features": x}), stock, delegated, isa=isa)
    assert got.taken() == ["CONV_2D"] * 4


def test_a_dense_network_is_left_to_xnnpack(stock: Any, delegated: Any) -> None:
    got = compare(network(0.0, 1), stock, delegated)
    assert got.taken() == []
    assert any("estimated" in d["note"] for d in got.decisions())


def test_a_dense_end_is_left_to_xnnpack(stock: Any, delegated: Any) -> None:
    b = Builder("dense end", seed=0)
    x = b.input("image", (1, 24, 24, 64))
    for _ in range(3):
        x = b.conv2d(x, 256, weight=pruned(b.random, (256, 1, 1, x.shape[-1]), 0.95, 1), activation="RELU")
    x = b.op("MEAN", x, np.array([1, 2], np.int32))
    got = compare(b.build({"scores": b.fully_connected(x, 500)}), stock, delegated)
    assert got.taken() == ["CONV_2D"] * 3 + ["MEAN"]


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
    assert {"FULLY_CONNECTED", "DENSIFY"} <= set(got.taken())


def test_sparse_tensors_of_16_bits_are_read_through_their_conversion(stock: Any, delegated: Any) -> None:
    model = store_sparse(network(0.8, 1), half=True)
    kinds = [op.kind for op in model.main.operators]
    assert kinds.count("DENSIFY") == kinds.count("DEQUANTIZE") > 0
    got = compare(model, stock, delegated)
    assert {"CONV_2D", "DENSIFY", "DEQUANTIZE"} <= set(got.taken())


@pytest.mark.parametrize(("half", "kind"), [(False, "DENSIFY"), (True, "DENSIFY"), (True, "DEQUANTIZE")])
def test_what_others_read_is_still_unpacked(half: bool, kind: str, stock: Any, delegated: Any) -> None:
    """The dense values are also an output of the model: both readers must get what they need."""
    model = store_sparse(network(0.8, 1), half=half)
    weights = next(op.outputs[0] for op in model.main.operators if op.kind == kind)
    shown = replace(model.main, outputs=(*model.main.outputs, weights))
    model = replace(model, subgraphs=(shown,), signatures=())
    want, got = stock(model.to_bytes()).outputs(), delegated(model.to_bytes())
    np.testing.assert_allclose(got.outputs()[0], want[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got.outputs()[1], want[1])
    assert kind in got.taken()


def test_every_tensor_of_a_chain_can_be_preserved(stock: Any, delegated: Any) -> None:
    model = with_sparse_tensors(network(0.95, 4), (4, 1)).to_bytes()
    want, got = stock(model, preserve=True).outputs()[0], delegated(model, preserve=True).outputs()[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("resize", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
def test_resizes_and_strided_convolutions_stay_in_the_chain(
    resize: str, align: bool, half: bool, stock: Any, delegated: Any
) -> None:
    random = np.random.default_rng(0)
    b = Builder("decoder", seed=0)

    def conv(x: Value, filters: int, stride: int = 1) -> Value:
        weight = pruned(random, (filters, 1, 1, x.shape[-1]), 0.95, 1)
        return b.conv2d(x, filters, stride=stride, weight=weight, activation="RELU")

    x = b.conv2d(b.input("image", (1, 35, 31, 3)), 32, kernel=3, stride=2)
    x = conv(conv(x, 128), 256, stride=2)
    shape = (1, 13, 21, x.shape[-1])
    x = b.op(
        resize,
        x,
        np.array(shape[1:3], np.int32),
        outputs=[(shape, "float32")],
        align_corners=align,
        half_pixel_centers=half,
    )
    x = conv(conv(x, 256), 128)
    model = b.build({"mean": b.op("MEAN", x, np.array([1, 2], np.int32))})
    got = compare(model, stock, delegated)
    assert len(got.taken()) == len(model.main.operators)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("size", [(9, 8), (16, 17), (7, 33), (12, 40)])
def test_depthwise_in_planes(
    kernel: int, stride: int, padding: str, size: tuple[int, int], stock: Any, delegated: Any
) -> None:
    b = Builder("depthwise", seed=0)
    x = b.input("image", (2, *size, 24))
    x = b.conv2d(x, 128, weight=pruned(b.random, (128, 1, 1, 24), 0.97, 1))
    x = b.depthwise_conv2d(x, kernel=kernel, stride=stride, padding=padding, activation="RELU6")
    x = b.conv2d(x, 256, weight=pruned(b.random, (256, 1, 1, 128), 0.97, 1))
    x = b.conv2d(x, 128, weight=pruned(b.random, (128, 1, 1, 256), 0.97, 1))
    got = compare(b.build({"mean": b.op("MEAN", x, np.array([1, 2], np.int32))}), stock, delegated)
    assert "DEPTHWISE_CONV_2D" in got.taken()


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize(
    ("rows", "zeros", "block", "taken"),
    [
        (1, 0.9, 1, True),
        (1, 0.8, 1, False),
        (64, 0.95, 1, False),
        (64, 0.99, 1, True),
        (1, 0.7, 4, True),
        (64, 0.8, 4, False),
        (64, 0.92, 4, True),
    ],
)
def test_many_vectors_are_left_to_the_dense_kernel_that_reads_weights_once(
    rows: int, zeros: float, block: int, taken: bool, pixels: bool, stock: Any, delegated: Any
) -> None:
    """A layer of vectors, as FULLY_CONNECTED or as a convolution of images of one pixel."""
    b = Builder("rows", seed=0)
    if pixels:
        x = b.input("x", (rows, 1, 1, 512))
        y = b.conv2d(x, 512, weight=pruned(b.random, (512, 1, 1, 512), zeros, block))
    else:
        y = b.fully_connected(b.input("x", (rows, 512)), 512, weight=pruned(b.random, (512, 512), zeros, block))
    got = compare(b.build({"y": y}), stock, delegated)
    assert bool(got.taken()) == taken, got.decisions()
