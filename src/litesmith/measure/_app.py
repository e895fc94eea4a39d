# SPDX-License-Identifier: Apache-2.0
"""Where the time of a whole program goes: in the model, in feeding and reading it, in its own code by function."""

from __future__ import annotations

import builtins
import contextlib
import linecache
import os
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError
from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._app_tips import Tip, find_tips
from litesmith.measure._audit import Copy, group_copies
from litesmith.measure._calls import FEED, LOAD, READ, RUN, Call, watch_calls
from litesmith.measure._perfetto import TraceWriter
from litesmith.measure._sampling import Sample, Samples, sample_calls
from litesmith.measure._spans import Span, collect_spans
from litesmith.measure._trace import Counters, open_trace, write_counters, write_spans
from litesmith.result import Result

INTERRUPTED = 130
FUNCTIONS, LITERT = "functions (sampled)", "LiteRT"
_PARTS = {RUN: "running the model", FEED: "feeding it", READ: "reading it", LOAD: "loading it"}


@dataclass(frozen=True)
class FunctionTime:
    """What one function of the program took by itself and in the libraries it called, LiteRT aside."""

    function: str
    file: str
    line: int  # where most of it was spent
    code: str
    own_ms: float
    share: float


@dataclass(frozen=True)
class CallSite:
    """All calls to LiteRT from one line."""

    kind: str  # load, feed, run or read
    api: str
    file: str
    line: int
    count: int
    total_ms: float


@dataclass(frozen=True)
class App(Result, kind="app", schema=1):
    """What ``app`` saw; the times are of the main thread, and those of others are in ``elsewhere_ms``."""

    script: str
    arguments: tuple[str, ...]
    wall_ms: float  # without what it took to watch the calls
    watching_ms: float
    run_ms: float
    feed_ms: float
    read_ms: float
    load_ms: float
    elsewhere_ms: float  # calls to LiteRT in other threads, which overlap with the main one
    runs: int
    functions: tuple[FunctionTime, ...]
    sites: tuple[CallSite, ...]
    copies: tuple[Copy, ...]
    tips: tuple[Tip, ...]
    trace: str  # the path of the trace, empty for none
    exit_code: int
    error: str  # the traceback of the program, when it raised
    machine: MachineFacts
    command: tuple[str, ...]

    @property
    def own_ms(self) -> float:
        """The program's own code, and the libraries it calls besides LiteRT."""
        return max(self.wall_ms - self.run_ms - self.feed_ms - self.read_ms - self.load_ms, 0.0)

    @property
    def complete(self) -> bool:
        """Whether the program ended by itself and without an error."""
        return not self.error and self.exit_code != INTERRUPTED

    def parts(self) -> tuple[tuple[str, float], ...]:
        """Return what the time went to, in milliseconds, in the order of a run; together they are the wall time."""
        times = {RUN: self.run_ms, FEED: self.feed_ms, READ: self.read_ms, LOAD: self.load_ms}
        return (*((_PARTS[kind], times[kind]) for kind in (LOAD, FEED, RUN, READ)), ("its own code", self.own_ms))

    def plot(self) -> Any:
        """Return a Plotly figure: one bar, divided into the parts."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "ms", "template": "plotly_white", "barmode": "stack"})
        for name, milliseconds in self.parts():
            figure.add_bar(x=[milliseconds], y=[Path(self.script).name], name=name, orientation="h")
        return figure


def app(script: str | Path, args: Sequence[str] = (), *, trace: str | Path | None = "app.pftrace") -> App:
    """Run a Python program that uses LiteRT, unmodified, and say where its time goes.

    The program runs in this process as ``python SCRIPT ARGS`` would run it. When it raises, its traceback is printed
    as Python prints it, and what was seen until then is the result; so it is after Ctrl-C.

    Args:
        script: The program.
        args: Its arguments.
        trace: A Perfetto trace to write, with the calls to LiteRT, the program's functions and its spans; None for
            none.
    """
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"there is no program {path}")
    counters = Counters()
    with (
        collect_spans() as spans,
        watch_calls(counters.sample) as calls,
        _as_main(path, args) as main,
        sample_calls(__file__) as samples,
    ):
        exit_code, error = _run(path, main)
    if trace is not None:
        _write_trace(trace, path, calls, samples, spans, counters)
    return _result(path, args, calls, samples, trace, exit_code, error)


@contextlib.contextmanager
def _as_main(path: Path, args: Sequence[str]) -> Iterator[types.ModuleType]:
    """Make the world look to the program as it does under ``python SCRIPT ARGS``; afterwards it is as it was."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins)
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv, sys.path[0], sys.modules["__main__"] = [str(path), *args], str(path.resolve().parent), main
    try:
        yield main
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before


def _run(path: Path, main: types.ModuleType) -> tuple[int, str]:
    """Run the program and return its exit code and its traceback."""
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), main.__dict__)  # noqa: S102
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, ""
        print(end.code, file=sys.stderr)
        return 1, ""
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except BaseException as error:  # noqa: BLE001  (whatever the program raises is its own, and is shown)
        # Above the program's own frames is only this function.
        trail = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, trail))
        print(text, end="", file=sys.stderr)
        return 1, text
    return 0, ""


def _result(
    path: Path,
    args: Sequence[str],
    calls: Sequence[Call],
    samples: Samples,
    trace: str | Path | None,
    exit_code: int,
    error: str,
) -> App:
    here = threading.get_ident()
    watching_ms = sum(call.overhead_us for call in calls if call.thread == here) / 1000
    wall_ms = (samples.end_us - samples.start_us) / 1000 - watching_ms
    times = dict.fromkeys((LOAD, FEED, RUN, READ), 0.0)
    elsewhere = 0.0
    for call in calls:
        if call.thread == here:
            times[call.kind] += call.duration_us / 1000
        else:
            elsewhere += call.duration_us / 1000
    functions, sites, copies = _functions(samples.samples, wall_ms), _sites(calls), group_copies(calls)
    hot = [(f.function, f.file, f.line, f.share) for f in functions]
    return App(
        script=str(path),
        arguments=tuple(args),
        wall_ms=wall_ms,
        watching_ms=watching_ms,
        run_ms=times[RUN],
        feed_ms=times[FEED],
        read_ms=times[READ],
        load_ms=times[LOAD],
        elsewhere_ms=elsewhere,
        runs=sum(call.kind == RUN for call in calls),
        functions=functions,
        sites=sites,
        copies=copies,
        tips=find_tips(calls, copies, hot, wall_ms),
        trace=str(trace or ""),
        exit_code=exit_code,
        error=error,
        machine=machine_facts(),
        command=tuple(sys.argv),
    )


def _functions(samples: Sequence[Sample], wall_ms: float) -> tuple[FunctionTime, ...]:
    """Return the functions of the program, longest first."""
    totals: dict[tuple[str, str, int], dict[int, float]] = {}
    for sample in samples:
        if sample.frames and not sample.in_litert:
            frame = sample.frames[-1]
            lines = totals.setdefault((frame.function, frame.file, frame.first_line), {})
            lines[frame.line] = lines.get(frame.line, 0.0) + (sample.end_us - sample.start_us) / 1000
    found = []
    for (function, file, _), lines in totals.items():
        own, hottest = sum(lines.values()), max(lines, key=lambda line: lines[line])
        code = linecache.getline(file, hottest).strip()
        found.append(FunctionTime(function, file, hottest, code, own, own / wall_ms))
    return tuple(sorted(found, key=lambda f: -f.own_ms))


def _sites(calls: Sequence[Call]) -> tuple[CallSite, ...]:
    groups: dict[tuple[str, str, str, int], list[float]] = {}
    for call in calls:
        groups.setdefault((call.kind, call.api, call.file, call.line), []).append(call.duration_us / 1000)
    sites = [CallSite(*key, len(times), sum(times)) for key, times in groups.items()]
    return tuple(sorted(sites, key=lambda site: -site.total_ms))


def _write_trace(
    path: str | Path,
    script: Path,
    calls: Sequence[Call],
    samples: Samples,
    spans: Sequence[Span],
    counters: Counters,
) -> None:
    with open_trace(path, f"litesmith: {script.name}") as writer:
        here = Span(script.name, samples.start_us, samples.end_us, threading.get_ident())
        write_spans(writer, [here, *spans])
        _write_functions(writer, samples.samples)
        threads = list(dict.fromkeys(call.thread for call in calls))
        tracks = {t: LITERT if not n else f"{LITERT} {n + 1}" for n, t in enumerate(threads)}
        for call in sorted(calls, key=lambda call: call.start_us):
            details: dict[str, int | str] = {"at": f"{os.path.basename(call.file)}:{call.line}"}  # noqa: PTH119
            if call.reason:
                details |= {"bytes": call.bytes, "copied because of": call.reason}
            writer.slice(tracks[call.thread], f"{call.kind}: {call.api}", call.start_us, call.duration_us, details)
        write_counters(writer, counters.samples)


def _write_functions(writer: TraceWriter, samples: Sequence[Sample]) -> None:
    """Write a slice for each stretch of neighbouring samples with the same functions on the stack."""
    open_slices: list[tuple[tuple[str, str, int], float]] = []
    done: list[tuple[float, float, str]] = []
    end = samples[-1].end_us if samples else 0.0
    for sample in [*samples, Sample(end, end, (), False)]:
        stack = [(f.function, f.file, f.first_line) for f in sample.frames]
        same = 0
        while same < min(len(stack), len(open_slices)) and stack[same] == open_slices[same][0]:
            same += 1
        while len(open_slices) > same:
            key, begin = open_slices.pop()
            done.append((begin, sample.start_us, key[0]))
        open_slices += [(key, sample.start_us) for key in stack[same:]]
    for begin, stop, name in sorted(done, key=lambda slice_: (slice_[0], -slice_[1])):
        writer.slice(FUNCTIONS, name, begin, stop - begin)
