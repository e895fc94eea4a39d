# SPDX-License-Identifier: Apache-2.0
"""How many threads: measured on the quiet machine and under load, because the best number is not the same."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError
from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._bench import as_file
from litesmith.measure._energy import EnergyMeter
from litesmith.measure._load import background_load
from litesmith.measure._statistics import Summary, summarize
from litesmith.measure._timing import Timed, measure
from litesmith.model import Model
from litesmith.result import Result
from litesmith.runtime import Session, random_inputs

EQUAL_WITHIN = 0.05  # a number of threads that wins by less is not worth its cores
COST_RUNS_S = 0.3


@dataclass(frozen=True)
class ThreadCount:
    """What was seen with one number of threads in one condition."""

    threads: int
    condition: str  # quiet or loaded
    samples_ms: tuple[float, ...]
    cpu_ms: float  # CPU time of one inference, all threads together
    energy_mj: float | None

    @property
    def summary(self) -> Summary:
        """The quantiles of the latency."""
        return summarize(self.samples_ms)

    @property
    def variability(self) -> float:
        """How much worse one run in 20 is than the median, as a share."""
        return self.summary.p95 / self.summary.median - 1


@dataclass(frozen=True)
class ThreadAdvice:
    """A recommended number of threads, for what, and why."""

    purpose: str
    threads: int
    reason: str


@dataclass(frozen=True)
class Threads(Result, kind="threads", schema=1):
    """What ``threads`` measured and recommends."""

    model: str
    counts: tuple[ThreadCount, ...]
    background: int  # busy processes in the loaded condition
    energy: str  # why there is no energy, empty when there is
    advice: tuple[ThreadAdvice, ...]
    machine: MachineFacts
    command: tuple[str, ...]
    complete: bool = True  # False when it was interrupted: the figures are of what was measured until then

    def of(self, condition: str) -> dict[int, ThreadCount]:
        """Return the measurements of one condition by number of threads."""
        return {c.threads: c for c in self.counts if c.condition == condition}

    def plot(self) -> Any:
        """Return a Plotly figure: median and p95 latency against threads, quiet and loaded."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "threads", "yaxis_title": "latency (ms)", "template": "plotly_white"})
        figure.update_xaxes(dtick=1)
        for condition in ("quiet", "loaded"):
            counts = sorted(self.of(condition).values(), key=lambda c: c.threads)
            x = [c.threads for c in counts]
            figure.add_scatter(x=x, y=[c.summary.median for c in counts], name=f"{condition}, median")
            figure.add_scatter(x=x, y=[c.summary.p95 for c in counts], name=f"{condition}, p95", line_dash="dot")
        return figure


def threads(
    model: Model | str | Path,
    *,
    counts: Sequence[int] | None = None,
    seconds: float = 2.0,
    background: int | None = None,
    kernels: str = "delegate",
    seed: int = 0,
) -> Threads:
    """Measure a model with 1 to N threads, quiet and with other programs running, and recommend.

    Args:
        model: A Model or the path of a `.tflite`.
        counts: The numbers of threads; by default 1 to twice the cores, at most 8.
        seconds: Time for each number in each condition.
        background: Busy processes of the load; by default half the cores, at least one.
        kernels: "delegate" (XNNPACK), "builtin" or "reference".
        seed: Of the random inputs.

    Example:
        >>> import litesmith
        >>> result = litesmith.threads(litesmith.samples.model(), counts=[1, 2], seconds=0.2)
        >>> sorted(result.of("quiet"))
        [1, 2]
    """
    machine = machine_facts()
    chosen = list(counts or range(1, min(2 * machine.cores, 8) + 1))
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds}")
    if min(chosen) < 1 or len(set(chosen)) != len(chosen):
        raise UsageError(f"numbers of threads must be positive and different, not {chosen}")
    busy = max(machine.cores // 2, 1) if background is None else background
    if not 0 < busy <= 4 * machine.cores:
        raise UsageError(f"the background load must be between 1 and {4 * machine.cores} processes here, not {busy}")
    with contextlib.ExitStack() as stack:
        path, name = stack.enter_context(as_file(model))
        sessions = [stack.enter_context(Session(path, threads=n, kernels=kernels)) for n in chosen]
        for session in sessions:
            session.run(random_inputs(session, seed))
        begin = time.monotonic()
        found, complete = _condition("quiet", chosen, sessions, seconds)
        if complete:
            limit_s = _limit_s(time.monotonic() - begin, busy / machine.cores)
            try:
                with background_load(busy, limit_s=limit_s):
                    loaded, complete = _condition("loaded", chosen, sessions, seconds)
                    found += loaded
            except KeyboardInterrupt:  # before there is anything under load: the quiet half is worth keeping
                complete = False
    counts_found = tuple(found)
    return Threads(
        model=name,
        counts=counts_found,
        background=busy,
        energy=EnergyMeter().problem,
        advice=recommend(counts_found),
        machine=machine,
        command=tuple(sys.argv),
        complete=complete,
    )


def recommend(counts: Sequence[ThreadCount]) -> tuple[ThreadAdvice, ...]:
    """Return what to use for latency, for efficiency and, where it was measured under load, for robustness."""
    quiet = {c.threads: c for c in counts if c.condition == "quiet"}
    loaded = {c.threads: c for c in counts if c.condition == "loaded"}
    latency = _fewest(quiet, lambda c: c.summary.median)
    efficient = min(quiet, key=lambda n: (quiet[n].energy_mj or quiet[n].cpu_ms, n))
    cost = f"{quiet[efficient].cpu_ms:.3f} ms of CPU time per inference"
    if quiet[efficient].energy_mj is not None:
        cost = f"{quiet[efficient].energy_mj:.3f} mJ and {cost}"
    advice = [
        ThreadAdvice("latency", latency, f"median {quiet[latency].summary.median:.3f} ms when nothing else runs"),
        ThreadAdvice("efficiency", efficient, cost),
    ]
    return (*advice, _robust(loaded, latency)) if loaded else tuple(advice)


def _robust(loaded: dict[int, ThreadCount], latency: int) -> ThreadAdvice:
    robust = _fewest(loaded, lambda c: c.summary.p95)
    best = loaded[robust].summary
    reason = f"p95 {best.p95:.3f} ms, median {best.median:.3f} ms while other programs run"
    worst = max((n for n in loaded if n > robust), key=lambda n: loaded[n].summary.p95, default=robust)
    rival = latency if latency > robust else worst
    if rival > robust:  # more threads lose: each waits for the one that shares its core
        slower = loaded[rival].summary.p95 / best.p95
        quality = ", the best when quiet," if rival == latency else ""
        reason += f"; {rival} threads{quality} take {slower:.1f} times as long there"
    return ThreadAdvice("robustness", robust, reason)


def _fewest(counts: dict[int, ThreadCount], figure: Callable[[ThreadCount], float]) -> int:
    """Return the smallest number of threads that is as good as the best, up to ``EQUAL_WITHIN``."""
    best = min(figure(c) for c in counts.values())
    return min(n for n, c in counts.items() if figure(c) <= best * (1 + EQUAL_WITHIN))


def _limit_s(quiet_s: float, busy: float) -> float:
    """Return how long the load may last at most, from what the quiet half took and how many processes a core gets.

    It is for a load that nobody ends: a model's share of a core shrinks with the load, and the last of its threads counts.
    """
    return 60 + 4 * quiet_s * (1 + busy)


def _condition(
    condition: str, counts: Sequence[int], sessions: Sequence[Session], seconds: float
) -> tuple[list[ThreadCount], bool]:
    """Return what was seen with each number of threads, and whether Ctrl-C let it finish."""
    subjects = [Timed(f"{n} threads", session.run) for n, session in zip(counts, sessions, strict=True)]
    complete = measure(subjects, runs=None, seconds=seconds, description=f"Measuring, {condition}")
    found = []
    for count, subject in zip(counts, subjects, strict=True):
        cpu_ms, energy_mj = _cost(subject)
        found.append(ThreadCount(count, condition, tuple(subject.samples_ms), cpu_ms, energy_mj))
    return found, complete


def _cost(subject: Timed) -> tuple[float, float | None]:
    """Return CPU milliseconds and millijoules of one inference, over a short run of its own."""
    subject.call()
    meter, runs = EnergyMeter(), 0
    start, end = time.process_time(), time.perf_counter() + COST_RUNS_S
    while time.perf_counter() < end:
        subject.call()
        runs += 1
    joules = meter.joules()
    return 1000 * (time.process_time() - start) / runs, None if joules is None else 1000 * joules / runs
