# SPDX-License-Identifier: Apache-2.0
"""The NumPy arrays that LiteRT reads and writes in place: their alignment and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ALIGNMENT = 64  # LITERT_HOST_MEMORY_BUFFER_ALIGNMENT
_TAIL_BYTES = 128  # XNNPACK kernels may read past the end (XNN_EXTRA_BYTES)
_PATTERNS = (0xA5, 0x5A)  # complements: no output can be both

# LiteRtElementType to NumPy. NumPy has no bfloat16 and no float8: their bit patterns are given as unsigned integers.
_DTYPES: dict[int, type[np.generic]] = {
    1: np.float32,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    8: np.complex64,
    9: np.int8,
    10: np.float16,
    11: np.float64,
    13: np.uint64,
    16: np.uint32,
    17: np.uint16,
    19: np.uint16,  # bfloat16
    22: np.uint8,  # float8 e4m3fn
    23: np.uint8,  # float8 e5m2
}
_NOT_IN_PLACE = {5: "string", 18: "int4", 20: "int2", 21: "uint4", 14: "resource", 15: "variant", 12: "complex128"}


def dtype_of(element_type: int) -> np.dtype[Any] | None:
    """Return the NumPy type that has the layout of a LiteRtElementType, or None where there is none."""
    found = _DTYPES.get(element_type)
    return None if found is None else np.dtype(found)


def element_type_name(element_type: int) -> str:
    """Return the name of a LiteRtElementType for a message."""
    found = dtype_of(element_type)
    return _NOT_IN_PLACE.get(element_type, f"element type {element_type}") if found is None else found.name


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros as LiteRT wants its buffers: 64-byte aligned, with room to read past the end.

    Example:
        >>> aligned_zeros((2, 3), np.dtype(np.int8)).ctypes.data % 64
        0
    """
    if dtype.hasobject:
        return np.full(shape, b"", dtype=object)  # strings: never read in place
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.zeros(size_bytes + ALIGNMENT + _TAIL_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size_bytes].view(dtype).reshape(shape)


def mark_untouched(array: Array, *, again: bool = False) -> None:
    """Fill an output with a pattern that shows, after a run, whether anybody wrote to it; `again` is for a second one."""
    _bytes_of(array).fill(_PATTERNS[again])


def is_untouched(array: Array, *, again: bool = False) -> bool:
    """Tell whether an output that was marked still has nothing but the pattern."""
    return array.size > 0 and bool((_bytes_of(array) == _PATTERNS[again]).all())


def _bytes_of(array: Array) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def stacked(arrays: Sequence[Array]) -> Array:
    """Stack arrays; those of several shapes become an array of arrays.

    Example:
        >>> stacked([np.zeros(2), np.zeros(2)]).shape, stacked([np.zeros(2), np.zeros(3)]).shape
        ((2, 2), (2,))
    """
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    ragged = np.empty(len(arrays), object)
    ragged[:] = arrays
    return ragged
