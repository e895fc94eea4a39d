# SPDX-License-Identifier: Apache-2.0
"""How fast the machine is just now, told by the float model, which runs in turns with every file that is measured.

A machine is faster in one minute than in the next. Files that were measured at different times can be compared by what
they took beside the float model; a latency is told at the speed that this had when it was first measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from litesmith.tune._trial import Timing

DISTURBED = 1.1
"""A machine on which the float model takes this many times as long as at its best is not quiet."""


class Speed:
    """The float model's latency by number of threads: when it was first measured, and at its best."""

    def __init__(self) -> None:
        self._first_ms: dict[int, float] = {}
        self._best_ms: dict[int, float] = {}

    def saw(self, timings: Iterable[Timing]) -> None:
        """Take note of rounds with the float model."""
        for timing in timings:
            self._first_ms.setdefault(timing.threads, timing.float_ms)
            self._best_ms[timing.threads] = min(self._best_ms.get(timing.threads, timing.float_ms), timing.float_ms)

    def told(self, timing: Timing) -> Timing:
        """Return a timing at the speed at which the float model ran first.

        Example:
            >>> speed = Speed()
            >>> speed.saw([Timing(1, 1.0, 1.0, 1.0, float_ms=1.0)])
            >>> speed.told(Timing(1, 1.6, 1.4, 1.8, float_ms=2.0)).median_ms
            0.8
        """
        return at_speed(timing, self._first_ms[timing.threads])

    def is_quiet(self, timing: Timing) -> bool:
        """Say whether the float model was about as fast as at its best."""
        return timing.float_ms <= DISTURBED * self._best_ms[timing.threads]


def at_speed(timing: Timing, float_ms: float) -> Timing:
    """Return what a timing would be where the float model takes so long."""
    factor = float_ms / timing.float_ms
    return replace(
        timing,
        median_ms=factor * timing.median_ms,
        low_ms=factor * timing.low_ms,
        high_ms=factor * timing.high_ms,
        float_ms=float_ms,
    )
