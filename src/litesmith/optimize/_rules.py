# SPDX-License-Identifier: Apache-2.0
"""What LiteRT's kernels allow: for each operator, which types it runs in, and what ties its scales together.

The table follows LiteRT's quantization specification and its kernels (tflite/kernels/*.cc, the operator versions of
tflite/converter/tools/versioning/op_version.cc). An operator that is not in the table runs in float only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ALL: tuple[int, ...] | None = None
"""Every input or output of the operator."""


@dataclass(frozen=True)
class KernelRule:
    """How one kind of operator is quantized.

    Attributes:
        int8: the version of the operator for int8, None where there is no int8 kernel.
        int16: the version for int16 activations, None where there is no such kernel.
        inputs: positions of the inputs that are quantized like activations (constants among them too); None: all.
        outputs: positions of the outputs that are real; None: all.
        weight: position of the weights, symmetric int8 per channel along ``axis`` where constant.
        axis: along which the weights have a scale for each index.
        bias: position of the bias.
        taps: axes of the weights that run over neighbouring positions.
        tied: inputs and outputs must have the same scale and zero point.
        moves: the operator only moves data, so it may follow the type of its neighbours.
        limits: constants beyond the range of the data may saturate, as the result does not change.
        fixed8, fixed16: scale and zero point that the kernel demands of its output.
        fragile: an int8 kernel exists, but the function spans too many orders of magnitude to be kept by default.
    """

    int8: int | None = 1
    int16: int | None = None
    inputs: tuple[int, ...] | None = (0,)
    outputs: tuple[int, ...] | None = ALL
    weight: int | None = None
    axis: int = 0
    bias: int | None = None
    taps: tuple[int, ...] = ()
    tied: bool = False
    moves: bool = False
    limits: bool = False
    fixed8: tuple[float, int] | None = None
    fixed16: tuple[float, int] | None = None
    fragile: bool = False

    def version(self, domain: str) -> int | None:
        """Return the version of the operator for activations of this type."""
        return self.int8 if domain == "int8" else self.int16

    def fixed(self, domain: str) -> tuple[float, int] | None:
        """Return what the kernel demands of its output in this type."""
        return self.fixed8 if domain == "int8" else self.fixed16


_MOVE = KernelRule(tied=True, moves=True)
_PROBABILITY = KernelRule(2, 3, fixed8=(1 / 256, -128), fixed16=(1 / 32768, 0))
_LOOKUP = KernelRule(2, 2)

RULES: dict[str, KernelRule] = {
    # weights
    "CONV_2D": KernelRule(3, 4, weight=1, axis=0, bias=2, taps=(1, 2)),
    "DEPTHWISE_CONV_2D": KernelRule(3, 5, weight=1, axis=3, bias=2, taps=(1, 2)),
    "FULLY_CONNECTED": KernelRule(4, 7, weight=1, axis=0, bias=2),
    "TRANSPOSE_CONV": KernelRule(2, 3, inputs=(2,), weight=1, axis=0, bias=3),
    "BATCH_MATMUL": KernelRule(2, 3, inputs=(0, 1)),
    "EMBEDDING_LOOKUP": KernelRule(1, None, inputs=(1,), tied=True),
    "PRELU": KernelRule(1, None, inputs=(0, 1)),
    # arithmetic of two tensors
    "ADD": KernelRule(2, 3, inputs=(0, 1)),
    "SUB": KernelRule(2, 5, inputs=(0, 1)),
    "MUL": KernelRule(2, 4, inputs=(0, 1)),
    "SQUARED_DIFFERENCE": KernelRule(2, None, inputs=(0, 1)),
    "MAXIMUM": KernelRule(2, 4, inputs=(0, 1), tied=True, limits=True),
    "MINIMUM": KernelRule(2, 4, inputs=(0, 1), tied=True, limits=True),
    "EQUAL": KernelRule(2, None, inputs=(0, 1), outputs=()),
    "NOT_EQUAL": KernelRule(2, None, inputs=(0, 1), outputs=()),
    "GREATER": KernelRule(2, None, inputs=(0, 1), outputs=()),
    "GREATER_EQUAL": KernelRule(2, None, inputs=(0, 1), outputs=()),
    "LESS": KernelRule(2, None, inputs=(0, 1), outputs=()),
    "LESS_EQUAL": KernelRule(2, None, inputs=(0, 1), outputs=()),
    # functions of one tensor
    "ABS": KernelRule(2, 3),
    "ELU": KernelRule(1, None),
    "EXP": replace(_LOOKUP, fragile=True),
    "GELU": KernelRule(2, None),
    "HARD_SWISH": KernelRule(1, 4),  # in int16 it becomes ADD and MUL
    "L2_NORMALIZATION": KernelRule(2, None, fixed8=(1 / 128, 0)),
    "LEAKY_RELU": KernelRule(2, 2),
    "LOG": replace(_LOOKUP, fragile=True),
    "LOGISTIC": _PROBABILITY,
    "LOG_SOFTMAX": KernelRule(2, None, fixed8=(16 / 256, 127)),
    "RELU": KernelRule(2, 3),
    "RELU6": KernelRule(2, 3),
    "RELU_0_TO_1": KernelRule(1, None),
    "RELU_N1_TO_1": KernelRule(1, None),
    "RSQRT": KernelRule(2, 3, fragile=True),
    "SQUARE": KernelRule(2, 4),  # becomes a MUL with itself
    "SOFTMAX": _PROBABILITY,
    "SQRT": KernelRule(2, 2, fragile=True),
    "TANH": KernelRule(2, 3, fixed8=(1 / 128, 0), fixed16=(1 / 32768, 0)),
    # reductions
    "ARG_MAX": KernelRule(2, None, outputs=()),
    "ARG_MIN": KernelRule(2, None, outputs=()),
    "AVERAGE_POOL_2D": KernelRule(2, 3, tied=True),
    "MAX_POOL_2D": KernelRule(2, 3, tied=True),
    "MEAN": KernelRule(2, 3),
    "REDUCE_MAX": KernelRule(2, 3, tied=True),
    "REDUCE_MIN": KernelRule(2, 3, tied=True),
    "SUM": KernelRule(2, None),
    "TOPK_V2": KernelRule(2, 3, outputs=(0,), tied=True),
    # movement of data
    "BATCH_TO_SPACE_ND": replace(_MOVE, int8=2, int16=4),
    "BROADCAST_TO": replace(_MOVE, int8=3, int16=3),
    "CONCATENATION": replace(_MOVE, int8=2, int16=3, inputs=ALL),
    "DEPTH_TO_SPACE": replace(_MOVE, int8=2),
    "DYNAMIC_UPDATE_SLICE": replace(_MOVE, int8=1, inputs=(0, 1)),
    "EXPAND_DIMS": replace(_MOVE, int8=1, int16=1),
    "GATHER": replace(_MOVE, int8=2, int16=4),
    "GATHER_ND": replace(_MOVE, int8=1, int16=3),
    "MIRROR_PAD": replace(_MOVE, int8=2, int16=3),
    "PACK": replace(_MOVE, int8=2, int16=3, inputs=ALL),
    "PAD": replace(_MOVE, int8=2, int16=3),
    "PADV2": replace(_MOVE, int8=2, int16=3, inputs=(0, 2), limits=True),
    "RESHAPE": replace(_MOVE, int8=1, int16=1),
    "RESIZE_BILINEAR": replace(_MOVE, int8=2, int16=4),
    "RESIZE_NEAREST_NEIGHBOR": replace(_MOVE, int8=2, int16=4),
    "REVERSE_V2": replace(_MOVE, int8=3, int16=3),
    "SELECT": replace(_MOVE, int8=2, int16=1, inputs=(1, 2)),
    "SELECT_V2": replace(_MOVE, int8=1, int16=1, inputs=(1, 2)),
    "SLICE": replace(_MOVE, int8=2, int16=4),
    "SPACE_TO_BATCH_ND": replace(_MOVE, int8=2, int16=4),
    "SPACE_TO_DEPTH": replace(_MOVE, int8=2),
    "SPLIT": replace(_MOVE, int8=2, int16=4, inputs=(1,)),
    "SPLIT_V": replace(_MOVE, int8=2, int16=2),
    "SQUEEZE": replace(_MOVE, int8=1, int16=1),
    "STRIDED_SLICE": replace(_MOVE, int8=2, int16=2),
    "TILE": replace(_MOVE, int8=3, int16=3),
    "TRANSPOSE": replace(_MOVE, int8=2, int16=5),
    "UNPACK": replace(_MOVE, int8=2, int16=4),
}

LSTM_KINDS = frozenset({"UNIDIRECTIONAL_SEQUENCE_LSTM"})
"""Recurrent cells with a full-integer kernel; their states and gates have rules of their own."""

CONTROL_FLOW = frozenset({"CALL_ONCE", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "WHILE"})

TYPE_BLIND = frozenset({"RANK", "SHAPE"})
"""Operators that look only at the shape of their input, whatever its type."""

HYBRID_WEIGHTS: dict[str, tuple[int, ...]] = {
    "BATCH_MATMUL": (),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 9), 16, *range(18, 26), 33),
    "BIDIRECTIONAL_SEQUENCE_RNN": (1, 2, 5, 6),
    "LSTM": (*range(1, 9), 16),
    "RNN": (1, 2),
    "SVDF": (1,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 9), 16),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (1, 2),
}
"""Weights that recurrent kernels take as int8 with one scale, beside float activations."""

HYBRID_VERSIONS = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": 1,
    "BIDIRECTIONAL_SEQUENCE_RNN": 2,
    "CONV_2D": 5,
    "EMBEDDING_LOOKUP": 4,
    "FULLY_CONNECTED": 12,
    "LSTM": 3,
    "RNN": 2,
    "SVDF": 2,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 2,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 2,
}

STORED_WEIGHTS: dict[str, tuple[int, int]] = {
    "BATCH_MATMUL": (1, 0),
    "CONV_2D": (1, 0),
    "CONV_3D": (1, 4),
    "DEPTHWISE_CONV_2D": (1, 3),
    "EMBEDDING_LOOKUP": (1, 0),
    "FULLY_CONNECTED": (1, 0),
    "GATHER": (0, 0),
    "TRANSPOSE_CONV": (1, 0),
}
"""Position of the weights and their channel axis, for schemes that only store them smaller."""

# XNNPACK (tflite/delegates/xnnpack/xnnpack_delegate.cc): what it takes by the type of the activations.
XNNPACK_FLOAT = frozenset({
    "ABS", "ADD", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CEIL", "CONCATENATION", "CONV_2D", "COS", "DEPTHWISE_CONV_2D",
    "DEPTH_TO_SPACE", "DEQUANTIZE", "DIV", "ELU", "EXP", "EXPAND_DIMS", "FLOOR", "FULLY_CONNECTED", "GELU",
    "HARD_SWISH", "LEAKY_RELU", "LOG", "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "NEG", "PAD",
    "PRELU", "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR", "ROUND",
    "RSQRT", "SIN", "SLICE", "SOFTMAX", "SPACE_TO_DEPTH", "SPLIT", "SQRT", "SQUARE", "SQUARED_DIFFERENCE",
    "STRIDED_SLICE", "SUB", "SUM", "TANH", "TRANSPOSE", "TRANSPOSE_CONV", "DENSIFY",
})  # fmt: skip
XNNPACK_INT8 = frozenset({
    "ADD", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE", "ELU", "EXPAND_DIMS",
    "FULLY_CONNECTED", "LEAKY_RELU", "LOGISTIC", "MAX_POOL_2D", "MEAN", "MUL", "PAD", "QUANTIZE", "RESHAPE",
    "RESIZE_BILINEAR", "SLICE", "SPACE_TO_DEPTH", "SPLIT", "STRIDED_SLICE", "SUB", "TANH", "TRANSPOSE",
    "TRANSPOSE_CONV",
})  # fmt: skip
