# SPDX-License-Identifier: Apache-2.0
"""The form of each builtin operator: how many tensors it reads and writes, and which of them may be left out.

From LiteRT's kernels (tflite/kernels/*.cc). Operators that are not here have no kernel in LiteRT: their form is theirs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

# A form is `inputs>outputs`; a count is `2`, `2-3` or `1+`, and in brackets stand the inputs that may be absent.
_FORMS = {
    "0>0": "CALL_ONCE",
    "0>1": "HASHTABLE VAR_HANDLE",
    "0+>0+": "IF STABLEHLO_CASE STABLEHLO_COMPOSITE WHILE",
    "1>1": """ABS AVERAGE_POOL_2D BITCAST BUCKETIZE CAST CEIL COMPLEX_ABS COS DENSIFY DEPTH_TO_SPACE DEQUANTIZE ELU EXP
        FAKE_QUANT FLOOR GELU HARD_SWISH HASHTABLE_SIZE IMAG L2_NORMALIZATION L2_POOL_2D LEAKY_RELU
        LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC LOG_SOFTMAX MATRIX_DIAG MAX_POOL_2D NEG QUANTIZE
        RANDOM_STANDARD_NORMAL RANDOM_UNIFORM RANK READ_VARIABLE REAL RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 ROUND RSQRT
        SHAPE SIGN SIN SKIP_GRAM SOFTMAX SPACE_TO_DEPTH SQRT SQUARE SQUEEZE TANH WHERE ZEROS_LIKE""",
    "1>2": "STABLEHLO_RNG_BIT_GENERATOR UNIQUE",
    "1>1+": "UNPACK",
    "1-2>1": "RESHAPE",
    "1+>1": "CONCATENATION PACK",
    "2>0": "ASSIGN_VARIABLE",
    "2>1": """ADD ARG_MAX ARG_MIN ATAN2 BATCH_MATMUL BITWISE_XOR BROADCAST_ARGS BROADCAST_TO CUMSUM DIV EMBEDDING_LOOKUP
        EQUAL EXPAND_DIMS FILL FLOOR_DIV FLOOR_MOD GATHER GATHER_ND GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND
        LOGICAL_OR MATRIX_SET_DIAG MAXIMUM MEAN MINIMUM MIRROR_PAD MUL MULTINOMIAL NOT_EQUAL POW PRELU REDUCE_ALL
        REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE
        REVERSE_V2 RFFT2D RIGHT_SHIFT SEGMENT_SUM SQUARED_DIFFERENCE STABLEHLO_ADD STABLEHLO_AND STABLEHLO_GATHER
        STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW
        STABLEHLO_SHIFT_LEFT SUB SUM TILE TRANSPOSE""",
    "2>2": "TOPK_V2",
    "2>1+": "SPLIT",
    "2+>1": "ADD_N",
    "2-3>1": "LSH_PROJECTION",
    "2-3[2]>1": "CONV_2D CONV_3D PAD PADV2",
    "2-3[2]>1-2": "FULLY_CONNECTED",
    "3>0": "HASHTABLE_IMPORT",
    "3>1": """BATCH_TO_SPACE_ND DEPTHWISE_CONV_2D DILATE DYNAMIC_UPDATE_SLICE HASHTABLE_FIND RANGE SCATTER_ND SELECT
        SELECT_V2 SLICE SPACE_TO_BATCH_ND STABLEHLO_SCATTER UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD
        UNSORTED_SEGMENT_SUM""",
    "3>2": "HASHTABLE_LOOKUP",
    "3>1+": "SPLIT_V",
    "3-4[3]>1": "CONV_3D_TRANSPOSE TRANSPOSE_CONV",
    "4>1": "ONE_HOT SPARSE_TO_DENSE STRIDED_SLICE",
    "5>1": "EMBEDDING_LOOKUP_SPARSE REDUCE_WINDOW RNN UNIDIRECTIONAL_SEQUENCE_RNN",
    "5[3]>1": "SVDF",
    "5>2": "NON_MAX_SUPPRESSION_V4",
    "6>3": "NON_MAX_SUPPRESSION_V5",
    "12[4,5,6,7,9,10,11]>1-2": "BIDIRECTIONAL_SEQUENCE_RNN",
    "20-24[1,5,9,10,11,12,16,17,20,21,22,23]>1": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "5-24[1,5,9,10,11,12,16,17,20,21,22,23]>1-4": "LSTM",
    "48[1,5,9,10,11,12,16,17,18,22,26,27,28,29,33,34,39,40,41,42,43,44,45,46,47]>1-2": "BIDIRECTIONAL_SEQUENCE_LSTM",
}


@dataclass(frozen=True)
class Form:
    """How many inputs and outputs an operator takes, and which inputs may be absent."""

    inputs: range
    outputs: range
    optional: frozenset[int]


@functools.cache
def form(kind: str) -> Form | None:
    """Return the form of a builtin operator, None when LiteRT has no kernel for it.

    Example:
        >>> form("CONV_2D")
        Form(inputs=range(2, 4), outputs=range(1, 2), optional=frozenset({2}))
    """
    return _forms().get(kind)


@functools.cache
def _forms() -> dict[str, Form]:
    return {kind: _parse(text) for text, kinds in _FORMS.items() for kind in kinds.split()}


def _parse(text: str) -> Form:
    inputs, _, outputs = text.partition(">")
    count, _, optional = inputs.partition("[")
    absent = frozenset(int(position) for position in optional.rstrip("]").split(",") if position)
    return Form(_count(count), _count(outputs), absent)


def _count(text: str) -> range:
    if text.endswith("+"):
        return range(int(text[:-1]), 2**31)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)
