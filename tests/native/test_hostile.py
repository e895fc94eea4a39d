# SPDX-License-Identifier: Apache-2.0
"""Files that say what makes no sense, or what hardly anybody says: an error or the stock engine's result, never a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Model, Quantization, Value, sparsify
from litesmith.optimize import quantize

Array = np.ndarray[Any, Any]
AROUND = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
OPTIONS = {"hybrid": "on", "relaxed": "on"}


def numbers(b: Builder, *shape: int) -> Array:
    return b.random.standard_normal(shape).astype(np.float32)


def convolution(b: Builder, x: Value, weights: Value, shape: tuple[int, ...], **options: Any) -> Value:
    """A CONV_2D that says whatever it is told."""
    steps = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
    bias = b.constant(np.zeros(weights.tensor.shape[0], np.float32))
    return b.op("CONV_2D", x, weights, bias, outputs=[(shape, "float32")], **{**steps, **options})


def assert_like_stock(model: Model, stock: Any, delegated: Any, **options: Any) -> Any:
    want, got = stock(model.to_bytes()), delegated(model.to_bytes(), **{**OPTIONS, **options})
    for a, b in zip(want.outputs(), got.outputs(), strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0) <= 2e-3 * max(np.abs(a).max(initial=0), 1e-6)
    return got


@pytest.mark.parametrize(
    ("size", "kernel", "options"),
    [
        (8, 3, {"stride_h": 0, "stride_w": 0}),
        (3, 100, {"stride_h": -1, "padding": "VALID"}),
        (8, 3, {"dilation_h_factor": -1_000_000, "padding": "VALID"}),
        (8, 3, {"dilation_w_factor": 0}),
        (8, 3, {"dilation_h_factor": 2**31 - 1, "padding": "VALID"}),
    ],
)
def test_windows_that_do_not_move_forward(size: int, kernel: int, options: dict[str, Any], delegated: Any) -> None:
    b = Builder("steps", seed=0)
    x = b.input("x", (1, size, 8, 16))
    y = convolution(b, x, b.constant(numbers(b, 16, kernel, 3, 16)), (1, 8, 8, 16), **options)
    with pytest.raises((RuntimeError, ValueError)):
        delegated(b.build({"y": y}).to_bytes(), **OPTIONS)


def test_a_dilation_beyond_the_image_needs_no_frame_of_that_size(stock: Any, delegated: Any) -> None:
    b = Builder("dilation", seed=0)
    x = b.input("x", (1, 8, 8, 16))
    y = convolution(b, x, b.constant(numbers(b, 16, 3, 3, 16)), (1, 8, 8, 16), dilation_h_factor=30_000)
    got = assert_like_stock(b.build({"y": y}), stock, delegated)
    assert got.taken() == ["CONV_2D"]


@pytest.mark.parametrize("declared", [(4096, 1024), (16, 0)])
def test_a_dequantized_constant_of_another_shape(declared: tuple[int, int], delegated: Any) -> None:
    b = Builder("shape", seed=0)
    half = b.constant(numbers(b, 2, 2).astype(np.float16))
    weights = b.op("DEQUANTIZE", half, outputs=[(declared, "float32")])
    x = b.input("x", (4, max(declared[1], 1)))
    y = b.op("FULLY_CONNECTED", x, weights, outputs=[((4, declared[0]), "float32")])
    try:
        taken = delegated(b.build({"y": y}).to_bytes(), **OPTIONS).taken()
    except (RuntimeError, ValueError):
        return  # what the stock engine says to it depends on its version
    assert taken == []


def test_paddings_that_overflow(delegated: Any) -> None:
    b = Builder("pads", seed=0)
    most = np.iinfo(np.int32).max
    x = b.conv2d(b.input("x", (1, 4, 8, 16)), 16)
    for pads in ([most, most], [0, most]):
        padded = b.op("PAD", x, np.array([[0, 0], pads, pads, [0, 0]], np.int32), outputs=[((1, 2, 8, 16), "float32")])
        model = b.build({"y": b.conv2d(padded, 16)})
        with pytest.raises((RuntimeError, ValueError)):
            delegated(model.to_bytes(), **OPTIONS)


def test_paddings_that_are_stored_sparse(delegated: Any) -> None:
    b = Builder("sparse", seed=0)
    pads = b.constant(np.zeros((4, 2), np.int32))
    model = b.build({"y": b.op("PAD", b.conv2d(b.input("x", (1, 8, 8, 16)), 16), pads)})
    tensors = list(model.main.tensors)
    form = sparsify(b.constant(np.eye(4, 2, dtype=np.float32)).tensor).sparsity
    tensors[pads.index] = replace(tensors[pads.index], shape=(40_000_000, 2), sparsity=form)
    model = replace(model, subgraphs=(replace(model.main, tensors=tuple(tensors)),))
    with pytest.raises((RuntimeError, ValueError)):
        delegated(model.to_bytes(), **OPTIONS)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("RELU", "int16"),
        ("PAD", "int16"),
        ("FULLY_CONNECTED", "int16"),
        ("RESHAPE", "int16"),
        ("MEAN", "float32"),
        ("RELU", "float32"),
    ],
)
def test_an_operator_without_inputs(kind: str, dtype: str, delegated: Any) -> None:
    b = Builder("nothing", seed=0)
    b.input("x", (1, 8, 8, 16), dtype)
    model = b.build({"y": b.op(kind, outputs=[((1, 8, 8, 16), dtype)])})
    with pytest.raises((RuntimeError, ValueError)):
        delegated(model.to_bytes())


def test_a_padded_constant_that_is_an_output_as_well(stock: Any, delegated: Any) -> None:
    b = Builder("constant", seed=0)
    padded = b.op("PAD", b.constant(numbers(b, 1, 8, 8, 16)), AROUND)
    x = b.conv2d(b.input("x", (1, 8, 8, 16)), 16, kernel=3)
    y = b.op("ADD", x, b.conv2d(padded, 16, kernel=3, padding="VALID"), fused_activation_function="NONE")
    assert_like_stock(b.build({"padded": padded, "y": y}), stock, delegated)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_weights_that_are_an_output_as_well(dtype: str, stock: Any, delegated: Any) -> None:
    b = Builder("weights", seed=0)
    x = b.input("x", (4, 64))
    if dtype == "float16":
        weights = b.op("DEQUANTIZE", b.constant(numbers(b, 64, 64).astype(np.float16)), outputs=[((64, 64), "float32")])
        model = b.build({"w": weights, "y": b.op("FULLY_CONNECTED", x, weights, outputs=[((4, 64), "float32")])})
    else:
        model = quantize(b.build({"y": b.fully_connected(x, 64)}), scheme="weights8").model
        widened = next(op.outputs[0] for op in model.main.operators if op.kind == "DEQUANTIZE")
        graph = replace(model.main, outputs=(*model.main.outputs, widened))
        model = replace(model, subgraphs=(graph,), signatures=())
    got = assert_like_stock(model, stock, delegated)
    assert "FULLY_CONNECTED" in got.taken()


def test_a_padded_convolution_whose_weights_others_read_too(stock: Any, delegated: Any) -> None:
    b = Builder("heads", seed=0)
    weights = b.constant(0.05 * numbers(b, 64, 3, 3, 64))
    x = b.conv2d(b.input("x", (1, 28, 28, 64)), 64, kernel=3, activation="RELU")
    window = {"padding": "VALID", "stride_h": 28, "stride_w": 28, "filter_height": 28, "filter_width": 28}
    small = b.op("MAX_POOL_2D", x, outputs=[((1, 1, 1, 64), "float32")], **window)
    heads = {
        name: convolution(b, b.op("PAD", value, AROUND), weights, shape, padding="VALID")
        for name, value, shape in (("y", x, (1, 28, 28, 64)), ("z", small, (1, 1, 1, 64)))
    }
    model = quantize(b.build(heads), scheme="float16").model
    assert_like_stock(model, stock, delegated, hybrid="auto", relaxed="auto")


def test_one_padded_convolution_can_be_singled_out(stock: Any, delegated: Any) -> None:
    b = Builder("one", seed=0)
    padded = b.op("PAD", b.input("x", (1, 8, 8, 16)), AROUND)
    model = b.build({"y": b.conv2d(padded, 16, kernel=3, padding="VALID")})
    assert assert_like_stock(model, stock, delegated, only_node=1).taken() == ["CONV_2D"]


def test_a_slice_with_the_largest_stride(stock: Any, delegated: Any) -> None:
    b = Builder("stride", seed=0)
    x = b.conv2d(b.input("x", (1, 8, 8, 16)), 16)
    bounds = [np.array(v, np.int32) for v in ([0, 0, 0, 0], [1, 8, 8, 16], [1, 2**31 - 1, 1, 1])]
    model = b.build({"y": b.op("STRIDED_SLICE", x, *bounds, outputs=[((1, 1, 8, 16), "float32")])})
    assert "STRIDED_SLICE" in assert_like_stock(model, stock, delegated).taken()


def test_a_refused_shape_does_not_spoil_the_next(delegated: Any) -> None:
    b = Builder("resized", seed=0)
    model = quantize(b.build({"y": b.conv2d(b.input("x", (-1, 8, 8, 32)), 64, kernel=3)}), scheme="dynamic").model
    interpreter = delegated(model.to_bytes(), hybrid="on").interpreter
    place = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(place, [1, 8, 8, 31])
    with pytest.raises(RuntimeError, match="shapes"):
        interpreter.allocate_tensors()
    interpreter.resize_tensor_input(place, [2, 8, 8, 32])
    interpreter.allocate_tensors()
    interpreter.set_tensor(place, np.ones((2, 8, 8, 32), np.float32))
    interpreter.invoke()
    assert interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).shape == (2, 8, 8, 64)


def sparse_chain(b: Builder, x: Value, filters: int, *, zeros: float = 0.9) -> Value:
    """A 1x1 convolution with mostly zeros."""
    weights = numbers(b, filters, 1, 1, x.shape[-1]) * (b.random.random((filters, 1, 1, x.shape[-1])) > zeros)
    return b.conv2d(x, filters, weight=weights.astype(np.float32))


def test_paddings_of_a_sparse_chain_that_overflow(delegated: Any) -> None:
    b = Builder("pads", seed=0)
    most = np.iinfo(np.int32).max
    x = sparse_chain(b, b.input("x", (1, 32, 32, 128)), 128)
    padded = b.op(
        "PAD", x, np.array([[0, 0], [most, most], [1, 1], [0, 0]], np.int32), outputs=[((1, 30, 34, 128), "float32")]
    )
    with pytest.raises((RuntimeError, ValueError)):
        delegated(b.build({"y": sparse_chain(b, padded, 128)}).to_bytes())


def test_what_is_unpacked_into_another_shape(delegated: Any) -> None:
    b = Builder("unpacked", seed=0)
    x = sparse_chain(b, b.input("x", (1, 32, 32, 128)), 128)
    packed = b.constant(np.zeros((1, 1, 1, 1), np.float32), "packed")
    weights = b.op("DENSIFY", packed, outputs=[((1, 3, 3, 128), "float32")])
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
    y = b.op(
        "DEPTHWISE_CONV_2D", x, weights, np.zeros(128, np.float32), outputs=[((1, 32, 32, 128), "float32")], **window
    )
    model = b.build({"y": sparse_chain(b, y, 128)})
    tensors = list(model.main.tensors)
    tensors[packed.index] = sparsify(tensors[packed.index])
    model = replace(model, subgraphs=(replace(model.main, tensors=tuple(tensors)),))
    try:
        taken = delegated(model.to_bytes()).taken()
    except (RuntimeError, ValueError):
        return  # what the stock engine says to it depends on its version
    assert "DEPTHWISE_CONV_2D" not in taken


def test_more_values_than_can_be_counted(delegated: Any) -> None:
    b = Builder("many", seed=0)
    x = b.input("x", (65536, 1))
    wide = np.where(np.arange(65536) % 100 == 0, 1, 0).astype(np.float32)
    x = b.op("FULLY_CONNECTED", x, wide[:, None], outputs=[((65536, 65536), "float32")])
    model = b.build({"y": b.op("FULLY_CONNECTED", x, wide[None], outputs=[((65536, 1), "float32")])})
    with pytest.raises((RuntimeError, ValueError)):
        delegated(model.to_bytes())


SCALE = Quantization(scale=(1e-3,), zero_point=(0,))


def int16(b: Builder, kind: str, x: Any, *more: Any, shapes: Any = None, **options: Any) -> Any:
    return b.op(kind, x, *more, outputs=shapes, quantization=SCALE, **options)


@pytest.mark.parametrize("case", ["transpose", "slice", "split"])
def test_moves_that_leave_their_tensor(case: str, delegated: Any) -> None:
    b = Builder(case, seed=0)
    x = b.input("x", (1000, 2), "int16", quantization=SCALE)
    most = np.iinfo(np.int32).max
    if case == "transpose":
        y = int16(b, "TRANSPOSE", x, np.array([0, 0], np.int32), shapes=[((1000, 1000), "int16")])
    elif case == "slice":
        bounds = np.array([most, 0], np.int32), np.array([2, 2], np.int32)
        y = int16(b, "SLICE", x, *bounds, shapes=[((2, 2), "int16")])
    else:
        parts = [((500, 2), "int16"), ((500, 2), "int8")]
        y = b.op("SPLIT", np.array(0, np.int32), x, outputs=parts, quantization=SCALE, num_splits=2)[1]
    try:
        taken = delegated(b.build({"y": y}).to_bytes()).taken()
    except (RuntimeError, ValueError):
        return
    assert taken == []


def test_a_mean_of_very_many_values(stock: Any, delegated: Any) -> None:
    b = Builder("mean", seed=0)
    x = b.input("x", (1, 256, 257, 2), "int16", quantization=SCALE)
    model = b.build({"y": int16(b, "MEAN", x, np.array([1, 2], np.int32), keep_dims=False)}).to_bytes()
    got = delegated(model)
    assert got.taken() == ["MEAN"]
    np.testing.assert_array_equal(got.outputs()[0], stock(model).outputs()[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_in_gives_nothing_out(threads: int, delegated: Any) -> None:
    b = Builder("nothing", seed=0)
    x = b.input("x", (0, 8, 8, 16), "int16", quantization=SCALE)
    one = b.constant(np.array([5], np.int16), quantization=SCALE)
    got = delegated(
        b.build({"y": int16(b, "MUL", x, one, fused_activation_function="NONE")}).to_bytes(), threads=threads
    )
    assert got.outputs()[0].shape == (0, 8, 8, 16)


@pytest.mark.parametrize("isa", ["auto", "avx2", "scalar"])
def test_what_is_not_a_number_stays_so(isa: str, stock: Any, delegated: Any) -> None:
    b = Builder("nan", seed=0)
    x = b.op("MUL", b.input("x", (1, 32, 32, 128)), np.full(1, np.nan, np.float32), fused_activation_function="NONE")
    model = b.build({"y": sparse_chain(b, sparse_chain(b, x, 128), 128)}).to_bytes()
    got = delegated(model, isa=isa)
    assert "CONV_2D" in got.taken()
    np.testing.assert_array_equal(np.isnan(got.outputs()[0]), np.isnan(stock(model).outputs()[0]))


def test_a_padding_inside_a_block_that_leaves_as_well(stock: Any, delegated: Any) -> None:
    b = Builder("leaves", seed=0)
    x = b.conv2d(b.input("x", (1, 56, 56, 24)), 144, activation="RELU6")
    padded = b.op("PAD", x, AROUND)
    y = b.conv2d(b.depthwise_conv2d(padded, kernel=3, padding="VALID", activation="RELU6"), 24)
    assert_like_stock(b.build({"padded": padded, "y": y}), stock, delegated)


def test_an_unpacked_constant_that_is_added(stock: Any, delegated: Any) -> None:
    b = Builder("added", seed=0)
    x = sparse_chain(b, b.input("x", (1, 32, 32, 128)), 128)
    packed = b.constant(np.where(b.random.random((1, 32, 32, 128)) > 0.9, 1, 0).astype(np.float32), "packed")
    added = b.op(
        "ADD", x, b.op("DENSIFY", packed, outputs=[((1, 32, 32, 128), "float32")]), fused_activation_function="NONE"
    )
    model = b.build({"y": sparse_chain(b, added, 128)})
    tensors = list(model.main.tensors)
    tensors[packed.index] = sparsify(tensors[packed.index])
    model = replace(model, subgraphs=(replace(model.main, tensors=tuple(tensors)),))
    assert "CONV_2D" in assert_like_stock(model, stock, delegated).taken()
