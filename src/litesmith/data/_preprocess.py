# SPDX-License-Identifier: Apache-2.0
"""Preprocessing that is declared, not coded: one frozen value with a text form and a dict (TOML) form.

The value only says what to do; ``_transform.py`` does it. Because it is a value it can be stored with a recipe,
compared, hashed into a fingerprint, and read back without loss:

    >>> p = Preprocess.parse("resize=256 crop=224 mean=123.675,116.28,103.53 std=58.395,57.12,57.375")
    >>> p.crop, p.mean
    (224, (123.675, 116.28, 103.53))
    >>> str(p)
    'resize=256 crop=224 mean=123.675,116.28,103.53 std=58.395,57.12,57.375'
    >>> Preprocess.from_dict(p.to_dict()) == p == Preprocess.from_toml(p.to_toml())
    True
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from litesmith.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SIZES = ("resize", "crop")
_NUMBERS = ("scale", "offset", "mean", "std")
_COUNTS = ("length", "sample_rate")
_CHOICES = {
    "method": ("nearest", "bilinear", "bicubic", "area", "lanczos"),
    "channels": ("rgb", "bgr", "gray"),
    "source_layout": ("NHWC", "NCHW"),
    "layout": ("NHWC", "NCHW"),
    "dtype": (
        *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "bool"),
    ),
}


@dataclass(frozen=True)
class Preprocess:
    """What is done to each sample, in this order; a field left out does nothing.

    Attributes:
        source_layout: how stored arrays lie in memory; image files are always NHWC.
        channels: convert images to ``rgb``, ``bgr`` or ``gray`` (one channel). Image files are RGB without it.
        resize: an int sets the shorter side and keeps the proportions; ``(height, width)`` stretches to exactly that.
        method: how to resize; the filters widen when they shrink an image, so that nothing aliases.
        crop: the centre, as an int (square) or ``(height, width)``.
        sample_rate: audio files are resampled to this many samples per second.
        length: audio is cut after this many samples, or filled with zeros at the end.
        scale: multiply the values, all by one number or each channel by its own.
        offset: then add.
        mean: then subtract.
        std: then divide by it.
        layout: how the model wants images.
        dtype: the final type; to integers it rounds and saturates. Without it, arithmetic ends in float32.
        inputs: for models with several inputs, the inputs to preprocess; the others pass unchanged. Empty means all.
    """

    source_layout: str = "NHWC"
    channels: str | None = None
    resize: int | tuple[int, int] | None = None
    method: str = "bilinear"
    crop: int | tuple[int, int] | None = None
    sample_rate: int | None = None
    length: int | None = None
    scale: tuple[float, ...] | None = None
    offset: tuple[float, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: str = "NHWC"
    dtype: str | None = None
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, _checked(field.name, value))

    @classmethod
    def parse(cls, text: str) -> Preprocess:
        """Read the text form: ``name=value`` pairs with spaces between; numbers may be fractions.

        >>> Preprocess.parse("resize=224x320 scale=1/255 layout=NCHW").resize
        (224, 320)
        """
        values: dict[str, Any] = {}
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals or not value:
                raise UsageError(f"preprocessing {word!r} is not name=value, e.g. resize=224; in {text!r}")
            if name in values:
                raise UsageError(f"preprocessing names {name!r} twice in {text!r}; keep one")
            values[name] = _from_text(name, value)
        return cls.from_dict(values)

    @classmethod
    def of(cls, value: Preprocess | str | Mapping[str, Any] | None) -> Preprocess:
        """Return the Preprocess that any of its forms stands for; None is the empty one."""
        if isinstance(value, Preprocess):
            return value
        if value is None:
            return cls()
        return cls.parse(value) if isinstance(value, str) else cls.from_dict(value)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocess:
        """Build from plain values, as ``to_dict`` gives them or a TOML table holds them."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise UsageError(f"preprocessing has no {name!r}; it has {', '.join(known)}")
        return cls(**values)

    @classmethod
    def from_toml(cls, text: str) -> Preprocess:
        """Read the body of a TOML table."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"preprocessing is not TOML: {error}") from error

    def to_dict(self) -> dict[str, int | float | str | list[int] | list[float] | list[str]]:
        """Return the fields that are set, as plain values that TOML and JSON can hold.

        >>> Preprocess(crop=224, mean=(127.5,)).to_dict()
        {'crop': 224, 'mean': 127.5}
        """
        return {name: _plain(name, value) for name, value in self._set_fields().items()}

    def to_toml(self) -> str:
        """Return the fields that are set as the body of a TOML table."""
        # What json writes for numbers, strings and lists of them is TOML too.
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in self.to_dict().items())

    def __str__(self) -> str:
        return " ".join(f"{name}={_to_text(value)}" for name, value in self._set_fields().items())

    def __bool__(self) -> bool:
        return self != Preprocess()

    def _set_fields(self) -> dict[str, Any]:
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}


def _checked(name: str, value: Any) -> Any:
    """Return the value in its one canonical form, or raise."""
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise UsageError(f"preprocessing {name}={value} is unknown; use one of {', '.join(_CHOICES[name])}")
        return value
    if name in _COUNTS:
        return _count(name, value)
    if name in _SIZES:
        if not isinstance(value, (list, tuple)):
            return _count(name, value)
        if len(value) != 2:
            raise UsageError(f"preprocessing {name}={value} needs one size or height and width, e.g. {name}=224x320")
        return _count(name, value[0]), _count(name, value[1])
    if name in _NUMBERS:
        values = value if isinstance(value, (list, tuple)) else (value,)
        return tuple(_number(name, item) for item in values) or None
    return _names(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise UsageError(f"preprocessing {name}={value} must be a whole number above 0")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"preprocessing {name}={value} must be a finite number, or one for each channel")
    if value == 0 and name in ("std", "scale"):
        raise UsageError(
            f"preprocessing {name}=0 would make all samples alike; leave {name} out or give its real value"
        )
    return float(value)


def _names(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or "," in name or name.split() != [name]:
            raise UsageError(f"preprocessing inputs={name!r}: an input's name must be text without spaces and commas")
    return names


def _from_text(name: str, text: str) -> Any:
    try:
        if name in _COUNTS:
            return int(text)
        if name in _SIZES:
            sizes = [int(part) for part in text.split("x")]
            return sizes[0] if len(sizes) == 1 else sizes
        if name in _NUMBERS:
            return [_fraction(part) for part in text.split(",")]
    except (ValueError, ZeroDivisionError) as error:
        example = {"resize": "224 or 224x320", "crop": "224 or 224x320", "length": "16000", "sample_rate": "16000"}
        raise UsageError(f"preprocessing {name}={text} is not like {name}={example.get(name, '1/255')}") from error
    return text.split(",") if name == "inputs" else text


def _fraction(text: str) -> float:
    numerator, slash, denominator = text.partition("/")
    return float(numerator) / float(denominator) if slash else float(text)


def _to_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ("x" if isinstance(value[0], int) else ",").join(_to_text(item) for item in value)
    return repr(value) if isinstance(value, float) else str(value)


def _plain(name: str, value: Any) -> Any:
    if name in _NUMBERS and len(value) == 1:
        return value[0]
    return list(value) if isinstance(value, tuple) else value
