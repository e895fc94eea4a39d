# SPDX-License-Identifier: Apache-2.0
"""What the TFLite metadata of a file says about its input: how an image is normalized before it goes in."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from litesmith.model import Model
from litesmith.train._metadata import ENTRY, IDENTIFIER, NORMALIZATION

_BRIGHTEST = 255.0


@dataclass(frozen=True)
class Normalization:
    """Pixels from 0 to 255 go in as ``(x − mean) / std``, one value for all channels or one for each."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def normalization_of(model: Model) -> Normalization | None:
    """Return the normalization that the metadata of a file declares for its first input, None where it declares none.

    Where only the least and the largest value of the input are told (``stats``), black and white stand for them.
    """
    data = next((bytes(entry.buffer.data) for entry in model.metadata if entry.name == ENTRY), b"")
    if data[4:8] != IDENTIFIER:
        return None
    try:
        found = _declared(_Table(data, struct.unpack_from("<I", data)[0]), model)
    except (struct.error, IndexError):  # offsets that lead nowhere
        return None
    if found is None or not all(map(math.isfinite, (*found.mean, *found.std))) or 0.0 in found.std:
        return None
    channels = model.main.tensors[model.main.inputs[0]].shape[-1]
    return found if {len(found.mean), len(found.std)} <= {1, channels} else None


def _declared(root: _Table, model: Model) -> Normalization | None:
    image = root.tables(3)[0].tables(2)[0]  # subgraph_metadata, input_tensor_metadata
    for unit in image.tables(4):
        if unit.byte(0) == NORMALIZATION:
            options = unit.table(1)
            return Normalization(options.floats(0), options.floats(1))
    stats = image.table(5)
    highest, lowest = (_real(values, model) for values in (stats.floats(0), stats.floats(1)))
    std = tuple(_BRIGHTEST / (high - low) if high != low else 0.0 for high, low in zip(highest, lowest, strict=False))
    return Normalization(tuple(-low * step for low, step in zip(lowest, std, strict=False)), std)


def _real(values: tuple[float, ...], model: Model) -> tuple[float, ...]:
    """Return values of the input as real numbers: the metadata of a quantized file has them as the tensor holds them."""
    tensor = model.main.tensors[model.main.inputs[0]]
    if tensor.dtype == "float32" or tensor.quantization is None or not tensor.quantization.scale:
        return values
    scale, zero = tensor.quantization.scale[0], tensor.quantization.zero_point[0]
    return tuple(scale * (value - zero) for value in values)


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

    def table(self, slot: int) -> _Table:
        place = self._field(slot)
        if place is None:
            raise IndexError(slot)
        return _Table(self._data, self._followed(place))

    def tables(self, slot: int) -> list[_Table]:
        start, count = self._vector(slot)
        return [_Table(self._data, self._followed(start + 4 * number)) for number in range(count)]

    def floats(self, slot: int) -> tuple[float, ...]:
        start, count = self._vector(slot)
        values = np.array(struct.unpack_from(f"<{count}f", self._data, start), np.float32)
        return tuple(float(str(value)) for value in values)  # 123.675, and not what 32 bits make of it
