# SPDX-License-Identifier: Apache-2.0
"""Latency with its spread: warmed until stable, interleaved when there are several, raw samples kept."""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.errors import DataError, MeasureError, SessionError, UsageError
from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._memory import MemoryUse, memory_use
from litesmith.measure._statistics import Summary, summarize
from litesmith.measure._timing import Timed, measure
from litesmith.model import Model
from litesmith.progress import task
from litesmith.result import Result
from litesmith.runtime import Session, random_inputs
from litesmith.runtime._custom_op_binding import kernels_that_stay

if TYPE_CHECKING:
    from litesmith.data import Dataset

Array = np.ndarray[Any, Any]
UNSTABLE_INTERVAL = 0.03  # half-width of the interval of the median
UNSTABLE_TAIL = 1.5  # p95 over the median


@dataclass(frozen=True)
class Configuration:
    """What was measured: a model, and how it was compiled."""

    model: str
    threads: int
    kernels: str

    @property
    def label(self) -> str:
        """A short name for tables and plots."""
        name = Path(self.model).name.removesuffix(".tflite")
        extras = [] if self.threads == 1 else [f"{self.threads} threads"]
        extras += [] if self.kernels == "delegate" else [self.kernels]
        return f"{name} ({', '.join(extras)})" if extras else name


@dataclass(frozen=True)
class Latency:
    """What was seen of one configuration; times in milliseconds, samples in the order they were taken."""

    configuration: Configuration
    samples_ms: tuple[float, ...]
    load_ms: float
    compile_ms: float
    first_ms: float
    warmup_runs: int
    steady: bool
    memory: MemoryUse | None
    size_bytes: int
    backend: str

    @property
    def summary(self) -> Summary:
        """The quantiles of the samples and the interval of their median."""
        return summarize(self.samples_ms)

    @property
    def throughput(self) -> float:
        """Inferences in a second, one after the other."""
        return 1000 * len(self.samples_ms) / sum(self.samples_ms)

    def doubts(self) -> tuple[str, ...]:
        """Say what makes this figure unsure, and what to do; empty when it is stable."""
        summary, found = self.summary, []
        if not self.steady:
            found.append("it was still changing after the warm-up; measure longer with --seconds")
        if summary.uncertainty > UNSTABLE_INTERVAL:
            found.append(
                f"the median is known to ±{100 * summary.uncertainty:.0f} % only; measure longer or on a quiet machine"
            )
        if summary.p95 > UNSTABLE_TAIL * summary.median:
            tail = summary.p95 / summary.median
            found.append(f"one run in 20 takes more than {tail:.1f} times the median; stop other programs")
        return tuple(found)


@dataclass(frozen=True)
class Bench(Result, kind="bench", schema=1):
    """What ``bench`` measured."""

    latencies: tuple[Latency, ...]
    machine: MachineFacts
    command: tuple[str, ...]
    inputs: str
    complete: bool = True  # False when it was interrupted: the samples are what was taken until then

    def plot(self) -> Any:
        """Return a Plotly figure: the distribution of each configuration."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "latency (ms)", "showlegend": False, "template": "plotly_white"})
        for latency in reversed(self.latencies):
            figure.add_box(x=list(latency.samples_ms), name=latency.configuration.label, boxpoints="outliers")
        return figure


def bench(
    *models: Model | str | Path,
    threads: int | Sequence[int] = 1,
    kernels: str | Sequence[str] = "delegate",
    runs: int | None = None,
    seconds: float = 3.0,
    data: Dataset | Mapping[str, Array] | None = None,
    memory: bool = True,
    seed: int = 0,
) -> Bench:
    """Measure the latency of models, of each with each number of threads and kind of kernels, interleaved.

    Args:
        models: Paths or Models.
        threads: Number of threads, or several to compare.
        kernels: "delegate" (XNNPACK), "builtin" or "reference", or several to compare.
        runs: Runs of each configuration; by default as many as fit into ``seconds``.
        seconds: Time for each configuration, warm-up aside.
        data: Samples to run on, each in turn; random values by default.
        memory: Also measure memory, each configuration in a process of its own.
        seed: Of the random inputs.

    Example:
        >>> import litesmith
        >>> result = litesmith.bench(litesmith.samples.model(), runs=20, memory=False)
        >>> len(result.latencies[0].samples_ms)
        20
    """
    _check(models, runs, seconds)
    every_threads = (threads,) if isinstance(threads, int) else tuple(threads)
    every_kernels = (kernels,) if isinstance(kernels, str) else tuple(kernels)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(as_file(model)) for model in models]
        subjects, openings = [], []
        for (path, name), t, k in [(f, t, k) for f in files for t in every_threads for k in every_kernels]:
            session = stack.enter_context(Session(path, threads=t, kernels=k))
            subjects.append(_subject(name, session, _feeds(session, path, data, seed)))
            openings.append((Configuration(name, t, k), session, path))
        complete = measure(subjects, runs=runs, seconds=seconds)
        memories, measured = _memories(openings) if memory and complete else ([None] * len(openings), True)
        latencies = tuple(
            Latency(
                configuration=configuration,
                samples_ms=tuple(subject.samples_ms),
                load_ms=session.compiled.load_ms,
                compile_ms=session.compiled.compile_ms,
                first_ms=subject.first_ms,
                warmup_runs=subject.warmup_runs,
                steady=subject.steady,
                memory=use,
                size_bytes=path.stat().st_size,
                backend=session.compiled.backend,
            )
            for subject, use, (configuration, session, path) in zip(subjects, memories, openings, strict=True)
        )
    inputs = "random" if data is None else "given"
    return Bench(latencies, machine_facts(), tuple(sys.argv), inputs, complete and measured)


def _memories(openings: Sequence[tuple[Configuration, Session, Path]]) -> tuple[list[MemoryUse | None], bool]:
    """Return the memory of each configuration, and whether it was measured for all: Ctrl-C leaves None for the rest."""
    found: list[MemoryUse | None] = []
    try:
        with task("Measuring memory", total=len(openings)) as advance:
            for configuration, _, path in openings:
                local = kernels_that_stay(Model.load(path))  # a process of its own would not have those
                threads, kernels = configuration.threads, configuration.kernels
                found.append(None if local else memory_use(path, threads=threads, kernels=kernels))
                advance(1)
    except KeyboardInterrupt:
        return [*found, *[None] * (len(openings) - len(found))], False
    return found, True


def _check(models: Sequence[object], runs: int | None, seconds: float) -> None:
    if not models:
        raise UsageError("there is no model to measure; give at least one")
    if runs is not None and runs < 1:
        raise UsageError(f"runs must be at least 1, not {runs}")
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds}")


@contextlib.contextmanager
def as_file(model: Model | str | Path) -> Iterator[tuple[Path, str]]:
    """Yield the path of the model and its name; a Model that is not in a file gets one for the time being."""
    if not isinstance(model, Model):
        yield Path(model), str(model)
        return
    with tempfile.TemporaryDirectory(prefix="litesmith-") as folder:
        path = Path(folder) / "model.tflite"
        model.save(path)
        yield path, str(model.source or model.description or "model")


def _feeds(
    session: Session, path: Path, data: Dataset | Mapping[str, Array] | None, seed: int
) -> list[Mapping[str, Array]]:
    if data is None:
        return [random_inputs(session, seed)]
    if isinstance(data, Mapping):
        _check_fit(session, data)
        return [data]
    bound = data.bind(Model.load(path))
    feeds: list[Mapping[str, Array]] = [sample.inputs for sample in bound.take(min(len(bound), 32), seed=seed)]
    if not feeds:
        raise MeasureError("the data has no samples to run on")
    return feeds


def _check_fit(session: Session, arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that are not the model's inputs; another shape is tried, for models that can be resized."""
    for name, view in session.inputs.items():
        if name not in arrays:
            raise DataError(f"there is no array for the input {name!r}; the model has: {', '.join(session.inputs)}")
        if np.asarray(arrays[name]).dtype != view.dtype:
            raise DataError(f"input {name!r} is {view.dtype.name}, but the array is {np.asarray(arrays[name]).dtype}")
    unknown = [name for name in arrays if name not in session.inputs]
    if unknown:
        raise DataError(f"the model has no input {unknown[0]!r}; it has: {', '.join(session.inputs)}")


def _resize(session: Session, shapes: Mapping[str, tuple[int, ...]]) -> None:
    try:
        session.resize(shapes)
    except SessionError as error:
        wanted = ", ".join(f"{name!r} {session.inputs[name].shape}, not {shape}" for name, shape in shapes.items())
        raise DataError(f"the samples do not fit the model, which takes {wanted}: {error}") from error


def _subject(name: str, session: Session, feeds: list[Mapping[str, Array]]) -> Timed:
    """Return what is timed: one run on inputs that are already in place; the next sample is put there off the clock."""
    following = itertools.cycle(feeds)

    def feed() -> None:
        sample = next(following)
        wanted = {n: a.shape for n, a in sample.items() if n in session.inputs and a.shape != session.inputs[n].shape}
        try:
            session.resize(wanted)
        except SessionError as error:
            raise MeasureError(f"the model does not take inputs of the shapes {wanted}: {error}") from error
        for name, values in sample.items():
            np.copyto(session.inputs[name], values)

    feed()
    return Timed(name, session.run, feed if len(feeds) > 1 else None)
