# SPDX-License-Identifier: Apache-2.0
"""A timeline for Perfetto: the application, the session and the operators, with memory and CPU beside them.

Open the file at https://ui.perfetto.dev.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litesmith.errors import MeasureError, UsageError
from litesmith.measure._calls import RUN, watch_calls
from litesmith.measure._memory import resident_bytes
from litesmith.measure._perfetto import TraceWriter
from litesmith.measure._recording import Layout, RecordedRun, record
from litesmith.measure._spans import Span, collect_spans
from litesmith.model import Model
from litesmith.result import Result
from litesmith.runtime import Session, partitions, random_inputs

WARMUP_RUNS = 10
COUNTER_INTERVAL_US = 1000  # sampling memory takes some microseconds, which must not show
APPLICATION, SESSION, OPERATORS, MEMORY, CPU = "application", "session", "operators", "memory (MB)", "CPU (%)"


@dataclass(frozen=True)
class Trace(Result, kind="trace", schema=1):
    """What ``trace`` wrote."""

    path: str
    model: str
    runs: int
    slices: int
    span_names: tuple[str, ...]
    duration_ms: float
    run_starts_ms: tuple[float, ...]  # from the first
    run_ms: tuple[float, ...]
    complete: bool = True

    def plot(self) -> Any:
        """Return a Plotly figure: how long each run took, over time; the operators are for Perfetto."""
        import plotly.graph_objects as go

        layout = {"xaxis_title": "time (ms)", "yaxis_title": "run (ms)", "template": "plotly_white"}
        figure = go.Figure(layout=layout)
        figure.add_scatter(x=list(self.run_starts_ms), y=list(self.run_ms), mode="markers", name="runs")
        return figure


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Memory and CPU at one moment: resident bytes, and CPU seconds of the process so far."""

    at_us: float
    resident_bytes: int
    cpu_s: float


class Counters:
    """Samples of memory and CPU, at most one in a millisecond."""

    def __init__(self) -> None:
        self.samples: list[CounterSample] = []

    def sample(self) -> None:
        """Take a sample, unless the last one is fresh."""
        now = time.monotonic_ns() / 1000
        if not self.samples or now - self.samples[-1].at_us >= COUNTER_INTERVAL_US:
            self.samples.append(CounterSample(now, resident_bytes(), time.process_time()))


def trace(
    model: Model | str | Path,
    path: str | Path,
    *,
    runs: int = 100,
    threads: int = 1,
    kernels: str = "delegate",
    seed: int = 0,
) -> Trace:
    """Run a model and write its timeline as a Perfetto trace; ``tracing`` does it for one's own code.

    Args:
        model: A Model or the path of a `.tflite`.
        path: The trace to write, usually `.pftrace`.
        runs: Runs to record.
        threads: Threads of the CPU kernels.
        kernels: "delegate" (XNNPACK), "builtin" or "reference".
        seed: Of the random inputs.
    """
    if runs < 1:
        raise UsageError(f"runs must be at least 1, not {runs}")
    loaded = model if isinstance(model, Model) else Model.load(model)
    pieces = partitions(loaded, threads=threads, kernels=kernels)
    counters = Counters()
    with (
        collect_spans() as spans,
        Session(loaded, threads=threads, kernels=kernels, profiling=True) as session,
    ):
        session.run(random_inputs(session, seed))
        for _ in range(WARMUP_RUNS):
            session.run()
        recorded = record(loaded, session, pieces, runs=runs, before_run=counters.sample)
    counted = counters.samples
    return write_trace(path, loaded, recorded, spans=spans, counters=counted, complete=len(recorded) == runs)


@contextlib.contextmanager
def tracing(
    path: str | Path, model: Model | str | Path, *, threads: int = 1, kernels: str = "delegate"
) -> Iterator[Session]:
    """Trace one's own code: yield a Session, and write its runs and all spans as a Perfetto trace at the end.

    The trace is also written when the block raises: it then shows what happened until there.

    Args:
        path: The trace to write, usually `.pftrace`.
        model: A Model or the path of a `.tflite`.
        threads: Threads of the CPU kernels.
        kernels: "delegate" (XNNPACK), "builtin" or "reference".

    Example:
        >>> import litesmith, tempfile
        >>> path = tempfile.mkdtemp() + "/app.pftrace"
        >>> with litesmith.tracing(path, litesmith.samples.model()) as session:
        ...     with litesmith.span("prepare"):
        ...         session.inputs[next(iter(session.inputs))][...] = 0
        ...     _ = session.run()
    """
    loaded = model if isinstance(model, Model) else Model.load(model)
    layout = Layout(loaded, partitions(loaded, threads=threads, kernels=kernels))
    counters = Counters()
    with (
        Session(loaded, threads=threads, kernels=kernels, profiling=True) as session,
        collect_spans() as spans,
        watch_calls(counters.sample) as calls,
    ):
        session.start_profile()
        complete = False
        try:
            yield session
            complete = True
        finally:
            walls = [(c.start_us, c.end_us) for c in calls if c.kind == RUN and c.subject == id(session)]
            recorded = layout.match(session.stop_profile(), walls)
            write_trace(path, loaded, recorded, spans=spans, counters=counters.samples, complete=complete)


def write_trace(
    path: str | Path,
    model: Model,
    recorded: Sequence[RecordedRun],
    *,
    spans: Sequence[Span] = (),
    counters: Sequence[CounterSample] = (),
    complete: bool = True,
) -> Trace:
    """Write recorded runs, the application's spans and the counters as one Perfetto trace."""
    name = str(model.source or model.description or "model")
    with open_trace(path, f"litesmith: {Path(name).name}") as writer:
        write_spans(writer, spans)
        _write_runs(writer, model, recorded)
        write_counters(writer, counters)
    begin = recorded[0].start_us if recorded else 0.0
    return Trace(
        path=str(path),
        model=name,
        runs=len(recorded),
        slices=writer.slices,
        span_names=tuple(dict.fromkeys(s.name for s in spans)),
        duration_ms=max((run.start_us + run.wall_us - begin for run in recorded), default=0.0) / 1000,
        run_starts_ms=tuple((run.start_us - begin) / 1000 for run in recorded),
        run_ms=tuple(run.wall_us / 1000 for run in recorded),
        complete=complete,
    )


@contextlib.contextmanager
def open_trace(path: str | Path, process: str) -> Iterator[TraceWriter]:
    """Yield the writer of a new trace."""
    try:
        with Path(path).open("wb") as file:
            yield TraceWriter(file, process)
    except OSError as error:
        raise MeasureError(f"{path} cannot be written: {error.strerror}") from error


def write_spans(writer: TraceWriter, spans: Sequence[Span]) -> None:
    """Write the application's spans, a track for each thread."""
    threads = list(dict.fromkeys(s.thread for s in spans))
    tracks = {t: APPLICATION if not n else f"{APPLICATION} {n + 1}" for n, t in enumerate(threads)}
    for s in sorted(spans, key=lambda s: (s.thread, s.start_us, -s.end_us)):  # the outer one first
        writer.slice(tracks[s.thread], s.name, s.start_us, s.end_us - s.start_us)


def _write_runs(writer: TraceWriter, model: Model, recorded: Iterable[RecordedRun]) -> None:
    macs = {c.index: c.macs for c in model.cost().operators if c.subgraph == 0}
    operators, tensors = model.main.operators, model.main.tensors
    names = [tensors[o.outputs[0]].name if o.outputs else "" for o in operators]
    cursor = 0.0
    for number, run in enumerate(recorded):
        writer.slice(SESSION, "run", run.start_us, run.wall_us, {"run": number})
        # LiteRT tells whole microseconds, rounded down.
        start = max(run.invoke_start_us, run.start_us)
        writer.slice(SESSION, "graph", start, min(run.invoke_us, run.start_us + run.wall_us - start))
        for s in run.slices:
            start = max(s.start_us, cursor)
            cursor = start + s.duration_us
            if s.operator is None:
                writer.slice(OPERATORS, s.kernel, start, s.duration_us, {"kernel": s.kernel})
                continue
            details: dict[str, int | str] = {"operator": s.operator, "tensor": names[s.operator], "kernel": s.kernel}
            details |= {"MACs": macs[s.operator], "delegate": s.delegate or "built-in"}
            writer.slice(OPERATORS, f"{operators[s.operator].name} {s.operator}", start, s.duration_us, details)


def write_counters(writer: TraceWriter, counters: Sequence[CounterSample]) -> None:
    """Write memory and CPU; the CPU of 100 % is one core busy all the time."""
    previous = None
    for sample in counters:
        writer.counter(MEMORY, sample.at_us, sample.resident_bytes / 1e6)
        if previous is not None:
            busy = (sample.cpu_s - previous.cpu_s) * 1e6 / (sample.at_us - previous.at_us)
            writer.counter(CPU, previous.at_us, 100 * busy)
        previous = sample
