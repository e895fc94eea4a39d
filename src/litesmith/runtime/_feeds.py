# SPDX-License-Identifier: Apache-2.0
"""Check that what a user feeds fits an input: never converted silently, and refused with what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from litesmith.errors import SessionError
from litesmith.runtime._arrays import Array


def fitting(name: str, value: Any, view: Array) -> Array:
    """Return `value` as an array that can be copied into `view` as it is, else raise a SessionError.

    An array must have the type and shape of the input. Lists and numbers take its type, if they have the same kind.

    Example:
        >>> fitting("x", [1, 2], np.zeros(2, np.float32))
        array([1., 2.], dtype=float32)
    """
    array = converted(name, value, view.dtype)
    if view.dtype.hasobject and array.dtype.kind in "SU":
        array = array.astype(object)
    if array.dtype != view.dtype:
        raise SessionError(
            f"input {name!r} is {view.dtype.name}, but the array is {array.dtype.name}; "
            f"convert it with .astype(np.{view.dtype.name})"
        )
    if array.shape != view.shape:
        raise SessionError(
            f"input {name!r} has the shape {view.shape}, but the array has {array.shape}; "
            f"reshape it, or call resize({{{name!r}: {array.shape}}})"
        )
    return np.asarray(array)


def converted(name: str, value: Any, dtype: np.dtype[Any]) -> Array:
    """Return an array as it is, and lists and numbers in the type of the input, if they have the same kind."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    try:
        natural = np.asarray(value)
        if dtype.hasobject or np.can_cast(natural.dtype, dtype, "same_kind"):
            return np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SessionError(f"input {name!r} takes an array of {dtype.name}: {error}") from None
    return natural
