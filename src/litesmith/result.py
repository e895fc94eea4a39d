# SPDX-License-Identifier: Apache-2.0
"""What was measured, as a frozen value that becomes JSON and comes back unchanged.

A result class is a frozen dataclass that derives from ``Result`` and sets ``kind`` and ``schema``:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size(Result, kind="size", schema=1):
    ...     model: str
    ...     bytes: tuple[int, ...]
    >>> Size.from_json(Size("m.tflite", (1, 2)).to_json()) == Size("m.tflite", (1, 2))
    True

Fields may be numbers, strings, booleans, None, other (plain) frozen dataclasses, and tuples, lists or
string-keyed dicts of those; NumPy scalars and arrays are written as plain numbers and lists.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from litesmith.errors import UsageError

R = TypeVar("R", bound="Result")


class Result:
    """Base of all results. ``kind`` names the result in JSON; ``schema`` counts its incompatible changes."""

    kind: ClassVar[str]
    schema: ClassVar[int]
    _classes: ClassVar[dict[str, type[Result]]] = {}

    def __init_subclass__(cls, *, kind: str, schema: int, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.kind, cls.schema = kind, schema
        Result._classes[kind] = cls

    @staticmethod
    def kinds() -> Mapping[str, type[Result]]:
        """Return the class of each kind, of those whose modules are imported."""
        return Result._classes

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON text; with ``path``, also write it there."""
        text = json.dumps(
            {"kind": self.kind, "schema": self.schema, **encode_fields(self)}, indent=2, ensure_ascii=False
        )
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    @classmethod
    def from_json(cls: type[R], source: str | Path) -> R:
        """Read a result from JSON text, or from the file at a ``Path``; refuses fields that are not of their type."""
        what = str(source) if isinstance(source, Path) else "this"
        try:
            document = json.loads(source.read_text(encoding="utf-8") if isinstance(source, Path) else source)
        except (ValueError, RecursionError) as error:  # of bytes that are no text, too
            raise UsageError(f"{what} is not a {cls.__name__}: it is not JSON ({error})") from error
        if not isinstance(document, dict) or document.get("kind") != cls.kind:
            found = document.get("kind") if isinstance(document, dict) else type(document).__name__
            raise UsageError(f"{what} is not a result of kind {cls.kind!r}, but {found!r}")
        if document.get("schema") != cls.schema:
            raise UsageError(
                f"{what} is a {cls.kind!r} result of schema {document.get('schema')}, and this version of Litesmith "
                f"reads schema {cls.schema}; measure again, or use the version that wrote it"
            )
        try:
            return typing.cast(R, _decode(cls, document, ""))
        except (ValueError, OverflowError, UsageError) as error:  # a UsageError from a class that checks its values
            raise UsageError(f"{what} is a damaged {cls.kind!r} result: {error}") from error


def encode_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON-ready values."""
    return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return encode_fields(value)
    if isinstance(value, np.ndarray):
        return _encode(value.tolist())
    if isinstance(value, np.generic):
        return _encode(value.item())
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no inf and nan; float("inf") reads them back
    if isinstance(value, Path):
        return str(value)
    return value


def _decode(expected: Any, value: Any, where: str) -> Any:
    """Return a JSON value as the type that a field is declared with; ``where`` is the field, for errors."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if dataclasses.is_dataclass(expected):
        hints = typing.get_type_hints(expected)
        known = [field for field in dataclasses.fields(expected) if field.init]
        given = _checked(value, dict, "an object", where)
        for field in known:
            if field.name not in given and field.default is field.default_factory is dataclasses.MISSING:
                raise ValueError(f"{_within(where, field.name)} is missing")
        names = [field.name for field in known if field.name in given]
        decoded = {name: _decode(hints[name], given[name], _within(where, name)) for name in names}
        return typing.cast(Any, expected)(**decoded)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple:
        items = _checked(value, list, "a list", where)
        kinds = [arguments[0]] * len(items) if arguments[1:] == (Ellipsis,) else arguments
        if len(kinds) != len(items):
            raise ValueError(f"{where} must be a list of {len(kinds)}, not of {len(items)}")
        return tuple(
            _decode(kind, item, f"{where}[{n}]") for n, (kind, item) in enumerate(zip(kinds, items, strict=True))
        )
    if origin is list:
        items = _checked(value, list, "a list", where)
        return [_decode(arguments[0], item, f"{where}[{n}]") for n, item in enumerate(items)]
    if origin is dict:
        entries = _checked(value, dict, "an object", where)
        return {key: _decode(arguments[1], item, _within(where, key)) for key, item in entries.items()}
    if expected is float:
        return float(value if value in _NOT_FINITE else _checked(value, (int, float), "a number", where))
    if expected is int:
        return _checked(value, int, "a whole number", where)
    if expected in _PLAIN:
        return _checked(value, expected, _PLAIN[expected], where)
    return value


_NOT_FINITE = ("inf", "-inf", "nan")
_PLAIN = {str: "text", bool: "true or false"}


def _checked(value: Any, kinds: type | tuple[type, ...], name: str, where: str) -> Any:
    is_number = isinstance(value, bool) and kinds is not bool  # to Python, which JSON tells apart
    if is_number or not isinstance(value, kinds):
        raise ValueError(f"{where or 'it'} must be {name}, not {reprlib.repr(value)}")
    return value


def _within(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
