# SPDX-License-Identifier: Apache-2.0
"""What an architecture is: a name, a function that lays its layers, and the sizes it can be built at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from litesmith.errors import UsageError
from litesmith.model import Value
from litesmith.zoo._net import Net

WIDEST = 8.0


@dataclass(frozen=True)
class Size:
    """How large to build an architecture."""

    width: float
    resolution: int  # pixels of a side, frames of sound, or tokens of text
    classes: int

    def scaled(self, channels: int) -> float:
        """Return ``channels`` times the width."""
        if channels * self.width < 0.5:
            raise UsageError(
                f"width {self.width:g} leaves nothing of a layer of {channels} channels; use a width of at least "
                f"{0.5 / channels:g}"
            )
        return channels * self.width

    def rounded(self, channels: int) -> int:
        """Return ``channels`` times the width, rounded."""
        return max(round(self.scaled(channels)), 1)

    def divisible(self, channels: int) -> int:
        """Return ``channels`` times the width as a multiple of 8."""
        return divisible(self.scaled(channels))


def divisible(channels: float) -> int:
    """Return the nearest multiple of 8 that is at most a tenth smaller, as MobileNets round.

    Example:
        >>> divisible(24 * 0.75), divisible(12)
        (24, 16)
    """
    nearest = max(int(channels + 4) // 8 * 8, 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


Layers = Callable[[Net, Size], Mapping[str, Value]]


@dataclass(frozen=True)
class Architecture:
    """One network of the zoo."""

    name: str
    layers: Layers
    resolution: int
    classes: int
    smallest: int = 32
    largest: int = 4096
    multiple: int = 1
    unit: str = "pixels"
    classifies: bool = True

    def size(self, width: float, resolution: int | None, classes: int | None) -> Size:
        """Return the size to build; None takes the default. Raises UsageError for one that cannot be built."""
        resolution = self.resolution if resolution is None else resolution
        classes = self.classes if classes is None else classes
        if not 0 < width <= WIDEST:
            raise UsageError(f"{self.name}: width {width:g} is outside 0 to {WIDEST:g}; 1 is the published width")
        if not self.smallest <= resolution <= self.largest:
            raise UsageError(
                f"{self.name}: a resolution of {resolution} {self.unit} is outside {self.smallest} to {self.largest}; "
                f"{self.resolution} is the published one"
            )
        if rest := resolution % self.multiple:
            raise UsageError(
                f"{self.name}: a resolution of {resolution} {self.unit} is not a multiple of {self.multiple}; "
                f"use {resolution - rest} or {resolution - rest + self.multiple}"
            )
        if not self.classifies and classes != self.classes:
            raise UsageError(f"{self.name} has no classes to choose; leave classes out")
        if not 1 <= classes <= 1_000_000:
            raise UsageError(f"{self.name}: {classes} classes cannot be built; use 1 to 1,000,000")
        return Size(width, resolution, classes)
