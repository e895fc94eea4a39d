# SPDX-License-Identifier: Apache-2.0
"""Time per operator of the file: which kernel really ran, where, how fast, and against what this machine can do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._findings import Oddity, find_oddities
from litesmith.measure._gains import Gain, Work, activation_dtype, find_gains
from litesmith.measure._profilable import of_the_file, open_profiled
from litesmith.measure._recording import MEMORY_SAMPLES, RecordedRun, Slice, record
from litesmith.measure._roofline import Roofline, roofline
from litesmith.measure._timing import Timed, measure, warm_up
from litesmith.model import Model
from litesmith.result import Result
from litesmith.runtime import Partition, Session, partitions

OVERHEAD_SECONDS, OVERHEAD_RUNS = 0.5, 200
_SPARSE = "_spmm_"  # in the name of a kernel of Litesmith's delegate: its multiply-accumulates are not all done


@dataclass(frozen=True)
class OperatorTime:
    """One operator of the file and what its kernels took; times in microseconds per inference."""

    index: int
    kind: str
    name: str  # of its first output
    kernels: tuple[str, ...]
    delegate: str  # XNNPACK, Litesmith, or "built-in"
    partition: int | None
    mean_us: float
    p50_us: float
    p95_us: float
    min_us: float
    max_us: float
    deviation_us: float
    share: float  # of the latency
    macs: int
    bytes_moved: int
    roof: float | None  # the share of what this machine can do on it; None without multiply-accumulates, or sparse
    bound: str  # arithmetic, memory, or empty

    @property
    def gmacs_per_s(self) -> float:
        """Multiply-accumulates in a second, in billions, by the median: one interrupted run says nothing of a kernel."""
        return self.macs / self.p50_us / 1000 if self.p50_us else 0.0


@dataclass(frozen=True)
class KindTime:
    """All operators of one kind together."""

    kind: str
    count: int
    mean_us: float
    share: float
    macs: int


@dataclass(frozen=True)
class Profile(Result, kind="profile", schema=1):
    """What ``profile`` measured: the parts add up to ``latency_us``, the mean wall time of a profiled run."""

    model: str
    runs: int
    threads: int
    kernels: str
    latency_us: float
    operators: tuple[OperatorTime, ...]
    inserted: tuple[tuple[str, float], ...]  # kernels of a delegate that fit no operator: (kernel, microseconds)
    fused: tuple[int, ...]  # operators for which no kernel ran: folded when compiling, or part of a neighbour's
    graph_us: float  # running the graph, besides its kernels
    border_us: float  # handing inputs and outputs over, and the call itself
    profiler_us: float  # the profiler's own samples of the memory, which no run without it has
    partitions: int
    unprofiled_us: float  # the latency without the profiler, for the overhead
    profiled_us: float  # with it, in the same interleaved run
    oddities: tuple[Oddity, ...]
    gains: tuple[Gain, ...]  # what the hottest operators could save
    roofline: Roofline
    machine: MachineFacts
    command: tuple[str, ...]
    interrupted: int = 0  # runs that took over twice the median: other programs ran, and the figures are without them
    complete: bool = True  # False when it was interrupted: the figures are of the runs until then

    @property
    def parts_us(self) -> float:
        """All parts together: the operators, what was inserted, between the kernels, the border, the profiler."""
        return (
            self.operators_us + sum(us for _, us in self.inserted) + self.graph_us + self.border_us + self.profiler_us
        )

    @property
    def overhead(self) -> float:
        """How much the profiler slows the model, as a share."""
        return self.profiled_us / self.unprofiled_us - 1

    @property
    def operators_us(self) -> float:
        """The time that carries an operator of the file."""
        return sum(operator.mean_us for operator in self.operators)

    @property
    def covered(self) -> float:
        """The share of the time inside the graph that carries an operator of the file."""
        inside = self.operators_us + sum(us for _, us in self.inserted) + self.graph_us
        return self.operators_us / inside if inside else 1.0

    def by_kind(self) -> tuple[KindTime, ...]:
        """Return the time by kind of operator, longest first."""
        groups: dict[str, list[OperatorTime]] = {}
        for operator in self.operators:
            groups.setdefault(operator.kind, []).append(operator)
        kinds = [
            KindTime(k, len(g), sum(o.mean_us for o in g), sum(o.share for o in g), sum(o.macs for o in g))
            for k, g in groups.items()
        ]
        return tuple(sorted(kinds, key=lambda k: -k.mean_us))

    def hottest(self) -> tuple[OperatorTime, ...]:
        """Return the operators, longest first."""
        return tuple(sorted(self.operators, key=lambda o: -o.mean_us))

    def plot(self) -> Any:
        """Return a Plotly figure: the time of each operator in the order of the file."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "operator", "yaxis_title": "µs", "template": "plotly_white"})
        for kind in self.by_kind():
            chosen = [o for o in self.operators if o.kind == kind.kind]
            figure.add_bar(
                x=[o.index for o in chosen],
                y=[o.mean_us for o in chosen],
                name=kind.kind,
                hovertext=[f"{o.name}<br>{', '.join(o.kernels)}" for o in chosen],
            )
        return figure


def profile(
    model: Model | str | Path,
    *,
    threads: int = 1,
    kernels: str = "delegate",
    runs: int = 100,
    inputs: dict[str, Any] | None = None,
    seed: int = 0,
) -> Profile:
    """Measure the time of each operator of the file.

    Args:
        model: A Model or the path of a `.tflite`.
        threads: Threads of the CPU kernels.
        kernels: "delegate" (XNNPACK), "builtin" or "reference".
        runs: Runs to record.
        inputs: Arrays by input name; random values by default.
        seed: Of the random inputs.

    Example:
        >>> import litesmith
        >>> result = litesmith.profile(litesmith.samples.model(), runs=10)
        >>> result.operators[0].kind
        'CONV_2D'
    """
    if runs < 2:
        raise UsageError(f"runs must be at least 2, not {runs}")
    loaded = model if isinstance(model, Model) else Model.load(model)
    loaded.verify()
    options: dict[str, Any] = {"threads": threads, "kernels": kernels, "verify": False}
    with contextlib.ExitStack() as stack:
        watched, session, plain = open_profiled(stack, loaded, inputs, seed, options)
        pieces = partitions(watched, **options)
        warm_up(Timed("plain", session.run))
        recorded = record(watched, session, pieces, runs=runs)
        # Afterwards: what the profiler leaves in the heap makes its next samples of the memory slower.
        without, with_profiler = _overhead(session, plain, recorded[-1].wall_us / 1e6)
    pieces, everything = of_the_file(len(loaded.main.operators), pieces, recorded)
    recorded = _undisturbed(everything)
    roof = roofline(threads)
    operators = _operators(loaded, pieces, recorded, roof)
    timed = {operator.index for operator in operators}
    latency_us = float(np.mean([run.wall_us for run in recorded]))
    work = [Work(o.index, o.kind, o.p50_us, o.macs, o.bytes_moved) for o in operators]
    graph_us, border_us, profiler_us = _besides(recorded)
    return Profile(
        model=str(loaded.source or loaded.description or "model"),
        runs=len(everything),
        threads=threads,
        kernels=kernels,
        latency_us=latency_us,
        operators=operators,
        inserted=_inserted([s for run in recorded for s in run.slices], len(recorded)),
        fused=tuple(i for i in range(len(loaded.main.operators)) if i not in timed),
        graph_us=graph_us,
        border_us=border_us,
        profiler_us=profiler_us,
        partitions=sum(p.delegate is not None for p in pieces),
        unprofiled_us=without,
        profiled_us=with_profiler,
        oddities=find_oddities(loaded, pieces, {o.index: (o.mean_us, o.kernels) for o in operators}, latency_us),
        gains=find_gains(loaded, work, latency_us, roof),
        roofline=roof,
        machine=machine_facts(),
        command=tuple(sys.argv),
        interrupted=len(everything) - len(recorded),
        complete=len(everything) == runs,
    )


def _undisturbed(recorded: Sequence[RecordedRun]) -> list[RecordedRun]:
    limit = 2 * float(np.median([run.wall_us for run in recorded]))
    return [run for run in recorded if run.wall_us <= limit]


def _besides(recorded: Sequence[RecordedRun]) -> tuple[float, float, float]:
    """Return what a run takes besides its kernels: in the graph, at its border, and for the profiler itself.

    Graph and border are those of the run in the middle. What the mean has more than that goes to the profiler: it
    calls the kernel of the machine for each of its samples, and these calls take ten times longer now and then.
    """
    kernels = [sum(s.duration_us for s in run.slices) for run in recorded]
    inside = [max(run.invoke_us - busy, 0.0) for run, busy in zip(recorded, kernels, strict=True)]
    outside = [max(run.wall_us - max(run.invoke_us, busy), 0.0) for run, busy in zip(recorded, kernels, strict=True)]
    samples = [run.sample_us for run in recorded]
    graph = _typical(inside, samples)
    border = _typical(outside, [(MEMORY_SAMPLES - 1) * sample for sample in samples])
    return graph, border, float(np.mean(inside)) + float(np.mean(outside)) - graph - border


def _typical(times: Sequence[float], profiler: Sequence[float]) -> float:
    return min(float(np.median(np.maximum(np.subtract(times, profiler), 0.0))), float(np.mean(times)))


def _overhead(profiled: Session, plain: Session, run_s: float) -> tuple[float, float]:
    """Return the median latency in µs without and with the profiler running, interleaved."""
    subjects = [Timed("plain", plain.run), Timed("profiled", profiled.run)]
    profiled.start_profile()
    measure(subjects, runs=None, seconds=min(OVERHEAD_SECONDS, OVERHEAD_RUNS * run_s), description="Overhead")
    profiled.stop_profile()
    without, with_profiler = (float(np.median(s.samples_ms)) * 1000 for s in subjects)
    return without, with_profiler


def _operators(
    model: Model, pieces: Sequence[Partition], recorded: Sequence[RecordedRun], roof: Roofline
) -> tuple[OperatorTime, ...]:
    times: dict[int, np.ndarray[Any, Any]] = {}
    kernels: dict[int, dict[str, None]] = {}
    for r, run in enumerate(recorded):
        for s in run.slices:
            if s.operator is not None:
                times.setdefault(s.operator, np.zeros(len(recorded)))[r] += s.duration_us
                kernels.setdefault(s.operator, {})[s.kernel] = None
    where = {i: (p.delegate or "built-in", n) for n, p in enumerate(pieces) for i in p.operators}
    costs = {c.index: c for c in model.cost().operators if c.subgraph == 0}
    wall_us = sum(run.wall_us for run in recorded) / len(recorded)
    found = []
    for index in sorted(times):
        operator, cost, values = model.main.operators[index], costs[index], times[index]
        mean, median = float(values.mean()), float(np.median(values))
        delegate, partition = where.get(index, ("built-in", None))
        moved = cost.bytes_read + cost.bytes_written
        rate, dtype = cost.macs / median / 1000 if median else 0.0, activation_dtype(model, index)
        skips_zeros = any(_SPARSE in kernel for kernel in kernels[index])
        found.append(
            OperatorTime(
                index=index,
                kind=operator.name,
                name=model.main.tensors[operator.outputs[0]].name if operator.outputs else "",
                kernels=tuple(kernels[index]),
                delegate=delegate,
                partition=None if delegate == "built-in" else partition,
                mean_us=mean,
                p50_us=median,
                p95_us=float(np.quantile(values, 0.95)),
                min_us=float(values.min()),
                max_us=float(values.max()),
                deviation_us=float(values.std()),
                share=mean / wall_us,
                macs=cost.macs,
                bytes_moved=moved,
                roof=rate / roof.attainable_gmacs(cost.macs, moved, dtype) if rate and not skips_zeros else None,
                bound=roof.bound(cost.macs, moved, dtype) if cost.macs and not skips_zeros else "",
            )
        )
    return tuple(found)


def _inserted(slices: Sequence[Slice], runs: int) -> tuple[tuple[str, float], ...]:
    totals: dict[str, float] = {}
    for s in slices:
        if s.operator is None:
            totals[s.kernel] = totals.get(s.kernel, 0.0) + s.duration_us / runs
    return tuple(sorted(totals.items(), key=lambda entry: -entry[1]))
