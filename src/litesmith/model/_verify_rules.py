# SPDX-License-Identifier: Apache-2.0
"""What must hold for single kinds of operator, beyond form and shape.

Each rule keeps a kernel of LiteRT from what it does not check itself: reading a type as another, aborting on a scale,
dividing by zero. Where the kernel checks, the check is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import numpy as np

from litesmith.model._graph import Tensor
from litesmith.model._verify_custom import composite_fits, custom_fits
from litesmith.model._verify_node import Node

Rule = Callable[[Node], None]
_WHOLE = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_NARROW = frozenset({"int8", "uint8", "int16"})

# Inputs that are counts, sizes, axes or indices, by position.
_INTEGERS = {
    "ARG_MAX": (1,), "ARG_MIN": (1,), "BROADCAST_ARGS": (0, 1), "BROADCAST_TO": (1,), "CONV_3D_TRANSPOSE": (0,),
    "CUMSUM": (1,), "DYNAMIC_UPDATE_SLICE": (2,), "EMBEDDING_LOOKUP": (0,), "EXPAND_DIMS": (1,), "FILL": (0,),
    "GATHER": (1,), "GATHER_ND": (1,), "MEAN": (1,), "MIRROR_PAD": (1,), "MULTINOMIAL": (1,), "ONE_HOT": (0,),
    "PAD": (1,), "PADV2": (1,), "RANDOM_STANDARD_NORMAL": (0,), "RANDOM_UNIFORM": (0,), "REDUCE_ALL": (1,),
    "REDUCE_ANY": (1,), "REDUCE_MAX": (1,), "REDUCE_MIN": (1,), "REDUCE_PROD": (1,), "REDUCE_WINDOW": (2, 3, 4),
    "RESHAPE": (1,), "RESIZE_BILINEAR": (1,), "RESIZE_NEAREST_NEIGHBOR": (1,), "REVERSE_SEQUENCE": (1,),
    "REVERSE_V2": (1,), "RFFT2D": (1,), "SCATTER_ND": (0, 2), "SEGMENT_SUM": (1,), "SLICE": (1, 2),
    "SPARSE_TO_DENSE": (0, 1), "SPLIT_V": (1,), "STABLEHLO_GATHER": (1,), "STABLEHLO_SCATTER": (1,),
    "STRIDED_SLICE": (1, 2, 3), "SUM": (1,), "TILE": (1,), "TOPK_V2": (1,), "TRANSPOSE": (1,), "TRANSPOSE_CONV": (0,),
    "UNSORTED_SEGMENT_MAX": (1, 2), "UNSORTED_SEGMENT_MIN": (1, 2), "UNSORTED_SEGMENT_PROD": (1, 2),
    "UNSORTED_SEGMENT_SUM": (1, 2),
}  # fmt: skip
# Outputs that have the type of an input: the position of that input. Not all kernels see to it.
_TYPE_OF = {
    **dict.fromkeys(
        ("ADD_N", "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "CUMSUM", "DILATE", "DYNAMIC_UPDATE_SLICE",
         "EXPAND_DIMS", "GATHER", "GATHER_ND", "MEAN", "MIRROR_PAD", "PACK", "PAD", "PADV2", "RANGE", "REDUCE_ALL",
         "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_WINDOW", "RESHAPE", "RESIZE_BILINEAR",
         "RESIZE_NEAREST_NEIGHBOR", "REVERSE_SEQUENCE", "REVERSE_V2", "SEGMENT_SUM", "SLICE", "SPACE_TO_BATCH_ND",
         "SPLIT_V", "SQUEEZE", "STABLEHLO_GATHER", "STABLEHLO_PAD", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER",
         "STRIDED_SLICE", "SUM", "TILE", "TRANSPOSE", "UNPACK", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN",
         "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM"), 0),
    **dict.fromkeys(("FILL", "SCATTER_ND", "SELECT", "SELECT_V2", "SPLIT"), 1),
    **dict.fromkeys(("CONV_3D_TRANSPOSE", "ONE_HOT", "SPARSE_TO_DENSE", "TRANSPOSE_CONV"), 2),
}  # fmt: skip
_STRING_KINDS = frozenset({
    "ASSIGN_VARIABLE", "EQUAL", "EXPAND_DIMS", "FILL", "GATHER", "GATHER_ND", "HASHTABLE_FIND", "HASHTABLE_IMPORT",
    "HASHTABLE_LOOKUP", "LSH_PROJECTION", "NOT_EQUAL", "READ_VARIABLE", "RANK", "RESHAPE", "SHAPE", "SKIP_GRAM", "SLICE",
    "SQUEEZE", "STRIDED_SLICE", "TILE",
})  # fmt: skip
_HANDLE_KINDS = frozenset({
    "ASSIGN_VARIABLE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "READ_VARIABLE", "VAR_HANDLE",
})  # fmt: skip
_CALLING_KINDS = frozenset({"CALL_ONCE", "CUSTOM", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "WHILE"})


def rules(kind: str) -> tuple[Rule, ...]:
    """Return the rules of a kind of operator."""
    return (_types_have_values, _parameters_are_integers, _types_are_kept, *_RULES.get(kind, ()))


def _types_have_values(node: Node) -> None:
    """Most kernels take the memory of a tensor for granted; strings and handles have none of a fixed size."""
    kind = node.operator.kind
    if kind in _CALLING_KINDS:
        return
    tensors = [(t, {"input": i}) for i, t in enumerate(node.inputs)] + [
        (t, {"output": i}) for i, t in enumerate(node.outputs)
    ]
    for tensor, place in tensors:
        if tensor is None:
            continue
        handle = tensor.dtype in ("resource", "variant") and kind not in _HANDLE_KINDS
        if handle or (tensor.dtype == "string" and kind not in _STRING_KINDS):
            raise node.error(f"is a {tensor.dtype}, which {kind} cannot take", **place)


def _parameters_are_integers(node: Node) -> None:
    for position in _INTEGERS.get(node.operator.kind, ()):
        tensor = node.input(position)
        if tensor is not None and tensor.dtype not in _WHOLE:
            raise node.error(f"is {tensor.dtype}, but must be integers", input=position)


def _types_are_kept(node: Node) -> None:
    position = _TYPE_OF.get(node.operator.kind)
    source = None if position is None else node.input(position)
    for number, output in enumerate(node.outputs if source is not None else ()):
        assert source is not None
        if output.dtype != source.dtype:
            raise node.error(f"is {output.dtype}, but must be {source.dtype} as input {position} is", output=number)


def _takes(position: int, *dtypes: str) -> Rule:
    def rule(node: Node) -> None:
        tensor = node.input(position)
        if tensor is not None and tensor.dtype not in dtypes:
            raise node.error(f"is {tensor.dtype}, but must be {' or '.join(dtypes)}", input=position)

    return rule


def _gives(position: int, *dtypes: str) -> Rule:
    def rule(node: Node) -> None:
        tensor = node.outputs[position]
        if tensor.dtype not in dtypes:
            raise node.error(f"is {tensor.dtype}, but must be {' or '.join(dtypes)}", output=position)

    return rule


def _single(position: int) -> Rule:
    def rule(node: Node) -> None:
        tensor = node.input(position)
        if tensor is not None and tensor.elements != 1 and node.operator.inputs[position] not in node.uncertain:
            raise node.error(f"has shape {list(tensor.shape)}, but must be one value", input=position)

    return rule


def _slice_stays_inside(node: Node) -> None:
    """With ``offset``, STRIDED_SLICE sizes its output by the ends alone, but fills it by masks and bounds too."""
    x, begin, end, options = node.inputs[0], node.values(1), node.values(2), node.options
    assert x is not None
    if options.ellipsis_mask & (options.ellipsis_mask - 1):
        raise node.error(f"its ellipsis_mask is {options.ellipsis_mask:#b}, but one ellipsis is all that can be")
    if not options.offset:
        return
    if options.end_mask or options.ellipsis_mask or options.new_axis_mask:
        raise node.error(
            "its ends are offsets, which does not go together with a mask of ends, an ellipsis or new axes"
        )
    if end is not None and (end < 0).any():
        raise node.error(f"has offsets {end.tolist()}, but they must be 0 or more", input=2)
    if begin is None or end is None or node.operator.inputs[0] in node.uncertain:
        return
    if begin.shape != end.shape or begin.size != len(x.shape):
        raise node.error(f"it slices {begin.size} dimensions of a shape of {list(x.shape)}, but offsets need all")
    if (begin < 0).any() or (begin.astype(np.int64) + end > np.array(x.shape)).any():
        raise node.error(f"offsets {end.tolist()} from {begin.tolist()} leave a shape of {list(x.shape)}")


def _output_count_is(option: str) -> Rule:
    def rule(node: Node) -> None:
        count = getattr(node.options, option)
        if count != len(node.operator.outputs):
            raise node.error(f"its {option} is {count}, but it has {len(node.operator.outputs)} outputs")

    return rule


def _scale(node: Node, tensor: Tensor, **place: int) -> float:
    """Return the one scale of a tensor on which quantized arithmetic is done."""
    scales = tensor.quantization.scale if tensor.quantization is not None else ()
    if len(scales) != 1:
        raise node.error(f"is {tensor.dtype} with {len(scales)} scales, but {node.operator.kind} needs one", **place)
    return scales[0]


def _three_scales(node: Node) -> tuple[float, float, float]:
    first, second = node.inputs[0], node.inputs[1]
    assert first is not None
    assert second is not None
    return _scale(node, first, input=0), _scale(node, second, input=1), _scale(node, node.outputs[0], output=0)


def _sum_is_scalable(node: Node) -> None:
    """ADD and SUB of narrow integers: LiteRT aborts when the output scale is out of reach of the input scales."""
    first = node.inputs[0]
    assert first is not None
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    plain_int16 = node.operator.kind == "ADD" and first.dtype == "int16" and not any(t.is_quantized for t in tensors)
    if first.dtype not in _NARROW or plain_int16:
        return
    one, other, out = _three_scales(node)
    powers = node.options.pot_scale_int16 and all(math.frexp(scale)[0] == 0.5 for scale in (one, other, out))
    if first.dtype == "int16" and powers and len({t.shape for t in tensors}) > 1:
        raise node.error("int16 with scales that are powers of two does not broadcast; set pot_scale_int16 to False")
    factor = 2 * max(one, other) / (2 ** (15 if first.dtype == "int16" else 20) * out)
    if factor == 1 or (node.operator.kind == "ADD" and factor > 1):
        raise node.error(f"its input scales {one:g} and {other:g} are too large for its output scale {out:g}")


def _square_is_scalable(node: Node) -> None:
    first = node.inputs[0]
    assert first is not None
    if first.dtype != "int8":
        return
    one, other, out = _three_scales(node)
    if (2 * max(one, other)) ** 2 / (2**14 * out) >= 1:
        raise node.error(f"its input scales {one:g} and {other:g} are too large for its output scale {out:g}")


def _comparison_is_scalable(node: Node) -> None:
    for position, tensor in enumerate(node.inputs):
        if tensor is not None and tensor.dtype in _NARROW and _scale(node, tensor, input=position) == 1:
            raise node.error("has a scale of exactly 1, on which LiteRT aborts; scale it otherwise", input=position)


def _depth_multiplier_fits(node: Node) -> None:
    x, weight = node.inputs[0], node.inputs[1]
    assert x is not None
    assert weight is not None
    multiplier = node.options.depth_multiplier
    if len(x.shape) != 4 or len(weight.shape) != 4:
        return
    if multiplier == 0:  # old converters leave it out, and LiteRT divides the channels itself
        if x.shape[3] == 0 or weight.shape[3] % x.shape[3]:
            raise node.error(f"its {weight.shape[3]} filters cannot be shared out to {x.shape[3]} channels")
    elif x.shape[3] * multiplier != weight.shape[3]:
        raise node.error(
            f"its depth_multiplier is {multiplier}, but {x.shape[3]} channels become {weight.shape[3]} by its filters"
        )


def _has_values(*positions: int) -> Rule:
    """The kernel divides by a size of these inputs, or looks at their first value."""

    def rule(node: Node) -> None:
        for position in positions:
            tensor = node.input(position)
            if tensor is not None and 0 in tensor.shape and node.operator.inputs[position] not in node.uncertain:
                raise node.error(
                    f"has shape {list(tensor.shape)}, but {node.operator.kind} needs values", input=position
                )

    return rule


def _radius_is_not_negative(node: Node) -> None:
    if node.options.radius < 0:
        raise node.error(f"its radius is {node.options.radius}, but must be 0 or more")


def _narrow_is_quantized(node: Node) -> None:
    first = node.inputs[0]
    if first is not None and first.dtype in _NARROW:
        _scale(node, first, input=0)
        _scale(node, node.outputs[0], output=0)


def _lookup_stays_inside(node: Node) -> None:
    """EMBEDDING_LOOKUP_SPARSE computes places in its output from indices that it does not check."""
    indices, shape = node.values(1), node.values(2)
    if indices is None or shape is None:
        return
    if indices.ndim != 2 or shape.shape != indices.shape[1:] or (shape < 1).any():
        raise node.error(f"indices of shape {list(indices.shape)} do not fit a sparse shape of {shape.tolist()}")
    places = indices[:, :-1].tolist()
    if (indices < 0).any() or (indices >= shape).any() or places != sorted(places):
        raise node.error("has indices outside the sparse shape, or out of order", input=1)


def _lengths_stay_inside(node: Node) -> None:
    """REVERSE_SEQUENCE looks at the first length only; the others lead where they say."""
    x, lengths, options = node.inputs[0], node.values(1), node.options
    assert x is not None
    if lengths is None or node.operator.inputs[0] in node.uncertain:
        return
    if not 0 <= options.seq_dim < len(x.shape):
        raise node.error(f"its seq_dim is {options.seq_dim}, but its input has shape {list(x.shape)}")
    size = x.shape[options.seq_dim]
    if (lengths < 0).any() or (lengths > size).any():
        raise node.error(f"has lengths {lengths.tolist()}, but dimension {options.seq_dim} has {size}", input=1)


def _rows_are_not_empty(node: Node) -> None:
    tensor = node.inputs[0]
    if tensor is not None and (not tensor.shape or tensor.shape[-1] == 0):
        raise node.error(f"has shape {list(tensor.shape)}, but {node.operator.kind} needs values to compare", input=0)


def _sizes_are_not_negative(node: Node) -> None:
    sizes = node.values(1)
    if sizes is not None and (sizes < -1).any():
        raise node.error(f"has sizes {sizes.tolist()}, but they must be 0 or more, or one of them -1", input=1)


def _state_is_wide(node: Node) -> None:
    """SVDF on int8 keeps its state in int16: a narrower one would be written beyond its end."""
    x, state, time = node.inputs[0], node.inputs[4], node.inputs[2]
    assert x is not None
    assert state is not None
    assert time is not None
    if not state.is_variable:
        raise node.error("must be a variable tensor, since the state is kept in it", input=4)
    if x.dtype == "int8":
        for position, tensor in ((4, state), (2, time)):
            if tensor.dtype != "int16":
                raise node.error(f"is {tensor.dtype}, but LiteRT's SVDF on int8 keeps int16 there", input=position)


_COMPARISONS = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
_MATRIX_TYPES: Collection[str] = ("float32", "int64", "int32", "int16", "int8", "uint8")
_BLOCKS = (_takes(1, "int32"), _takes(2, "int32"))


_RULES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(_COMPARISONS, (_comparison_is_scalable,)),
    "ADD": (_sum_is_scalable,),
    "ASSIGN_VARIABLE": (_has_values(1),),
    "BATCH_TO_SPACE_ND": _BLOCKS,
    "CUSTOM": (custom_fits,),
    "DEPTHWISE_CONV_2D": (_depth_multiplier_fits,),
    "DILATE": (_takes(1, "int32"), _has_values(0)),
    **dict.fromkeys(("EXP", "LOG", "RSQRT", "SQRT"), (_narrow_is_quantized,)),
    "EMBEDDING_LOOKUP_SPARSE": (_takes(4, "float32"), _lookup_stays_inside),
    "FAKE_QUANT": (_takes(0, "float32"), _gives(0, "float32")),
    "HASHTABLE_FIND": (_single(2),),
    "LOCAL_RESPONSE_NORMALIZATION": (_radius_is_not_negative,),
    "LOG_SOFTMAX": (_rows_are_not_empty,),
    "LSH_PROJECTION": (_takes(0, "float32"), _takes(2, "float32"), _gives(0, "int32")),
    "MATRIX_DIAG": (_takes(0, *_MATRIX_TYPES),),
    "MATRIX_SET_DIAG": (_takes(0, *_MATRIX_TYPES),),
    "ONE_HOT": (_takes(1, "int32"), _single(1)),
    "RANGE": tuple(_takes(position, "float32", "int32", "int64") for position in range(3)),
    "RESIZE_BILINEAR": (_has_values(0, 1),),
    "RESIZE_NEAREST_NEIGHBOR": (_has_values(0, 1),),
    "REVERSE_SEQUENCE": (_lengths_stay_inside,),
    "REVERSE_V2": (_has_values(0, 1),),
    "SKIP_GRAM": (_has_values(0),),
    "SOFTMAX": (_rows_are_not_empty, _gives(0, "float32", "int8", "uint8", "int16")),
    "SPACE_TO_BATCH_ND": _BLOCKS,
    "SPLIT": (_output_count_is("num_splits"), _takes(0, "int32"), _single(0)),
    "SPLIT_V": (_output_count_is("num_splits"), _takes(2, "int32"), _single(2), _sizes_are_not_negative),
    "SQUARED_DIFFERENCE": (_square_is_scalable,),
    "STABLEHLO_COMPOSITE": (composite_fits,),
    "STRIDED_SLICE": (_slice_stays_inside,),
    "SUB": (_sum_is_scalable,),
    "SVDF": (_state_is_wide,),
    "UNPACK": (_output_count_is("num"),),
}
