# SPDX-License-Identifier: Apache-2.0
"""A budget: what a model may lose, take and weigh, what is to be as small as possible, and how long to search."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from litesmith.errors import UsageError

GOALS = ("latency", "size", "download", "drop")
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Zµ%]*)\s*")
_TIME_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}


@dataclass(frozen=True)
class Budget:
    """The bounds of a search; None is no bound.

    Attributes:
        max_drop: what the score may fall by: a share (0.01 is one point of a score in percent), or with
            ``drop_is_relative`` a share of the float model's score.
        drop_is_relative: for scores that are no shares, such as an error.
        max_latency_ms: of one inference.
        max_size_bytes: of the file.
        minimize: "latency", "size", "download" (the file through gzip) or "drop": what decides among the candidates that
            are within the bounds.
        time_s: how long the search may take.
    """

    max_drop: float = 0.01
    drop_is_relative: bool = False
    max_latency_ms: float | None = None
    max_size_bytes: int | None = None
    minimize: str = "latency"
    time_s: float | None = None

    def __post_init__(self) -> None:
        if self.minimize not in GOALS:
            raise UsageError(f"there is no {self.minimize!r} to minimize; choose one of {', '.join(GOALS)}")
        for name in ("max_latency_ms", "max_size_bytes", "time_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0, not {value}")
        if not 0 <= self.max_drop < math.inf:
            raise UsageError(f"max_drop must be 0 or more, not {self.max_drop}")

    @property
    def counts_latency(self) -> bool:
        """Whether a faster file is of any use."""
        return self.minimize == "latency" or self.max_latency_ms is not None

    def drop_bound(self, float_score: float) -> float:
        """Return what the score may fall by, in its own unit."""
        return self.max_drop * abs(float_score) if self.drop_is_relative else self.max_drop

    def text(self) -> str:
        """Return the bounds in words."""
        unit = "% of the float score" if self.drop_is_relative else "points"
        words = [f"drop ≤ {100 * self.max_drop:g} {unit}"]
        words += [] if self.max_latency_ms is None else [f"latency ≤ {self.max_latency_ms:g} ms"]
        words += [] if self.max_size_bytes is None else [f"size ≤ {self.max_size_bytes / 1e6:g} MB"]
        return f"{', '.join(words)}; least {self.minimize}"


def parse_share(text: str | float) -> float:
    """Return a share: "1%" and 0.01 are the same.

    Example:
        >>> parse_share("1%"), parse_share("0.5 %"), parse_share(0.02)
        (0.01, 0.005, 0.02)
    """
    if not isinstance(text, str):
        return float(text)
    number, unit = _split(text, "a share such as 1% or 0.01")
    if unit not in ("%", ""):
        raise UsageError(f"{text!r} is not a share; write 1% or 0.01")
    return number / 100 if unit == "%" else number


def parse_seconds(text: str | float) -> float:
    """Return a time in seconds.

    Example:
        >>> parse_seconds("15m"), parse_seconds("5ms"), parse_seconds(3)
        (900.0, 0.005, 3.0)
    """
    if not isinstance(text, str):
        return float(text)
    number, unit = _split(text, "a time such as 5ms, 30s or 15m")
    if unit not in _TIME_S:
        raise UsageError(f"{text!r} is not a time; its unit must be one of {', '.join(filter(None, _TIME_S))}")
    return number * _TIME_S[unit]


def parse_milliseconds(text: str | float) -> float:
    """Return a latency in milliseconds; a bare number is milliseconds already.

    Example:
        >>> parse_milliseconds("5ms"), parse_milliseconds("5"), parse_milliseconds("0.01s")
        (5.0, 5.0, 10.0)
    """
    if not isinstance(text, str):
        return float(text)
    number, unit = _split(text, "a latency such as 5ms")
    return number if not unit else round(1000 * parse_seconds(text), 9)


def parse_bytes(text: str | float) -> int:
    """Return a size in bytes.

    Example:
        >>> parse_bytes("4MB"), parse_bytes("64 KiB"), parse_bytes(100)
        (4000000, 65536, 100)
    """
    number, unit = _split(text, "a size such as 4MB") if isinstance(text, str) else (text, "")
    if unit.lower() not in _SIZE_BYTES:
        raise UsageError(f"{text!r} is not a size; its unit must be B, kB, MB, GB, KiB, MiB or GiB")
    if not math.isfinite(number):
        raise UsageError(f"a size must be a finite number of bytes, not {text}")
    return int(number * _SIZE_BYTES[unit.lower()])


def _split(text: str, expected: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not {expected}")
    return float(match[1]), match[2]
