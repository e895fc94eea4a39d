# SPDX-License-Identifier: Apache-2.0
"""What workers do: make a file of a recipe, run samples through a file, find its weak layers, measure latency.

Jobs and their answers are plain values, so that any process on any machine can do them; what a job makes depends on the
question and the job alone, so that it does not matter who did it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from litesmith import devices, measure
from litesmith.accuracy import Layer, diagnose
from litesmith.errors import LitesmithError, OptimizeError
from litesmith.measure._statistics import compare_medians
from litesmith.model import Model
from litesmith.optimize import Coverage, Recipe
from litesmith.targets import fix
from litesmith.tune._journal import NO_SPACE
from litesmith.tune._question import Question

Array = np.ndarray[Any, Any]
PROBE_RUNS = 3
PROBE_S = 0.05
DIAGNOSED_SAMPLES = 64
PROFILED_RUNS = 50
REWRITES = "fix(xnnpack)"
"""The recipe of what helps LiteRT's fast path on processors, and changes no output."""


@dataclass(frozen=True)
class Build:
    """Make a file; the answer is a Built. A training that was killed goes on from its checkpoint, where that has a path."""

    recipe: str
    checkpoint: str = ""

    def answer(self, question: Question) -> Built:
        """Do it."""
        started = time.perf_counter()
        checkpoint = Path(self.checkpoint) if self.checkpoint else None
        content, coverage = question.made_with_coverage(self.recipe, checkpoint)
        seconds = time.perf_counter() - started
        return Built(content, seconds, _slowness(content, question.model), coverage)


@dataclass(frozen=True)
class FindRewrites:
    """Find out what would help this processor; the answer is what was done, in words."""

    def answer(self, question: Question) -> tuple[str, ...]:
        """Do it."""
        model = Model.from_bytes(question.model)
        fixed = fix(model, target="xnnpack")
        if _takes(fixed.model) != _takes(model):
            raise OptimizeError("they would fix the batch, and this model takes any")
        return fixed.found.applied


@dataclass(frozen=True)
class Built:
    """A file's bytes, how long it took to make, and roughly how many times as long as the float model it takes to run.

    Where a step quantized it, ``coverage`` says what that left float.
    """

    model: bytes
    seconds: float
    slowness: float
    coverage: Coverage | None = None


@dataclass(frozen=True)
class Observe:
    """Run some samples of a split; the answer is an Observation."""

    model: bytes
    split: str
    start: int
    stop: int

    def answer(self, question: Question) -> Observation:
        """Do it."""
        started = time.perf_counter()
        seen = question.observe(self.model, self.split, self.start, self.stop)
        return Observation(seen, time.perf_counter() - started)


@dataclass(frozen=True)
class Observation:
    """What the metric kept of each sample, and how long the samples took."""

    seen: dict[str, Array]
    seconds: float


@dataclass(frozen=True)
class Weigh:
    """Find which operators of the float model, once quantized, are to blame; the answer is a tuple of Weight.

    The float model is the one after ``start``, the steps that a recipe begins with.
    """

    model: bytes
    start: str = ""

    def answer(self, question: Question) -> tuple[Weight, ...]:
        """Do it."""
        return _weigh(question, self.model, question.made(self.start))


@dataclass(frozen=True)
class Weight:
    """An operator of the float model, its share of the error at the outputs, and the bytes that float costs more."""

    operator: int
    kind: str
    share: float
    extra_bytes: int


@dataclass(frozen=True)
class Latencies:
    """(median, low, high) in ms for each model and threads, how long it took to compile and run them, and where.

    The interval is that of the ratio to the first model in the same rounds, at the first one's median: what slows the
    machine down for a while slows both down, and makes neither less sure.
    """

    summaries: tuple[tuple[float, float, float], ...]
    seconds: float
    machine: measure.MachineFacts


@dataclass(frozen=True)
class Measure:
    """Measure latencies in interleaved rounds; the answer is a Latencies."""

    models: tuple[bytes, ...]
    threads: tuple[int, ...]
    seconds: float

    def answer(self, question: Question) -> Latencies:
        """Do it."""
        return _measure(question, self.models, self.threads, self.seconds)


@dataclass(frozen=True)
class Explain:
    """Look into the file that a recipe made; the answer is an Explained."""

    model: bytes
    recipe: str = ""

    def answer(self, question: Question) -> Explained:
        """Do it."""
        return _explain(question, self.model, self.recipe)


@dataclass(frozen=True)
class Explained:
    """The layers of a file; and for a quantized one without errors per layer, why there are none."""

    layers: tuple[TunedLayer, ...]
    not_compared: str = ""


@dataclass(frozen=True)
class TunedLayer:
    """One operator of the winner, or of the float model.

    Attributes:
        index, kind, name: which one; the name is that of the tensor it writes.
        dtype: of what it writes.
        delegate: what runs it.
        size_bytes: of its constants.
        time_us: in one inference; 0 where it runs as a part of its neighbour.
        error_share: its share of the error at the outputs; None where it was not compared with what was quantized.
        sqnr_db: signal over error there.
    """

    index: int
    kind: str
    name: str
    dtype: str
    delegate: str
    size_bytes: int
    time_us: float
    error_share: float | None
    sqnr_db: float | None


@dataclass(frozen=True)
class Accelerate:
    """Measure a file on every accelerator there is; the answer is a tuple of OnAccelerator."""

    model: bytes
    seconds: float
    trial: int

    def answer(self, question: Question) -> tuple[OnAccelerator, ...]:
        """Do it."""
        result = measured(question.device, "accelerators", Model.from_bytes(self.model), seconds=self.seconds)
        return tuple(
            OnAccelerator(
                trial=self.trial,
                name=run.name,
                latency_ms=run.summary.median if run.samples_ms else None,
                low_ms=run.summary.low if run.samples_ms else 0.0,
                high_ms=run.summary.high if run.samples_ms else 0.0,
                ran=run.ran,
                best=run.name == result.best,
                verdict=run.verdict or run.problem,
            )
            for run in (*result.runs, *result.absent)
        )


@dataclass(frozen=True)
class OnAccelerator:
    """A trial's file on one accelerator: its latency, whether it really ran there, and whether that is the best of all.

    The best has outputs that are right. ``low_ms`` and ``high_ms`` are the interval of the latency.
    """

    trial: int
    name: str
    latency_ms: float | None
    ran: bool
    best: bool
    verdict: str
    low_ms: float = 0.0
    high_ms: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why a job has no answer: ``crashed`` where the process died, ``transient`` where another time it may go well."""

    reason: str
    crashed: bool = False
    transient: bool = False


class Job(Protocol):
    """Something to do, given the question; whoever does it makes the same of it."""

    def answer(self, question: Any) -> Any:
        """Do it."""


def work(question: Any, job: Job) -> Any:
    """Do a job; an error becomes a Failure, which the search records."""
    try:
        return job.answer(question)
    except MemoryError as error:
        return Failure(f"out of memory: {error}" if str(error) else "out of memory", transient=True)
    except LitesmithError as error:
        return Failure(str(error), transient=_is_for_want_of_space(error))
    except Exception as error:  # noqa: BLE001 (a candidate that breaks a pass is a finding about it, and is recorded)
        if _is_for_want_of_space(error):
            return Failure(f"no space left on the disk: {error}", transient=True)
        return Failure(f"{type(error).__name__}: {error}")


def _is_for_want_of_space(error: BaseException | None) -> bool:
    """Say whether a full disk is behind an error, which may be another's: PyTorch's of a file that ends too early."""
    while error is not None:
        if isinstance(error, OSError) and (error.errno in NO_SPACE or "No usable temporary directory" in str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _slowness(content: bytes, float_model: bytes) -> float:
    """Return how many times as long as the float model a file runs: in turns, so that whoever else is busy slows both."""
    from litesmith.runtime import Session, random_inputs

    with Session(content) as ours, Session(float_model) as theirs:
        times: dict[Session, list[float]] = {ours: [], theirs: []}
        for session in times:
            session.run(random_inputs(session))
        while len(times[ours]) < PROBE_RUNS or sum(times[ours]) < PROBE_S:
            for session, found in times.items():
                started = time.perf_counter()
                session.run()
                found.append(time.perf_counter() - started)
    return min(times[ours]) / min(times[theirs])


def _takes(model: Model) -> list[tuple[int, ...]]:
    """Return the shapes that a model takes: one of any batch must stay so."""
    return [t.shape_signature or t.shape for t in (model.main.tensors[i] for i in model.main.inputs)]


def _weigh(question: Question, content: bytes, before: bytes) -> tuple[Weight, ...]:
    real, quantized = Model.from_bytes(before), Model.from_bytes(content)
    report = diagnose(real, quantized, question.calibrate, samples=DIAGNOSED_SAMPLES, seed=question.seed)
    producers = real.main.producers()
    found = []
    for layer in report.layers:
        # Tensor i of the float model is tensor i of the quantized one, so its producer is known there too.
        tensor = quantized.main.operators[layer.index].outputs[0]
        if layer.share > 0 and tensor in producers:
            found.append(Weight(producers[tensor], layer.kind, layer.share, layer.float_bytes - layer.size_bytes))
    return tuple(found)


def _explain(question: Question, content: bytes, recipe: str) -> Explained:
    model = Model.from_bytes(content)
    timed = {o.index: o for o in measured(question.device, "profile", model, runs=PROFILED_RUNS).operators}
    compared, not_compared = _compared(question, content, recipe)
    found = []
    for index, operator in enumerate(model.main.operators):
        out, time_us, layer = model.main.tensors[operator.outputs[0]], timed.get(index), compared.get(index)
        constants = [model.main.tensors[t].buffer for t in operator.inputs if t >= 0]
        found.append(
            TunedLayer(
                index=index,
                kind=operator.name,
                name=out.name,
                dtype=out.dtype,
                delegate="" if time_us is None else time_us.delegate,
                size_bytes=sum(len(b) for b in constants if b is not None),
                time_us=0.0 if time_us is None else time_us.mean_us,
                error_share=None if layer is None else layer.share,
                sqnr_db=None if layer is None else layer.sqnr_db,
            )
        )
    return Explained(tuple(found), not_compared)


def _compared(question: Question, content: bytes, recipe: str) -> tuple[dict[int, Layer], str]:
    """Return the error of each layer against what the recipe quantized, or why it is not known."""
    steps = Recipe.parse(recipe).before_quantizing
    if steps is None:
        return {}, ""
    if steps.trains:
        return {}, f"what was quantized is what {str(steps)!r} made, and that is not trained again to be compared with"
    try:
        before = question.made(str(steps))
        if content == before:
            return {}, ""
        report = diagnose(before, content, question.calibrate, samples=DIAGNOSED_SAMPLES, seed=question.seed)
    except Exception as error:  # noqa: BLE001 (sizes and times hold without it, and the search says why)
        return {}, str(error) if isinstance(error, LitesmithError) else f"{type(error).__name__}: {error}"
    return {layer.index: layer for layer in report.layers}, ""


def measured(device: devices.Device | None, verb: str, *models: Model | str | Path, **options: Any) -> Any:
    """Measure: here, or on a device."""
    if device is None:
        return getattr(measure, verb)(*models, **options)
    return devices.run(verb, *models, device=device, say=lambda text: print(text, file=sys.stderr), **options)


def _measure(question: Question, models: tuple[bytes, ...], threads: tuple[int, ...], seconds: float) -> Latencies:
    with tempfile.TemporaryDirectory(prefix="litesmith-") as folder:
        paths = []
        for number, content in enumerate(models):
            paths.append(Path(folder) / f"{number}.tflite")
            paths[-1].write_bytes(content)
        started = time.perf_counter()
        result = measured(question.device, "bench", *paths, threads=threads, seconds=seconds, memory=False)
        took_s = time.perf_counter() - started
    first = result.latencies[: len(threads)]
    summaries = [_beside(first[number % len(threads)], latency) for number, latency in enumerate(result.latencies)]
    return Latencies(tuple(summaries), took_s, result.machine)


def _beside(first: measure.Latency, latency: measure.Latency) -> tuple[float, float, float]:
    """Return the median of a model that ran in turns with the first one, and its interval as far as that is steady."""
    if latency is first:
        return first.summary.median, first.summary.low, first.summary.high
    ratio = compare_medians(np.array(first.samples_ms), np.array(latency.samples_ms), paired=True)
    base_ms = first.summary.median
    return base_ms * ratio.value, base_ms * ratio.low, base_ms * ratio.high
