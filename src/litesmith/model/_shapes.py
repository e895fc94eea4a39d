# SPDX-License-Identifier: Apache-2.0
"""Shape inference: from an operator's inputs and options to the shapes and types of its outputs.

The rules are LiteRT's own (tflite/kernels/*.cc, the Prepare functions). A rule raises ModelError where the inputs do
not fit together; an operator without a rule, or whose output depends on values known only at run time, gives None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model._flatbuffer import Record
from litesmith.model._graph import Tensor
from litesmith.model._operators import options_table

Shape = tuple[int, ...]
Outputs = list[tuple[Shape, str]]
Inputs = Sequence[Tensor | None]
_Rule = Callable[[list[Any], Any], "Outputs | None"]
_RULES: dict[str, _Rule] = {}


def infer(kind: str, inputs: Inputs, options: Record | None) -> Outputs | None:
    """Return (shape, dtype) of each output, None when the rule is unknown or needs values that are not constant."""
    rule = _RULES.get(kind)
    if rule is None:
        return None
    table = options_table(kind)
    if options is None and table is not None:  # many files leave default options out
        if kind == "CAST":
            return None
        options = Record(table)
    try:
        return rule(list(inputs), options)
    except _NotConstant:
        return None
    except (IndexError, AttributeError) as error:
        raise ModelError(f"{kind} does not fit its inputs: {error}") from error


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Return the padding before and after that SAME means along one dimension.

    Example:
        >>> same_padding(224, kernel=3, stride=2)
        (0, 1)
    """
    effective = (kernel - 1) * dilation + 1
    total = max((math.ceil(size / stride) - 1) * stride + effective - size, 0)
    return total // 2, total - total // 2


def window_output(size: int, kernel: int, stride: int, padding: str, dilation: int = 1) -> int:
    """Return the output size of a convolution or pooling window along one dimension."""
    if stride <= 0 or dilation <= 0 or kernel <= 0:
        raise ModelError(f"kernel {kernel}, stride {stride} and dilation {dilation} must be positive")
    effective = (kernel - 1) * dilation + 1
    covered = size if padding == "SAME" else size - effective + 1
    if covered <= 0:
        raise ModelError(f"a window of {effective} does not fit into an input of {size} with {padding} padding")
    return -(-covered // stride)


def broadcast(first: Shape, second: Shape) -> Shape:
    """Return the shape two operands broadcast to."""
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(s)) + s for s in (first, second)]
    result = []
    for a, b in zip(*padded, strict=True):
        if a != b and 1 not in (a, b):
            raise ModelError(f"shapes {list(first)} and {list(second)} do not broadcast")
        result.append(b if a == 1 else a)
    return tuple(result)


class _NotConstant(Exception):
    """An output shape depends on a value that is known only at run time."""


def _rule(*kinds: str) -> Callable[[_Rule], _Rule]:
    def register(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def _ints(tensor: Tensor | None) -> list[int]:
    if tensor is None or tensor.buffer is None:
        raise _NotConstant
    if tensor.dtype not in ("int32", "int64", "int16", "int8", "uint8"):
        raise ModelError(f"tensor {tensor.name!r} should hold whole numbers, but is {tensor.dtype}")
    return [int(v) for v in np.ravel(tensor.array())]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis % rank


@_rule("CONV_2D")
def _conv_2d(inputs: list[Tensor], options: Any) -> Outputs:
    x, weight = inputs[0], inputs[1]
    (batch, height, width, channels), (filters, kernel_h, kernel_w, depth) = _nhwc(x), _nhwc(weight)
    if depth == 0 or channels % depth or filters % (channels // depth or 1):
        raise ModelError(f"filters {list(weight.shape)} do not fit an input of {channels} channels")
    rows = window_output(height, kernel_h, options.stride_h, options.padding, options.dilation_h_factor)
    columns = window_output(width, kernel_w, options.stride_w, options.padding, options.dilation_w_factor)
    return [((batch, rows, columns, filters), x.dtype)]


@_rule("DEPTHWISE_CONV_2D")
def _depthwise_conv_2d(inputs: list[Tensor], options: Any) -> Outputs:
    x, weight = inputs[0], inputs[1]
    (batch, height, width, channels), (_, kernel_h, kernel_w, filters) = _nhwc(x), _nhwc(weight)
    if channels == 0 or filters % channels:
        raise ModelError(f"filters {list(weight.shape)} do not fit an input of {channels} channels")
    rows = window_output(height, kernel_h, options.stride_h, options.padding, options.dilation_h_factor)
    columns = window_output(width, kernel_w, options.stride_w, options.padding, options.dilation_w_factor)
    return [((batch, rows, columns, filters), x.dtype)]


@_rule("TRANSPOSE_CONV")
def _transpose_conv(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(tuple(_ints(inputs[0])), inputs[2].dtype)]


@_rule("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def _pool(inputs: list[Tensor], options: Any) -> Outputs:
    batch, height, width, channels = _nhwc(inputs[0])
    rows = window_output(height, options.filter_height, options.stride_h, options.padding)
    columns = window_output(width, options.filter_width, options.stride_w, options.padding)
    return [((batch, rows, columns, channels), inputs[0].dtype)]


def _nhwc(tensor: Tensor) -> Shape:
    if len(tensor.shape) != 4:
        raise ModelError(f"tensor {tensor.name!r} must have 4 dimensions, but its shape is {list(tensor.shape)}")
    return tensor.shape


@_rule("FULLY_CONNECTED")
def _fully_connected(inputs: list[Tensor], options: Any) -> Outputs:
    x, weight = inputs[0], inputs[1]
    units, features = weight.shape
    if features == 0 or x.elements % features or (options.keep_num_dims and x.shape[-1] != features):
        raise ModelError(f"weights {list(weight.shape)} do not fit an input of shape {list(x.shape)}")
    shape = (*x.shape[:-1], units) if options.keep_num_dims else (x.elements // features, units)
    return [(shape, x.dtype)]


@_rule("BATCH_MATMUL")
def _batch_matmul(inputs: list[Tensor], options: Any) -> Outputs:
    def matrix(tensor: Tensor, adjoint: bool) -> Shape:
        rows, columns = tensor.shape[-2:]
        return (columns, rows) if adjoint else (rows, columns)

    (rows, inner), (other, columns) = matrix(inputs[0], options.adj_x), matrix(inputs[1], options.adj_y)
    if inner != other:
        raise ModelError(f"matrices {list(inputs[0].shape)} and {list(inputs[1].shape)} do not multiply")
    return [((*broadcast(inputs[0].shape[:-2], inputs[1].shape[:-2]), rows, columns), inputs[0].dtype)]


@_rule(
    "ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "L2_NORMALIZATION", "LEAKY_RELU", "LOG",
    "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "LOGICAL_NOT", "LOG_SOFTMAX", "NEG", "RELU", "RELU6", "RELU_0_TO_1",
    "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH", "ZEROS_LIKE", "CUMSUM",
    "PRELU", "REVERSE_V2", "DENSIFY", "FAKE_QUANT", "DYNAMIC_UPDATE_SLICE", "REVERSE_SEQUENCE", "QUANTIZE",
)  # fmt: skip
def _same(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(inputs[0].shape, inputs[0].dtype)]


@_rule("DEQUANTIZE")
def _dequantize(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(inputs[0].shape, "float32")]


@_rule(
    "ADD", "ATAN2", "DIV", "FLOOR_DIV", "FLOOR_MOD", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL", "POW",
    "SQUARED_DIFFERENCE", "SUB", "BITWISE_XOR", "RIGHT_SHIFT",
)  # fmt: skip
def _binary(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(broadcast(inputs[0].shape, inputs[1].shape), inputs[0].dtype)]


@_rule("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
def _compare(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(broadcast(inputs[0].shape, inputs[1].shape), "bool")]


@_rule("SELECT_V2")
def _select(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(broadcast(inputs[0].shape, broadcast(inputs[1].shape, inputs[2].shape)), inputs[1].dtype)]


@_rule("SELECT", "ADD_N")
def _like_second(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(inputs[-1].shape, inputs[-1].dtype)]


@_rule("CONCATENATION")
def _concatenation(inputs: list[Tensor], options: Any) -> Outputs:
    first = list(inputs[0].shape)
    axis = _axis(options.axis, len(first))
    for other in inputs[1:]:
        if len(other.shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(first, other.shape, strict=True)) if i != axis
        ):
            raise ModelError(f"shapes {[list(t.shape) for t in inputs]} do not join along axis {options.axis}")
    first[axis] = sum(t.shape[axis] for t in inputs)
    return [(tuple(first), inputs[0].dtype)]


@_rule("PACK")
def _pack(inputs: list[Tensor], options: Any) -> Outputs:
    shape = list(inputs[0].shape)
    shape.insert(_axis(options.axis, len(shape) + 1), len(inputs))
    return [(tuple(shape), inputs[0].dtype)]


@_rule("UNPACK")
def _unpack(inputs: list[Tensor], options: Any) -> Outputs:
    shape = list(inputs[0].shape)
    del shape[_axis(options.axis, len(shape))]
    return [(tuple(shape), inputs[0].dtype)] * options.num


@_rule("SPLIT")
def _split(inputs: list[Tensor], options: Any) -> Outputs:
    axis, shape = _ints(inputs[0])[0], list(inputs[1].shape)
    axis = _axis(axis, len(shape))
    if options.num_splits <= 0 or shape[axis] % options.num_splits:
        raise ModelError(f"a dimension of {shape[axis]} does not split into {options.num_splits} equal parts")
    shape[axis] //= options.num_splits
    return [(tuple(shape), inputs[1].dtype)] * options.num_splits


@_rule("SPLIT_V")
def _split_v(inputs: list[Tensor], _options: Any) -> Outputs:
    shape, sizes = inputs[0].shape, _ints(inputs[1])
    axis = _axis(_ints(inputs[2])[0], len(shape))
    known = sum(s for s in sizes if s >= 0)
    return [((*shape[:axis], s if s >= 0 else shape[axis] - known, *shape[axis + 1 :]), inputs[0].dtype) for s in sizes]


@_rule("RESHAPE")
def _reshape(inputs: list[Tensor], options: Any) -> Outputs:
    if len(inputs) > 1 and inputs[1] is not None:
        target = _ints(inputs[1])
    else:
        target = list(options.new_shape or ())
        target = [] if target == [0] else target  # how old converters wrote a scalar
    known = math.prod(d for d in target if d >= 0)
    if target.count(-1) > 1 or (-1 in target and (known == 0 or inputs[0].elements % known)):
        raise ModelError(f"shape {list(inputs[0].shape)} cannot become {target}")
    shape = tuple(inputs[0].elements // known if d == -1 else d for d in target)
    if math.prod(shape) != inputs[0].elements:
        raise ModelError(f"shape {list(inputs[0].shape)} has {inputs[0].elements} elements and cannot become {target}")
    return [(shape, inputs[0].dtype)]


@_rule("SQUEEZE")
def _squeeze(inputs: list[Tensor], options: Any) -> Outputs:
    shape = inputs[0].shape
    gone = {_axis(d, len(shape)) for d in options.squeeze_dims or ()} or {i for i, d in enumerate(shape) if d == 1}
    return [(tuple(d for i, d in enumerate(shape) if i not in gone), inputs[0].dtype)]


@_rule("EXPAND_DIMS")
def _expand_dims(inputs: list[Tensor], _options: Any) -> Outputs:
    shape = list(inputs[0].shape)
    shape.insert(_axis(_ints(inputs[1])[0], len(shape) + 1), 1)
    return [(tuple(shape), inputs[0].dtype)]


@_rule("TRANSPOSE")
def _transpose(inputs: list[Tensor], _options: Any) -> Outputs:
    order = _ints(inputs[1])
    if sorted(order) != list(range(len(inputs[0].shape))):
        raise ModelError(f"{order} is not an order of the {len(inputs[0].shape)} dimensions")
    return [(tuple(inputs[0].shape[i] for i in order), inputs[0].dtype)]


@_rule("PAD", "PADV2", "MIRROR_PAD")
def _pad(inputs: list[Tensor], _options: Any) -> Outputs:
    amounts = _ints(inputs[1])
    if len(amounts) != 2 * len(inputs[0].shape) or min(amounts, default=0) < 0:
        raise ModelError(f"padding {amounts} does not fit shape {list(inputs[0].shape)}")
    pairs = zip(inputs[0].shape, amounts[::2], amounts[1::2], strict=True)
    return [(tuple(size + before + after for size, before, after in pairs), inputs[0].dtype)]


@_rule("MEAN", "SUM", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
def _reduce(inputs: list[Tensor], options: Any) -> Outputs:
    shape = inputs[0].shape
    gone = {_axis(a, len(shape)) for a in _ints(inputs[1])}
    kept = (1 if i in gone else d for i, d in enumerate(shape) if options.keep_dims or i not in gone)
    return [(tuple(kept), inputs[0].dtype)]


@_rule("ARG_MAX", "ARG_MIN")
def _arg(inputs: list[Tensor], options: Any) -> Outputs:
    shape = list(inputs[0].shape)
    del shape[_axis(_ints(inputs[1])[0], len(shape))]
    return [(tuple(shape), options.output_type.lower())]


@_rule("SLICE")
def _slice(inputs: list[Tensor], _options: Any) -> Outputs:
    begin, size = _ints(inputs[1]), _ints(inputs[2])
    sizes = (n if n >= 0 else d - b for d, b, n in zip(inputs[0].shape, begin, size, strict=True))
    return [(tuple(sizes), inputs[0].dtype)]


@_rule("STRIDED_SLICE")
def _strided_slice(inputs: list[Tensor], options: Any) -> Outputs:
    if options.ellipsis_mask or options.new_axis_mask:
        raise _NotConstant
    begin, end, strides = (_ints(t) for t in inputs[1:4])
    shape: list[int] = []
    for i, size in enumerate(inputs[0].shape):
        if i >= len(begin):
            shape.append(size)
        elif not options.shrink_axis_mask >> i & 1:
            start = None if options.begin_mask >> i & 1 else begin[i]
            stop = None if options.end_mask >> i & 1 else begin[i] + end[i] if options.offset else end[i]
            shape.append(len(range(size)[slice(start, stop, strides[i])]))
    return [(tuple(shape), inputs[0].dtype)]


@_rule("GATHER")
def _gather(inputs: list[Tensor], options: Any) -> Outputs:
    x, indices = inputs[0], inputs[1]
    axis, batched = _axis(options.axis, len(x.shape)), options.batch_dims
    return [((*x.shape[:axis], *indices.shape[batched:], *x.shape[axis + 1 :]), x.dtype)]


@_rule("EMBEDDING_LOOKUP")
def _embedding_lookup(inputs: list[Tensor], _options: Any) -> Outputs:
    return [((*inputs[0].shape, *inputs[1].shape[1:]), inputs[1].dtype)]


@_rule("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def _resize(inputs: list[Tensor], _options: Any) -> Outputs:
    batch, _, _, channels = _nhwc(inputs[0])
    return [((batch, *_ints(inputs[1]), channels), inputs[0].dtype)]


@_rule("DEPTH_TO_SPACE")
def _depth_to_space(inputs: list[Tensor], options: Any) -> Outputs:
    (batch, height, width, channels), block = _nhwc(inputs[0]), options.block_size
    if block <= 0 or channels % (block * block):
        raise ModelError(f"{channels} channels do not make blocks of {block} × {block}")
    return [((batch, height * block, width * block, channels // block**2), inputs[0].dtype)]


@_rule("SPACE_TO_DEPTH")
def _space_to_depth(inputs: list[Tensor], options: Any) -> Outputs:
    (batch, height, width, channels), block = _nhwc(inputs[0]), options.block_size
    if block <= 0 or height % block or width % block:
        raise ModelError(f"an image of {height} × {width} does not divide into blocks of {block}")
    return [((batch, height // block, width // block, channels * block**2), inputs[0].dtype)]


@_rule("CAST")
def _cast(inputs: list[Tensor], options: Any) -> Outputs:
    return [(inputs[0].shape, options.out_data_type.lower())]


@_rule("TILE")
def _tile(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(tuple(d * m for d, m in zip(inputs[0].shape, _ints(inputs[1]), strict=True)), inputs[0].dtype)]


@_rule("BROADCAST_TO")
def _broadcast_to(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(tuple(_ints(inputs[1])), inputs[0].dtype)]


@_rule("SHAPE")
def _shape(inputs: list[Tensor], options: Any) -> Outputs:
    return [((len(inputs[0].shape),), options.out_type.lower())]


@_rule("ONE_HOT")
def _one_hot(inputs: list[Tensor], options: Any) -> Outputs:
    shape = list(inputs[0].shape)
    axis = len(shape) if options.axis == -1 else options.axis
    shape.insert(axis, _ints(inputs[1])[0])
    return [(tuple(shape), inputs[2].dtype)]


@_rule("TOPK_V2")
def _top_k(inputs: list[Tensor], _options: Any) -> Outputs:
    shape = (*inputs[0].shape[:-1], _ints(inputs[1])[0])
    return [(shape, inputs[0].dtype), (shape, "int32")]


@_rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _sequence_lstm(inputs: list[Tensor], _options: Any) -> Outputs:
    projection, recurrent = inputs[16], inputs[6]
    units = projection.shape[0] if projection is not None else recurrent.shape[1]
    return [((*inputs[0].shape[:2], units), inputs[0].dtype)]
