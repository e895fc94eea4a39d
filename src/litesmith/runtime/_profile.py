# SPDX-License-Identifier: Apache-2.0
"""What LiteRT's profiler records, as Python values.

The profiler's buffer takes 524,288 events and silently drops what comes after; a `Recorder` empties it in time.
Telemetry events are left out: what they call a duration is a packed status code.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from ctypes import c_int, c_void_p
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from litesmith.runtime import _litert

EventType = Literal["default", "operator", "delegate_operator", "delegate_profiled_operator", "instrumentation"]
EventSource = Literal["litert", "interpreter", "delegate"]

_TYPES: dict[int, EventType] = {
    1: "default",
    2: "operator",
    4: "delegate_operator",
    8: "delegate_profiled_operator",
    16: "instrumentation",
}
_SOURCES: tuple[EventSource, ...] = ("litert", "interpreter", "delegate")
_DRAIN_AT = 400_000  # of 524,288, so that a run of even 100,000 events still fits


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """One event of LiteRT's profiler.

    Attributes:
        tag: The operator's or kernel's name, e.g. "CONV_2D" or "Convolution (NHWC, F32) IGEMM".
        type: "operator" is a built-in kernel, "delegate_operator" one of Litesmith's delegate,
            "delegate_profiled_operator" a kernel inside XNNPACK or another delegate, "default" a phase of the run
            ("Invoke", "LiteRT::Run[buffer registration]", "LiteRT::Run[Buffer sync]").
        start_us: CLOCK_MONOTONIC in µs, as time.monotonic(); 0 for kernels inside XNNPACK, which are only timed.
        duration_us: Duration; whole µs except for "delegate_operator".
        node: Of "operator" and "delegate_operator", the index of the operator in the file, -1 for a conversion of
            layouts; of "delegate_profiled_operator", the position in the partition, which starts at 0 for each.
        subgraph: Index of the subgraph.
        source: Who recorded it.
    """

    tag: str
    type: EventType
    start_us: float
    duration_us: float
    node: int
    subgraph: int
    source: EventSource


class Recorder:
    """The profiler of one compiled model, emptied before it is full."""

    def __init__(self, compiled_model: c_void_p) -> None:
        self._litert = _litert.load()
        self._profiler = self._litert.handle("LiteRtCompiledModelGetProfiler", compiled_model)
        self._events: list[ProfileEvent] = []
        self.running = False

    def start(self) -> None:
        """Forget all events and record from here on."""
        self._events = []
        self._litert.call("LiteRtStartProfiler", self._profiler)
        self.running = True

    def after_run(self) -> None:
        """Empty the profiler's buffer if it might be too small for another run."""
        if self._count() >= _DRAIN_AT:
            self._drain()
            self._litert.call("LiteRtStartProfiler", self._profiler)  # empties the buffer; a reset would also stop

    def stop(self) -> list[ProfileEvent]:
        """Stop recording and return the events since the start."""
        self._litert.call("LiteRtStopProfiler", self._profiler)
        self.running = False
        self._drain()
        self._litert.call("LiteRtResetProfiler", self._profiler)
        events, self._events = self._events, []
        return events

    def _count(self) -> int:
        count = c_int()
        self._litert.call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        return count.value

    def _drain(self) -> None:
        count = self._count()
        if count:
            raw = (_litert.ProfiledEvent * count)()
            self._litert.call("LiteRtGetProfilerEvents", self._profiler, count, raw)
            self._events.extend(_decode(np.frombuffer(memoryview(raw), _EVENT)))


# The struct as NumPy sees it: reading half a million events field by field through ctypes takes seconds.
_EVENT = np.dtype(
    {
        "names": ["tag", "type", "start_us", "duration_us", "node", "subgraph", "source"],
        "formats": ["u8", "i4", "u8", "u8", "i8", "i8", "i4"],
        "offsets": [
            getattr(_litert.ProfiledEvent, field).offset
            for field in ("tag", "event_type", "start_us", "duration_us", "metadata1", "metadata2", "source")
        ],
        "itemsize": ctypes.sizeof(_litert.ProfiledEvent),
    }
)


def _decode(raw: NDArray[np.void]) -> Iterator[ProfileEvent]:
    kept = raw[np.isin(raw["type"], list(_TYPES))]
    columns = [kept[name].tolist() for name in _EVENT.names or ()]
    for tag, code, start_us, duration_us, node, subgraph, source in zip(*columns, strict=True):
        kind = _TYPES[code]
        yield ProfileEvent(
            tag=sys.intern(ctypes.string_at(tag).decode("utf-8", "replace")),
            type=kind,
            start_us=start_us,
            duration_us=duration_us,
            node=node,
            subgraph=subgraph,
            # LiteRT attributes what a delegate adds after the fact to itself.
            source="delegate" if kind.startswith("delegate") else _SOURCES[source],
        )
