# SPDX-License-Identifier: Apache-2.0
"""Every operator in the table really runs in the types the table claims, close to float, with and without XNNPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import KERNELS, run, sqnr_db

from litesmith.model import Builder, Model, Value
from litesmith.optimize import quantize
from litesmith.optimize._rules import RULES

I32 = np.int32
_Apply = Callable[[Builder, Value, Value], Any]


def _unary(kind: str, **options: Any) -> _Apply:
    return lambda b, x, _y: b.op(kind, x, **options)


def _binary(kind: str, **options: Any) -> _Apply:
    return lambda b, x, y: b.op(kind, x, y, **options)


def _with(kind: str, *arrays: Any, **options: Any) -> _Apply:
    return lambda b, x, _y: b.op(kind, x, *(np.array(a, I32) for a in arrays), **options)


_POOL: dict[str, Any] = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "VALID"}
_PADS = [[0, 0], [1, 1], [2, 0], [0, 0]]

CASES: dict[str, _Apply] = {
    "CONV_2D": lambda b, x, _: b.conv2d(x, 6, kernel=3, activation="RELU6"),
    "DEPTHWISE_CONV_2D": lambda b, x, _: b.depthwise_conv2d(x, activation="RELU"),
    "FULLY_CONNECTED": lambda b, x, _: b.fully_connected(x, 5, keep_num_dims=True),
    "TRANSPOSE_CONV": lambda b, x, _: b.transpose_conv(x, 6),
    "BATCH_MATMUL": lambda b, x, y: b.op("BATCH_MATMUL", x, y, adj_y=True),
    "EMBEDDING_LOOKUP": lambda b, x, _: b.op(
        "ADD", x, b.op("EMBEDDING_LOOKUP", np.array([1], I32), b.random.standard_normal((3, 8, 8, 4), np.float32))
    ),
    "PRELU": lambda b, x, _: b.op("PRELU", x, np.full((1, 1, 4), 0.3, np.float32)),
    "ADD": _binary("ADD", fused_activation_function="RELU"),
    "SUB": _binary("SUB"),
    "MUL": _binary("MUL"),
    "SQUARED_DIFFERENCE": _binary("SQUARED_DIFFERENCE"),
    "SQUARE": _unary("SQUARE"),
    "MAXIMUM": _binary("MAXIMUM"),
    "MINIMUM": _binary("MINIMUM"),
    "ABS": _unary("ABS"),
    "ELU": _unary("ELU"),
    "EXP": _unary("EXP"),
    "GELU": _unary("GELU"),
    "HARD_SWISH": _unary("HARD_SWISH"),
    "L2_NORMALIZATION": _unary("L2_NORMALIZATION"),
    "LEAKY_RELU": _unary("LEAKY_RELU", alpha=0.2),
    "LOG": lambda b, x, _: b.op("LOG", b.op("ADD", b.op("RELU", x), np.ones((1,), np.float32))),
    "LOGISTIC": _unary("LOGISTIC"),
    "LOG_SOFTMAX": _unary("LOG_SOFTMAX"),
    "RELU": _unary("RELU"),
    "RELU6": _unary("RELU6"),
    "RELU_0_TO_1": _unary("RELU_0_TO_1"),
    "RELU_N1_TO_1": _unary("RELU_N1_TO_1"),
    "RSQRT": lambda b, x, _: b.op("RSQRT", b.op("ADD", b.op("RELU", x), np.ones((1,), np.float32))),
    "SOFTMAX": _unary("SOFTMAX", beta=1.0),
    "SQRT": lambda b, x, _: b.op("SQRT", b.op("RELU", x)),
    "TANH": _unary("TANH"),
    "AVERAGE_POOL_2D": _unary("AVERAGE_POOL_2D", **_POOL),
    "MAX_POOL_2D": _unary("MAX_POOL_2D", **_POOL),
    "MEAN": _with("MEAN", [1, 2]),
    "REDUCE_MAX": _with("REDUCE_MAX", [1, 2]),
    "REDUCE_MIN": _with("REDUCE_MIN", [1, 2]),
    "SUM": _with("SUM", [1]),
    "TOPK_V2": lambda b, x, _: b.op("TOPK_V2", x, np.array(2, I32))[0],
    "BATCH_TO_SPACE_ND": lambda b, x, _: b.op(
        "BATCH_TO_SPACE_ND",
        b.op("SPACE_TO_BATCH_ND", x, np.array([2, 2], I32), np.zeros((2, 2), I32), outputs=[((4, 4, 4, 4), "float32")]),
        np.array([2, 2], I32),
        np.zeros((2, 2), I32),
        outputs=[((1, 8, 8, 4), "float32")],
    ),
    "SPACE_TO_BATCH_ND": lambda b, x, _: b.op(
        "SPACE_TO_BATCH_ND", x, np.array([2, 2], I32), np.zeros((2, 2), I32), outputs=[((4, 4, 4, 4), "float32")]
    ),
    "BROADCAST_TO": lambda b, x, _: b.op("BROADCAST_TO", x, np.array([2, 8, 8, 4], I32), version=2),
    "CONCATENATION": _binary("CONCATENATION", axis=3),
    "DEPTH_TO_SPACE": _unary("DEPTH_TO_SPACE", block_size=2),
    "SPACE_TO_DEPTH": _unary("SPACE_TO_DEPTH", block_size=2),
    "DYNAMIC_UPDATE_SLICE": lambda b, x, y: b.op(
        "DYNAMIC_UPDATE_SLICE", x, b.op("SLICE", y, np.zeros(4, I32), np.array([1, 2, 2, 4], I32)), np.ones(4, I32) * 0
    ),
    "EXPAND_DIMS": _with("EXPAND_DIMS", 0),
    "GATHER": _with("GATHER", [3, 1], axis=1),
    "GATHER_ND": lambda b, x, _: b.op(
        "GATHER_ND", x, np.array([[0, 1], [0, 5]], I32), outputs=[((2, 8, 4), "float32")]
    ),
    "MIRROR_PAD": _with("MIRROR_PAD", _PADS, mode="REFLECT"),
    "PACK": _binary("PACK", axis=0, values_count=2),
    "PAD": _with("PAD", _PADS),
    "PADV2": lambda b, x, _: b.op(
        "MAX_POOL_2D",
        b.op("PADV2", x, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], I32), np.array(-np.inf, np.float32)),
        **_POOL,
    ),
    "RESHAPE": _with("RESHAPE", [1, 64, 4]),
    "RESIZE_BILINEAR": _with("RESIZE_BILINEAR", [12, 12], half_pixel_centers=True),
    "RESIZE_NEAREST_NEIGHBOR": _with("RESIZE_NEAREST_NEIGHBOR", [16, 16]),
    "REVERSE_V2": _with("REVERSE_V2", [1]),
    "SELECT": lambda b, x, y: b.op("SELECT", b.op("GREATER", x, y), x, y),
    "SELECT_V2": lambda b, x, y: b.op("SELECT_V2", b.op("GREATER", x, y), x, y),
    "SLICE": _with("SLICE", [0, 1, 2, 0], [1, 4, 4, 4]),
    "SPLIT": lambda b, x, _: b.op("ADD", *b.op("SPLIT", np.array(3, I32), x, num_splits=2)),
    "SPLIT_V": lambda b, x, _: b.op("MUL", *b.op("SPLIT_V", x, np.array([2, 2], I32), np.array(3, I32), num_splits=2)),
    "SQUEEZE": _unary("SQUEEZE", squeeze_dims=(0,)),
    "STRIDED_SLICE": _with("STRIDED_SLICE", [0, 0, 0, 0], [1, 8, 8, 4], [1, 2, 2, 1]),
    "TILE": _with("TILE", [1, 2, 1, 1]),
    "TRANSPOSE": _with("TRANSPOSE", [0, 2, 1, 3]),
    "UNPACK": lambda b, x, _: b.op("ADD", *b.op("UNPACK", x, axis=1, num=8)[:2]),
}
NO_REAL_RESULT = {"ARG_MAX", "ARG_MIN", "EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
LEAST_DB = {"int8": 22.0, "int16x8": 55.0}
COARSE = {
    "L2_NORMALIZATION",
    "SOFTMAX",
    "LOG_SOFTMAX",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "FULLY_CONNECTED",
    "TRANSPOSE_CONV",
    "RESIZE_BILINEAR",
}


def _model(kind: str) -> Model:
    b = Builder(kind, seed=5)
    x, y = b.input("x", (1, 8, 8, 4)), b.input("y", (1, 8, 8, 4))
    result = CASES[kind](b, x, y)
    return b.build({"result": result, "unused": b.op("RELU", y)})


def test_every_rule_has_a_case() -> None:
    assert set(CASES) | NO_REAL_RESULT == set(RULES)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_operator_runs_in_integers(kind: str, scheme: str, make_samples: Callable[..., list[Any]]) -> None:
    model = _model(kind)
    samples = make_samples(model)
    version = RULES[kind].int8 if scheme == "int8" else RULES[kind].int16
    forced = [f"{scheme}:{kind}"] if RULES[kind].fragile else []

    quantized = quantize(model, scheme=scheme, data=samples, head="same", method="minmax", rules=forced, recover=())

    entries = [op for op in quantized.coverage.operators if op.kind == kind]
    reference = run(model, samples, kernels="builtin")
    if version is None:
        assert all(f"no int16 kernel for {kind}" in op.reason for op in entries)
        assert all(sqnr_db(reference, run(quantized.model, samples, kernels=k)) > 40 for k in KERNELS)
        return
    if kind != "EMBEDDING_LOOKUP":  # of constants only: it may stay float
        assert [op.reason for op in entries] == [""] * len(entries)
    least = 30.0 if scheme == "int16x8" and kind in COARSE else LEAST_DB[scheme]
    for kernels in KERNELS:
        assert sqnr_db(reference, run(quantized.model, samples, kernels=kernels)) > least


@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
def test_argmax_reads_integers(kind: str, make_samples: Callable[..., list[Any]]) -> None:
    b = Builder(kind)
    x = b.input("x", (1, 8, 8, 4))
    model = b.build({"index": b.op(kind, b.op("RELU6", x), np.array(3, I32), output_type="INT32")})
    samples = make_samples(model)

    quantized = quantize(model, data=samples)

    assert not quantized.coverage.left_float
    same = [np.mean(a[0] == b[0]) for a, b in zip(run(model, samples), run(quantized.model, samples), strict=True)]
    assert np.mean(same) > 0.9


def test_tensors_of_tied_operators_share_a_scale(make_samples: Callable[..., list[Any]]) -> None:
    b = Builder("tied")
    x, y = b.input("x", (1, 8, 8, 4)), b.input("y", (1, 8, 8, 4))
    small, large = b.op("RELU6", x), b.op("MUL", y, np.full((1,), 30.0, np.float32))
    model = b.build({"out": b.op("MAX_POOL_2D", b.op("CONCATENATION", small, large, axis=3), **_POOL)})

    graph = quantize(model, data=make_samples(model)).model.main

    concatenation = next(op for op in graph.operators if op.kind == "CONCATENATION")
    forms = {graph.tensors[t].quantization for t in (*concatenation.inputs, *concatenation.outputs)}
    assert len(forms) == 1


def test_a_fixed_scale_is_not_forced_on_others(make_samples: Callable[..., list[Any]]) -> None:
    b = Builder("fixed")
    x = b.input("x", (1, 8, 8, 4))
    wide = b.op("MUL", x, np.full((1,), 50.0, np.float32))
    model = b.build({"out": b.op("CONCATENATION", b.op("LOGISTIC", x), wide, axis=3)})
    samples = make_samples(model)

    quantized = quantize(model, data=samples)

    assert quantized.coverage.conversions["QUANTIZE (rescale)"] == 1
    assert sqnr_db(run(model, samples), run(quantized.model, samples)) > 35
