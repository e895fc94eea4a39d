# SPDX-License-Identifier: Apache-2.0
"""Read the FlexBuffers encoding, in which custom operators and composites store their options.

Every offset is checked, since LiteRT's kernels follow them without a look: what is decoded here, they can read.

Format: https://flatbuffers.dev/internals/, section FlexBuffers
"""

from __future__ import annotations

import struct
from typing import Any

from litesmith.errors import ModelError

_MOST_VALUES = 100_000
_DEEPEST = 64
_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}
_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING, _MAP, _VECTOR, _BLOB, _BOOL = 0, 1, 2, 3, 4, 5, 9, 10, 25, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 15: _STRING, 36: _BOOL}
_FIXED = {16 + 3 * (size - 2) + i: (kind, size) for size in (2, 3, 4) for i, kind in enumerate((_INT, _UINT, _FLOAT))}


def decode_flexbuffer(data: bytes | memoryview) -> Any:
    r"""Return the value that FlexBuffers bytes stand for: numbers, strings, lists and dictionaries.

    Example:
        >>> decode_flexbuffer(b"axis\x00\x01\x06\x01\x01\x01\x03\x04\x02\x24\x01")
        {'axis': 3}
    """
    data = bytes(data)
    if len(data) < 3:
        raise ModelError(f"a FlexBuffer of {len(data)} bytes is too short")
    width, packed = data[-1], data[-2]
    if width not in _INTEGERS:
        raise ModelError(f"a FlexBuffer ends in a width of {width} bytes")
    return _Reader(data).value(len(data) - 2 - width, width, packed, 0)


def with_integer(data: bytes, key: str, value: int) -> bytes:
    r"""Return the bytes of a map with the integer of one key changed, in place.

    Example:
        >>> decode_flexbuffer(with_integer(b"axis\x00\x01\x06\x01\x01\x01\x03\x04\x02\x24\x01", "axis", 1))
        {'axis': 1}
    """
    options, root = decode_flexbuffer(data), data[-1]
    if not isinstance(options, dict) or key not in options:
        raise ModelError(f"a FlexBuffer has no {key!r} to change")
    reader, width = _Reader(data), 1 << (data[-2] & 3)
    target = reader.follow(len(data) - 2 - root, root)
    index = list(options).index(key)
    kind = data[target + len(options) * width + index] >> 2
    if kind not in (_INT, _UINT) or not 0 <= value < 1 << (8 * width - 1):
        raise ModelError(f"{key!r} of a FlexBuffer cannot become {value}")
    place = target + index * width
    return data[:place] + value.to_bytes(width, "little") + data[place + width :]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = _MOST_VALUES

    def _at(self, position: int, size: int) -> bytes:
        if position < 0 or size < 0 or position + size > len(self.data):
            raise ModelError(f"a FlexBuffer points to byte {position} of {len(self.data)}")
        return self.data[position : position + size]

    def _number(self, position: int, width: int, kind: int) -> int | float:
        raw = self._at(position, width)
        if kind == _FLOAT:
            if width not in _FLOATS:
                raise ModelError(f"a FlexBuffer holds a float of {width} bytes")
            return float(struct.unpack(f"<{_FLOATS[width]}", raw)[0])
        return int.from_bytes(raw, "little", signed=kind == _INT)

    def follow(self, position: int, width: int) -> int:
        """Return where an offset leads."""
        target = position - int(self._number(position, width, _UINT))
        if not 0 <= target <= position:  # what is empty may lie where the offset to it is
            raise ModelError(f"a FlexBuffer points from byte {position} to {target}")
        return target

    def _count(self, target: int, width: int) -> int:
        return int(self._number(target - width, width, _UINT))

    def _key(self, start: int) -> str:
        end = self.data.find(b"\0", start)
        if end < 0:
            raise ModelError(f"a key of a FlexBuffer at byte {start} has no end")
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def value(self, position: int, parent_width: int, packed: int, depth: int) -> Any:
        """Return the value at a position, whose type and width the packed byte has."""
        kind, width = packed >> 2, 1 << (packed & 3)
        self.left -= 1
        if self.left < 0 or depth > _DEEPEST:
            raise ModelError("a FlexBuffer unfolds beyond all measure")
        if kind == _NULL:
            self._at(position, parent_width)
            return None
        if kind in (_INT, _UINT, _FLOAT, _BOOL):
            number = self._number(position, parent_width, kind)
            return bool(number) if kind == _BOOL else number
        target = self.follow(position, parent_width)
        if kind in _INDIRECT:
            return self._number(target, width, _INDIRECT[kind])
        if kind == _KEY:
            return self._key(target)
        return self._sized(target, width, kind, depth)

    def _sized(self, target: int, width: int, kind: int, depth: int) -> Any:
        if kind in _FIXED:
            element, count = _FIXED[kind]
            return self._elements(target, width, [element << 2] * count, depth)
        count = self._count(target, width)
        if kind in (_STRING, _BLOB):
            content = self._at(target, count + (kind == _STRING))  # a string has a zero behind it
            if kind == _STRING and content[-1]:
                raise ModelError(f"a string of a FlexBuffer at byte {target} has no end")
            return content[:count].decode("utf-8", "surrogateescape") if kind == _STRING else content
        if count * width > len(self.data):
            raise ModelError(f"a FlexBuffer claims {count:,} values in {len(self.data)} bytes")
        if kind in _TYPED:
            size = 0 if _TYPED[kind] in (_KEY, _STRING) else width.bit_length() - 1
            return self._elements(target, width, [_TYPED[kind] << 2 | size] * count, depth)
        if kind not in (_MAP, _VECTOR):
            raise ModelError(f"a FlexBuffer holds a value of unknown kind {kind}")
        values = self._elements(target, width, list(self._at(target + count * width, count)), depth)
        return dict(zip(self._keys(target, width, count), values, strict=True)) if kind == _MAP else values

    def _elements(self, target: int, width: int, types: list[int], depth: int) -> list[Any]:
        return [self.value(target + i * width, width, packed, depth + 1) for i, packed in enumerate(types)]

    def _keys(self, target: int, width: int, count: int) -> list[str]:
        """Return the keys of a map: a vector of keys whose place and width stand before the size of the map."""
        place = target - 3 * width
        keys, key_width = self.follow(place, width), int(self._number(place + width, width, _UINT))
        if key_width not in _INTEGERS or self._count(keys, key_width) != count:
            raise ModelError(f"the keys of a FlexBuffer at byte {target} do not fit its values")
        return [self._key(self.follow(keys + i * key_width, key_width)) for i in range(count)]
