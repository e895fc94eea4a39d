# SPDX-License-Identifier: Apache-2.0
"""The element types of tensors: their bits, and the NumPy arrays that carry them.

A type is its lower-case name in the format, "float32" or "int4". Types below 8 bits are packed in the file, low bits
first, and unpacked to int8 or uint8 in memory. Strings are packed as TFLite does: count, offsets, bytes.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from litesmith.errors import ModelError

BITS: dict[str, int] = {
    "float32": 32, "float16": 16, "int32": 32, "uint8": 8, "int64": 64, "string": 0, "bool": 8, "int16": 16,
    "complex64": 64, "int8": 8, "float64": 64, "complex128": 128, "uint64": 64, "resource": 0, "variant": 0,
    "uint32": 32, "uint16": 16, "int4": 4, "bfloat16": 16, "int2": 2, "uint4": 4, "float8_e4m3fn": 8, "float8_e5m2": 8,
}  # fmt: skip
"""Bits of one element by type; 0 where an element has no fixed size."""

# NumPy has no such types: the raw bits are what is shown.
_CARRIERS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "int4": "int8", "int2": "int8"} | {
    "uint4": "uint8"
}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type that carries elements of ``dtype`` in memory.

    Example:
        >>> numpy_dtype("float16").name, numpy_dtype("int4").name
        ('float16', 'int8')
    """
    if dtype == "string":
        return np.dtype(object)
    if dtype not in BITS or BITS[dtype] == 0:
        raise ModelError(f"elements of type {dtype!r} have no values outside the runtime")
    carrier: np.dtype[Any] = np.dtype(_CARRIERS.get(dtype, dtype)).newbyteorder("<")
    return carrier


def packed_bytes(dtype: str, elements: int) -> int:
    """Return how many bytes ``elements`` of ``dtype`` take in the file."""
    return (BITS[dtype] * elements + 7) // 8


def decode(data: memoryview, dtype: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the array stored in ``data``: a read-only view where the type allows it, else a copy."""
    if any(d < 0 for d in shape):
        raise ModelError(f"{dtype} of shape {list(shape)} has no definite size")
    elements = math.prod(shape)
    if dtype == "string":
        strings = _strings(data)
        if len(strings) != elements:
            raise ModelError(f"its buffer holds {len(strings)} strings, but its shape {list(shape)} has {elements}")
        return np.array([*strings, None], object)[:-1].reshape(tuple(shape))
    carrier, expected = numpy_dtype(dtype), packed_bytes(dtype, elements)
    if len(data) < expected:
        raise ModelError(f"{dtype} of shape {list(shape)} needs {expected:,} bytes, but its buffer has {len(data):,}")
    if BITS[dtype] < 8:
        return _unpack(np.frombuffer(data, np.uint8, expected), dtype, elements).reshape(tuple(shape))
    array = np.frombuffer(data, carrier, elements).reshape(tuple(shape))
    array.flags.writeable = False
    return array


def encode(array: np.ndarray[Any, Any] | Sequence[str | bytes], dtype: str) -> bytes | memoryview:
    """Return the bytes that store ``array`` as ``dtype``; the values must already be of the type that carries it."""
    if dtype == "string":
        return _pack_strings(
            [v.encode() if isinstance(v, str) else bytes(v) for v in np.ravel(np.array(array, object))]
        )
    values = np.ascontiguousarray(array, numpy_dtype(dtype))
    if BITS[dtype] < 8:
        return _pack(values.ravel(), BITS[dtype])
    return values.reshape(-1).view(np.uint8).data if values.size else b""


def _unpack(packed: np.ndarray[Any, Any], dtype: str, elements: int) -> np.ndarray[Any, Any]:
    bits = BITS[dtype]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values: np.ndarray[Any, Any] = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:elements]
    if not dtype.startswith("u"):
        sign = 1 << (bits - 1)
        values = ((values ^ sign).astype(np.int8) - np.int8(sign)).astype(np.int8)
    return values


def _pack(values: np.ndarray[Any, Any], bits: int) -> bytes:
    per_byte = 8 // bits
    raw = values.astype(np.uint8) & ((1 << bits) - 1)
    raw = np.pad(raw, (0, -raw.size % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed: np.ndarray[Any, Any] = np.bitwise_or.reduce(raw << shifts, axis=1).astype(np.uint8)
    return packed.tobytes()


def _strings(data: memoryview) -> list[bytes]:
    """Unpack TFLite's strings: int32 count, count + 1 int32 offsets from the start of the buffer, the characters."""
    if not len(data):
        return []
    try:
        (count,) = struct.unpack_from("<i", data)
        if count < 0:
            raise ModelError(f"a string buffer claims {count} strings")
        offsets = struct.unpack_from(f"<{count + 1}i", data, 4) if 4 * count <= len(data) else ()
    except struct.error as error:
        raise ModelError(f"a string buffer of {len(data)} bytes is truncated: {error}") from error
    if not offsets or any(b < a for a, b in itertools.pairwise(offsets)) or offsets[-1] > len(data) or offsets[0] < 0:
        raise ModelError(f"a string buffer of {len(data)} bytes has offsets outside it")
    return [bytes(data[start:end]) for start, end in itertools.pairwise(offsets)]


def _pack_strings(strings: list[bytes]) -> bytes:
    start = 4 * (len(strings) + 2)
    offsets = np.cumsum([start, *map(len, strings)])
    return struct.pack(f"<{len(strings) + 2}i", len(strings), *offsets.tolist()) + b"".join(strings)
