# SPDX-License-Identifier: Apache-2.0
"""Time several subjects fairly: each warmed until it is stable, all interleaved, so that drift hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from litesmith.progress import task

WARM_WINDOW_S = 0.1
WARM_LIMIT_S = 5.0
STEADY_WITHIN = 0.03  # two windows agree when their medians differ by less
ROUND_S = 0.1  # of one subject in one round: long against the clock, short against drift
FEWEST_ROUNDS = 10


@dataclass
class Timed:
    """A function under the clock and what was seen of it, in milliseconds."""

    name: str
    call: Callable[[], object]
    prepare: Callable[[], object] | None = None  # before each call, outside the clock
    first_ms: float = 0.0
    warmup_runs: int = 0
    steady: bool = False
    samples_ms: list[float] = field(default_factory=list)


def warm_up(subject: Timed, *, limit_s: float = WARM_LIMIT_S) -> None:
    """Run until two windows in a row agree, or the limit is reached; keeps the time of the first run of all."""
    subject.first_ms = _time_ms(subject)
    subject.warmup_runs = 1
    previous, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < limit_s:
        window: list[float] = []
        window_start = time.perf_counter()
        while len(window) < 2 or time.perf_counter() - window_start < WARM_WINDOW_S:
            window.append(_time_ms(subject))
        subject.warmup_runs += len(window)
        median = float(np.median(window))
        if previous and abs(median - previous) <= STEADY_WITHIN * previous:
            subject.steady = True
            return
        previous = median


def measure(subjects: Sequence[Timed], *, runs: int | None, seconds: float, description: str = "Measuring") -> bool:
    """Time all subjects in interleaved rounds until each has ``runs`` samples, or has been run for ``seconds``.

    Returns:
        Whether it was completed: Ctrl-C ends it early once every subject has samples, and what was measured stays.
    """
    with task("Warming up", total=len(subjects)) as advance:
        for subject in subjects:
            warm_up(subject, limit_s=min(WARM_LIMIT_S, seconds))  # never longer than what is measured
            advance(1)
    rounds = max(FEWEST_ROUNDS, round(seconds / ROUND_S))
    try:
        with task(description, total=rounds) as advance:
            for index in range(rounds):
                shift = index % len(subjects)
                for subject in (*subjects[shift:], *subjects[:shift]):
                    time_for(subject, runs=_share(runs, index, rounds), seconds=seconds / rounds)
                advance(1)
    except KeyboardInterrupt:
        if not all(subject.samples_ms for subject in subjects):
            raise
        return False
    return True


def _share(runs: int | None, index: int, rounds: int) -> int | None:
    """Return how many of ``runs`` fall into one round."""
    return None if runs is None else runs * (index + 1) // rounds - runs * index // rounds


def time_for(subject: Timed, *, runs: int | None, seconds: float) -> None:
    """Add ``runs`` samples, or those of so many seconds and at least one."""
    if runs is not None:
        subject.samples_ms.extend(_time_ms(subject) for _ in range(runs))
        return
    end = time.perf_counter() + seconds
    while True:
        subject.samples_ms.append(_time_ms(subject))
        if time.perf_counter() >= end:
            return


def _time_ms(subject: Timed) -> float:
    if subject.prepare is not None:
        subject.prepare()
    call, clock = subject.call, time.perf_counter_ns
    start = clock()
    call()
    return (clock() - start) / 1e6
