# SPDX-License-Identifier: Apache-2.0
"""Between what the inputs of a model lie where no sample shows it: as it was said, as the file says, or as assumed.

A file may carry TFLite metadata, a FlatBuffer of its own (metadata_schema.fbs of the TFLite Support library). Of an image it
has the mean and the deviation that pixels of 0 to 255 are normalized with, of other inputs their least and largest value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._run import input_names

Array = np.ndarray[Any, Any]
Bounds = tuple[float, float]
InputRange = Bounds | Mapping[str, Bounds]
"""Of the only input, or of several by name."""
_ENTRY, _IDENTIFIER = "TFLITE_METADATA", b"M001"
_SUBGRAPHS, _INPUTS, _CONTENT, _PROCESS_UNITS, _STATISTICS = 3, 2, 3, 4, 5
_IMAGE, _NORMALIZATION = 2, 1
_PIXELS = np.array([0.0, 255.0])
ASSUMED_DEVIATIONS = 6.0
"""How many standard deviations of an input of which nothing is known count as its range."""


def input_ranges(model: Model, given: InputRange | None) -> tuple[dict[str, Bounds], list[str]]:
    """Return what is known of the float inputs, by name of the tensor, and in words where it comes from."""
    wanted = _by_tensor(model, given)
    told = _told_by_metadata(model)
    found: dict[str, Bounds] = {}
    notes = []
    for name in _float_inputs(model).values():
        bounds, source = (
            (wanted[name], "as was said") if name in wanted else (told.get(name), "as the file's metadata say")
        )
        if bounds is not None:
            found[name] = bounds
            notes.append(f"the input {name!r} is taken to lie between {bounds[0]:g} and {bounds[1]:g}, {source}")
        else:
            reach = f"{ASSUMED_DEVIATIONS:g}"
            notes.append(
                f"the input {name!r} is assumed to be normalized, mean 0 and deviation 1, and to lie between -{reach} and "
                f"{reach}: a wider one, such as pixels of 0 to 255, would be cut off. Say its range (--input-range "
                "LOW,HIGH), or give data"
            )
    return found, notes


def _float_inputs(model: Model) -> dict[str, str]:
    """Return the names of the tensors of float inputs, by the names that a user may give: those of signatures first."""
    found: dict[str, str] = {}
    for signature, subgraph in entry_points(model):
        tensors = model.subgraphs[subgraph].tensors
        for name, index in input_names(model, signature=signature).items():
            if tensors[index].dtype == "float32":
                found.setdefault(name, tensors[index].name)
    return found


def _by_tensor(model: Model, given: InputRange | None) -> dict[str, Bounds]:
    if given is None:
        return {}
    inputs = _float_inputs(model)
    names = ", ".join(inputs) or "none"
    if not isinstance(given, Mapping):
        if len(inputs) != 1:
            raise UsageError(f"say which input the range is for, as NAME=LOW,HIGH; the float inputs are: {names}")
        given = {next(iter(inputs)): given}
    tensors = {**{tensor: tensor for tensor in inputs.values()}, **inputs}
    found = {}
    for name, (low, high) in given.items():
        if name not in tensors:
            raise UsageError(f"the model has no float input {name!r}; the float inputs are: {names}")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(
                f"{low:g} to {high:g} is no range of the input {name!r}; give two numbers, the smaller first"
            )
        found[tensors[name]] = (float(low), float(high))
    return found


# --------------------------------------------------------------------------------- what the metadata of the file say


def _told_by_metadata(model: Model) -> dict[str, Bounds]:
    """Return the ranges of inputs of the main subgraph that the file's metadata tell; damaged metadata tell nothing."""
    data = next((bytes(entry.buffer.data) for entry in model.metadata if entry.name == _ENTRY), b"")
    if data[4:8] != _IDENTIFIER:
        return {}
    found = {}
    try:
        for index, table in zip(model.main.inputs, _input_tables(data), strict=False):
            bounds = _bounds(table)
            if bounds is not None and model.main.tensors[index].dtype == "float32":
                found[model.main.tensors[index].name] = bounds
    except (struct.error, ValueError):  # an offset that leads out of the data
        return {}
    return found


def _input_tables(data: bytes) -> list[_Table]:
    subgraphs = _Table(data, _unsigned(data, 0)).tables(_SUBGRAPHS)
    return subgraphs[0].tables(_INPUTS) if subgraphs else []


def _bounds(tensor: _Table) -> Bounds | None:
    content = tensor.table(_CONTENT)
    normalizations = [unit for unit in tensor.tables(_PROCESS_UNITS) if unit.byte(0) == _NORMALIZATION]
    if normalizations:
        options = normalizations[0].table(1)
        if options is None or content is None or content.byte(0) != _IMAGE:
            return None  # between what the values lie that are normalized is not said
        mean, deviation = options.floats(0), options.floats(1)
        if not mean.size or deviation.size != mean.size or not np.all(deviation):
            return None
        ends = (_PIXELS[:, None] - mean) / deviation
        return _range(ends, ends)
    statistics = tensor.table(_STATISTICS)
    return None if statistics is None else _range(statistics.floats(1), statistics.floats(0))


def _range(lows: Array, highs: Array) -> Bounds | None:
    if not lows.size or not highs.size:
        return None
    low, high = float(lows.min()), float(highs.max())
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None


@dataclass(frozen=True)
class _Table:
    """A table of a FlatBuffer, read by slot; whatever leads out of the data raises."""

    data: bytes
    position: int

    def _place(self, slot: int) -> int:
        """Return where a field is, 0 where it is absent."""
        layout = self.position - struct.unpack_from("<i", self.data, self.position)[0]
        if layout < 0:
            raise ValueError("a table without a layout")
        size, entry = struct.unpack_from("<H", self.data, layout)[0], 4 + 2 * slot
        offset = struct.unpack_from("<H", self.data, layout + entry)[0] if entry < size else 0
        return self.position + offset if offset else 0

    def byte(self, slot: int) -> int:
        place = self._place(slot)
        return int(struct.unpack_from("<B", self.data, place)[0]) if place else 0

    def table(self, slot: int) -> _Table | None:
        place = self._place(slot)
        return _Table(self.data, place + _unsigned(self.data, place)) if place else None

    def floats(self, slot: int) -> Array:
        start, count = self._vector(slot)
        return np.frombuffer(self.data, "<f4", count, start).astype(np.float64) if count else np.zeros(0)

    def tables(self, slot: int) -> list[_Table]:
        start, count = self._vector(slot)
        if 4 * count > len(self.data):
            raise ValueError("a vector longer than the data")
        places = [start + 4 * number for number in range(count)]
        return [_Table(self.data, place + _unsigned(self.data, place)) for place in places]

    def _vector(self, slot: int) -> tuple[int, int]:
        place = self._place(slot)
        if not place:
            return 0, 0
        start = place + _unsigned(self.data, place)
        return start + 4, _unsigned(self.data, start)


def _unsigned(data: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", data, position)[0])
