# SPDX-License-Identifier: Apache-2.0
"""The catalogue: what each variant of each architecture costs and reaches, as published, with the sources."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.zoo._build import build

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = Path(__file__).parent / "catalogue.toml"
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "MB": 1e6}
_FIGURE = re.compile(r"(?:(?P<times>\d+) × )?(?P<number>[\d,]+(?:\.(?P<decimals>\d+))?)(?P<unit>[kMG]B?)?")


@dataclass(frozen=True)
class Figure:
    """A published number as printed, and the range of numbers that would be printed like that."""

    value: float
    lowest: float
    highest: float

    @staticmethod
    def parse(text: str, *, truncated: bool = False) -> Figure:
        """Read a number as printed, its last digit rounded or the rest cut off.

        Example:
            >>> Figure.parse("4.24M")
            Figure(value=4240000.0, lowest=4235000.0, highest=4245000.0)
            >>> Figure.parse("18M", truncated=True).highest, Figure.parse("77,706").highest
            (19000000.0, 77706.0)
        """
        match = _FIGURE.fullmatch(text)
        if match is None or (match["unit"] or "") not in _UNITS:
            raise UsageError(f"{text!r} is not a figure such as 4.24M, 0.39G, 16.9MB or 77,706")
        scale = int(match["times"] or 1) * _UNITS[match["unit"] or ""]
        exact = match["unit"] is None and match["decimals"] is None
        value = float(match["number"].replace(",", ""))
        digit = 0.0 if exact else 10.0 ** -len(match["decimals"] or "")
        below, above = (0.0, digit) if truncated else (digit / 2, digit / 2)
        return Figure(value * scale, (value - below) * scale, (value + above) * scale)

    def halved(self) -> Figure:
        """Return half of it: multiply-accumulates, of floating-point operations."""
        return Figure(self.value / 2, self.lowest / 2, self.highest / 2)

    def agrees(self, counted: float, tolerance: float = 0.01) -> bool:
        """Whether a count is within ``tolerance`` of a number that would be printed like this."""
        return self.lowest * (1 - tolerance) <= counted <= self.highest * (1 + tolerance)


@dataclass(frozen=True)
class Entry:
    """One variant of an architecture and what is published of it; None where no figure was found."""

    name: str  # of the architecture
    family: str
    task: str
    dataset: str
    metric: str
    width: float
    resolution: int
    classes: int
    params: Figure | None
    macs: Figure | None
    size: Figure | None  # of the float file, in bytes
    accuracy: float | None  # by ``metric``, of the float model
    accuracy_int8: float | None
    licence: str
    source: str
    cost_source: str
    note: str

    @property
    def variant(self) -> str:
        """The name with width and resolution, such as ``mobilenet_v2_0.35_96``."""
        return f"{self.name}_{self.width}_{self.resolution}"

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger accuracy is the better one; of an error rate it is not."""
        return "error" not in self.metric

    def build(self, *, seed: int = 0) -> Model:
        """Build this variant with random weights."""
        return build(self.name, width=self.width, resolution=self.resolution, classes=self.classes, seed=seed)


@functools.cache
def catalogue() -> tuple[Entry, ...]:
    """Return all published variants of all architectures.

    Example:
        >>> best = max((e for e in catalogue() if e.dataset == "ImageNet"), key=lambda e: e.accuracy or 0)
        >>> best.variant, best.accuracy, best.accuracy_int8
        ('efficientnet_lite4_1.0_300', 81.5, 80.2)
    """
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        _entry(name, {**section, **variant}) for name, section in document.items() for variant in section["variants"]
    )


def _entry(section: str, row: dict[str, Any]) -> Entry:
    truncated = row.get("digits") == "truncated"

    def figure(key: str) -> Figure | None:
        return Figure.parse(row[key], truncated=truncated) if key in row else None

    flops = figure("flops")
    return Entry(
        name=row.get("architecture", section),
        params=figure("params"),
        macs=flops.halved() if flops is not None else figure("macs"),
        size=figure("size"),
        accuracy=row.get("accuracy"),
        accuracy_int8=row.get("accuracy_int8"),
        cost_source=row.get("cost_source", row["source"]),
        note=row.get("note", ""),
        **{
            key: row[key]
            for key in ("family", "task", "dataset", "metric", "width", "resolution", "classes", "licence", "source")
        },
    )
