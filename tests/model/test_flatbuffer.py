# SPDX-License-Identifier: Apache-2.0
"""The codec: the schema is the wheel's own, other tools read what we write, hostile bytes end in a ModelError."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litesmith.errors import ModelError
from litesmith.model import Builder, Model
from litesmith.model import _schema as schema
from litesmith.model._dtypes import BITS, decode, encode
from litesmith.model._flatbuffer import Reader, Record, Writer, enum_values, table_fields, union_tables


@pytest.fixture(scope="module")
def generated() -> object:
    return pytest.importorskip("ai_edge_litert.schema_py_generated")


@pytest.mark.parametrize("enum", schema.ENUMS)
def test_enumerations_are_the_wheels(generated: object, enum: str) -> None:
    theirs = {k: v for k, v in vars(getattr(generated, enum)).items() if isinstance(v, int)}

    assert enum_values(enum) == theirs


@pytest.mark.parametrize("union", schema.UNIONS)
def test_unions_are_the_wheels(generated: object, union: str) -> None:
    theirs = {k: v for k, v in vars(getattr(generated, union)).items() if isinstance(v, int) and k != "NONE"}

    assert {name: tag for tag, name in enumerate(union_tables(union), 1)} == theirs


def test_tables_have_the_wheels_fields(generated: object) -> None:
    for table in schema.TABLES:
        value = getattr(generated, f"{table}T")()
        theirs = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in vars(value)}
        ours = set()
        for field in table_fields(table):
            if field.used:
                ours.add(field.name.replace("_", "").lower())
                if field.shape == "union":
                    ours.add(field.name.replace("_", "").lower() + "type")
        assert ours == theirs, table


def test_the_wheels_reader_understands_what_we_write(generated: object) -> None:
    b = Builder("graph")
    x = b.input("x", (1, 8, 8, 3))
    data = b.build({"y": b.conv2d(x, 4, kernel=3, stride=2, padding="VALID", name="c")}).to_bytes()
    model = generated.ModelT.InitFromObj(generated.Model.GetRootAs(data, 0))  # type: ignore[attr-defined]
    graph = model.subgraphs[0]

    assert model.version == 3
    assert [t.name.decode() for t in graph.tensors] == ["x", "c/weight", "c/bias", "c"]
    assert graph.operators[0].builtinOptions.strideW == 2
    assert graph.operators[0].builtinOptions.padding == 1
    assert len(model.buffers[graph.tensors[1].buffer].data) == 4 * 3 * 3 * 3 * 4


def test_tables_share_their_layout_and_bytes_are_aligned() -> None:
    record = Record(
        "Model", version=3, buffers=tuple(Record("Buffer", data=bytes(range(n))) for n in (0, 1, 15, 16, 17))
    )
    data = b"".join(Writer().write(record))
    again = Reader(memoryview(data)).root("Model")

    assert again == record
    for buffer in again.buffers:
        address = np.frombuffer(buffer.data, np.uint8).ctypes.data if len(buffer.data) else 0
        start = np.frombuffer(data, np.uint8).ctypes.data
        assert not address or (address - start) % 16 == 0


def _tensors(count: int, **fields: Any) -> Record:
    tensors = tuple(Record("Tensor", **fields) for _ in range(count))
    return Record("Model", version=3, subgraphs=(Record("SubGraph", tensors=tensors),))


def test_equal_vectors_are_stored_once() -> None:
    channels = Record("QuantizationParameters", scale=(0.5, 0.25, 3.0), zero_point=(5, 6, 7))
    record = _tensors(3, shape=(11, 12, 13), name="the same", quantization=channels)
    data = b"".join(Writer().write(record))

    assert Reader(memoryview(data)).root("Model") == record
    assert b"".join(Writer().write(record)) == data
    for content in (
        np.array([3, 11, 12, 13], "<i4").tobytes(),
        np.array([0.5, 0.25, 3.0], "<f4").tobytes(),
        np.array([5, 6, 7], "<i8").tobytes(),
        b"the same",
    ):
        assert data.count(content) == 1
    assert data.index(np.array([5, 6, 7], "<i8").tobytes()) % 8 == 0


def test_vectors_of_equal_bytes_but_other_elements_stay_apart() -> None:
    """Eight bytes are one number or two, and two numbers of 32 bits need not lie where one of 64 must."""
    wide = Record("QuantizationParameters", zero_point=(2**32 + 1,))
    narrow = Record("Tensor", shape=(1, 1))
    record = Record(
        "Model",
        version=3,
        subgraphs=(Record("SubGraph", tensors=(narrow, Record("Tensor", quantization=wide), narrow)),),
    )

    assert Reader(memoryview(b"".join(Writer().write(record)))).root("Model") == record


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "n" * 2000},
        {"shape": tuple(range(2000))},
        {"quantization": Record("QuantizationParameters", zero_point=(0,) * 2000)},
    ],
    ids=["string", "32 bits", "64 bits"],
)
def test_a_file_full_of_equal_vectors_can_be_read_again(fields: dict[str, Any]) -> None:
    record = _tensors(200, **fields)
    data = b"".join(Writer().write(record))

    assert Reader(memoryview(data)).root("Model") == record
    assert len(data) < 200 * 2000  # a byte an element would be more


def test_shared_vectors_do_not_multiply_without_bound() -> None:
    """A file of some kilobytes whose tables all point to one long vector must not unfold to gigabytes."""
    tensors = tuple(Record("Tensor", shape=tuple(range(2000)), name="t") for _ in range(2))
    data = bytearray(
        b"".join(Writer().write(Record("Model", version=3, subgraphs=(Record("SubGraph", tensors=tensors),))))
    )
    # Make a vector of 3,000 offsets that all lead to the subgraph's table.
    start = len(data)
    root = int.from_bytes(data[0:4], "little")
    slots = root - int.from_bytes(data[root : root + 4], "little", signed=True)
    field = root + int.from_bytes(data[slots + 4 + 2 * 2 : slots + 6 + 2 * 2], "little")
    vector = field + int.from_bytes(data[field : field + 4], "little")
    table = vector + 4 + int.from_bytes(data[vector + 4 : vector + 8], "little")
    data[field : field + 4] = (start - field).to_bytes(4, "little")
    data += (3000).to_bytes(4, "little") + bytes(4 * 3000)
    moved = data[table - 64 : start]
    data += moved  # offsets only point forward, so the tables follow again
    target = start + 4 + 4 * 3000 + 64
    for i in range(3000):
        place = start + 4 + 4 * i
        data[place : place + 4] = (target - place).to_bytes(4, "little")

    with pytest.raises(ModelError):
        Model.from_bytes(bytes(data))


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_model_error(noise: bytes) -> None:
    with pytest.raises(ModelError):
        Model.from_bytes(b"\x10\x00\x00\x00TFL3" + noise)


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_strings_are_packed_and_unpacked(words: list[bytes]) -> None:
    packed = encode(np.array([*words, None], object)[:-1], "string")

    assert decode(memoryview(packed), "string", (len(words),)).tolist() == words


@given(st.sampled_from(["int4", "int2", "uint4"]), st.integers(0, 33), st.randoms())
def test_narrow_integers_are_packed_and_unpacked(dtype: str, count: int, chance: object) -> None:
    bits = BITS[dtype]
    low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = np.array([chance.randint(low, high) for _ in range(count)], np.int64)  # type: ignore[attr-defined]
    packed = memoryview(encode(values.astype(np.uint8 if low == 0 else np.int8), dtype))

    assert len(packed) == (bits * count + 7) // 8
    assert decode(packed, dtype, (count,)).tolist() == values.tolist()
