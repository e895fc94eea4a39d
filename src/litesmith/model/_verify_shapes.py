# SPDX-License-Identifier: Apache-2.0
"""Shapes and types of the operators that only verification needs: what LiteRT's Prepare functions compute for them.

The operators that models are built from are in ``_shapes``. A rule returns (shape, dtype) of each output, or None when
that depends on values known only at run time, and raises ModelError when the inputs do not fit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model import _verify_stablehlo
from litesmith.model._graph import Tensor
from litesmith.model._shapes import broadcast, infer, window_output
from litesmith.model._verify_node import Node

Outputs = list[tuple[tuple[int, ...], str]]
_Rule = Callable[[list[Any], Any], "Outputs | None"]
_WHOLE = ("int8", "int16", "int32", "int64", "uint8")


def computed(node: Node) -> Outputs | None:
    """Return (shape, dtype) of each output of an operator, None when they are known only at run time."""
    rule = _RULES.get(node.operator.kind)
    if rule is not None:
        return rule(node.inputs, node.options)
    return infer(node.operator.kind, node.inputs, node.operator.options)


def _require_rank(tensor: Tensor, ranks: Sequence[int], role: str) -> None:
    if len(tensor.shape) not in ranks:
        wanted = " or ".join(map(str, ranks)) if len(ranks) < 3 else f"{ranks[0]} to {ranks[-1]}"
        raise ModelError(f"{role} of shape {list(tensor.shape)} must have {wanted} dimensions")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ModelError(text)


def _values(tensor: Tensor) -> list[int] | None:
    if tensor.buffer is None or tensor.sparsity is not None:
        return None
    _require(tensor.dtype in _WHOLE, f"{tensor.name!r} should hold whole numbers, but is {tensor.dtype}")
    return [int(v) for v in np.ravel(tensor.array())]


def _rank(_inputs: list[Tensor], _options: Any) -> Outputs:
    return [((), "int32")]


def _bucketize(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(inputs[0].shape, "int32")]


def _real_part(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(inputs[0].shape, "float64" if inputs[0].dtype == "complex128" else "float32")]


def _matrix_diag(inputs: list[Tensor], _options: Any) -> Outputs:
    shape = inputs[0].shape
    _require_rank(inputs[0], range(1, 9), "a diagonal")
    return [((*shape, shape[-1]), inputs[0].dtype)]


def _matrix_set_diag(inputs: list[Tensor], _options: Any) -> Outputs:
    matrix, diagonal = inputs
    _require_rank(matrix, range(2, 9), "a matrix")
    wanted = (*matrix.shape[:-2], min(matrix.shape[-2:]))
    _require(diagonal.shape == wanted, f"a diagonal of shape {list(diagonal.shape)} must be {list(wanted)}")
    _require(diagonal.dtype == matrix.dtype, f"a diagonal of {diagonal.dtype} does not fit a matrix of {matrix.dtype}")
    return [(matrix.shape, matrix.dtype)]


def _gather_nd(inputs: list[Tensor], _options: Any) -> Outputs:
    values, indices = inputs
    _require_rank(values, range(1, 9), "the values")
    _require_rank(indices, range(1, 9), "the indices")
    depth = indices.shape[-1]
    _require(depth <= len(values.shape), f"indices of {depth} do not fit values of shape {list(values.shape)}")
    return [((*indices.shape[:-1], *values.shape[depth:]), values.dtype)]


def _scatter_nd(inputs: list[Tensor], _options: Any) -> Outputs | None:
    indices, updates, shape = inputs
    _require_rank(indices, range(1, 9), "the indices")
    target = _values(shape)
    if target is None:
        return None
    depth = indices.shape[-1]
    wanted = (*indices.shape[:-1], *target[depth:])
    _require(depth <= len(target) and min(target, default=0) >= 0, f"indices of {depth} do not fit shape {target}")
    _require(updates.shape == wanted, f"updates of shape {list(updates.shape)} must be {list(wanted)}")
    return [(tuple(target), updates.dtype)]


def _space_to_batch(inputs: list[Tensor], _options: Any) -> Outputs | None:
    x, block, pads = inputs[0], _values(inputs[1]), _values(inputs[2])
    _require_rank(x, (3, 4), "the input")
    spatial = len(x.shape) - 2
    _require(
        inputs[1].shape == (spatial,) and inputs[2].shape == (spatial, 2), "blocks and paddings do not fit the input"
    )
    if block is None or pads is None:
        return None
    _require(min(block) > 0 and min(pads) >= 0, f"blocks {block} must be positive and paddings {pads} not negative")
    sizes = [d + a + b for d, a, b in zip(x.shape[1:-1], pads[::2], pads[1::2], strict=True)]
    _require(all(s % b == 0 for s, b in zip(sizes, block, strict=True)), f"blocks {block} do not divide {sizes}")
    inner = (s // b for s, b in zip(sizes, block, strict=True))
    return [((x.shape[0] * math.prod(block), *inner, x.shape[-1]), x.dtype)]


def _batch_to_space(inputs: list[Tensor], _options: Any) -> Outputs | None:
    x, block, crops = inputs[0], _values(inputs[1]), _values(inputs[2])
    _require_rank(x, (3, 4), "the input")
    spatial = len(x.shape) - 2
    _require(inputs[1].shape == (spatial,) and inputs[2].shape == (spatial, 2), "blocks and crops do not fit the input")
    if block is None or crops is None:
        return None
    _require(min(block) > 0 and min(crops) >= 0, f"blocks {block} must be positive and crops {crops} not negative")
    _require(x.shape[0] % math.prod(block) == 0, f"a batch of {x.shape[0]} does not divide by blocks {block}")
    sizes = [d * b - m - n for d, b, m, n in zip(x.shape[1:-1], block, crops[::2], crops[1::2], strict=True)]
    _require(min(sizes) >= 0, f"crops {crops} take more than there is")
    return [((x.shape[0] // math.prod(block), *sizes, x.shape[-1]), x.dtype)]


def _fill(inputs: list[Tensor], _options: Any) -> Outputs | None:
    shape = _values(inputs[0])
    _require_rank(inputs[0], (1,), "the shape to fill")
    _require_rank(inputs[1], (0,), "the value to fill with")
    if shape is None:
        return None
    _require(min(shape, default=0) >= 0, f"the shape to fill {shape} has a negative dimension")
    return [(tuple(shape), inputs[1].dtype)]


def _svdf(inputs: list[Tensor], options: Any) -> Outputs:
    x, feature, time, bias, state = inputs
    for tensor, role in (
        (x, "the input"),
        (feature, "the feature weights"),
        (time, "the time weights"),
        (state, "the state"),
    ):
        _require_rank(tensor, (2,), role)
    filters, memory = time.shape
    _require(
        options.rank > 0 and filters % options.rank == 0, f"{filters} filters do not divide by rank {options.rank}"
    )
    _require(feature.shape == (filters, x.shape[1]), f"feature weights {list(feature.shape)} do not fit the input")
    _require(state.shape == (x.shape[0], memory * filters), f"a state of shape {list(state.shape)} does not fit")
    units = filters // options.rank
    _require(bias is None or bias.shape == (units,), "the bias must have one value for each unit")
    return [((x.shape[0], units), x.dtype)]


def _conv_3d(inputs: list[Tensor], options: Any) -> Outputs:
    x, weight = inputs[0], inputs[1]
    _require_rank(x, (5,), "the input")
    _require_rank(weight, (5,), "the filters")
    _require(
        x.shape[4] == weight.shape[3], f"filters {list(weight.shape)} do not fit an input of {x.shape[4]} channels"
    )
    sizes = [
        window_output(x.shape[1 + i], weight.shape[i], getattr(options, f"stride_{axis}"), options.padding,
                      getattr(options, f"dilation_{axis}_factor"))
        for i, axis in enumerate("dhw")
    ]  # fmt: skip
    return [((x.shape[0], *sizes, weight.shape[4]), x.dtype)]


def _range(inputs: list[Tensor], _options: Any) -> Outputs | None:
    for tensor in inputs:
        _require_rank(tensor, (0,), "a bound of the range")
    if any(tensor.buffer is None for tensor in inputs):
        return None
    start, limit, delta = (tensor.array().item() for tensor in inputs)
    _require(delta != 0 and math.isfinite(start + limit + delta), f"a step of {delta} leads nowhere")
    return [((max(math.ceil((limit - start) / delta), 0),), inputs[0].dtype)]


def _broadcast_args(inputs: list[Tensor], _options: Any) -> Outputs:
    for tensor in inputs:
        _require_rank(tensor, (1,), "a shape")
    shapes = [_values(tensor) for tensor in inputs]
    if shapes[0] is not None and shapes[1] is not None:
        broadcast(tuple(shapes[0]), tuple(shapes[1]))
    return [((max(tensor.shape[0] for tensor in inputs),), inputs[0].dtype)]


def _dilate(inputs: list[Tensor], _options: Any) -> Outputs | None:
    x, dilations, padding = inputs
    _require_rank(x, range(1, 9), "the input")
    _require(dilations.shape == (len(x.shape),), f"{list(dilations.shape)} dilations do not fit {list(x.shape)}")
    _require(padding.elements == 1 and padding.dtype == x.dtype, "the padding must be one value of the input's type")
    factors = _values(dilations)
    if factors is None:
        return None
    _require(min(factors) >= 1, f"dilations {factors} must be 1 or more")
    return [(tuple((d - 1) * f + 1 for d, f in zip(x.shape, factors, strict=True)), x.dtype)]


def _rnn(inputs: list[Tensor], _options: Any) -> Outputs:
    x, weight, recurrent, bias, state = inputs
    _require_rank(weight, (2,), "the input weights")
    _require_rank(x, (2, 3), "the input")
    units, batch = weight.shape[0], x.shape[0] if len(x.shape) == 2 else None
    _require(recurrent.shape == (units, units), f"recurrent weights {list(recurrent.shape)} do not fit {units} units")
    _require(bias.shape == (units,) and weight.shape[1] == x.shape[-1], "the weights do not fit the input")
    _require(len(state.shape) == 2 and state.shape[1] == units, f"a state of shape {list(state.shape)} does not fit")
    _require(batch is None or state.shape[0] == batch, f"a state of shape {list(state.shape)} does not fit the batch")
    return [((*x.shape[:-1], units), x.dtype)]


def _multinomial(inputs: list[Tensor], _options: Any) -> Outputs | None:
    logits, count = inputs[0], _values(inputs[1])
    _require_rank(logits, (2,), "the logits")
    _require(
        inputs[1].shape == () and count is not None and count[0] >= 0, "the number of samples must be one constant"
    )
    return None if count is None else [((logits.shape[0], count[0]), "")]


def _random(inputs: list[Tensor], _options: Any) -> Outputs | None:
    shape = _values(inputs[0])
    _require_rank(inputs[0], (1,), "the shape")
    _require(min(shape or (0,)) >= 0, f"the shape {shape} has a negative dimension")
    return None if shape is None else [(tuple(shape), "float32")]


def _sparse_to_dense(inputs: list[Tensor], _options: Any) -> Outputs | None:
    shape = _values(inputs[1])
    _require_rank(inputs[1], (1,), "the shape")
    _require(min(shape or (0,)) >= 0, f"the shape {shape} has a negative dimension")
    return None if shape is None else [(tuple(shape), inputs[2].dtype)]


def _unsorted_segment(inputs: list[Tensor], _options: Any) -> Outputs | None:
    data, ids, count = inputs
    prefix = data.shape[: len(ids.shape)]
    _require(ids.shape == prefix, f"segments of shape {list(ids.shape)} must be those of the data, {list(prefix)}")
    _require(count.elements == 1, "the number of segments must be one value")
    numbers, segments = _values(count), _values(ids)
    if numbers is None or segments is None:
        return None
    _require(max(segments, default=-1) < numbers[0], f"segment {max(segments, default=-1)} is not below {numbers[0]}")
    return [((numbers[0], *data.shape[len(ids.shape) :]), data.dtype)]


def _rfft_2d(inputs: list[Tensor], _options: Any) -> Outputs | None:
    x, length = inputs
    _require_rank(x, range(2, 9), "the input")
    _require(length.shape == (2,), "the length of a 2-D transform must be two values")
    sizes = _values(length)
    if sizes is None:
        return None
    _require(all(s > 0 and s & (s - 1) == 0 for s in sizes), f"the length {sizes} must be powers of two")
    return [((*x.shape[:-2], sizes[0], sizes[1] // 2 + 1), "complex64")]


def _conv_3d_transpose(inputs: list[Tensor], _options: Any) -> Outputs | None:
    shape, weight, x = _values(inputs[0]), inputs[1], inputs[2]
    _require_rank(x, (5,), "the input")
    _require_rank(weight, (5,), "the filters")
    _require(inputs[0].shape == (5,), "the output shape must be five values")
    _require(
        x.shape[4] == weight.shape[4], f"filters {list(weight.shape)} do not fit an input of {x.shape[4]} channels"
    )
    if shape is None:
        return None
    _require(min(shape) > 0 and shape[4] == weight.shape[3], f"an output of {shape} does not fit the filters")
    return [(tuple(shape), x.dtype)]


def _lsh_projection(inputs: list[Tensor], options: Any) -> Outputs:
    seeds = inputs[0]
    _require_rank(seeds, (2,), "the seeds")
    return [((seeds.shape[0] * (seeds.shape[1] if options.type == "DENSE" else 1),), "int32")]


def _hashtable_lookup(inputs: list[Tensor], _options: Any) -> Outputs:
    lookup, keys, values = inputs
    _require(len(lookup.shape) == 1 and len(keys.shape) == 1 and len(values.shape) >= 1, "keys must be vectors")
    _require(keys.shape[0] == values.shape[0] > 0, f"{keys.shape[0]} keys do not fit values {list(values.shape)}")
    return [((lookup.shape[0], *values.shape[1:]), values.dtype), (lookup.shape, "uint8")]


def _hashtable_find(inputs: list[Tensor], _options: Any) -> Outputs:
    return [(inputs[1].shape, inputs[2].dtype)]


_STABLEHLO_PAIRS = (
    "STABLEHLO_ADD", "STABLEHLO_AND", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_MULTIPLY",
    "STABLEHLO_SHIFT_LEFT",
)  # fmt: skip
_RULES: dict[str, _Rule] = {
    "ATAN2": _verify_stablehlo.equal_shapes,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_ARGS": _broadcast_args,
    "BUCKETIZE": _bucketize,
    "CONV_3D_TRANSPOSE": _conv_3d_transpose,
    "HASHTABLE_FIND": _hashtable_find,
    "HASHTABLE_LOOKUP": _hashtable_lookup,
    "LSH_PROJECTION": _lsh_projection,
    "MULTINOMIAL": _multinomial,
    "RANDOM_STANDARD_NORMAL": _random,
    "RANDOM_UNIFORM": _random,
    "RFFT2D": _rfft_2d,
    "SPARSE_TO_DENSE": _sparse_to_dense,
    **dict.fromkeys((f"UNSORTED_SEGMENT_{name}" for name in ("MAX", "MIN", "PROD", "SUM")), _unsorted_segment),
    "COMPLEX_ABS": _real_part,
    "CONV_3D": _conv_3d,
    "DILATE": _dilate,
    "FILL": _fill,
    "GATHER_ND": _gather_nd,
    "IMAG": _real_part,
    "MATRIX_DIAG": _matrix_diag,
    "MATRIX_SET_DIAG": _matrix_set_diag,
    "RANGE": _range,
    "RANK": _rank,
    "REAL": _real_part,
    "RNN": _rnn,
    "SCATTER_ND": _scatter_nd,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    **dict.fromkeys(_STABLEHLO_PAIRS, _verify_stablehlo.equal_shapes),
    "REDUCE_WINDOW": _verify_stablehlo.tflite_reduce_window,
    "STABLEHLO_GATHER": _verify_stablehlo.gather,
    "STABLEHLO_PAD": _verify_stablehlo.pad,
    "STABLEHLO_REDUCE_WINDOW": _verify_stablehlo.reduce_window,
    "STABLEHLO_SCATTER": _verify_stablehlo.scatter,
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
