# SPDX-License-Identifier: Apache-2.0
"""Every int16x8 operator, alone, equals the stock kernel of the installed wheel to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Quantization, Value

Array = np.ndarray[Any, Any]


def q(scale: float) -> Quantization:
    return Quantization(scale=(float(np.float32(scale)),), zero_point=(0,))


IN, OUT = q(3.1e-4), q(2.3e-4)


class Graph:
    """A model under construction with int16 activations, int8 weights and int64 biases."""

    def __init__(self, seed: int = 0) -> None:
        self.builder = Builder("graph", seed=seed)
        self.random = np.random.default_rng(seed)

    def input(self, *shape: int, scale: Quantization = IN) -> Value:
        return self.builder.input("x", shape, "int16", quantization=scale)

    def weights(self, *shape: int, axis: int = 0, per_channel: bool = True, extreme: int | None = None) -> Value:
        values = self.random.integers(-127, 128, shape) if extreme is None else np.full(shape, extreme)
        count = shape[axis] if per_channel else 1
        scales = tuple(float(np.float32(s)) for s in self.random.uniform(1e-3, 9e-3, count))
        quantization = Quantization(scale=scales, zero_point=(0,) * count, axis=axis)
        return self.builder.constant(values.astype(np.int8), "w", quantization=quantization)

    def bias(self, size: int, dtype: str = "int64", scale: float = 1e-6) -> Value:
        most = 1 << (33 if dtype == "int64" else 31)
        values = self.random.integers(-most, most, size)
        return self.builder.constant(values, "b", dtype=dtype, quantization=q(scale))

    def op(self, kind: str, *inputs: Any, scale: Quantization = OUT, **options: Any) -> Any:
        return self.builder.op(kind, *inputs, quantization=scale, **options)

    def bytes(self, *outputs: Value) -> bytes:
        return self.builder.build({f"y{i}": y for i, y in enumerate(outputs)}).to_bytes()


def stated(bias: str) -> dict[str, Any]:
    """The option that LiteRT wants beside a bias of 32 bits."""
    return {"quantized_bias_type": "INT32"} if bias == "int32" else {}


def check(model: bytes, kind: str, stock: Any, delegated: Any, *, spread: float = 1.0) -> None:
    for threads, isa in itertools.product((1, 2), ("auto", "scalar")):
        ours = delegated(model, threads=threads, isa=isa, spread=spread)
        assert ours.taken() == [kind], ours.decisions()
        for want, got in zip(stock(model, spread=spread).outputs(), ours.outputs(), strict=True):
            assert want.shape == got.shape
            np.testing.assert_array_equal(got, want)


CONVOLUTION_DEFAULTS: dict[str, Any] = {
    "stride": 1,
    "dilation": 1,
    "padding": "SAME",
    "groups": 1,
    "activation": "NONE",
    "per_channel": True,
    "extreme": None,
    "bias": "int64",
}
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "1x1": {"shape": (1, 5, 7, 16), "out": 24, "kernel": (1, 1)},
    "1x1 odd channels": {"shape": (2, 5, 7, 13), "out": 19, "kernel": (1, 1)},
    "1x1 stride 2": {"shape": (1, 9, 8, 8), "out": 16, "kernel": (1, 1), "stride": 2},
    "3x3 same": {"shape": (1, 9, 11, 3), "out": 8, "kernel": (3, 3)},
    "3x3 valid stride 2": {"shape": (1, 10, 13, 5), "out": 33, "kernel": (3, 3), "stride": 2, "padding": "VALID"},
    "5x3 dilated": {"shape": (2, 12, 12, 6), "out": 7, "kernel": (5, 3), "dilation": 2},
    "grouped": {"shape": (1, 6, 6, 12), "out": 20, "kernel": (3, 3), "groups": 2},
    "relu6": {"shape": (1, 7, 7, 8), "out": 16, "kernel": (3, 3), "activation": "RELU6"},
    "per tensor": {"shape": (1, 6, 6, 9), "out": 17, "kernel": (3, 3), "per_channel": False},
    "long sums of -128": {"shape": (1, 5, 5, 230), "out": 16, "kernel": (3, 3), "extreme": -128},
    "long sums of 127": {"shape": (1, 5, 5, 231), "out": 5, "kernel": (3, 3), "extreme": 127},
    "int32 bias": {"shape": (2, 9, 11, 12), "out": 21, "kernel": (3, 3), "bias": "int32"},
    "int32 bias 1x1": {"shape": (1, 5, 7, 32), "out": 40, "kernel": (1, 1), "bias": "int32", "activation": "RELU"},
    "int32 bias dilated": {"shape": (1, 12, 12, 6), "out": 7, "kernel": (3, 3), "dilation": 2, "bias": "int32"},
    "int32 bias per tensor": {"shape": (1, 6, 6, 9), "out": 17, "kernel": (3, 3), "per_channel": False, "bias": "int32"},
    "int32 bias grouped": {"shape": (1, 6, 6, 12), "out": 20, "kernel": (3, 3), "groups": 2, "bias": "int32"},
    "int32 sums of -128": {"shape": (1, 5, 5, 230), "out": 16, "kernel": (3, 3), "extreme": -128, "bias": "int32"},
    "int32 sums of 127": {"shape": (1, 5, 5, 231), "out": 5, "kernel": (3, 3), "extreme": 127, "bias": "int32"},
    "int32 sums of 127 grouped": {
        "shape": (1, 5, 5, 460), "out": 6, "kernel": (3, 3), "extreme": 127, "groups": 2, "bias": "int32"
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv_2d(case: str, stock: Any, delegated: Any) -> None:
    c = CONVOLUTION_DEFAULTS | CONVOLUTIONS[case]
    g = Graph()
    x = g.input(*c["shape"])
    w = g.weights(
        c["out"], *c["kernel"], c["shape"][3] // c["groups"], per_channel=c["per_channel"], extreme=c["extreme"]
    )
    y = g.op(
        "CONV_2D",
        x,
        w,
        g.bias(c["out"], c["bias"]),
        scale=q(0.3 if c["extreme"] else 2e-3),
        padding=c["padding"],
        stride_h=c["stride"],
        stride_w=c["stride"],
        dilation_h_factor=c["dilation"],
        dilation_w_factor=c["dilation"],
        fused_activation_function=c["activation"],
        **stated(c["bias"]),
    )
    for spread in (1.0, 30.0) if c["bias"] == "int32" else (1.0,):  # saturated inputs leave 32 bits
        check(g.bytes(y), "CONV_2D", stock, delegated, spread=spread)


DEPTHWISE: dict[str, dict[str, Any]] = {
    "3x3": {"shape": (1, 9, 7, 16)},
    "3x3 odd channels": {"shape": (2, 9, 7, 21)},
    "3x3 stride 2 valid": {"shape": (1, 11, 12, 35), "stride": 2, "padding": "VALID"},
    "5x5": {"shape": (1, 8, 8, 24), "kernel": (5, 5)},
    "3x3 dilated": {"shape": (1, 12, 9, 8), "dilation": 3},
    "multiplier 3": {"shape": (1, 6, 6, 5), "multiplier": 3},
    "7x2 of -128": {"shape": (1, 9, 9, 16), "kernel": (7, 2), "extreme": -128},
    "per tensor relu": {"shape": (1, 6, 6, 40), "per_channel": False, "activation": "RELU"},
}


@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise_conv_2d(case: str, stock: Any, delegated: Any) -> None:
    c = CONVOLUTION_DEFAULTS | {"kernel": (3, 3), "multiplier": 1} | DEPTHWISE[case]
    g = Graph()
    x = g.input(*c["shape"])
    channels = c["shape"][3] * c["multiplier"]
    w = g.weights(1, *c["kernel"], channels, axis=3, per_channel=c["per_channel"], extreme=c["extreme"])
    y = g.op(
        "DEPTHWISE_CONV_2D",
        x,
        w,
        g.bias(channels),
        scale=q(1e-3),
        padding=c["padding"],
        stride_h=c["stride"],
        stride_w=c["stride"],
        dilation_h_factor=c["dilation"],
        dilation_w_factor=c["dilation"],
        depth_multiplier=c["multiplier"],
        fused_activation_function=c["activation"],
    )
    check(g.bytes(y), "DEPTHWISE_CONV_2D", stock, delegated)


@pytest.mark.parametrize(("rows", "depth", "units"), [(1, 64, 10), (7, 33, 19), (50, 640, 16), (3, 2049, 40)])
@pytest.mark.parametrize("per_channel", [True, False])
def test_fully_connected(rows: int, depth: int, units: int, per_channel: bool, stock: Any, delegated: Any) -> None:
    g = Graph()
    # Per-tensor weights need a bias scale that is the product of the others, which LiteRT checks.
    x, w = g.input(rows, depth), g.weights(units, depth, per_channel=per_channel)
    scale = float(np.float32(IN.scale[0]) * np.float32(w.tensor.quantization.scale[0]))  # type: ignore[union-attr]
    bias = g.builder.constant(g.random.integers(-(1 << 33), 1 << 33, units), "b", dtype="int64", quantization=q(scale))
    y = g.op("FULLY_CONNECTED", x, w, bias, scale=q(5e-3), fused_activation_function="NONE")
    check(g.bytes(y), "FULLY_CONNECTED", stock, delegated)


@pytest.mark.parametrize(("rows", "depth", "units"), [(1, 64, 10), (7, 33, 19), (3, 2049, 40)])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("bias", ["none", "int32", "int32 stated", "none but int64 stated"])
@pytest.mark.parametrize("extreme", [None, -128])
def test_fully_connected_without_an_int64_bias(
    rows: int, depth: int, units: int, per_channel: bool, bias: str, extreme: int | None, stock: Any, delegated: Any
) -> None:
    g = Graph()
    x, w = g.input(rows, depth), g.weights(units, depth, per_channel=per_channel, extreme=extreme)
    scale = float(np.float32(IN.scale[0]) * np.float32(w.tensor.quantization.scale[0]))  # type: ignore[union-attr]
    options = {"quantized_bias_type": "INT64" if "int64" in bias else "INT32"} if "stated" in bias else {}
    biases = [] if bias.startswith("none") else [g.bias(units, "int32", scale)]
    y = g.op("FULLY_CONNECTED", x, w, *biases, scale=q(5e-3), fused_activation_function="NONE", **options)
    for spread in (1.0, 30.0):
        check(g.bytes(y), "FULLY_CONNECTED", stock, delegated, spread=spread)


@pytest.mark.parametrize(
    ("stride", "kernel", "padding"), [(2, 2, "SAME"), (2, 3, "SAME"), (1, 3, "SAME"), (2, 4, "VALID"), (3, 2, "VALID")]
)
def test_transpose_conv(stride: int, kernel: int, padding: str, stock: Any, delegated: Any) -> None:
    g = Graph()
    x = g.input(1, 5, 6, 7)
    size = [s * stride if padding == "SAME" else (s - 1) * stride + max(kernel, stride) for s in (5, 6)]
    y = g.op(
        "TRANSPOSE_CONV",
        np.array([1, *size, 9], np.int32),
        g.weights(9, kernel, kernel, 7),
        x,
        g.bias(9),
        scale=q(1e-3),
        padding=padding,
        stride_h=stride,
        stride_w=stride,
        version=3,
    )
    check(g.bytes(y), "TRANSPOSE_CONV", stock, delegated)


@pytest.mark.parametrize(
    ("bias", "channels"), [("none", 9), ("int32", 9), ("int32", 24), ("none but int32 stated", 17)]
)
@pytest.mark.parametrize("extreme", [None, 127])
def test_transpose_conv_without_an_int64_bias(
    bias: str, channels: int, extreme: int | None, stock: Any, delegated: Any
) -> None:
    g = Graph()
    x = g.input(1, 5, 6, 300 if extreme else 7)
    y = g.op(
        "TRANSPOSE_CONV",
        np.array([1, 10, 12, channels], np.int32),
        g.weights(channels, 3, 3, x.shape[-1], extreme=extreme),
        x,
        *([] if bias.startswith("none") else [g.bias(channels, "int32")]),
        scale=q(1e-3),
        padding="SAME",
        stride_h=2,
        stride_w=2,
        version=3,
        **stated("int32" if "int32" in bias else ""),
    )
    for spread in (1.0, 30.0):
        check(g.bytes(y), "TRANSPOSE_CONV", stock, delegated, spread=spread)


def flipped(shape: tuple[int, ...], flip: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if flip else shape


@pytest.mark.parametrize(("a", "b"), [((2, 3, 17), (2, 17, 5)), ((1, 4, 6, 8), (1, 4, 8, 9)), ((3, 5), (5, 2))])
@pytest.mark.parametrize(("adj_x", "adj_y"), [(False, False), (True, False), (False, True), (True, True)])
def test_batch_matmul(
    a: tuple[int, ...], b: tuple[int, ...], adj_x: bool, adj_y: bool, stock: Any, delegated: Any
) -> None:
    g = Graph()
    x, y = g.input(*flipped(a, adj_x)), g.builder.input("z", flipped(b, adj_y), "int16", quantization=OUT)
    shape = (*a[:-1], b[-1])
    out = g.op("BATCH_MATMUL", x, y, scale=q(1.1e-3), outputs=[(shape, "int16")], adj_x=adj_x, adj_y=adj_y, version=3)
    check(g.bytes(out), "BATCH_MATMUL", stock, delegated)


SHAPES = [
    ((1, 5, 7, 9), (1, 5, 7, 9)),
    ((2, 4, 4, 16), (1, 1, 1, 16)),
    ((1, 3, 3, 8), (1, 3, 3, 1)),
    ((1, 1, 1, 5), (2, 3, 4, 5)),
    ((40,), (1,)),
]


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_binary(kind: str, a: tuple[int, ...], b: tuple[int, ...], activation: str, stock: Any, delegated: Any) -> None:
    g = Graph()
    x, y = g.input(*a), g.builder.input("z", b, "int16", quantization=q(7.7e-4))
    out = g.op(kind, x, y, scale=q(1.3e-3), fused_activation_function=activation)
    check(g.bytes(out), kind, stock, delegated)


@pytest.mark.parametrize("kind", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (7, 7, "VALID")]
)
def test_pool(kind: str, size: int, stride: int, padding: str, stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.op(
        kind,
        g.input(2, 7, 9, 11),
        scale=IN,
        padding=padding,
        stride_h=stride,
        stride_w=stride,
        filter_height=size,
        filter_width=size,
        fused_activation_function="RELU6",
    )
    check(g.bytes(y), kind, stock, delegated)


@pytest.mark.parametrize("axes", [[1, 2], [3], [1], [-1, 1], [0, 1, 2, 3]])
@pytest.mark.parametrize("keep_dims", [True, False])
def test_mean(axes: list[int], keep_dims: bool, stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.op("MEAN", g.input(2, 5, 7, 9), np.array(axes, np.int32), scale=OUT, keep_dims=keep_dims)
    check(g.bytes(y), "MEAN", stock, delegated)


@pytest.mark.parametrize("kind", ["RELU", "RELU6"])
@pytest.mark.parametrize("out", [3.1e-4, 1.9e-4, 8e-4])
def test_relu_family(kind: str, out: float, stock: Any, delegated: Any) -> None:
    g = Graph()
    check(g.bytes(g.op(kind, g.input(3, 41), scale=q(out))), kind, stock, delegated)


def test_leaky_relu(stock: Any, delegated: Any) -> None:
    g = Graph()
    check(g.bytes(g.op("LEAKY_RELU", g.input(3, 41), alpha=0.2)), "LEAKY_RELU", stock, delegated)


@pytest.mark.parametrize("shape", [(9,), (1, 1, 9), (4, 5, 9)])
def test_prelu(shape: tuple[int, ...], stock: Any, delegated: Any) -> None:
    g = Graph()
    alpha = g.builder.constant(
        g.random.integers(-128, 128, shape).astype(np.int8),
        "a",
        quantization=Quantization(scale=(0.004,), zero_point=(3,)),
    )
    check(g.bytes(g.op("PRELU", g.input(2, 4, 5, 9), alpha)), "PRELU", stock, delegated)


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [3.1e-4, 1e-3, 4.7e-5])
def test_table_functions(kind: str, scale: float, stock: Any, delegated: Any) -> None:
    g = Graph()
    check(g.bytes(g.op(kind, g.input(20, 300, scale=q(scale)), scale=q(1 / 32768))), kind, stock, delegated, spread=1.5)


@pytest.mark.parametrize("depth", [1, 5, 1001])
@pytest.mark.parametrize("scale", [3.1e-4, 2e-3])
def test_softmax(depth: int, scale: float, stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.op("SOFTMAX", g.input(7, depth, scale=q(scale)), scale=q(1 / 32768), beta=1.0)
    check(g.bytes(y), "SOFTMAX", stock, delegated)


@pytest.mark.parametrize("size", [8, 13, 1027])
@pytest.mark.parametrize("spread", [1.0, 40.0])
def test_quantize(size: int, spread: float, stock: Any, delegated: Any) -> None:
    g = Graph()
    x = g.builder.input("x", (1, size))
    check(g.bytes(g.op("QUANTIZE", x, dtype="int16")), "QUANTIZE", stock, delegated, spread=spread)


@pytest.mark.parametrize("out", [3.1e-4, 1e-4, 1e-2])
def test_requantize(out: float, stock: Any, delegated: Any) -> None:
    g = Graph()
    check(g.bytes(g.op("QUANTIZE", g.input(3, 37), scale=q(out))), "QUANTIZE", stock, delegated)


def test_dequantize(stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.builder.op("DEQUANTIZE", g.input(3, 37), dtype="float32")
    check(g.bytes(y), "DEQUANTIZE", stock, delegated)


@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(10, 14), (3, 4), (7, 9)])
@pytest.mark.parametrize("kind", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resize(kind: str, size: tuple[int, int], align: bool, half: bool, stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.op(
        kind, g.input(2, 5, 7, 3), np.array(size, np.int32), scale=IN, align_corners=align, half_pixel_centers=half
    )
    check(g.bytes(y), kind, stock, delegated)


def test_pad(stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.op("PAD", g.input(1, 5, 7, 3), np.array([[0, 1], [1, 2], [3, 0], [0, 2]], np.int32), scale=IN)
    check(g.bytes(y), "PAD", stock, delegated)


@pytest.mark.parametrize("value", [0, 1234, -32768])
def test_padv2(value: int, stock: Any, delegated: Any) -> None:
    g = Graph()
    filler = g.builder.constant(np.array([value], np.int16), "value", quantization=IN)
    y = g.op("PADV2", g.input(1, 5, 7, 3), np.array([[0, 0], [1, 2], [3, 0], [0, 2]], np.int32), filler, scale=IN)
    check(g.bytes(y), "PADV2", stock, delegated)


@pytest.mark.parametrize("axis", [1, -1])
def test_concatenation(axis: int, stock: Any, delegated: Any) -> None:
    g = Graph()
    shapes = [(2, 3, 5), (2, 4, 5)] if axis == 1 else [(2, 3, 5), (2, 3, 1)]
    xs = [g.builder.input(f"x{i}", s, "int16", quantization=IN) for i, s in enumerate(shapes)]
    check(g.bytes(g.op("CONCATENATION", *xs, scale=IN, axis=axis)), "CONCATENATION", stock, delegated)


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 1, 0, 2), (0, 1, 3, 2)])
def test_transpose(perm: tuple[int, ...], stock: Any, delegated: Any) -> None:
    g = Graph()
    check(
        g.bytes(g.op("TRANSPOSE", g.input(2, 3, 4, 5), np.array(perm, np.int32), scale=IN)),
        "TRANSPOSE",
        stock,
        delegated,
    )


SLICES: list[dict[str, Any]] = [
    {"begin": [0, 1, 0], "end": [2, 5, 7], "strides": [1, 2, 1]},
    {"begin": [0, -1, 0], "end": [2, 0, 7], "strides": [1, -2, 3]},
    {"begin": [0, 1, 0], "end": [0, 4, 0], "strides": [1, 1, 1], "begin_mask": 5, "end_mask": 5},
    {"begin": [1, 2, 0], "end": [2, 3, 7], "strides": [1, 1, 1], "shrink_axis_mask": 3},
]


@pytest.mark.parametrize("case", range(len(SLICES)))
def test_strided_slice(case: int, stock: Any, delegated: Any) -> None:
    c = dict(SLICES[case])
    bounds = [np.array(c.pop(k), np.int32) for k in ("begin", "end", "strides")]
    g = Graph()
    check(g.bytes(g.op("STRIDED_SLICE", g.input(2, 6, 7), *bounds, scale=IN, **c)), "STRIDED_SLICE", stock, delegated)


def test_slice(stock: Any, delegated: Any) -> None:
    g = Graph()
    y = g.op("SLICE", g.input(2, 6, 7), np.array([0, 2, 1], np.int32), np.array([2, 3, -1], np.int32), scale=IN)
    check(g.bytes(y), "SLICE", stock, delegated)


def test_split(stock: Any, delegated: Any) -> None:
    g = Graph()
    ys = g.op("SPLIT", np.array(2, np.int32), g.input(2, 3, 12), scale=IN, num_splits=3)
    check(g.bytes(*ys), "SPLIT", stock, delegated)


def test_reshape_family(stock: Any, delegated: Any) -> None:
    for kind, inputs, options in [
        ("RESHAPE", [np.array([3, -1], np.int32)], {}),
        ("SQUEEZE", [], {"squeeze_dims": [1]}),
        ("EXPAND_DIMS", [np.array(-1, np.int32)], {}),
    ]:
        g = Graph()
        check(g.bytes(g.op(kind, g.input(3, 1, 5, 2), *inputs, scale=IN, **options)), kind, stock, delegated)
