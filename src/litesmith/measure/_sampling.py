# SPDX-License-Identifier: Apache-2.0
"""Where one's own code spends its time, by function and line, from the samples of pyinstrument.

A sample is a call stack and the time since the last one. What happens inside a call to LiteRT is timed elsewhere and
left out here; what a library does is counted for the function that called it: that is where something can be changed.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from litesmith.measure import _calls

INTERVAL_S = 0.001
_FIELD, _ATTRIBUTE, _LINE = "\x00", "\x01", "l"  # how pyinstrument writes a frame: function, file, first line, line now


@dataclass(frozen=True)
class Frame:
    """One function on a call stack, and the line it was at."""

    function: str
    file: str
    first_line: int
    line: int


@dataclass(frozen=True)
class Sample:
    """A stretch of time and the functions of one's own code that were on the stack, outermost first."""

    start_us: float
    end_us: float
    frames: tuple[Frame, ...]
    in_litert: bool


@dataclass
class Samples:
    """The samples of the thread that was watched, and from when to when; complete when the watching has ended."""

    samples: list[Sample] = field(default_factory=list)
    start_us: float = 0.0
    end_us: float = 0.0


@contextmanager
def sample_calls(below: str) -> Iterator[Samples]:
    """Sample the call stack of this thread; of each, the part below the file ``below`` is looked at."""
    from pyinstrument import Profiler

    profiler = Profiler(interval=INTERVAL_S, async_mode="disabled")
    found = Samples()
    profiler.start()
    found.start_us = time.monotonic_ns() / 1000
    try:
        yield found
    finally:
        found.end_us = time.monotonic_ns() / 1000
        session = profiler.stop()
        found.samples = list(_decode(session.frame_records, found.start_us, below))


def _decode(records: Sequence[Any], start_us: float, below: str) -> Iterator[Sample]:
    parse = functools.cache(_frame)
    for stack, seconds in records:
        frames = [frame for frame in map(parse, stack) if frame is not None]
        top = max((n for n, frame in enumerate(frames) if frame.file == below), default=-1)
        end_us = start_us + 1e6 * seconds
        own = tuple(frame for frame in frames[top + 1 :] if not is_installed(frame.file))
        yield Sample(start_us, end_us, own, any(frame.file == _calls.__file__ for frame in frames))
        start_us = end_us


def _frame(text: str) -> Frame | None:
    identifier, *attributes = text.split(_ATTRIBUTE)
    parts = identifier.split(_FIELD)
    if len(parts) != 3 or not parts[2].isdigit() or parts[1] == "<thread>":
        return None
    first = int(parts[2])
    line = next((int(a[1:]) for a in attributes if a.startswith(_LINE) and a[1:].isdigit()), first)
    return Frame(parts[0], parts[1], first, line)


@functools.cache
def is_installed(file: str) -> bool:
    """Tell whether a file belongs to Python, to an installed package or to Litesmith, and not to the user."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    return file.startswith("<") or _calls.is_library(file) or any(file.startswith(folder) for folder in folders)
