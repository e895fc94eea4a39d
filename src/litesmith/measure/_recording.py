# SPDX-License-Identifier: Apache-2.0
"""Run a model under LiteRT's profiler and lay what it recorded out by run and operator.

LiteRT stamps phases and its own kernels with a start, as Litesmith's delegate does; kernels inside XNNPACK come with a
duration only, after their partition ran. They run one after the other, so their starts follow from the end of what was
before them. Their durations are whole microseconds, rounded down: half a microsecond is missing of each on average,
which is much of a small kernel, and is given back as long as the run has the time for it (XNNPACK: src/runtime.c).

At the begin and at the end of each phase the profiler also samples the memory of the process, which takes tens of
microseconds: as much as a small model. Between the end of the first phase and the begin of the next LiteRT does
nothing else, so that gap tells what one sample takes (LiteRT: tflite/profiling/profile_buffer.cc,
litert/runtime/compiled_model.cc).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litesmith.errors import MeasureError
from litesmith.measure._attribution import attribute
from litesmith.model import Model
from litesmith.progress import task
from litesmith.runtime import LITESMITH, XNNPACK, Partition, ProfileEvent, Session

_FIRST_PHASE = "LiteRT::Run[buffer registration]"
_INVOKE = "Invoke"
_ROUNDED_OFF_US = 0.5
MEMORY_SAMPLES = 6  # in a run: at the begin and at the end of its three phases
EVENTS_AT_ONCE = 50_000
SECONDS_AT_ONCE = 1.0  # so that Ctrl-C loses little, and the progress bar moves


@dataclass(frozen=True, slots=True)
class Slice:
    """One kernel in one run: which operator it was for (None: inserted by the delegate), where it ran, and when."""

    operator: int | None
    kernel: str
    delegate: str | None  # None for LiteRT's built-in kernels
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run: its wall time as the caller saw it, LiteRT's own phase of running the graph, and the kernels."""

    start_us: float
    wall_us: float
    invoke_start_us: float
    invoke_us: float  # includes one sample of the memory, before the first kernel
    sample_us: float  # what the profiler took to sample the memory once
    slices: tuple[Slice, ...]


def record(
    model: Model,
    session: Session,
    partitions: Sequence[Partition],
    *,
    runs: int,
    before_run: Callable[[], object] | None = None,
) -> list[RecordedRun]:
    """Record ``runs`` runs of a session made with ``profiling=True``; Ctrl-C ends it early and keeps what there is."""
    layout = Layout(model, partitions)
    recorded: list[RecordedRun] = []
    count = 1
    try:
        with task("Profiling", total=runs) as advance:
            while len(recorded) < runs:
                some = _record_some(session, layout, min(count, runs - len(recorded)), before_run)
                recorded += some
                advance(len(some))
                # Many events at once would be dropped by LiteRT's buffer; few at once would start it too often.
                per_run_s = max(recorded[-1].wall_us / 1e6, 1e-6)
                most = EVENTS_AT_ONCE // (len(model.main.operators) + 8)
                count = max(1, min(most, round(SECONDS_AT_ONCE / per_run_s)))
    except KeyboardInterrupt:
        if len(recorded) < 2:
            raise
    return recorded


def _record_some(
    session: Session, layout: Layout, count: int, before_run: Callable[[], object] | None
) -> list[RecordedRun]:
    clock, walls = time.monotonic_ns, []
    session.start_profile()
    for _ in range(count):
        if before_run is not None:
            before_run()
        start = clock()
        session.run()
        walls.append((start / 1000, clock() / 1000))
    recorded = layout.match(session.stop_profile(), walls)
    if len(recorded) != count:
        raise MeasureError(f"LiteRT's profiler recorded {len(recorded)} runs of {count}; measure fewer at once")
    return recorded


class Layout:
    """Knows which kernel of a run is whose; found once, since every run has the same kernels."""

    def __init__(self, model: Model, partitions: Sequence[Partition]) -> None:
        self._model = model
        self._partitions = [p for p in partitions if p.delegate == XNNPACK]
        self._owners: dict[tuple[int, tuple[str, ...]], list[int | None]] = {}

    def match(self, events: Sequence[ProfileEvent], walls: Sequence[tuple[float, float]]) -> list[RecordedRun]:
        """Return the runs in ``events``, each with the begin and end that its caller saw; others are left out."""
        recorded, groups = [], iter(_split(events, lambda e: e.tag == _FIRST_PHASE))
        for start, end in walls:
            group = next((g for g in groups if g[0].start_us + 1 >= start), None)  # whole µs, rounded down
            if group is not None and group[0].start_us <= end and any(_is_invoke(event) for event in group):
                recorded.append(self._lay_out(group, start, end - start))
        return recorded

    def _lay_out(self, events: Sequence[ProfileEvent], start_us: float, wall_us: float) -> RecordedRun:
        invoke = next(event for event in events if _is_invoke(event))
        sample_us = float(max(invoke.start_us - events[0].start_us - events[0].duration_us, 0))
        idle_us = float(max(invoke.duration_us - sum(e.duration_us for e in events if "operator" in e.type), 0))
        rounded = sum(map(_is_rounded, events))
        rounded_off_us = min(_ROUNDED_OFF_US, max(idle_us - sample_us, 0.0) / max(rounded, 1))
        slices: list[Slice] = []
        position, cursor = -1, invoke.start_us + min(sample_us, idle_us)
        for inside, group in itertools.groupby(events, _is_rounded):
            if not inside:
                for event in group:
                    if event.type in ("operator", "delegate_operator") and event.subgraph == 0:
                        slices.append(self._stamped(event))
                        cursor = slices[-1].start_us + slices[-1].duration_us
                continue
            for kernels in _split(list(group), lambda e: e.node == 0):
                position += 1
                for event, owner in zip(kernels, self._owner(position, kernels), strict=True):
                    duration_us = event.duration_us + rounded_off_us
                    slices.append(Slice(owner, event.tag, XNNPACK, cursor, duration_us))
                    cursor += duration_us
        return RecordedRun(
            start_us, wall_us, float(invoke.start_us), float(invoke.duration_us), sample_us, tuple(slices)
        )

    def _stamped(self, event: ProfileEvent) -> Slice:
        known = 0 <= event.node < len(self._model.main.operators)
        delegate = LITESMITH if event.type == "delegate_operator" else None
        operator = event.node if known else None
        return Slice(operator, event.tag, delegate, float(event.start_us), float(event.duration_us))

    def _owner(self, position: int, kernels: Sequence[ProfileEvent]) -> list[int | None]:
        tags = tuple(event.tag for event in kernels)
        key = (position, tags)
        if key not in self._owners:
            known = position < len(self._partitions)
            operators = self._partitions[position].operators if known else ()
            self._owners[key] = attribute(self._model, operators, tags)
        return self._owners[key]


def _is_invoke(event: ProfileEvent) -> bool:
    return event.type == "default" and event.tag == _INVOKE


def _is_rounded(event: ProfileEvent) -> bool:
    return event.type == "delegate_profiled_operator"


def _split(events: Sequence[ProfileEvent], starts: Callable[[ProfileEvent], bool]) -> list[list[ProfileEvent]]:
    groups: list[list[ProfileEvent]] = []
    for event in events:
        if starts(event):
            groups.append([])
        if groups:
            groups[-1].append(event)
    return groups
