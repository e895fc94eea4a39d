# SPDX-License-Identifier: Apache-2.0
"""FlexBuffers: we read what the reference library writes, and nothing leads us outside the bytes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litesmith.errors import ModelError
from litesmith.model._flexbuffer import decode_flexbuffer, with_integer

flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
KEYS = st.text(st.characters(codec="ascii", min_codepoint=97, max_codepoint=122), min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e30, 1e30) | st.text("abcé", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def _equal(found: Any, written: Any) -> bool:
    if isinstance(written, dict):
        return (
            isinstance(found, dict) and {*found} == {*written} and all(_equal(found[k], v) for k, v in written.items())
        )
    if isinstance(written, list):
        return isinstance(found, list) and len(found) == len(written) and all(map(_equal, found, written))
    if isinstance(written, float) or isinstance(found, float):
        return math.isclose(found, written)  # mixed lists of numbers are stored as one type
    return bool(found == written)


@given(VALUES)
def test_what_the_reference_writes_is_read(value: Any) -> None:
    assert _equal(decode_flexbuffer(flexbuffers.Dumps(value)), value)


@given(VALUES, st.data())
def test_damage_ends_in_a_model_error(value: Any, data: st.DataObject) -> None:
    content = bytearray(flexbuffers.Dumps(value))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_flexbuffer(bytes(content[: data.draw(st.integers(0, len(content)))]))
    except ModelError as error:
        assert "FlexBuffer" in str(error)


@given(st.binary(max_size=40))
def test_any_bytes_end_in_a_value_or_a_model_error(noise: bytes) -> None:
    try:
        decode_flexbuffer(noise)
    except ModelError as error:
        assert "FlexBuffer" in str(error)


def test_a_vector_of_itself_does_not_unfold() -> None:
    # One vector whose only element is itself: size 1 at byte 0, the element at byte 1 points to byte 1.
    with pytest.raises(ModelError, match="beyond all measure"):
        decode_flexbuffer(bytes([1, 0, 10 << 2, 2, 10 << 2, 1]))


def test_an_integer_is_changed_in_place() -> None:
    data = bytes(flexbuffers.Dumps({"a": 5, "b": 1000, "c": "text"}))
    changed = with_integer(data, "b", 17)

    assert len(changed) == len(data)
    assert decode_flexbuffer(changed) == {"a": 5, "b": 17, "c": "text"}
    with pytest.raises(ModelError, match="no 'z' to change"):
        with_integer(data, "z", 1)
    with pytest.raises(ModelError, match="cannot become"):
        with_integer(data, "c", 1)
    with pytest.raises(ModelError, match="cannot become"):
        with_integer(data, "a", 2**40)
