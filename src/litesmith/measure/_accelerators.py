# SPDX-License-Identifier: Apache-2.0
"""Which accelerator wins on this machine, proved: each in a process of its own, all timed in interleaved rounds."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.accuracy._outputs import OutputScorer
from litesmith.accuracy._ports import ports
from litesmith.accuracy._predict import Candidate
from litesmith.errors import DataError, MeasureError, UsageError
from litesmith.machine import machine_facts
from litesmith.measure._accelerator_process import WorkerFailed, WorkerProcess, worker_process
from litesmith.measure._accelerator_result import AcceleratorRun, Accelerators, Agreement, Difference
from litesmith.measure._accelerator_worker import Job, evidence_of
from litesmith.measure._bench import as_file
from litesmith.measure._memory import MemoryUse
from litesmith.measure._placement import place
from litesmith.measure._statistics import compare_medians
from litesmith.measure._timing import FEWEST_ROUNDS, ROUND_S
from litesmith.model import Model
from litesmith.progress import task
from litesmith.runtime import Session, random_inputs
from litesmith.runtime._accelerators import Accelerator, choose, external_delegate, known_accelerators
from litesmith.runtime._custom_op_binding import kernels_that_stay

if TYPE_CHECKING:
    from litesmith.accuracy._decode import Decode
    from litesmith.accuracy._named import MetricLike
    from litesmith.data import Dataset

Array = np.ndarray[Any, Any]
BASELINE, REFERENCE = "xnnpack", "reference"
ILLEGAL = (
    "it executes instructions that this processor, or its virtual machine, does not allow: use another accelerator"
)
_ENOUGH_SAMPLES = 5  # of one that is so slow that its rounds take too long


def accelerators(
    model: Model | str | Path,
    *,
    only: Sequence[str] | None = None,
    delegate: str | Path | None = None,
    option: Mapping[str, str] | None = None,
    threads: int = 1,
    runs: int | None = None,
    seconds: float = 2.0,
    data: Dataset | None = None,
    samples: int = 200,
    metric: MetricLike | None = None,
    output: str | None = None,
    decode: Decode | None = None,
    label_offset: int = 0,
    seed: int = 0,
) -> Accelerators:
    """Run a model on every accelerator of this machine, prove where it ran, and compare.

    Each has a process of its own, so that one that crashes takes nothing along. XNNPACK, against which all are compared,
    and the reference kernels, from which the outputs' differences are counted, always take part.

    Args:
        model: A Model or the path of a `.tflite`.
        only: The names of those to try; all by default.
        delegate: An external delegate to try too: a shared library with tflite_plugin_create_delegate.
        option: What the external delegate is told.
        threads: Threads of the CPU kernels.
        runs: Runs of each; by default as many as fit into ``seconds``.
        seconds: Time for each, warm-up aside.
        data: Samples to compare the answers on.
        samples: How many of them at most.
        metric: To score the answers with, as in ``evaluate``; what compares with another model compares with the
            reference kernels. By default top1 where the labels are class numbers.
        output: The output that is scored, where there are several.
        decode: As in ``evaluate``.
        label_offset: Added to class numbers.
        seed: Of the random inputs and of the draw.

    Example:
        >>> import litesmith
        >>> result = litesmith.accelerators(litesmith.samples.model(), only=["builtin"], runs=10, seconds=0.1)
        >>> [run.name for run in result.runs]
        ['xnnpack', 'builtin', 'reference']
    """
    if runs is not None and runs < 1:
        raise UsageError(f"runs must be at least 1, not {runs}")
    if not seconds > 0 or samples < 1:
        raise UsageError(f"seconds and samples must be positive, not {seconds} and {samples}")
    if option and delegate is None:
        raise UsageError("options are for an external delegate; give its file too")
    if data is None and (metric, output, decode) != (None, None, None):
        raise UsageError("a metric scores answers to samples; give data too")
    wanted = _wanted(only, delegate, option)
    with contextlib.ExitStack() as stack:
        path, name = stack.enter_context(as_file(model))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="litesmith-")))
        trial = _Trial(path, folder, threads, seed)
        scored: dict[str, Any] = {"output": output, "decode": decode, "label_offset": label_offset}
        trial.prepare(None if data is None else data.take(min(samples, len(data)), seed=seed), metric, scored)
        complete = trial.run(wanted, stack, runs=runs, seconds=seconds)
        found = tuple(_judged(trial.results()))
    ran = [r for r in found if not r.problem]
    if not ran:
        raise MeasureError(f"no accelerator runs {name}: {found[0].problem}")
    return Accelerators(
        model=name,
        threads=threads,
        inputs="random" if data is None else "given",
        runs=tuple(ran),
        absent=tuple(r for r in found if r.problem),
        best=_best(ran),
        machine=machine_facts(),
        command=tuple(sys.argv),
        complete=complete,
    )


def _wanted(
    only: Sequence[str] | None, delegate: str | Path | None, option: Mapping[str, str] | None
) -> list[Accelerator]:
    chosen = known_accelerators() if only is None else choose([*dict.fromkeys((BASELINE, *only, REFERENCE))])
    external = [] if delegate is None else [external_delegate(delegate, option)]
    return [*chosen, *external]


@dataclass
class _Candidate:
    """An accelerator under trial."""

    accelerator: Accelerator
    folder: Path
    process: WorkerProcess | None = None
    seen: AcceleratorRun = field(default_factory=lambda: AcceleratorRun("", ""))
    samples_ms: list[float] = field(default_factory=list)

    def fail(self, problem: str, remedy: str = "") -> None:
        """Drop out."""
        self.seen = replace(self.seen, problem=problem, remedy=remedy)
        if self.process is not None:
            self.process.close()
        self.process = None

    @property
    def outputs(self) -> dict[str, Array]:
        return _arrays(self.folder / "outputs.npz")


class _Trial:
    """One model on several accelerators."""

    def __init__(self, path: Path, folder: Path, threads: int, seed: int) -> None:
        self._path, self._folder, self._threads, self._seed = path, folder, threads, seed
        self._model = Model.load(path)
        self._model.verify()
        self._scorer: OutputScorer | None = None
        self._stateful = any(t.is_variable for graph in self._model.subgraphs for t in graph.tensors)
        self._has_samples = False
        self._candidates: list[_Candidate] = []

    def prepare(self, data: Dataset | None, metric: MetricLike | None, scored: Mapping[str, Any]) -> None:
        """Write the inputs that all get: random values, or the first sample, and the samples to compare answers on."""
        with Session(self._path) as session:
            feeds = random_inputs(session, self._seed)
            views = {name: (view.shape, view.dtype) for name, view in session.inputs.items()}
        if local := kernels_that_stay(self._model):
            raise MeasureError(
                f"the kernel of the custom operator {local[0]!r} is in this program only, and accelerators are tried in "
                "processes of their own; register it in a module or a file"
            )
        if any(array.dtype.hasobject for array in feeds.values()):
            raise MeasureError("this model takes strings, which only LiteRT's Interpreter on the CPU does")
        if data is not None:
            if not len(data):
                raise MeasureError("the data has no samples to run on")
            candidate = Candidate.of(self._path)
            bound = candidate.bind(data)
            metric = metric or _usual_metric(self._model, bound)
            self._scorer = None if metric is None else OutputScorer(self._model, bound, metric, **scored)
            rows = [_fitted(sample.inputs, views, candidate) for sample in bound]
            stacked = {name: np.stack([row[name] for row in rows]) for name in views}
            feeds, self._has_samples = rows[0], True
            np.savez(self._folder / "samples.npz", allow_pickle=False, **stacked)
        np.savez(self._folder / "feeds.npz", allow_pickle=False, **feeds)

    def run(
        self, wanted: Sequence[Accelerator], stack: contextlib.ExitStack, *, runs: int | None, seconds: float
    ) -> bool:
        """Open all, time them in rounds, and collect what shows where they ran; False if Ctrl-C ended it early."""
        for accelerator in wanted:
            self._start(accelerator, stack)
        with task("Compiling", total=len(self._alive())) as advance:
            for candidate in self._alive():  # wait until no process is busy with its imports
                self._attempt(candidate, lambda _, process: process.ask("greet"))
            for candidate in self._alive():
                self._attempt(candidate, lambda c, p: self._open(c, p, seconds))
                advance(1)
        complete = self._time(runs, seconds)
        with task("Proving where it ran", total=len(self._alive())) as advance:
            for candidate in self._alive():
                self._attempt(candidate, self._prove)
                if self._has_samples:
                    self._attempt(candidate, self._predict)
                advance(1)
        return complete

    def results(self) -> list[AcceleratorRun]:
        """Return what was seen, with the differences to the reference kernels."""
        reference = next((c for c in self._alive() if c.accelerator.name == REFERENCE), None)
        found = []
        for candidate in self._candidates:
            seen = replace(candidate.seen, samples_ms=tuple(candidate.samples_ms))
            if reference is not None and not seen.problem:
                seen = replace(seen, difference=_difference(candidate.outputs, reference.outputs))
                if self._has_samples:
                    seen = replace(seen, agreement=self._agreement(candidate, reference))
            found.append(seen)
        return found

    def _alive(self) -> list[_Candidate]:
        return [c for c in self._candidates if c.process is not None]

    def _start(self, accelerator: Accelerator, stack: contextlib.ExitStack) -> None:
        folder = self._folder / f"{len(self._candidates)}"
        folder.mkdir()
        candidate = _Candidate(accelerator, folder, seen=AcceleratorRun(accelerator.name, accelerator.title))
        self._candidates.append(candidate)
        reason, remedy = accelerator.why_absent()
        if reason:
            candidate.fail(reason, remedy)
            return
        job = Job(str(self._path), accelerator, self._threads, str(folder), str(self._folder / "feeds.npz"))
        candidate.process = stack.enter_context(worker_process(job, folder))

    def _attempt(self, candidate: _Candidate, action: Any) -> None:
        if candidate.process is None:  # it has dropped out
            return
        try:
            action(candidate, candidate.process)
        except WorkerFailed as error:
            said = _said(candidate.accelerator, str(error), candidate.process)
            candidate.fail(said, ILLEGAL if "SIGILL" in said else "")

    def _open(self, candidate: _Candidate, process: WorkerProcess, seconds: float) -> None:
        to = str(candidate.folder / "outputs.npz")
        reply = process.ask("open", to=to, limit_s=300.0 + seconds, warm_s=seconds, reset=self._stateful)
        candidate.seen = replace(
            candidate.seen,
            load_ms=reply["load_ms"],
            compile_ms=reply["compile_ms"],
            first_ms=reply["first_ms"],
            memory=MemoryUse(**reply["memory"]),
        )

    def _time(self, runs: int | None, seconds: float) -> bool:
        rounds = max(FEWEST_ROUNDS, round(seconds / ROUND_S)) if runs is None else min(FEWEST_ROUNDS, runs)
        try:
            with task("Measuring", total=rounds) as advance:
                for index in range(rounds):
                    alive = self._alive()
                    shift = index % max(len(alive), 1)
                    for candidate in (*alive[shift:], *alive[:shift]):
                        self._attempt(candidate, lambda c, p, i=index: _round(c, p, i, rounds, runs, seconds))
                    advance(1)
        except KeyboardInterrupt:
            if not all(candidate.samples_ms for candidate in self._alive()):
                raise
            return False
        return True

    def _prove(self, candidate: _Candidate, process: WorkerProcess) -> None:
        evidence = evidence_of(process.ask("prove"), process.printed())
        name, external = candidate.accelerator.name, bool(candidate.accelerator.library)
        candidate.seen = replace(candidate.seen, placement=place(name, self._model, evidence, external=external))

    def _predict(self, candidate: _Candidate, process: WorkerProcess) -> None:
        to = str(candidate.folder / "answers.npz")
        process.ask("predict", samples=str(self._folder / "samples.npz"), to=to, reset=self._stateful)

    def _agreement(self, candidate: _Candidate, reference: _Candidate) -> Agreement:
        ours, theirs = (_arrays(c.folder / "answers.npz") for c in (candidate, reference))
        answers, expected = _answers(ours), _answers(theirs)
        same = None if answers is None or expected is None else float((answers == expected).mean())
        scored = self._scorer is not None and all(np.isfinite(a).all() for a in ours.values() if a.dtype.kind == "f")
        score = self._scorer.score(ours, theirs, seed=self._seed) if self._scorer is not None and scored else None
        return Agreement(len(next(iter(ours.values()))), same, score)


def _round(
    candidate: _Candidate, process: WorkerProcess, index: int, rounds: int, runs: int | None, seconds: float
) -> None:
    share = None if runs is None else runs * (index + 1) // rounds - runs * index // rounds
    if runs is None and sum(candidate.samples_ms) > 1500 * seconds and len(candidate.samples_ms) >= _ENOUGH_SAMPLES:
        return
    reply = process.ask("time", runs=share, seconds=seconds / rounds)
    candidate.samples_ms.extend(reply["samples_ms"])


def _said(accelerator: Accelerator, problem: str, process: WorkerProcess | None) -> str:
    """Return why an accelerator does not run the model, for people."""
    if accelerator.name == "ynnpack" and "Unsupported (5)" in problem:
        return "this build of LiteRT is without YNNPACK"
    errors = [line for line in process.printed().splitlines() if line.startswith("ERROR")] if process else []
    return f"{problem} ({errors[-1].partition('] ')[2] or errors[-1]})" if errors else problem


def _judged(found: Sequence[AcceleratorRun]) -> list[AcceleratorRun]:
    """Add to each how it compares with XNNPACK, and what to make of it."""
    baseline = next((r for r in found if r.name == BASELINE and not r.problem), None)
    return [r if r.problem else _judge(r, baseline) for r in found]


def _judge(run: AcceleratorRun, baseline: AcceleratorRun | None) -> AcceleratorRun:
    if baseline is not None and run is not baseline and run.ran:
        paired = len(run.samples_ms) >= FEWEST_ROUNDS <= len(baseline.samples_ms)
        ratio = compare_medians(np.array(baseline.samples_ms), np.array(run.samples_ms), paired=paired)
        run = replace(run, against_baseline=ratio)
    return replace(run, verdict=_wrong(run) + _verdict(run, baseline))


def _wrong(run: AcceleratorRun) -> str:
    if not run.is_wrong or run.difference is None:
        return ""
    if not np.isfinite(run.difference.relative):
        return "wrong numbers, not all of them finite; "
    return f"wrong numbers, off by {100 * run.difference.relative:.0f} % of the largest value; "


def _verdict(run: AcceleratorRun, baseline: AcceleratorRun | None) -> str:
    if run.placement is not None and not run.placement.ran:
        why = "; ".join(dict.fromkeys(f.reason for f in run.placement.fallback[:2]))
        return f"did not run there: {why or run.placement.proof}"
    if run.against_baseline is None or baseline is None:
        return "what the others are compared with"
    yardstick = "XNNPACK" if baseline.ran else "LiteRT's default (no XNNPACK here)"
    ratio = run.against_baseline
    numbers = f"{run.summary.median:.3f} ms against {baseline.summary.median:.3f} ms"
    if ratio.high < 1:
        faster = f"{1 / ratio.value:.2f} times ({1 / ratio.high:.2f}–{1 / ratio.low:.2f})"
        return f"pays: {faster} as fast as {yardstick}, {numbers}{_paid_back(run, baseline)}"
    if ratio.low > 1:
        longer = f"{ratio.value:.2f} times ({ratio.low:.2f}–{ratio.high:.2f})"
        return f"does not pay: {longer} as long as {yardstick}, {numbers}"
    return f"as fast as {yardstick} within the noise (× {ratio.low:.2f}–{ratio.high:.2f}), {numbers}"


def _paid_back(run: AcceleratorRun, baseline: AcceleratorRun) -> str:
    longer = (run.ready_ms + run.first_ms) - (baseline.ready_ms + baseline.first_ms)
    gain = baseline.summary.median - run.summary.median
    return (
        f"; its start takes {longer:.0f} ms longer, paid back after {longer / gain:.0f} runs" if longer > gain else ""
    )


def _best(runs: Sequence[AcceleratorRun]) -> str:
    better = [r for r in runs if r.against_baseline is not None and r.against_baseline.high < 1]
    winners = [r for r in better if not r.is_wrong]
    return min(winners, key=lambda r: r.summary.median).name if winners else BASELINE


def _arrays(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _difference(ours: Mapping[str, Array], reference: Mapping[str, Array]) -> Difference:
    largest = relative = 0.0
    for name, expected in reference.items():
        if expected.size and expected.dtype.kind in "fiub":
            wanted = expected.astype(np.float64)
            with np.errstate(invalid="ignore"):
                apart = np.where(ours[name] == expected, 0.0, np.abs(ours[name].astype(np.float64) - wanted))
            distance = float(np.where(np.isnan(apart) & ~np.isnan(wanted), np.inf, np.nan_to_num(apart, nan=0.0)).max())
            scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
            largest, relative = max(largest, distance), max(relative, distance / scale if scale else distance)
    return Difference(largest, relative)


def _answers(outputs: Mapping[str, Array]) -> Array | None:
    """Return the class of each sample, where the model has one output that can be a vector of scores."""
    arrays = [a for a in outputs.values() if a.dtype.kind in "fiu" and a[0].size > 1]
    if len(outputs) != 1 or not arrays:
        return None
    classes: Array = arrays[0].reshape(len(arrays[0]), -1).argmax(axis=1)
    return classes


def _usual_metric(model: Model, data: Dataset) -> str | None:
    """Return top1 where there are class numbers and one vector of scores; else nothing is scored."""
    labels, outputs = data.labels, ports(model)[1]
    classes = labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu"
    return "top1" if classes and len(outputs) == 1 and outputs[0].shape[-1:] not in ((), (1,)) else None


def _fitted(
    inputs: Mapping[str, Array], views: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], candidate: Candidate
) -> dict[str, Array]:
    """Return a sample as the inputs take it: with the batch dimension, and quantized where they are."""
    fitted = {}
    for port in candidate.inputs:
        values, (shape, dtype) = port.quantize(np.asarray(inputs[port.name])), views[port.name]
        if values.size != np.prod(shape, dtype=np.int64):
            raise DataError(f"a sample has the shape {values.shape}, but the input {port.name!r} takes {shape}")
        fitted[port.name] = values.astype(dtype).reshape(shape)
    return fitted
