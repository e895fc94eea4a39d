# SPDX-License-Identifier: Apache-2.0
"""What the TFLite metadata of a file says about its inputs: how an image is normalized, between what values lie.

The metadata is a FlatBuffer of its own (root table ModelMetadata, identifier M001; the schema is metadata_schema.fbs of
the TFLite Support library) in the model's metadata entry TFLITE_METADATA. Here only a few of its fields are read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from litesmith.model._graph import Model

ENTRY, IDENTIFIER = "TFLITE_METADATA", b"M001"
IMAGE, NORMALIZATION = 2, 1
_SUBGRAPHS, _INPUTS, _CONTENT, _PROCESS_UNITS, _STATISTICS = 3, 2, 3, 4, 5

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class InputMetadata:
    """What is said about an input; each list of numbers is empty, has one for all channels, or one for each.

    Attributes:
        is_image: whether it is one, of pixels from 0 to 255 before they are normalized.
        mean, std: raw values x go in as ``(x − mean) / std``.
        lowest, highest: between what the values lie, as the tensor holds them.
    """

    is_image: bool
    mean: Numbers
    std: Numbers
    lowest: Numbers
    highest: Numbers


def input_metadata(model: Model) -> tuple[InputMetadata, ...]:
    """Return what the metadata of a file says about its inputs, in order; nothing where there is none, or it is damaged."""
    data = next((bytes(entry.buffer.data) for entry in model.metadata if entry.name == ENTRY), b"")
    if data[4:8] != IDENTIFIER:
        return ()
    try:
        subgraphs = _Table(data, struct.unpack_from("<I", data)[0]).tables(_SUBGRAPHS)
        return tuple(map(_input, subgraphs[0].tables(_INPUTS))) if subgraphs else ()
    except struct.error:  # an offset that leads nowhere
        return ()


def _input(tensor: _Table) -> InputMetadata:
    content, statistics = tensor.table(_CONTENT), tensor.table(_STATISTICS)
    units = [unit.table(1) for unit in tensor.tables(_PROCESS_UNITS) if unit.byte(0) == NORMALIZATION]
    options = units[0] if units else None
    return InputMetadata(
        is_image=content is not None and content.byte(0) == IMAGE,
        mean=() if options is None else options.floats(0),
        std=() if options is None else options.floats(1),
        lowest=() if statistics is None else statistics.floats(1),
        highest=() if statistics is None else statistics.floats(0),
    )


class _Table:
    """A FlatBuffer table, read by slot; what it points to may lie nowhere, and then ``struct.error`` is raised."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._read("<i", place)

    def _read(self, kind: str, place: int) -> int:
        if place < 0:
            raise struct.error("in front of the data")
        return int(struct.unpack_from(kind, self._data, place)[0])

    def _field(self, slot: int) -> int | None:
        if 4 + 2 * slot >= self._read("<H", self._fields):
            return None
        offset = self._read("<H", self._fields + 4 + 2 * slot)
        return self._place + offset if offset else None

    def _followed(self, place: int) -> int:
        return place + self._read("<I", place)

    def _vector(self, slot: int) -> tuple[int, int]:
        """Return where a vector begins and how many elements of 4 bytes it has; no more than fit into the data."""
        place = self._field(slot)
        if place is None:
            return 0, 0
        start = self._followed(place)
        count = self._read("<I", start)
        if 4 * count > len(self._data):
            raise struct.error("longer than the data")
        return start + 4, count

    def byte(self, slot: int) -> int:
        place = self._field(slot)
        return 0 if place is None else self._read("<B", place)

    def table(self, slot: int) -> _Table | None:
        place = self._field(slot)
        return None if place is None else _Table(self._data, self._followed(place))

    def tables(self, slot: int) -> list[_Table]:
        start, count = self._vector(slot)
        return [_Table(self._data, self._followed(start + 4 * number)) for number in range(count)]

    def floats(self, slot: int) -> Numbers:
        start, count = self._vector(slot)
        values = np.array(struct.unpack_from(f"<{count}f", self._data, start), np.float32)
        return tuple(float(str(value)) for value in values)  # 123.675, and not what 32 bits make of it
