# SPDX-License-Identifier: Apache-2.0
"""The application's own spans: `with litesmith.span("resize")` puts a named stretch of time on the timeline.

Where nothing is being traced, a span costs a microsecond and leaves no trace.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A named stretch of time of one thread, on CLOCK_MONOTONIC in microseconds."""

    name: str
    start_us: float
    end_us: float
    thread: int


_collected: list[Span] | None = None


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Put the time of the block on the timeline that is being traced, if any.

    Example:
        >>> with collect_spans() as spans:
        ...     with span("resize"):
        ...         pass
        >>> [s.name for s in spans]
        ['resize']
    """
    start = time.monotonic_ns()
    try:
        yield
    finally:
        if _collected is not None:
            _collected.append(Span(name, start / 1000, time.monotonic_ns() / 1000, threading.get_ident()))


@contextlib.contextmanager
def collect_spans() -> Iterator[list[Span]]:
    """Collect all spans of all threads that end inside the block."""
    global _collected
    before, _collected = _collected, []
    try:
        yield _collected
    finally:
        _collected = before
