# SPDX-License-Identifier: Apache-2.0
"""Read and write the FlatBuffers encoding of a `.tflite`, driven by the tables of ``_schema``.

Reading trusts nothing: every offset is checked against the file, and the work is bounded by the size of the file, so
that a hostile one ends in a ``ModelError`` that names the place. Writing goes forward, parents before children: tables
first, then the vectors they point to, equal ones once, and last the bulk data, streamed. Equal values give equal bytes.

Format: https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model import _schema

IDENTIFIER = b"TFL3"
LARGEST_ROOT = 2**31 - 16  # offsets inside a FlatBuffer are 32 bits, and LiteRT's verifier stops at 2 GiB
MOST_TABLES = 1_000_000
MOST_UNFOLDED = 4  # elements for each byte of the file: vectors may be shared, but not multiplied without bound

_SCALARS = {"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I"} | {
    "i64": "q",
    "u64": "Q",
    "f32": "f",
    "f64": "d",
}
_UINT32 = struct.Struct("<I")


class Record:
    """One table of the format: its name and its fields, all of them, read as attributes. Immutable.

    Enumerations are their names, vectors are tuples, bytes are ``memoryview`` or ``bytes``, an absent table, union,
    string or vector is None.

    Example:
        >>> options = Record("Conv2DOptions", stride_w=2, stride_h=2, padding="VALID")
        >>> options.stride_w, options.padding, options.dilation_w_factor
        (2, 'VALID', 1)
        >>> options.replace(stride_w=1).stride_w
        1
    """

    __slots__ = ("_values", "table")
    table: str
    _values: dict[str, Any]

    def __init__(self, table: str, /, **values: Any) -> None:
        fields = table_fields(table)
        if unknown := values.keys() - {field.name for field in fields}:
            raise ModelError(f"{table} has no field {sorted(unknown)[0]!r}; it has {', '.join(f.name for f in fields)}")
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "_values", {f.name: values.get(f.name, f.default) for f in fields if f.used})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask before the values are there
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"{self.table} has no field {name!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {self.table} cannot be changed; use replace({name}=…)")

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self.table, {k: bytes(v) if isinstance(v, memoryview) else v for k, v in self._values.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.table == other.table and self._values == other._values

    def __hash__(self) -> int:
        return hash((self.table, *(v for v in self._values.values() if isinstance(v, (int, float, str, tuple)))))

    def __repr__(self) -> str:
        changed = (f"{k}={v!r}" for k, v in self._values.items())
        return f"{self.table}({', '.join(changed)})"

    def replace(self, **values: Any) -> Record:
        """Return a copy with some fields changed."""
        return Record(self.table, **{**self._values, **values})

    def asdict(self) -> Mapping[str, Any]:
        """Return the fields by name."""
        return dict(self._values)


def _revive(table: str, values: dict[str, Any]) -> Record:
    return Record(table, **values)


@dataclass(frozen=True)
class Field:
    """One field of a table: where it is stored and what it holds."""

    slot: int
    name: str
    shape: str  # scalar, string, table, union, or one of those in a vector: [scalar], [string], [table]
    element: str  # the scalar type, or the name of the table, union or enumeration
    default: Any
    alignment: int
    used: bool


@functools.cache
def table_fields(table: str) -> tuple[Field, ...]:
    """Return the fields of a table of the schema, in slot order."""
    fields, slot = [], 0
    for word in _schema.TABLES[table].split():
        declaration, _, default = word.partition("=")
        name, _, kind = declaration.partition(":")
        used, (kind, _, alignment) = not kind.endswith("!"), kind.rstrip("!").partition("@")
        field = _field(slot, name, kind, default, int(alignment or 0), used=used)
        fields.append(field)
        slot += 2 if field.shape == "union" else 1
    return tuple(fields)


def _field(slot: int, name: str, kind: str, default: str, alignment: int, *, used: bool) -> Field:
    element = kind.strip("[]")
    if element in _SCALARS or element in _schema.ENUMS:
        shape = "scalar"
    else:
        shape = "string" if element == "str" else "union" if element in _schema.UNIONS else "table"
    value: Any = None
    if kind == element and shape == "scalar":
        value = _scalar_default(element, default)
    return Field(slot, name, shape if kind == element else f"[{shape}]", element, value, alignment, used)


def _scalar_default(element: str, text: str) -> Any:
    if element in _schema.ENUMS:
        return text if text else enum_name(element, 0)
    if element == "bool":
        return text == "true"
    return float(text or 0) if element.startswith("f") else int(text or 0)


@functools.cache
def enum_values(enum: str) -> dict[str, int]:
    """Return the values of an enumeration of the schema by name."""
    values, following = {}, 0
    for word in _schema.ENUMS[enum].split()[1:]:
        name, _, explicit = word.partition("=")
        following = int(explicit) if explicit else following
        values[name] = following
        following += 1
    return values


@functools.cache
def _enum_names(enum: str) -> dict[int, str]:
    return {value: name for name, value in enum_values(enum).items()}


def enum_name(enum: str, value: int) -> str:
    """Return the name of a value of an enumeration."""
    try:
        return _enum_names(enum)[value]
    except KeyError:
        raise ModelError(
            f"{value} is not a {enum}; the file is damaged, or newer than this version of Litesmith knows"
        ) from None


@functools.cache
def union_tables(union: str) -> tuple[str, ...]:
    """Return the tables of a union of the schema; the tag of the first is 1."""
    return tuple(_schema.UNIONS[union].split())


@functools.cache
def _scalar_struct(element: str) -> struct.Struct:
    kind = _schema.ENUMS[element].split()[0] if element in _schema.ENUMS else element
    return struct.Struct("<" + _SCALARS[kind])


def numpy_scalar(element: str) -> np.dtype[Any]:
    """Return the little-endian NumPy type of a scalar type of the schema."""
    return np.dtype(_scalar_struct(element).format)


class Reader:
    """Reads records out of bytes that may be hostile.

    ``unknown`` names the fields that the file has and the schema does not; ``tables_end`` is the end of what was read,
    byte vectors marked with an alignment aside (they are the bulk data).
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.size = len(data)
        self.unknown: set[str] = set()
        self.tables_end = 8
        self._tables_left = MOST_TABLES
        self._elements_left = MOST_UNFOLDED * self.size + 1024

    def root(self, table: str) -> Record:
        """Read the root table."""
        if self.size < 16 or bytes(self.data[4:8]) != IDENTIFIER:
            raise ModelError(f"it does not carry the mark {IDENTIFIER.decode()} of a .tflite at byte 4")
        return self._table(table, self._uint32(0))

    def _fail(self, what: str, position: int) -> ModelError:
        return ModelError(f"{what} at byte {position} of {self.size}; the file is truncated or damaged")

    def _bounded(self, position: int, length: int, what: str) -> None:
        if position < 0 or length < 0 or position + length > self.size:
            raise self._fail(f"{what} ends outside the file", position)

    def _uint32(self, position: int) -> int:
        self._bounded(position, 4, "an offset")
        return int(_UINT32.unpack_from(self.data, position)[0])

    def _follow(self, position: int) -> int:
        target = position + self._uint32(position)
        if target <= position:
            raise self._fail("an offset points nowhere", position)
        return target

    def _table(self, table: str, position: int) -> Record:
        self._tables_left -= 1
        if self._tables_left < 0:
            raise ModelError(f"it holds more than {MOST_TABLES:,} tables")
        slots, inline = self._slots(position)
        values: dict[str, Any] = {}
        fields = table_fields(table)
        for field in fields:
            if not field.used or field.slot >= len(slots):
                continue
            try:
                if field.shape == "union":
                    values[field.name] = self._union(field, position, slots, inline)
                elif slots[field.slot]:
                    width = _scalar_struct(field.element).size if field.shape == "scalar" else 4
                    if slots[field.slot] + width > inline:
                        raise self._fail("a field lies outside its table", position)
                    values[field.name] = self._value(field, position + slots[field.slot])
            except ModelError as error:
                raise ModelError(f"{field.name}: {error}") from None
        known = fields[-1].slot + (2 if fields[-1].shape == "union" else 1) if fields else 0
        self.unknown.update(f"{table} field {i}" for i, slot in enumerate(slots) if i >= known and slot)
        return Record(table, **values)

    def _slots(self, position: int) -> tuple[tuple[int, ...], int]:
        self._bounded(position, 4, "a table")
        vtable = position - struct.unpack_from("<i", self.data, position)[0]
        self._bounded(vtable, 4, "the layout of a table")
        size, inline = struct.unpack_from("<HH", self.data, vtable)
        if size < 4 or size % 2 or inline < 4:
            raise self._fail("the layout of a table is malformed", vtable)
        self._bounded(vtable, size, "the layout of a table")
        self._bounded(position, inline, "a table")
        self.tables_end = max(self.tables_end, vtable + size, position + inline)
        return struct.unpack_from(f"<{(size - 4) // 2}H", self.data, vtable + 4), inline

    def _union(self, field: Field, position: int, slots: tuple[int, ...], inline: int) -> Record | None:
        if not slots[field.slot]:
            return None
        if slots[field.slot] >= inline:
            raise self._fail("a field lies outside its table", position)
        tag = self.data[position + slots[field.slot]]
        tables = union_tables(field.element)
        if tag == 0 or field.slot + 1 >= len(slots) or not slots[field.slot + 1]:
            return None
        if tag > len(tables):
            raise ModelError(f"{field.element} of kind {tag} is unknown; the file is damaged, or newer than Litesmith")
        if slots[field.slot + 1] + 4 > inline:
            raise self._fail("a field lies outside its table", position)
        return self._table(tables[tag - 1], self._follow(position + slots[field.slot + 1]))

    def _value(self, field: Field, position: int) -> Any:
        if field.shape == "scalar":
            raw = _scalar_struct(field.element).unpack_from(self.data, position)[0]
            return enum_name(field.element, raw) if field.element in _schema.ENUMS else raw
        target = self._follow(position)
        if field.shape == "table":
            return self._table(field.element, target)
        if field.shape == "string":
            return self._bytes(target).tobytes().decode("utf-8", "surrogateescape")
        if field.shape == "[scalar]":
            return self._scalars(field, target)
        count = self._count(target, 4)
        positions = (target + 4 + 4 * i for i in range(count))
        if field.shape == "[string]":
            follow = self._follow
            return tuple(self._bytes(follow(p)).tobytes().decode("utf-8", "surrogateescape") for p in positions)
        return self._tables(field.element, positions)

    def _tables(self, table: str, positions: Iterable[int]) -> tuple[Record, ...]:
        records = []
        for index, position in enumerate(positions):
            try:
                records.append(self._table(table, self._follow(position)))
            except ModelError as error:
                raise ModelError(f"[{index}] {error}") from None
        return tuple(records)

    def _count(self, position: int, width: int) -> int:
        count = self._uint32(position)
        self._bounded(position + 4, count * width, f"a vector of {count:,}")
        self._elements_left -= count
        if self._elements_left < 0:
            raise ModelError("its vectors overlap so often that it would unfold beyond all measure")
        return count

    def _bytes(self, position: int) -> memoryview:
        count = self._count(position, 1)
        self.tables_end = max(self.tables_end, position + 4 + count)
        return self.data[position + 4 : position + 4 + count]

    def _scalars(self, field: Field, position: int) -> Any:
        if field.element == "u8" and field.alignment != 4:
            if not field.alignment:
                return self._bytes(position)
            count = self._uint32(position)
            self._bounded(position + 4, count, f"a buffer of {count:,} bytes")
            return self.data[position + 4 : position + 4 + count]
        dtype = numpy_scalar(field.element)
        count = self._count(position, dtype.itemsize)
        self.tables_end = max(self.tables_end, position + 4 + count * dtype.itemsize)
        values = tuple(np.frombuffer(self.data, dtype, count, position + 4).tolist())
        return tuple(enum_name(field.element, v) for v in values) if field.element in _schema.ENUMS else values


@dataclass
class _Vector:
    """What lies behind the tables: how it is aligned, how many elements it counts, and where the offsets to it are."""

    alignment: int
    count: int
    data: bytes | memoryview
    places: list[int]


class Writer:
    """Writes a record and its children as FlatBuffer bytes; vectors to be aligned at 16 come last, streamed.

    Equal vectors and strings are stored once, behind all tables, because offsets only point forward. Above all this saves
    zero points: those of quantized weights and biases, 8 bytes of zeros a channel, were 7 % of MobileNet V2 in int8.
    """

    def __init__(self) -> None:
        self._head = bytearray(8)
        self._vtables: dict[bytes, int] = {}
        self._vectors: list[_Vector] = []
        self._shared: dict[tuple[int, int, bytes], _Vector] = {}

    def write(self, root: Record) -> Iterator[bytes | memoryview]:
        """Yield the encoded root, piece by piece."""
        self._head[4:8] = IDENTIFIER
        _UINT32.pack_into(self._head, 0, self._table(root))
        position = len(self._head)
        pieces: list[bytes | memoryview] = []
        for vector in sorted(self._vectors, key=lambda vector: vector.alignment):
            padding = -(position + 4) % vector.alignment
            for place in vector.places:
                _UINT32.pack_into(self._head, place, position + padding - place)
            pieces += [bytes(padding) + _UINT32.pack(vector.count), vector.data]
            position += padding + 4 + len(vector.data)
            if position > LARGEST_ROOT:
                raise ModelError("the model is too large for one FlatBuffer (2 GiB); store its buffers outside")
        yield bytes(self._head)
        yield from pieces
        yield bytes(-position % 16)

    def _align(self, alignment: int) -> None:
        self._head.extend(bytes(-len(self._head) % alignment))

    def _table(self, record: Record) -> int:
        present, slot_count = _present_fields(record)
        layout, inline, alignment = _layout(present, slot_count)
        vtable = self._vtables.get(layout)
        if vtable is None:
            self._align(2)
            vtable = self._vtables[layout] = len(self._head)
            self._head += layout
        self._align(alignment)
        position = len(self._head)
        self._head += bytes(inline)
        struct.pack_into("<i", self._head, position, position - vtable)
        slots = struct.unpack_from(f"<{slot_count}H", layout, 4)
        for slot, field, value in present:
            place = position + slots[slot]
            if field is None:
                self._head[place] = value
            elif field.shape == "scalar":
                raw = enum_values(field.element)[value] if field.element in _schema.ENUMS else value
                _scalar_struct(field.element).pack_into(self._head, place, raw)
            else:
                self._child(field, value, place)
        return position

    def _child(self, field: Field, value: Any, place: int) -> None:
        if field.shape in ("table", "union"):
            _UINT32.pack_into(self._head, place, self._table(value) - place)
        elif field.shape in ("[table]", "[string]"):
            self._offset_vector(field, value, place)
        elif field.shape == "string":
            self._string(value, place)
        elif field.alignment == 16:  # bulk data: too large to be compared
            data = memoryview(value).cast("B")
            self._vectors.append(_Vector(16, len(data), data, [place]))
        else:
            self._scalar_vector(field, value, place)

    def _offset_vector(self, field: Field, values: tuple[Any, ...], place: int) -> None:
        self._align(4)
        position = len(self._head)
        _UINT32.pack_into(self._head, place, position - place)
        self._head += _UINT32.pack(len(values)) + bytes(4 * len(values))
        for index, value in enumerate(values, 1):
            inner = position + 4 * index
            if field.shape == "[table]":
                _UINT32.pack_into(self._head, inner, self._table(value) - inner)
            else:
                self._string(value, inner)

    def _string(self, text: str, place: int) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self._share(1, len(data), data + b"\0", place)

    def _scalar_vector(self, field: Field, values: Any, place: int) -> None:
        if field.element == "u8" and not field.alignment:
            values = np.frombuffer(values, np.uint8)
        elif field.element in _schema.ENUMS:
            values = [enum_values(field.element)[value] for value in values]
        array = np.asarray(values, numpy_scalar(field.element))
        self._share(array.itemsize, array.size, array.tobytes(), place)

    def _share(self, width: int, count: int, data: bytes, place: int) -> None:
        """Point to a vector of this content; a copy serves only so often that its bytes pay for what a Reader unfolds."""
        vector = self._shared.get((width, count, data))
        if vector is None or len(vector.places) == MOST_UNFOLDED * width:
            vector = self._shared[width, count, data] = _Vector(max(width, 4), count, data, [])
            self._vectors.append(vector)
        vector.places.append(place)


def _present_fields(record: Record) -> tuple[list[tuple[int, Field | None, Any]], int]:
    """Return (slot, field, value) of what must be stored, and the number of slots; a None field is a union's tag."""
    present: list[tuple[int, Field | None, Any]] = []
    values = record.asdict()
    for field in table_fields(record.table):
        value = values.get(field.name)  # what is no longer used is not there
        if value is None or (field.shape == "scalar" and value == field.default):
            continue
        if field.shape == "union":
            present.append((field.slot, None, 1 + union_tables(field.element).index(value.table)))
            present.append((field.slot + 1, field, value))
        else:
            present.append((field.slot, field, value))
    return present, 1 + max((slot for slot, _, _ in present), default=-1)


def _layout(present: list[tuple[int, Field | None, Any]], slot_count: int) -> tuple[bytes, int, int]:
    """Return vtable, inline size and alignment of a table: fields by falling width, so that they leave no gaps."""

    def width(field: Field | None) -> int:
        if field is None:
            return 1
        return _scalar_struct(field.element).size if field.shape == "scalar" else 4

    slots, position = [0] * slot_count, 4
    ordered = sorted(present, key=lambda entry: -width(entry[1]))
    alignment = 8 if ordered and width(ordered[0][1]) == 8 else 4
    if alignment == 8:  # the table starts with a 4-byte offset: a 4-byte field fills the gap before the 8-byte ones
        filler = next((entry for entry in ordered if width(entry[1]) == 4), None)
        if filler is None:
            position = 8
        else:
            ordered.remove(filler)
            ordered.insert(0, filler)
    for slot, field, _ in ordered:
        slots[slot] = position
        position += width(field)
    return struct.pack(f"<HH{slot_count}H", 4 + 2 * slot_count, position, *slots), position, alignment
