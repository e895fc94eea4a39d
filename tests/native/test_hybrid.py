# SPDX-License-Identifier: Apache-2.0
"""Float activations with int8 or float weights: products of integers, close to those of the widened weights."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Model, Value
from litesmith.optimize import dequantize, quantize

Array = np.ndarray[Any, Any]

# Of the largest output. Rows are rounded to 16 bits before int8 weights; to 13 at least, and weights to 12, with floats.
CLOSE = {"dynamic": 2e-4, "weights8": 2e-4, "float16": 1e-3, "relaxed": 1e-3}


def block(b: Builder, x: Value, width: int, filters: int, *, stride: int = 1) -> Value:
    """One of MobileNet V2: wider, depthwise, narrower."""
    wide = b.conv2d(x, width, activation="RELU6")
    if stride == 2:
        wide = b.op("PAD", wide, np.array([[0, 0], [0, 1], [1, 1], [0, 0]], np.int32))
    padding = "VALID" if stride == 2 else "SAME"
    deep = b.depthwise_conv2d(wide, stride=stride, padding=padding, activation="RELU6")
    return b.conv2d(deep, filters)


def network(size: int = 20) -> Model:
    """A small MobileNet V2 on an odd image."""
    b = Builder("hybrid", seed=0)
    x = b.conv2d(b.input("image", (1, size + 1, size, 3)), 32, kernel=3, stride=2, activation="RELU6")
    x = b.conv2d(b.depthwise_conv2d(x, activation="RELU6"), 16)
    x = block(b, x, 96, 24, stride=2)
    x = b.op("ADD", x, block(b, x, 144, 24), fused_activation_function="NONE")
    x = b.conv2d(x, 72, activation="RELU")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=False)
    return b.build({"scores": b.fully_connected(x, 40)})


def widened(model: Model, stock: Any, **options: Any) -> Array:
    """What the float model with the same weights computes."""
    result: Array = stock(dequantize(model).to_bytes(), **options).outputs()[0]
    return result


def assert_close(got: Array, want: Array, bound: float) -> None:
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= bound * np.abs(want).max()


@pytest.mark.parametrize("isa", ["auto", "scalar"])
@pytest.mark.parametrize("scheme", CLOSE)
def test_a_network_is_taken_whole_and_close_to_its_weights(scheme: str, isa: str, stock: Any, delegated: Any) -> None:
    model = quantize(network(), scheme=scheme).model
    want = widened(model, stock)
    one, two = (delegated(model.to_bytes(), hybrid="on", isa=isa, threads=threads) for threads in (1, 2))
    assert_close(one.outputs()[0], want, CLOSE[scheme])
    assert np.array_equal(one.outputs()[0], two.outputs()[0])
    taken = one.taken()
    assert taken.count("CONV_2D") >= 5
    assert {"DEPTHWISE_CONV_2D", "ADD", "MEAN", "FULLY_CONNECTED", "PAD"} <= set(taken)
    left = {d["op"] for d in one.decisions() if not d["taken"]}
    assert left <= {"CONV_2D", "DEPTHWISE_CONV_2D"}  # small weights stay float32, and with them the operator


@pytest.mark.parametrize("scheme", ["dynamic", "float16", "relaxed"])
def test_large_images_pass_row_by_row(scheme: str, stock: Any, delegated: Any) -> None:
    b = Builder("rows", seed=0)
    x = b.input("image", (2, 57, 56, 16))
    x = block(b, x, 96, 24, stride=2)
    x = block(b, x, 144, 24)
    deep = b.depthwise_conv2d(b.conv2d(x, 240, activation="RELU"))  # read twice: only the layer before it may join
    model = b.build({"both": b.op("ADD", b.conv2d(deep, 240), deep, fused_activation_function="NONE")})
    model = quantize(model, scheme=scheme).model
    runs = [delegated(model.to_bytes(), hybrid="on", threads=threads) for threads in (1, 2)]
    assert_close(runs[0].outputs()[0], widened(model, stock), CLOSE[scheme])
    assert np.array_equal(runs[0].outputs()[0], runs[1].outputs()[0])


@pytest.mark.parametrize("scheme", ["dynamic", "float16", "relaxed"])
@pytest.mark.parametrize(
    ("filters", "options"),
    [
        (40, {"kernel": 1}),
        (41, {"kernel": 1, "stride": 2}),
        (24, {"kernel": 3, "padding": "VALID"}),
        (48, {"kernel": (5, 2), "stride": (2, 1), "activation": "RELU_N1_TO_1"}),
        (56, {"kernel": 3, "dilation": 2}),
        (32, {"kernel": (3, 2), "dilation": (2, 1), "stride": (1, 2)}),
    ],
)
@pytest.mark.parametrize("channels", [27, 64])
def test_convolutions(
    filters: int, options: dict[str, Any], channels: int, scheme: str, stock: Any, delegated: Any
) -> None:
    b = Builder("conv", seed=1)
    x = b.conv2d(b.input("image", (3, 11, 9, channels)), filters, **options)
    model = quantize(b.build({"y": x}), scheme=scheme).model
    got = delegated(model.to_bytes(), hybrid="on")
    assert got.taken().count("CONV_2D") == 1
    assert_close(got.outputs()[0], widened(model, stock), CLOSE[scheme])


@pytest.mark.parametrize("scheme", ["dynamic", "float16", "relaxed"])
@pytest.mark.parametrize(("rows", "depth", "units"), [(1, 1280, 1000), (7, 33, 130), (100, 64, 64)])
def test_fully_connected(rows: int, depth: int, units: int, scheme: str, stock: Any, delegated: Any) -> None:
    b = Builder("dense", seed=1)
    x = b.fully_connected(b.input("x", (rows, depth)), units, activation="RELU", keep_num_dims=True)
    model = quantize(b.build({"y": x}), scheme=scheme).model
    got = delegated(model.to_bytes(), hybrid="on", threads=2)
    assert "FULLY_CONNECTED" in got.taken()
    assert_close(got.outputs()[0], widened(model, stock), CLOSE[scheme])


@pytest.mark.parametrize("scheme", ["dynamic", "float16", "relaxed"])
def test_the_largest_sums_do_not_overflow(scheme: str, stock: Any, delegated: Any) -> None:
    b = Builder("sums", seed=0)
    weight = np.where(np.arange(16)[:, None] % 2, 1.0, -1.0) * np.ones((16, 20_000))
    x = b.fully_connected(b.input("x", (2, 20_000)), 16, weight=weight.astype(np.float32))
    model = quantize(b.build({"y": x}), scheme=scheme).model
    got = delegated(model.to_bytes(), hybrid="on")
    got.interpreter.set_tensor(got.interpreter.get_input_details()[0]["index"], np.full((2, 20_000), 3.0, np.float32))
    got.interpreter.invoke()
    want = np.full((2, 16), 60_000.0) * np.where(np.arange(16) % 2, 1.0, -1.0)
    np.testing.assert_allclose(got.outputs()[0], want, rtol=1e-3)


def invoke(run: Any, values: Array) -> Array:
    run.interpreter.set_tensor(run.interpreter.get_input_details()[0]["index"], values)
    run.interpreter.invoke()
    result: Array = run.outputs()[0]
    return result


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_own_sample_alone(bad: float, delegated: Any) -> None:
    b = Builder("finite", seed=0)
    x = b.conv2d(b.input("image", (2, 9, 9, 32)), 48, activation="RELU6")
    x = b.conv2d(x, 48, kernel=3)
    model = quantize(b.build({"y": x}), scheme="dynamic").model
    run = delegated(model.to_bytes(), hybrid="on")
    values = np.random.default_rng(0).standard_normal((2, 9, 9, 32)).astype(np.float32)
    clean = invoke(run, values)
    values[0, 4, 4, 5] = bad
    spoilt = invoke(run, values)
    assert np.isnan(spoilt[0]).any()
    assert np.array_equal(spoilt[1], clean[1])


def test_weights_that_are_not_finite_spoil_their_channel_alone(stock: Any, delegated: Any) -> None:
    b = Builder("weights", seed=0)
    weight = b.random.standard_normal((48, 32)).astype(np.float32)
    weight[5, 3], weight[9, 0] = np.inf, np.nan
    stored = b.constant(weight.astype(np.float16))
    y = b.op("FULLY_CONNECTED", b.input("x", (2, 32)), b.op("DEQUANTIZE", stored, outputs=[((48, 32), "float32")]))
    model = b.build({"y": y})
    got = delegated(model.to_bytes(), hybrid="on", relaxed="on").outputs()[0]
    assert np.isnan(got[:, [5, 9]]).all()
    finite = [c for c in range(48) if c not in (5, 9)]
    assert_close(got[:, finite], widened(model, stock)[:, finite], CLOSE["float16"])


def test_a_sample_does_not_depend_on_its_batch_and_shapes_may_change(delegated: Any) -> None:
    b = Builder("batch", seed=0)
    x = b.conv2d(b.input("image", (-1, 8, 8, 32)), 64, activation="RELU")
    x = b.op("MEAN", b.conv2d(x, 64, kernel=3), np.array([1, 2], np.int32), keep_dims=False)
    model = quantize(b.build({"y": b.fully_connected(x, 64)}), scheme="dynamic").model
    values = np.random.default_rng(0).standard_normal((4, 8, 8, 32)).astype(np.float32)
    values *= np.float32([1, 10, 100, 0.01]).reshape(4, 1, 1, 1)
    run = delegated(model.to_bytes(), hybrid="on")
    single = np.concatenate([invoke(run, values[i : i + 1]) for i in range(4)])
    run.interpreter.resize_tensor_input(run.interpreter.get_input_details()[0]["index"], [4, 8, 8, 32])
    run.interpreter.allocate_tensors()
    assert np.array_equal(invoke(run, values), single)


def test_zeros_give_the_bias(delegated: Any) -> None:
    b = Builder("zeros", seed=0)
    bias = np.linspace(-2, 2, 48, dtype=np.float32)
    model = quantize(b.build({"y": b.conv2d(b.input("x", (1, 5, 5, 32)), 48, bias=bias)}), scheme="dynamic").model
    got = invoke(delegated(model.to_bytes(), hybrid="on"), np.zeros((1, 5, 5, 32), np.float32))
    assert np.array_equal(got, np.broadcast_to(bias, got.shape))


def test_a_padded_image_may_be_an_output_as_well(stock: Any, delegated: Any) -> None:
    b = Builder("padded", seed=0)
    x = b.conv2d(b.input("image", (1, 9, 9, 32)), 48)
    padded = b.op("PAD", x, np.array([[0, 0], [1, 1], [0, 1], [0, 0]], np.int32))
    y = b.depthwise_conv2d(padded, padding="VALID")
    model = quantize(b.build({"padded": padded, "y": y}), scheme="dynamic").model
    got = delegated(model.to_bytes(), hybrid="on")
    want = stock(dequantize(model).to_bytes())
    for mine, theirs in zip(got.outputs(), want.outputs(), strict=True):
        assert_close(mine, theirs, CLOSE["dynamic"])


def test_weights_that_others_read_too_are_still_widened_for_them(stock: Any, delegated: Any) -> None:
    b = Builder("shared", seed=0)
    x = b.input("x", (4, 64))
    weight = b.constant(b.random.standard_normal((64, 64)).astype(np.float32))
    y = b.op("FULLY_CONNECTED", x, weight, fused_activation_function="NONE")
    z = b.op("FULLY_CONNECTED", y, weight, fused_activation_function="NONE")
    scaled = b.op("MUL", z, b.op("MEAN", weight, np.array([0], np.int32)), fused_activation_function="NONE")
    model = quantize(b.build({"scaled": scaled}), scheme="float16").model
    got = delegated(model.to_bytes(), hybrid="on")
    assert got.taken().count("FULLY_CONNECTED") == 2
    assert_close(got.outputs()[0], widened(model, stock), 2 * CLOSE["float16"])


def test_what_is_widened_and_added_is_still_widened(stock: Any, delegated: Any) -> None:
    b = Builder("added", seed=0)

    def halves(*shape: int) -> Value:
        stored = b.constant(b.random.standard_normal(shape).astype(np.float16))
        return b.op("DEQUANTIZE", stored, outputs=[(shape, "float32")])

    y = b.op("FULLY_CONNECTED", b.input("x", (4, 64)), halves(64, 64), fused_activation_function="NONE")
    y = b.op("ADD", y, halves(4, 64), fused_activation_function="NONE")
    y = b.op("FULLY_CONNECTED", y, halves(64, 64), fused_activation_function="NONE")
    model = b.build({"y": y})
    got = delegated(model.to_bytes(), hybrid="on", relaxed="on")
    assert got.taken().count("FULLY_CONNECTED") == 2
    assert "ADD" in got.taken()
    assert_close(got.outputs()[0], widened(model, stock), CLOSE["float16"])


def wide(size: int, scheme: str = "relaxed") -> bytes:
    """Two wide layers; whether int8 weights pay depends on the processor's dot products, floats do not."""
    b = Builder("wide", seed=0)
    x = b.conv2d(b.input("image", (1, size, size, 128)), 256, activation="RELU")
    return quantize(b.build({"y": b.conv2d(x, 128)}), scheme=scheme).model.to_bytes()


def tier_of(run: Any) -> str:
    isa = ctypes.CDLL(str(run.library)).litesmith_delegate_isa
    isa.restype, isa.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return str(isa(run.delegate._get_native_delegate_pointer()).decode())


@pytest.fixture
def avx2(delegated: Any) -> Any:
    """The kernels of AVX2, whatever better ones there are: estimates differ from tier to tier."""
    if tier_of(delegated(wide(2))) not in ("avx2", "avx512vnni"):
        pytest.skip("this processor has no AVX2")
    return partial(delegated, isa="avx2")


def test_it_is_taken_by_itself_only_where_that_pays(avx2: Any) -> None:
    large, small = avx2(wide(28)), avx2(wide(2))
    assert small.taken() == []
    assert all("estimated" in d["note"] or "change of engines" in d["note"] for d in small.decisions())
    assert large.taken() == ["CONV_2D"] * 2
    assert avx2(wide(28), hybrid="off").taken() == []


def test_with_8_bit_dot_products_int8_weights_are_left_to_xnnpack(avx2: Any, delegated: Any) -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    model = wide(28, "dynamic")
    assert avx2(model).taken() == ([] if "avx_vnni" in flags else ["CONV_2D"] * 2)
    best = delegated(model)
    if tier_of(best) == "avx512vnni":
        assert best.taken() == []
        assert delegated(wide(28)).taken() == ["CONV_2D"] * 2


def test_with_threads_the_turns_of_two_engines_must_pay(avx2: Any) -> None:
    def alternating(size: int, count: int) -> bytes:
        b = Builder("mixed", seed=0)
        x = b.conv2d(b.input("image", (1, size, size, 128)), 128)
        for _ in range(count - 1):
            x = b.conv2d(b.op("HARD_SWISH", x), 128)
        return quantize(b.build({"y": x}), scheme="relaxed").model.to_bytes()

    small = alternating(14, 8)
    two = avx2(small, threads=2)
    assert two.taken() == []
    assert avx2(small, threads=2, hybrid="on").taken() == ["CONV_2D"] * 8
    assert any("turns of two engines" in d["note"] for d in two.decisions())
    assert avx2(small).taken() == ["CONV_2D"] * 8
    assert avx2(alternating(28, 2), threads=2).taken() == ["CONV_2D"] * 2


def residual(*, convolved: bool = False) -> Model:
    """Two blocks of a ResNet, the second with half the pixels: its shortcut leaves out pixels and adds channels."""
    b = Builder("residual", seed=0)
    x = b.conv2d(b.input("image", (1, 32, 32, 3)), 16, kernel=3, activation="RELU")
    y = b.conv2d(b.conv2d(x, 16, kernel=3, activation="RELU"), 16, kernel=3)
    x = b.op("ADD", x, y, fused_activation_function="RELU")
    y = b.conv2d(b.conv2d(x, 32, kernel=3, stride=2, activation="RELU"), 32, kernel=3)
    if convolved:
        short = b.conv2d(x, 32, kernel=1, stride=2)
    else:
        bounds = [np.array(v, np.int32) for v in ([0, 0, 0, 0], [0, 0, 0, 0], [1, 2, 2, 1])]
        short = b.op("STRIDED_SLICE", x, *bounds, begin_mask=15, end_mask=15)
        short = b.op("PAD", short, np.array([[0, 0], [0, 0], [0, 0], [8, 8]], np.int32))
    return b.build({"y": b.op("ADD", short, y, fused_activation_function="RELU")})


@pytest.mark.parametrize("scheme", ["dynamic", "relaxed"])
def test_what_lies_between_comes_along(scheme: str, stock: Any, avx2: Any) -> None:
    model = quantize(residual(), scheme=scheme).model
    moved = avx2(model.to_bytes(), hybrid="auto" if scheme == "relaxed" else "on")
    assert_close(moved.outputs()[0], widened(model, stock), CLOSE[scheme])
    assert {"STRIDED_SLICE", "PAD", "ADD"} <= set(moved.taken())
    model = quantize(residual(convolved=True), scheme="relaxed").model
    convolved = avx2(model.to_bytes())
    assert_close(convolved.outputs()[0], widened(model, stock), CLOSE["relaxed"])
    assert (
        convolved.taken().count("CONV_2D") == 5
    )  # the shortcut is a little slower here, but saves a change of engines
    assert avx2(model.to_bytes(), only_node=6).taken() == []
    assert avx2(model.to_bytes(), only_node=5).taken() == ["CONV_2D"]


def test_many_small_operators_pay_for_one_change_of_engines(avx2: Any) -> None:
    def chain(count: int) -> bytes:
        b = Builder("chain", seed=0)
        x = b.input("image", (1, 12, 10, 64))
        for _ in range(count):
            x = b.conv2d(x, 64, activation="RELU")
        return quantize(b.build({"y": x}), scheme="relaxed").model.to_bytes()

    one, many = avx2(chain(1)), avx2(chain(6))
    assert one.taken() == []
    assert any("change of engines" in d["note"] for d in one.decisions())
    assert many.taken() == ["CONV_2D"] * 6


def test_a_padding_before_a_convolution_is_done_on_the_way(stock: Any, delegated: Any) -> None:
    b = Builder("padded", seed=0)
    x = b.op("PAD", b.input("image", (2, 9, 10, 5)), np.array([[0, 0], [2, 0], [1, 3], [0, 0]], np.int32))
    model = quantize(b.build({"y": b.conv2d(x, 24, kernel=(4, 3), stride=2, padding="VALID")}), scheme="relaxed").model
    got = delegated(model.to_bytes(), hybrid="on", threads=2)
    assert got.taken() == ["PAD", "CONV_2D"]
    assert_close(got.outputs()[0], widened(model, stock), CLOSE["relaxed"])


def test_float16_is_taken_only_where_less_precision_is_allowed(delegated: Any) -> None:
    b = Builder("halves", seed=0)
    model = quantize(b.build({"y": b.conv2d(b.input("x", (1, 28, 28, 128)), 256)}), scheme="float16").model
    silent = replace(model, metadata=())
    assert "CONV_2D" in delegated(model.to_bytes(), hybrid="on").taken()
    left = delegated(silent.to_bytes(), hybrid="on")
    assert left.taken() == []
    assert any("less precision" in d["note"] for d in left.decisions())
    assert "CONV_2D" in delegated(silent.to_bytes(), hybrid="on", relaxed="on").taken()
    assert delegated(model.to_bytes(), hybrid="on", relaxed="off").taken() == []


def test_a_wrong_value_of_the_option_is_refused(delegated: Any) -> None:
    with pytest.raises(ValueError, match=r"'hybrid' has value 'perhaps'; it takes auto"):
        delegated(wide(2), hybrid="perhaps")
