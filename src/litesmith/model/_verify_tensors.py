# SPDX-License-Identifier: Apache-2.0
"""What must hold for one tensor by itself: shape, bytes, quantization, sparsity.

The rules are those of LiteRT's loader (tflite/core/interpreter_builder.cc) and verifier (tflite/core/tools/verifier.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from litesmith.errors import ModelError
from litesmith.model._dtypes import BITS, decode, packed_bytes
from litesmith.model._graph import Model, Quantization, Subgraph, Tensor
from litesmith.model._sparsity import stored_values

MOST_ELEMENTS = 2**31 - 1  # LiteRT counts elements in 32 bits
MOST_BYTES = 2**32 - 1
MOST_DIMENSIONS = 8
_SMALLEST_SCALE = 2.0**-126  # below, float32 loses digits and kernels take it for zero

_INTEGER_RANGES = {
    "int2": (-2, 1), "int4": (-8, 7), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1),
    "uint4": (0, 15), "uint8": (0, 255), "uint16": (0, 2**16 - 1),
}  # fmt: skip


def verify_tensor(model: Model, subgraph: Subgraph, tensor: Tensor) -> None:
    """Raise a ModelError that says what is wrong with a tensor; the caller says which tensor it is."""
    for rule in _RULES:
        rule(model, subgraph, tensor)


def _type_is_known(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    if tensor.dtype not in BITS:
        raise ModelError(f"its type {tensor.dtype!r} is none of {', '.join(BITS)}")


def _rank_is_sane(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    if len(tensor.shape) > MOST_DIMENSIONS:
        raise ModelError(
            f"it has {len(tensor.shape)} dimensions, more than the {MOST_DIMENSIONS} that LiteRT's kernels take"
        )


def _shape_is_countable(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    if any(d < 0 for d in tensor.shape):
        raise ModelError(
            f"its shape {list(tensor.shape)} has a negative dimension; a dimension that may change is -1 in "
            "shape_signature, and 1 or more in shape"
        )
    # Zeros aside, as LiteRT's verifier has it: products of part of the dimensions are computed too.
    elements = math.prod(d for d in tensor.shape if d > 1)
    if elements > MOST_ELEMENTS or packed_bytes(tensor.dtype, elements) > MOST_BYTES:
        raise ModelError(f"its shape {list(tensor.shape)} has {elements:,} elements, more than LiteRT can count")


def _signature_fits_shape(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    signature = tensor.shape_signature
    if signature is None:
        return
    fits = len(signature) == len(tensor.shape) and all(
        s in (-1, d) for s, d in zip(signature, tensor.shape, strict=True)
    )
    if signature and not fits:
        raise ModelError(
            f"its shape_signature {list(signature)} does not fit its shape {list(tensor.shape)}; it must have the same "
            "dimensions, or -1 where one may change"
        )


def _buffer_fits_shape(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    if tensor.buffer is None or tensor.sparsity is not None:
        return
    size = len(tensor.buffer)
    if tensor.dtype == "string":
        decode(tensor.buffer.data, "string", tensor.shape)  # says itself what is wrong
    elif BITS[tensor.dtype] == 0:
        raise ModelError(f"a {tensor.dtype} cannot be constant, but it has a buffer of {size:,} bytes; remove it")
    elif size < packed_bytes(tensor.dtype, tensor.elements):  # LiteRT reads no further than the shape goes
        expected = packed_bytes(tensor.dtype, tensor.elements)
        raise ModelError(
            f"its buffer has {size:,} bytes, but {tensor.dtype} of shape {list(tensor.shape)} takes {expected:,}"
        )


def _one_source_of_values(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    if tensor.buffer is not None and tensor.external_buffer:
        raise ModelError("it has both a buffer and an external buffer; keep one")
    if tensor.is_variable and tensor.is_constant:
        raise ModelError("it is marked variable and constant at once; LiteRT takes variables without values only")
    if tensor.is_variable and BITS[tensor.dtype] == 0:
        raise ModelError(f"a variable of type {tensor.dtype} has no size that LiteRT could reserve")


def _external_buffer_exists(model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    ids = {record.id for record in model.external_buffers}
    if tensor.external_buffer and tensor.external_buffer not in ids:
        raise ModelError(f"it refers to external buffer {tensor.external_buffer}, but there are only {sorted(ids)}")


def _sparsity_is_consistent(_model: Model, _subgraph: Subgraph, tensor: Tensor) -> None:
    if tensor.sparsity is None:
        return
    if tensor.buffer is None:
        raise ModelError("it is marked sparse, but only constants can be stored sparse; remove its sparsity")
    if BITS[tensor.dtype] < 8:
        raise ModelError(f"it is {tensor.dtype} and sparse; only types of whole bytes can be stored sparse")
    expected = packed_bytes(tensor.dtype, stored_values(tensor))
    if len(tensor.buffer) != expected:
        raise ModelError(
            f"its sparsity stands for {expected:,} bytes of {tensor.dtype}, but its buffer has {len(tensor.buffer):,}"
        )


def _quantization_fits(_model: Model, subgraph: Subgraph, tensor: Tensor) -> None:
    quantization = tensor.quantization
    if quantization is None:
        return
    if quantization.details is not None:
        _details_fit(subgraph, tensor, quantization)
    elif quantization.scale:
        _scales_fit(tensor, quantization)


def _scales_fit(tensor: Tensor, quantization: Quantization) -> None:
    scales, zeros, axis = quantization.scale, quantization.zero_point, quantization.axis
    if len(scales) != len(zeros):
        raise ModelError(f"it has {len(scales)} scales and {len(zeros)} zero points; there must be as many")
    if (tensor.shape and not 0 <= axis < len(tensor.shape)) or axis < 0:
        raise ModelError(f"it is quantized along axis {axis}, but its shape is {list(tensor.shape)}")
    if len(scales) != 1 and (not tensor.shape or tensor.shape[axis] != len(scales)):
        raise ModelError(
            f"it has {len(scales)} scales along axis {axis} of shape {list(tensor.shape)}; there must be one, or one for "
            "each index along the axis"
        )
    for scale in scales:
        if not (math.isfinite(scale) and scale > 0):
            raise ModelError(f"it has a scale of {scale}; a scale must be positive and finite")
    if len(scales) == 1 and not _SMALLEST_SCALE <= scales[0] <= 1 / _SMALLEST_SCALE:
        raise ModelError(f"it has a scale of {scales[0]}, too small or too large to be computed with")
    low, high = _INTEGER_RANGES.get(tensor.dtype, _INTEGER_RANGES["int32"])
    for zero in zeros:
        if not low <= zero <= high:
            raise ModelError(f"it has a zero point of {zero}, outside {tensor.dtype} ({low} to {high})")


def _details_fit(subgraph: Subgraph, tensor: Tensor, quantization: Quantization) -> None:
    details = quantization.details
    assert details is not None
    if details.table == "CustomQuantization":
        return
    count = len(subgraph.tensors)
    if not 0 <= details.scales < count or not -1 <= details.zero_points < count:
        raise ModelError(
            f"its {details.table} takes scales from tensor {details.scales} and zero points from tensor "
            f"{details.zero_points}, but there are {count} tensors"
        )
    for index in {details.scales, details.zero_points} - {-1}:
        if not subgraph.tensors[index].is_constant:
            raise ModelError(f"its {details.table} refers to tensor {index}, which is not a constant")
    axes = (quantization.axis,) if details.table == "BlockwiseQuantization" else details.quantized_dimensions or ()
    rank = len(tensor.shape)
    if not axes or any(not 0 <= axis < max(rank, 1) for axis in axes):
        raise ModelError(f"it is quantized along {list(axes)}, but its shape is {list(tensor.shape)}")
    if details.block_size < 0 or (details.table == "BlockwiseQuantization" and details.block_size == 0):
        raise ModelError(f"its blocks have {details.block_size} values; a block must have at least one")


_Rule = Callable[[Model, Subgraph, Tensor], None]
_RULES: tuple[_Rule, ...] = (
    _type_is_known,
    _rank_is_sane,
    _shape_is_countable,
    _signature_fits_shape,
    _one_source_of_values,
    _external_buffer_exists,
    _buffer_fits_shape,
    _sparsity_is_consistent,
    _quantization_fits,
)
