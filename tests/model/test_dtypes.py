# SPDX-License-Identifier: Apache-2.0
"""Element types: what is encoded is decoded, and bytes that do not fit are refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from litesmith.errors import ModelError
from litesmith.model import BITS, constant, numpy_dtype
from litesmith.model._dtypes import decode, encode, packed_bytes
from litesmith.model._flatbuffer import enum_values

WHOLE = sorted(dtype for dtype, bits in BITS.items() if bits >= 8)
PACKED = sorted(dtype for dtype, bits in BITS.items() if 0 < bits < 8)


@st.composite
def _arrays(draw: st.DrawFn) -> tuple[str, np.ndarray[Any, Any]]:
    dtype = draw(st.sampled_from(WHOLE))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    return dtype, draw(npst.arrays(numpy_dtype(dtype), shape))


def test_every_type_of_the_format_is_known() -> None:
    assert set(BITS) == {name.lower() for name in enum_values("TensorType")}


@given(_arrays())
def test_types_of_whole_bytes_survive(drawn: tuple[str, np.ndarray[Any, Any]]) -> None:
    dtype, array = drawn
    data = memoryview(encode(array, dtype))
    again = decode(data, dtype, array.shape)

    assert len(data) == packed_bytes(dtype, array.size)
    assert again.tobytes() == array.tobytes()
    assert again.shape == array.shape
    assert again.dtype == numpy_dtype(dtype)
    with pytest.raises(ValueError, match="read-only"):
        again[...] = 0


@given(st.sampled_from(PACKED), st.data())
def test_packed_integers_survive_and_go_low_bits_first(dtype: str, data: st.DataObject) -> None:
    bits = BITS[dtype]
    low = 0 if dtype.startswith("u") else -(2 ** (bits - 1))
    values = data.draw(st.lists(st.integers(low, low + 2**bits - 1), max_size=40))
    array = np.array(values, numpy_dtype(dtype))
    packed = bytes(encode(array, dtype))

    assert len(packed) == packed_bytes(dtype, len(values)) == -(-bits * len(values) // 8)
    assert decode(memoryview(packed), dtype, (len(values),)).tolist() == values
    for index, value in enumerate(values):
        place = bits * index
        assert packed[place // 8] >> place % 8 & (2**bits - 1) == value & (2**bits - 1)


@given(
    npst.arrays(
        object, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=st.binary(max_size=9)
    )
)
def test_strings_survive(words: np.ndarray[Any, Any]) -> None:
    again = decode(memoryview(encode(words, "string")), "string", words.shape)

    assert again.shape == words.shape
    assert again.tolist() == words.tolist()


@given(st.binary(max_size=64), st.integers(0, 5))
def test_any_bytes_are_strings_or_refused(data: bytes, count: int) -> None:
    try:
        words = decode(memoryview(data), "string", (count,)).tolist()
    except ModelError as error:
        assert "string" in str(error)
    else:
        assert len(words) == count
        assert sum(map(len, words)) <= len(data)


def test_litert_reads_the_strings_we_write() -> None:
    data = bytes(encode(["ab", "", "cde"], "string"))

    assert struct.unpack_from("<5i", data) == (3, 20, 22, 22, 25)
    assert data[20:] == b"abcde"


def test_a_view_is_a_view() -> None:
    memory = bytearray(16)
    array = decode(memoryview(memory).toreadonly(), "float32", (4,))
    memory[3] = 0x40

    assert array[0] == 2.0


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "message"),
    [
        ("float32", (2, 3), 23, r"float32 of shape \[2, 3\] needs 24 bytes, but its buffer has 23"),
        ("int4", (3,), 1, "needs 2 bytes, but its buffer has 1"),
        ("float32", (2, -1), 8, "no definite size"),
        ("resource", (), 4, "'resource' have no values"),
        ("int8", (2**40, 2**40), 8, "but its buffer has 8"),
    ],
)
def test_bytes_that_do_not_fit(dtype: str, shape: tuple[int, ...], size: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        decode(memoryview(bytes(size)), dtype, shape)


def test_a_constant_says_what_is_wrong_with_it() -> None:
    from dataclasses import replace

    broken = replace(constant("w", np.zeros(3, np.float32)), shape=(4,))
    with pytest.raises(ModelError, match=r"tensor 'w': float32 of shape \[4\] needs 16 bytes"):
        broken.array()
    assert replace(broken, shape=(2**31, 2**31, 2**31)).elements == 2**93
