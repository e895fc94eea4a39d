# SPDX-License-Identifier: Apache-2.0
"""One small valid model for each operator that LiteRT has a kernel for, in the types that its kernels take."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from litesmith.model import Model, Operator, Quantization, Subgraph, Tensor, constant
from litesmith.model._flatbuffer import Record
from litesmith.model._operators import options_table
from litesmith.model._sparsity import sparsify

_NARROW = {"int8": 3, "uint8": 120, "int16": 0}  # zero points


@dataclass(frozen=True)
class Sample:
    """An operator: inputs as (shape, dtype), arrays for constants, Tensors as they are, None for absent ones."""

    kind: str
    inputs: tuple[Any, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    options: dict[str, Any] = field(default_factory=dict)
    scales: dict[int, float] = field(default_factory=dict)
    version: int = 1
    custom_code: str = ""
    custom_options: bytes | None = None
    subgraphs: tuple[Subgraph, ...] = ()

    def model(self) -> Model:
        """Return the model of the one operator."""
        tensors: list[Tensor] = []
        inputs = tuple(-1 if x is None else _add(tensors, self._tensor(i, x)) for i, x in enumerate(self.inputs))
        outputs = tuple(_add(tensors, self._tensor(100 + i, x)) for i, x in enumerate(self.outputs))
        table = options_table(self.kind)
        options = Record(table, **self.options) if table else None  # CUSTOM has none
        custom = self.custom_code, self.custom_options
        operator = Operator(self.kind, inputs, outputs, options, *custom, version=self.version)
        free = tuple(i for i in inputs if i >= 0 and not tensors[i].is_constant and not tensors[i].is_variable)
        main = Subgraph("main", tuple(tensors), (operator,), free, outputs)
        return Model((main, *self.subgraphs))

    def _tensor(self, position: int, given: Any) -> Tensor:
        if isinstance(given, Tensor):
            tensor = given
        elif isinstance(given, np.ndarray):
            tensor = constant("constant", given)
        else:
            tensor = Tensor("x", *given)
        if tensor.dtype in _NARROW and tensor.quantization is None:
            zero = 0 if tensor.is_constant else _NARROW[tensor.dtype]
            scale = self.scales.get(position, 0.05)
            tensor = replace(tensor, quantization=Quantization((scale,), (zero,)))
        return replace(tensor, name=f"{tensor.name}{position}")


def _add(tensors: list[Tensor], tensor: Tensor) -> int:
    tensors.append(tensor)
    return len(tensors) - 1


def _i(*values: Any, dtype: str = "int32") -> np.ndarray[Any, Any]:
    return np.array(values if len(values) != 1 or not isinstance(values[0], list) else values[0], dtype)


def _scalar(value: Any, dtype: str = "int32") -> np.ndarray[Any, Any]:
    return np.array(value, dtype)


def _w(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    random = np.random.default_rng(len(shape))
    return (random.standard_normal(shape) if dtype[0] == "f" else random.integers(-7, 7, shape)).astype(dtype)


def _variable(shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
    return Tensor("state", shape, dtype, is_variable=True)


def _int4(shape: tuple[int, ...], scales: int) -> Tensor:
    values = _w(shape, "int8")
    return replace(constant("w", values, "int4"), quantization=Quantization((0.1,) * scales, (0,) * scales, 0))


def samples() -> Iterator[Sample]:
    """Yield the samples, many kinds in several types."""
    yield from _elementwise()
    yield from _layers()
    yield from _shapes()
    yield from _indices()
    yield from _recurrent()
    yield from _stablehlo()
    yield from _calls()
    yield from _custom()


def _elementwise() -> Iterator[Sample]:
    shape = (2, 3, 4)
    for kind in ["ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LOG", "LOGISTIC", "LOG_SOFTMAX", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH", "ZEROS_LIKE", "FAKE_QUANT"]:  # fmt: skip
        options = {"SOFTMAX": {"beta": 1.0}, "FAKE_QUANT": {"min": -1.0, "max": 1.0, "num_bits": 8}}.get(kind, {})
        yield Sample(kind, ((shape, "float32"),), ((shape, "float32"),), options)
    for kind in ("ABS", "HARD_SWISH", "LOGISTIC", "RELU", "RELU6", "TANH", "SOFTMAX", "LOG_SOFTMAX", "ELU", "LEAKY_RELU",
                 "GELU", "EXP", "RSQRT", "QUANTIZE"):  # fmt: skip
        options = {"SOFTMAX": {"beta": 1.0}, "LEAKY_RELU": {"alpha": 0.1}}.get(kind, {})
        scale = {"LOGISTIC": 1 / 256, "SOFTMAX": 1 / 256, "TANH": 1 / 128, "LOG_SOFTMAX": 16 / 256}.get(kind, 0.05)
        zero = {"LOGISTIC": -128, "SOFTMAX": -128, "TANH": 0, "LOG_SOFTMAX": 127, "RSQRT": -128}.get(kind, 3)
        output = Tensor("y", shape, "int8", quantization=Quantization((scale,), (zero,)))
        source = Tensor("x", shape, "int8", quantization=Quantization((0.05,), (-128 if kind == "RSQRT" else 3,)))
        yield Sample(kind, (source,), (output,), options)  # type: ignore[arg-type]
    yield Sample("LEAKY_RELU", ((shape, "float32"),), ((shape, "float32"),), {"alpha": 0.2})
    yield Sample("PRELU", ((shape, "float32"), _w((1, 1, 4))), ((shape, "float32"),))
    yield Sample("PRELU", ((shape, "int8"), _w((1, 1, 4), "int8")), ((shape, "int8"),))
    for kind in ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
        for dtype in ("float32", "int8", "int32"):
            yield Sample(
                kind, ((shape, dtype), _w((4,), dtype) | 1 if dtype[0] == "i" else _w((4,))), ((shape, dtype),)
            )
        yield Sample(kind, ((shape, "float32"), (shape, "float32")), ((shape, "float32"),))
    yield Sample("ADD", ((shape, "int16"), (shape, "int16")), ((shape, "int16"),), {"pot_scale_int16": False})
    for kind in ("FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2"):
        yield Sample(kind, ((shape, "float32"), (shape, "float32")), ((shape, "float32"),))
    for kind in ("FLOOR_DIV", "FLOOR_MOD", "POW"):
        yield Sample(kind, ((shape, "int32"), _i(1, 2, 3, 4)), ((shape, "int32"),))
    for kind in ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"):
        for dtype in ("float32", "int8", "int32", "int64"):
            yield Sample(kind, ((shape, dtype), (shape, dtype)), ((shape, "bool"),))
    for kind in ("LOGICAL_AND", "LOGICAL_OR"):
        yield Sample(kind, ((shape, "bool"), (shape, "bool")), ((shape, "bool"),))
    yield Sample("LOGICAL_NOT", ((shape, "bool"),), ((shape, "bool"),))
    yield Sample("BITWISE_XOR", ((shape, "int32"), (shape, "int32")), ((shape, "int32"),))
    yield Sample("RIGHT_SHIFT", ((shape, "int32"), _scalar(1)), ((shape, "int32"),))
    yield Sample("ADD_N", ((shape, "float32"),) * 3, ((shape, "float32"),))
    yield Sample("SELECT", ((shape, "bool"), (shape, "float32"), (shape, "float32")), ((shape, "float32"),))
    yield Sample("SELECT_V2", ((shape, "bool"), (shape, "float32"), _scalar(1, "float32")), ((shape, "float32"),))
    yield Sample(
        "CAST", ((shape, "float32"),), ((shape, "int32"),), {"in_data_type": "FLOAT32", "out_data_type": "INT32"}
    )
    yield Sample("BITCAST", ((shape, "float32"),), ((shape, "int32"),))
    yield Sample("BITCAST", ((shape, "int32"),), (((*shape, 4), "uint8"),))
    yield Sample("QUANTIZE", ((shape, "float32"),), ((shape, "int8"),))
    yield Sample("DEQUANTIZE", ((shape, "int8"),), ((shape, "float32"),))
    yield Sample("DEQUANTIZE", (_w((3, 4), "float16"),), (((3, 4), "float32"),))
    yield Sample("DENSIFY", (sparsify(constant("w", np.diag(_w((8,)))), (4, 1)),), (((8, 8), "float32"),))
    yield Sample("BUCKETIZE", ((shape, "float32"),), ((shape, "int32"),), {"boundaries": (-1.0, 0.0, 1.0)})
    for kind, given, result in (("REAL", "complex64", "float32"), ("IMAG", "complex64", "float32"),
                                ("COMPLEX_ABS", "complex64", "float32")):  # fmt: skip
        yield Sample(kind, ((shape, given),), ((shape, result),))


def _layers() -> Iterator[Sample]:
    window = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    image, out = (1, 5, 5, 3), (1, 5, 5, 6)
    for x, w, b in (("float32", "float32", "float32"), ("int8", "int8", "int32"), ("float32", "int8", "float32"),
                    ("int16", "int8", "int64")):  # fmt: skip
        yield Sample("CONV_2D", ((image, x), _w((6, 3, 3, 3), w), _w((6,), b)), ((out, x),), window)
        yield Sample("CONV_2D", ((image, x), _w((6, 1, 1, 3), w), _w((6,), b)), ((out, x),), window)
        yield Sample("DEPTHWISE_CONV_2D", ((image, x), _w((1, 3, 3, 6), w), _w((6,), b)), ((out, x),),
                     {**window, "depth_multiplier": 2})  # fmt: skip
        bias = replace(
            constant("bias", _w((6,), b)), quantization=Quantization((0.0025,), (0,)) if b[0] == "i" else None
        )
        yield Sample("FULLY_CONNECTED", (((2, 3), x), _w((6, 3), w), bias), (((2, 6), x),))
    yield Sample("FULLY_CONNECTED", (((2, 4), "int8"), _int4((6, 4), 6), None), (((2, 6), "int8"),))
    yield Sample("FULLY_CONNECTED", (((2, 4), "float32"), _int4((6, 4), 6), None), (((2, 6), "float32"),))
    yield Sample(
        "FULLY_CONNECTED", (((2, 2, 4), "float32"), _w((6, 4))), (((2, 2, 6), "float32"),), {"keep_num_dims": True}
    )
    yield Sample("CONV_2D", (((1, 9, 9, 4), "float32"), _w((6, 3, 3, 2)), _w((6,))), (((1, 3, 3, 6), "float32"),),
                 {"padding": "VALID", "stride_w": 2, "stride_h": 2, "dilation_w_factor": 2, "dilation_h_factor": 2})  # fmt: skip
    for x, w in (("float32", "float32"), ("int8", "int8")):
        shape = _i(1, 5, 5, 6)
        yield Sample("TRANSPOSE_CONV", (shape, _w((6, 3, 3, 3), w), (image, x)), ((out, x),), window)
    yield Sample("CONV_3D", (((1, 4, 4, 4, 2), "float32"), _w((2, 2, 2, 2, 3)), _w((3,))), (((1, 4, 4, 4, 3), "float32"),),
                 {"padding": "SAME", "stride_d": 1, "stride_w": 1, "stride_h": 1})  # fmt: skip
    yield Sample("CONV_3D_TRANSPOSE", (_i(1, 4, 4, 4, 3), _w((2, 2, 2, 3, 2)), ((1, 4, 4, 4, 2), "float32")),
                 (((1, 4, 4, 4, 3), "float32"),), {"padding": "SAME", "stride_d": 1, "stride_w": 1, "stride_h": 1})  # fmt: skip
    pool = {**window, "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    for dtype in ("float32", "int8"):
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            yield Sample(kind, ((image, dtype),), (((1, 3, 3, 3), dtype),), pool)
    yield Sample("L2_POOL_2D", ((image, "float32"),), (((1, 3, 3, 3), "float32"),), pool)
    for dtype in ("float32", "int8"):
        yield Sample("BATCH_MATMUL", (((2, 3, 4), dtype), ((2, 4, 5), dtype)), (((2, 3, 5), dtype),))
    yield Sample("BATCH_MATMUL", (((3, 4), "float32"), _w((5, 4))), (((3, 5), "float32"),), {"adj_y": True})
    yield Sample("L2_NORMALIZATION", (((2, 4), "float32"),), (((2, 4), "float32"),))
    yield Sample("LOCAL_RESPONSE_NORMALIZATION", ((image, "float32"),), ((image, "float32"),),
                 {"radius": 1, "bias": 1.0, "alpha": 0.1, "beta": 0.5})  # fmt: skip
    for kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        for dtype in ("float32", "int8"):
            yield Sample(kind, ((image, dtype), _i(7, 8)), (((1, 7, 8, 3), dtype),), {"half_pixel_centers": True})
    yield Sample("RFFT2D", (((2, 4, 8), "float32"), _i(4, 8)), (((2, 4, 5), "complex64"),))
    boxes = ((6, 4), "float32"), ((6,), "float32"), _scalar(3), _scalar(0.5, "float32"), _scalar(0.0, "float32")
    yield Sample("NON_MAX_SUPPRESSION_V4", boxes, (((3,), "int32"), ((), "int32")))
    yield Sample(
        "NON_MAX_SUPPRESSION_V5", (*boxes, _scalar(0.5, "float32")), (((3,), "int32"), ((3,), "float32"), ((), "int32"))
    )


def _shapes() -> Iterator[Sample]:
    x = (2, 3, 4)
    for dtype in ("float32", "int8", "int64"):
        yield Sample("RESHAPE", ((x, dtype), _i(4, -1)), (((4, 6), dtype),))
        yield Sample("TRANSPOSE", ((x, dtype), _i(2, 0, 1)), (((4, 2, 3), dtype),))
        yield Sample("SQUEEZE", (((1, 3, 1), dtype),), (((3,), dtype),), {"squeeze_dims": (0, 2)})
        yield Sample("EXPAND_DIMS", ((x, dtype), _scalar(1)), (((2, 1, 3, 4), dtype),))
        yield Sample("CONCATENATION", ((x, dtype), (x, dtype)), (((2, 6, 4), dtype),), {"axis": 1})
        yield Sample("PACK", ((x, dtype), (x, dtype)), (((2, 2, 3, 4), dtype),), {"values_count": 2, "axis": 1})
        yield Sample("SPLIT", (_scalar(2), (x, dtype)), (((2, 3, 2), dtype),) * 2, {"num_splits": 2})
        yield Sample(
            "SPLIT_V", ((x, dtype), _i(1, -1), _scalar(1)), (((2, 1, 4), dtype), ((2, 2, 4), dtype)), {"num_splits": 2}
        )
        yield Sample("SLICE", ((x, dtype), _i(0, 1, 1), _i(2, -1, 2)), (((2, 2, 2), dtype),))
        yield Sample("STRIDED_SLICE", ((x, dtype), _i(0, 1, 0), _i(2, 3, 4), _i(1, 1, 2)), (((2, 2, 2), dtype),))
        yield Sample("PAD", ((x, dtype), _i([[0, 0], [1, 2], [0, 1]])), (((2, 6, 5), dtype),))
        yield Sample("MIRROR_PAD", ((x, dtype), _i([[0, 0], [1, 2], [0, 1]])), (((2, 6, 5), dtype),))
        yield Sample("TILE", ((x, dtype), _i(1, 2, 1)), (((2, 6, 4), dtype),))
        yield Sample("BROADCAST_TO", (((3, 1), dtype), _i(2, 3, 4)), ((x, dtype),), version=2)
        yield Sample("REVERSE_V2", ((x, dtype), _i(1, dtype="int32").reshape(1)), ((x, dtype),))
        yield Sample("GATHER", ((x, dtype), _i(0, 2, 1)), (((2, 3, 4), dtype),), {"axis": 1})
        yield Sample("GATHER_ND", ((x, dtype), _i([[0, 1], [1, 2]])), (((2, 4), dtype),))
        yield Sample("SCATTER_ND", (_i([[1], [3]]), ((2, 4), dtype), _i(5, 4)), (((5, 4), dtype),))
        yield Sample("DYNAMIC_UPDATE_SLICE", ((x, dtype), ((1, 2, 2), dtype), _i(1, 0, 1)), ((x, dtype),))
        yield Sample("DEPTH_TO_SPACE", (((1, 2, 2, 8), dtype),), (((1, 4, 4, 2), dtype),), {"block_size": 2})
        yield Sample("SPACE_TO_DEPTH", (((1, 4, 4, 2), dtype),), (((1, 2, 2, 8), dtype),), {"block_size": 2})
        yield Sample(
            "SPACE_TO_BATCH_ND", (((1, 4, 4, 2), dtype), _i(2, 2), _i([[0, 0], [1, 1]])), (((4, 2, 3, 2), dtype),)
        )
        yield Sample(
            "BATCH_TO_SPACE_ND", (((4, 2, 3, 2), dtype), _i(2, 2), _i([[0, 0], [1, 1]])), (((1, 4, 4, 2), dtype),)
        )
        yield Sample("FILL", (_i(2, 3), ((), dtype)), (((2, 3), dtype),))
        yield Sample("MATRIX_DIAG", (((2, 3), dtype),), (((2, 3, 3), dtype),))
        yield Sample("MATRIX_SET_DIAG", ((x, dtype), ((2, 3), dtype)), ((x, dtype),))
        yield Sample("DILATE", (((2, 3), dtype), _i(1, 2), _scalar(0, dtype)), (((2, 5), dtype),))
    for dtype in ("float32", "int8", "int32"):
        yield Sample("UNPACK", ((x, dtype),), (((3, 4), dtype),) * 2, {"num": 2, "axis": 0})
    yield Sample(
        "PADV2", ((x, "float32"), _i([[0, 0], [1, 2], [0, 1]]), _scalar(1, "float32")), (((2, 6, 5), "float32"),)
    )
    yield Sample("SHAPE", ((x, "float32"),), (((3,), "int32"),), {"out_type": "INT32"})
    yield Sample("RANK", ((x, "float32"),), (((), "int32"),))
    yield Sample("RANGE", (_scalar(0), _scalar(5), _scalar(2)), (((3,), "int32"),))
    yield Sample("BROADCAST_ARGS", (_i(2, 1), _i(3)), (((2,), "int32"),))
    for kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        for dtype in ("float32", "int8", "int32"):
            yield Sample(kind, ((x, dtype), _i(0, 2)), (((3,), dtype),))
        yield Sample(kind, (((1, 4, 4, 3), "float32"), _i(1, 2)), (((1, 1, 1, 3), "float32"),), {"keep_dims": True})
    for kind in ("REDUCE_ALL", "REDUCE_ANY"):
        yield Sample(kind, ((x, "bool"), _i(1).reshape(1)), (((2, 4), "bool"),))


def _indices() -> Iterator[Sample]:
    x = (2, 3, 4)
    for kind in ("ARG_MAX", "ARG_MIN"):
        for dtype in ("float32", "int8"):
            yield Sample(kind, ((x, dtype), _scalar(1)), (((2, 4), "int64"),), {"output_type": "INT64"})
    yield Sample("CUMSUM", ((x, "float32"), _scalar(1)), ((x, "float32"),))
    yield Sample("TOPK_V2", ((x, "float32"), _scalar(2)), (((2, 3, 2), "float32"), ((2, 3, 2), "int32")))
    yield Sample(
        "ONE_HOT",
        (((3,), "int32"), _scalar(4), _scalar(1, "float32"), _scalar(0, "float32")),
        (((3, 4), "float32"),),
        {"axis": -1},
    )
    yield Sample("WHERE", ((x, "bool"),), (((1, 3), "int64"),))
    yield Sample("UNIQUE", (((6,), "int32"),), (((6,), "int32"), ((6,), "int32")))
    yield Sample("SEGMENT_SUM", (((4, 2), "float32"), _i(0, 0, 1, 2)), (((3, 2), "float32"),))
    for name in ("MAX", "MIN", "PROD", "SUM"):
        yield Sample(
            f"UNSORTED_SEGMENT_{name}", (((4, 2), "float32"), _i(0, 2, 1, 0), _scalar(3)), (((3, 2), "float32"),)
        )
    yield Sample(
        "SPARSE_TO_DENSE",
        (_i([[0, 1], [1, 2]]), _i(2, 3), ((2,), "float32"), _scalar(0, "float32")),
        (((2, 3), "float32"),),
    )
    yield Sample("REVERSE_SEQUENCE", (((2, 4), "float32"), _i(2, 3)), (((2, 4), "float32"),), {"seq_dim": 1})
    yield Sample("EMBEDDING_LOOKUP", (_i(0, 2), _w((4, 3))), (((2, 3), "float32"),))
    yield Sample("EMBEDDING_LOOKUP", (_i(0, 2), _w((4, 3), "int8")), (((2, 3), "float32"),))
    yield Sample("EMBEDDING_LOOKUP_SPARSE", (_i(1, 3, 0), _i([[0, 0], [2, 0], [2, 1]]), _i(3, 2), _w((3,)), _w((4, 2))),
                 (((3, 2), "float32"),), {"combiner": "MEAN"})  # fmt: skip
    yield Sample("HASHTABLE_LOOKUP", (_i(1, 5), _i(0, 1, 2), _w((3, 4))), (((2, 4), "float32"), ((2,), "uint8")))
    yield Sample("LSH_PROJECTION", (_w((3, 2)), ((4, 2), "int32"), _w((4,))), (((6,), "int32"),), {"type": "DENSE"})
    yield Sample("MULTINOMIAL", (((2, 5), "float32"), _scalar(3)), (((2, 3), "int32"),))
    for kind in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        yield Sample(kind, (_i(2, 3),), (((2, 3), "float32"),), {"seed": 1, "seed2": 2})
    words = constant("words", np.array([b"to be or not"], object), "string")
    yield Sample(
        "SKIP_GRAM", (words,), (((1,), "string"),), {"ngram_size": 2, "max_skip_size": 1, "include_all_ngrams": True}
    )
    yield Sample(
        "GATHER", (constant("s", np.array([b"a", b"bc", b""], object), "string"), _i(2, 0)), (((2,), "string"),)
    )
    yield Sample("EQUAL", (((3,), "string"), ((3,), "string")), (((3,), "bool"),))


def _recurrent() -> Iterator[Sample]:
    batch, features, units, time = 1, 3, 4, 2
    cell = (_w((units, features)), _w((units, units)), _w((units,)), _variable((batch, units)))
    yield Sample(
        "RNN",
        (((batch, features), "float32"), *cell),
        (((batch, units), "float32"),),
        {"fused_activation_function": "RELU"},
    )
    yield Sample("UNIDIRECTIONAL_SEQUENCE_RNN", (((time, batch, features), "float32"), *cell), (((time, batch, units), "float32"),),
                 {"fused_activation_function": "RELU", "time_major": True})  # fmt: skip
    both = (*cell, *cell, None, None, None)
    yield Sample("BIDIRECTIONAL_SEQUENCE_RNN", (((time, batch, features), "float32"), *both), (((time, batch, units), "float32"),) * 2,
                 {"fused_activation_function": "RELU", "time_major": True})  # fmt: skip
    yield Sample("SVDF", (((batch, features), "float32"), _w((8, features)), _w((8, 4)), _w((4,)), _variable((batch, 32))),
                 (((batch, 4), "float32"),), {"rank": 2})  # fmt: skip
    yield Sample("SVDF", (((batch, features), "int8"), _w((8, features), "int8"), _w((8, 4), "int16"), _w((4,), "int32"),
                          _variable((batch, 32), "int16")), (((batch, 4), "int8"),), {"rank": 2, "fused_activation_function": "RELU"})  # fmt: skip
    for dtype in ("float32", "int8"):
        weights = (*(_w((units, features), dtype) for _ in range(4)), *(_w((units, units), dtype) for _ in range(4)))
        gates = (*weights, None, None, None, *(_w((units,)) for _ in range(4)), None, None)
        states = (_variable((batch, units)), _variable((batch, units)))
        options = {"fused_activation_function": "TANH"}
        yield Sample("LSTM", (((batch, features), "float32"), *gates, *states), (((batch, units), "float32"),), options)
        yield Sample("UNIDIRECTIONAL_SEQUENCE_LSTM", (((batch, time, features), "float32"), *gates, *states, None, None, None, None),
                     (((batch, time, units), "float32"),), options)  # fmt: skip
        yield Sample("BIDIRECTIONAL_SEQUENCE_LSTM",
                     (((time, batch, features), "float32"), *gates, *gates, *states, *states, *(None,) * 9),
                     (((time, batch, units), "float32"),) * 2, {**options, "time_major": True})  # fmt: skip
    basic = (((batch, features), "float32"), ((batch, units), "float32"), _w((4 * units, features + units)), _w((4 * units,)),
             ((batch, units), "float32"))  # fmt: skip
    outputs = (((batch, units), "float32"),) * 2 + (
        ((batch, units + features), "float32"),
        ((batch, 4 * units), "float32"),
    )
    yield Sample("LSTM", basic, outputs, {"kernel_type": "BASIC", "fused_activation_function": "TANH"})


def _body(kind: str, dtype: str = "float32", shape: tuple[int, ...] = ()) -> Subgraph:
    names = tuple(Tensor(name, shape, dtype) for name in "abc")
    return Subgraph(f"body_{kind.lower()}", names, (Operator(kind, (0, 1), (2,)),), (0, 1), (2,))


def _stablehlo() -> Iterator[Sample]:
    x = (2, 3)
    for kind in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"):
        yield Sample(f"STABLEHLO_{kind}", ((x, "float32"), (x, "float32")), ((x, "float32"),))
    yield Sample("STABLEHLO_AND", ((x, "int32"), (x, "int32")), ((x, "int32"),))
    yield Sample("STABLEHLO_SHIFT_LEFT", ((x, "int32"), (x, "int32")), ((x, "int32"),))
    pads = {"edge_padding_low": (1, 0), "edge_padding_high": (0, 2), "interior_padding": (0, 1)}
    yield Sample("STABLEHLO_PAD", ((x, "float32"), _scalar(0, "float32")), (((3, 7), "float32"),), pads)
    gather = {
        "offset_dims": (1,),
        "collapsed_slice_dims": (0,),
        "start_index_map": (0,),
        "index_vector_dim": 1,
        "slice_sizes": (1, 3),
    }
    yield Sample("STABLEHLO_GATHER", ((x, "float32"), _i([[1], [0]])), (((2, 3), "float32"),), gather)
    scatter = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1,
               "update_computation_subgraph_index": 1}  # fmt: skip
    yield Sample("STABLEHLO_SCATTER", ((x, "float32"), _i([[1], [0]]), ((2, 3), "float32")), ((x, "float32"),), scatter,
                 subgraphs=(_body("STABLEHLO_ADD"),))  # fmt: skip
    window = {"window_dimensions": (1, 2), "window_strides": (1, 1), "base_dilations": (1, 1), "window_dilations": (1, 1),
              "padding": (0, 0, 0, 0), "body_subgraph_index": 1}  # fmt: skip
    yield Sample("STABLEHLO_REDUCE_WINDOW", ((x, "float32"), _scalar(0, "float32")), (((2, 2), "float32"),), window,
                 subgraphs=(_body("STABLEHLO_ADD"),))  # fmt: skip
    longs = _i(1, 2, dtype="int64"), _i(1, 1, dtype="int64"), _i(1, 1, dtype="int64")
    yield Sample(
        "REDUCE_WINDOW",
        ((x, "float32"), _scalar(0, "float32"), *longs),
        (((2, 2), "float32"),),
        {"reduce_function": "ADD"},
    )
    yield Sample(
        "STABLEHLO_RNG_BIT_GENERATOR",
        (((2,), "uint64"),),
        (((2,), "uint64"), ((4,), "uint32")),
        {"algorithm": "PHILOX"},
    )


def _calls() -> Iterator[Sample]:
    x = (2, 3)
    then, other = _body("ADD", shape=x), _body("MUL", shape=x)
    pair = ((x, "float32"), (x, "float32"))
    yield Sample("IF", (((), "bool"), *pair), ((x, "float32"),), {"then_subgraph_index": 1, "else_subgraph_index": 2},
                 subgraphs=(then, other))  # fmt: skip
    yield Sample(
        "STABLEHLO_CASE",
        (((), "int32"), *pair),
        ((x, "float32"),),
        {"branch_subgraph_indices": (1, 2)},
        subgraphs=(then, other),
    )
    yield Sample(
        "STABLEHLO_COMPOSITE",
        pair,
        ((x, "float32"),),
        {"name": "odml.sum", "decomposition_subgraph_index": 1, "composite_attributes": b"\0\0\1\0\0$\1"},
        subgraphs=(then,),
    )
    ten = constant("ten", _scalar(10))
    counter = Tensor("i", (), "int32"), Tensor("y", x)
    condition = Subgraph(
        "cond", (*counter, ten, Tensor("more", (), "bool")), (Operator("LESS", (0, 2), (3,)),), (0, 1), (3,)
    )
    body = Subgraph("body", (*counter, constant("one", _scalar(1)), Tensor("j", (), "int32"), Tensor("z", x)),
                    (Operator("ADD", (0, 2), (3,)), Operator("ADD", (1, 1), (4,))), (0, 1), (3, 4))  # fmt: skip
    yield Sample("WHILE", (((), "int32"), (x, "float32")), (((), "int32"), (x, "float32")),
                 {"cond_subgraph_index": 1, "body_subgraph_index": 2}, subgraphs=(condition, body))  # fmt: skip


def _custom() -> Iterator[Sample]:
    flexbuffers = importlib.import_module("flatbuffers.flexbuffers")

    def custom(code: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...], **options: Any) -> Sample:
        return Sample("CUSTOM", inputs, outputs, custom_code=code, custom_options=bytes(flexbuffers.Dumps(options)))

    detections = ((1, 6, 4), "float32"), ((1, 6), "float32"), ((1, 6), "float32"), ((1,), "float32")
    for regular in (False, True):
        yield custom("TFLite_Detection_PostProcess", (((1, 9, 4), "float32"), ((1, 9, 4), "float32"), np.abs(_w((9, 4))) + 0.5), detections,
                     max_detections=3, max_classes_per_detection=2, detections_per_class=2, use_regular_nms=regular,
                     nms_score_threshold=0.0, nms_iou_threshold=0.5, num_classes=3, y_scale=10.0, x_scale=10.0,
                     h_scale=5.0, w_scale=5.0)  # fmt: skip
    yield custom("AudioSpectrogram", (((40, 2), "float32"),), (((2, 4, 9), "float32"),), window_size=16, stride=8,
                 magnitude_squared=True)  # fmt: skip
    yield custom("Mfcc", (((1, 4, 129), "float32"), _i(16000)), (((1, 4, 6), "float32"),), upper_frequency_limit=4000,
                 lower_frequency_limit=20, filterbank_channel_count=20, dct_coefficient_count=6)  # fmt: skip
    yield custom("aeq.hadamard_rotation", (((3, 16), "float32"),), (((3, 16), "float32"),), hadamard_size=8,
                 random_binary_vector=[1, -1])  # fmt: skip
    yield custom("NumericVerify", (((2, 3), "int8"), ((2, 3), "float32")), (((2, 3), "float32"),), tolerance=5.0,
                 log_if_failed=False)  # fmt: skip


def stateful_models() -> Iterator[tuple[str, Model]]:
    """Yield models of operators that only make sense together: resource variables and tables."""
    handle, value = Tensor("handle", (), "resource"), constant("start", _w((2, 3)))
    shared = Record("VarHandleOptions", container="", shared_name="v")
    start = Subgraph(
        "init", (handle, value), (Operator("VAR_HANDLE", (), (0,), shared), Operator("ASSIGN_VARIABLE", (0, 1), ()))
    )
    main = Subgraph(
        "main",
        (handle, Tensor("x", (2, 3)), Tensor("old", (2, 3)), Tensor("new", (2, 3))),
        (
            Operator("CALL_ONCE", (), (), Record("CallOnceOptions", init_subgraph_index=1)),
            Operator("VAR_HANDLE", (), (0,), shared),
            Operator("READ_VARIABLE", (0,), (2,)),
            Operator("ADD", (1, 2), (3,)),
            Operator("ASSIGN_VARIABLE", (0, 3), ()),
        ),
        (1,),
        (3,),
    )
    yield "variables", Model((main, start))
    table = Record("HashtableOptions", table_id=1, key_dtype="INT64", value_dtype="STRING")
    keys, words = (
        constant("keys", _i(1, 2, dtype="int64")),
        constant("words", np.array([b"one", b"two"], object), "string"),
    )
    fill = Subgraph("init", (replace(handle, shape=(1,)), keys, words),
                    (Operator("HASHTABLE", (), (0,), table), Operator("HASHTABLE_IMPORT", (0, 1, 2), ())))  # fmt: skip
    find = Subgraph(
        "main",
        (replace(handle, shape=(1,)), Tensor("query", (3,), "int64"), constant("none", np.array([b"?"], object), "string"),
         Tensor("found", (3,), "string"), Tensor("size", (1,), "int64")),
        (
            Operator("CALL_ONCE", (), (), Record("CallOnceOptions", init_subgraph_index=1)),
            Operator("HASHTABLE", (), (0,), table),
            Operator("HASHTABLE_FIND", (0, 1, 2), (3,)),
            Operator("HASHTABLE_SIZE", (0,), (4,)),
        ),
        (1,),
        (3, 4),
    )  # fmt: skip
    yield "table", Model((find, fill))
