# SPDX-License-Identifier: Apache-2.0
"""From the kernels that XNNPACK ran to the operators of the file that asked for them.

XNNPACK tells its kernels in order but not what they are for: a 1×1 CONV_2D runs as "Fully Connected", a fused
activation as a "Clamp" behind its operator, a MUL and a MEAN may become one "Mean Squared". The kernels of a partition
are aligned with its operators, both in order, so that the sum of misfits is least (dynamic programming, as in the
alignment of sequences; Needleman and Wunsch 1970). What fits nothing is left over and said to be inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import Model, Operator

Array = np.ndarray[Any, Any]

_PRIMARY: dict[str, frozenset[str]] = {
    kernel: frozenset(kinds.split())
    for kernel, kinds in {
        "Abs": "ABS",
        "Add": "ADD",
        "ApproxGELU": "GELU",
        "Average Pooling": "AVERAGE_POOL_2D MEAN",
        "Bankders Rounding": "ROUND",
        "Batch Matrix Multiply": "BATCH_MATMUL",
        "Ceiling": "CEIL",
        "Clamp": "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 MINIMUM MAXIMUM",
        "Constant Pad": "PAD PADV2",
        "Convert": "QUANTIZE DEQUANTIZE CAST",
        "Convolution": "CONV_2D DEPTHWISE_CONV_2D",
        "Copy": "CONCATENATION SPLIT RESHAPE SLICE STRIDED_SLICE PACK UNPACK EXPAND_DIMS SQUEEZE",
        "Cosine": "COS",
        "Deconvolution": "TRANSPOSE_CONV",
        "Depth To Space": "DEPTH_TO_SPACE",
        "Divide": "DIV",
        "Dynamic Fully Connected": "FULLY_CONNECTED BATCH_MATMUL CONV_2D",
        "ELU": "ELU",
        "Exp": "EXP",
        "Floor": "FLOOR",
        "Fully Connected": "CONV_2D FULLY_CONNECTED BATCH_MATMUL",
        "Fuse Dims": "RESHAPE",
        "GELU": "GELU",
        "HardSwish": "HARD_SWISH",
        # A table of 256 values, which XNNPACK has no name for: what one 8-bit value becomes by one or more operators.
        "Invalid Unary Op": "ADD SUB MUL DIV RELU RELU6 LOGISTIC TANH HARD_SWISH ELU GELU LEAKY_RELU",
        "LeakyReLU": "LEAKY_RELU",
        "Log": "LOG",
        "Max Pooling": "MAX_POOL_2D",
        "Maximum": "MAXIMUM REDUCE_MAX",
        "Mean": "MEAN AVERAGE_POOL_2D",
        "Mean Squared": "MEAN",
        "Minimum": "MINIMUM",
        "Modulus": "FLOOR_MOD",
        "Multiply": "MUL",
        "Negate": "NEG",
        "Normalize": "MEAN SUM",
        "PReLU": "PRELU",
        "Power": "POW",
        "Reciprocal Square Root": "RSQRT",
        "Reduce Max": "REDUCE_MAX",
        "Reduce Min": "REDUCE_MIN",
        "Resize Bilinear": "RESIZE_BILINEAR",
        "Sigmoid": "LOGISTIC",
        "Sign": "SIGN",
        "Sine": "SIN",
        "Slice": "SLICE STRIDED_SLICE SPLIT",
        "Softmax": "SOFTMAX",
        "Space To Depth": "SPACE_TO_DEPTH",
        "Split Dims": "RESHAPE",
        "Square": "SQUARE MUL",
        "Square Root": "SQRT",
        "Squared Difference": "SQUARED_DIFFERENCE",
        "Static Expand Dims": "EXPAND_DIMS RESHAPE",
        "Static Reshape": "RESHAPE SQUEEZE EXPAND_DIMS",
        "Subtract": "SUB",
        "Sum": "SUM MEAN AVERAGE_POOL_2D",
        "TanH": "TANH",
        "Transpose": "TRANSPOSE",
    }.items()
}
_SIDE = frozenset(
    {
        "Clamp", "Constant Pad", "Convert", "Copy", "Divide", "Fuse Dims", "Multiply", "Slice", "Split Dims", "Square",
        "Static Reshape", "Transpose",
    }
)  # fmt: skip
"""Kernels that XNNPACK also adds on its own, before or behind the one that does an operator's work."""

_FOLDED = frozenset({"DENSIFY", "DEQUANTIZE"})  # of constants: done when the model is compiled

# The misfit of a kernel that does the operator's work, does more of it, only serves it, or belongs to nobody; and of an
# operator for which no kernel ran.
_FITS, _AGAIN, _SERVES, _INSERTED, _SILENT = 0.0, 0.5, 1.0, 4.0, 1.5


@dataclass(frozen=True)
class Kernel:
    """One kernel of one partition, in the order it ran."""

    tag: str

    @property
    def name(self) -> str:
        """The tag without layout, types and algorithm: "Convolution" of "Convolution (NHWC, F32) IGEMM"."""
        return self.tag.split(" (")[0]


def attribute(model: Model, operators: Sequence[int], tags: Sequence[str]) -> list[int | None]:
    """Return for each kernel of a partition the index of its operator in the file, None for one that fits none.

    Args:
        model: The model that ran.
        operators: The indices of the partition's operators, ascending.
        tags: The kernels of the partition, in the order they ran.
    """
    running = [i for i in operators if not _is_folded(model, i)]
    kernels = [Kernel(tag) for tag in tags]
    if not running or not kernels:
        return [None] * len(kernels)
    return [None if at is None else running[at] for at in _align([model.main.operators[i] for i in running], kernels)]


def _is_folded(model: Model, index: int) -> bool:
    operator = model.main.operators[index]
    return operator.kind in _FOLDED and all(model.main.tensors[t].is_constant for t in operator.inputs if t >= 0)


def _align(operators: Sequence[Operator], kernels: Sequence[Kernel]) -> list[int | None]:
    """Assign kernels to operators, both in order; an operator may have several kernels, or none when it is fused."""
    count = len(operators)
    best = np.array([0.0] + [np.inf] * count)  # best[o]: all kernels so far are assigned, the last to operator o - 1
    steps: list[tuple[Array, Array]] = []  # per kernel: the operator before it, and whether the kernel is left over
    for kernel in kernels:
        costs = [_cost(kernel, operator) for operator in operators]
        following, before, left_over = best + _INSERTED, np.arange(count + 1), np.ones(count + 1, np.bool_)
        reach, reach_from = best[0], 0  # the cheapest way to be done with all operators before o
        for o in range(1, count + 1):
            options = ((best[o] + max(costs[o - 1], _AGAIN), o), (reach + costs[o - 1], reach_from))
            cost, origin = min(options)
            if cost < following[o]:
                following[o], before[o], left_over[o] = cost, origin, False
            reach += _SILENT
            if best[o] <= reach:
                reach, reach_from = best[o], o
        best = following
        steps.append((before, left_over))
    at = int(np.argmin(best + _SILENT * np.arange(count, -1, -1)))
    assigned: list[int | None] = []
    for before, left_over in reversed(steps):
        assigned.append(None if left_over[at] else at - 1)
        at = int(before[at])
    return assigned[::-1]


def _cost(kernel: Kernel, operator: Operator) -> float:
    if operator.kind in _PRIMARY.get(kernel.name, frozenset()):
        return _FITS
    return _SERVES if kernel.name in _SIDE else np.inf
