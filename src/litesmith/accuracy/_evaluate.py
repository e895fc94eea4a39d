# SPDX-License-Identifier: Apache-2.0
"""How good a model is at its task, how sure that is, and whether another is really worse."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from litesmith.accuracy._decode import Decode
from litesmith.accuracy._metric import Array, Metric, Question, Ties
from litesmith.accuracy._named import MetricLike, metric_named
from litesmith.accuracy._statistics import PairedTest, mcnemar, paired_bootstrap
from litesmith.data import Dataset, Preprocess
from litesmith.errors import DataError, UsageError
from litesmith.result import Result

if TYPE_CHECKING:
    from litesmith.accuracy._predict import Candidate
    from litesmith.runtime._source import ModelLike

DataLike: TypeAlias = "Dataset | str | PathLike[str] | Array | Mapping[str, Array]"


@dataclass(frozen=True)
class Drop:
    """What a model loses against another on the same samples.

    Attributes:
        against: the other model's name.
        value, low, high: the other model's score and its interval.
        drop: how much worse this model is, in the unit of the metric; negative where it is better.
        drop_low, drop_high: the interval of the drop.
        p_value: how likely a difference of at least this size is between models that are equally good.
        significant: whether that is too unlikely to be chance.
        test: the name of the test.
        lost: samples that only the other model has right, where a sample is right or wrong.
        won: samples that only this model has right.
    """

    against: str
    value: float
    low: float
    high: float
    drop: float
    drop_low: float
    drop_high: float
    p_value: float
    significant: bool
    test: str
    lost: int | None = None
    won: int | None = None


@dataclass(frozen=True)
class Evaluation(Result, kind="evaluation", schema=1):
    """The score of a model on a dataset.

    ``predictions`` holds what was kept of each sample; it is not part of the JSON.

    Attributes:
        model: the name of the model.
        data: what it was scored on.
        metric: the name of the metric.
        value: the score.
        low, high: its interval.
        confidence: of the interval.
        interval: how the interval was found.
        samples: how many samples were scored.
        higher_is_better: whether more is better.
        is_fraction: whether the score is a share, shown in percent.
        ties: how much of the score hangs on equal values, for classifiers.
        reference: the name of the model that it was compared with, for agreement, mse and cosine.
        drop: the comparison with the model that ``against`` named.
        kernels, threads, processes: how it was run.
        seconds: how long it took, without reading the model.
        notes: what a reader of the score should know.
    """

    model: str
    data: str
    metric: str
    value: float
    low: float
    high: float
    confidence: float
    interval: str
    samples: int
    higher_is_better: bool
    is_fraction: bool
    ties: Ties | None
    reference: str
    drop: Drop | None
    kernels: str
    threads: int
    processes: int
    seconds: float
    notes: tuple[str, ...]

    @property
    def predictions(self) -> Predictions | None:
        """What was kept of each sample; None for an evaluation that was read from JSON."""
        found: Predictions | None = self.__dict__.get("_predictions")
        return found


class Predictions:
    """What a metric kept of each sample: arrays by name, one row a sample in the order of the dataset.

    A classifier's are ``prediction`` (the class), ``score`` (1 if right), ``tied``; others as the metric needs.
    """

    def __init__(self, arrays: Mapping[str, Array], metric: Metric) -> None:
        self._arrays = dict(arrays)
        self._metric = metric

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            raise UsageError(f"there is no {name!r} of each sample; there is {', '.join(self._arrays)}")
        return self._arrays[name]

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays."""
        return tuple(self._arrays)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the arrays as an `.npz`; texts as text, boxes of all samples in one array with their sample first."""
        target = Path(path)
        with target.open("wb") as file:
            savable: dict[str, Any] = {name: _savable(array) for name, array in self._arrays.items()}
            np.savez_compressed(file, **savable)
        return target


@dataclass(frozen=True)
class AccuracyComparison(Result, kind="accuracy-comparison", schema=1):
    """Two models scored on the same samples; the drop is what the second loses against the first."""

    first: Evaluation
    second: Evaluation
    drop: Drop


def evaluate(
    model: ModelLike,
    data: DataLike,
    *,
    metric: MetricLike = "top1",
    reference: ModelLike | None = None,
    against: ModelLike | None = None,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    labels: str | PathLike[str] | Sequence[Any] | Array | None = None,
    class_names: str | PathLike[str] | Sequence[str] | None = None,
    label_offset: int = 0,
    output: str | None = None,
    decode: Decode | None = None,
    limit: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    resamples: int = 1000,
    threads: int = 1,
    processes: int = 1,
    kernels: str = "delegate",
    signature: str | None = None,
) -> Evaluation:
    """Score a model on samples with a confidence interval, and test what it loses against another.

    Samples are real values: those for quantized inputs are quantized with the input's scale, and quantized outputs are
    turned back into reals. Each sample is run alone, with XNNPACK unless ``kernels`` says otherwise.

    Args:
        model: a path, bytes or Model.
        data: a Dataset, or anything that ``Dataset.open`` takes.
        metric: top1, top5 (any number), agreement, f1, exact-match, wer, cer, map50, map, auc, mse, cosine, a function
            of outputs and labels, or its name as module:function.
        reference: the model to agree with, for agreement, mse and cosine; it needs no labels.
        against: a model, usually the float one, that is scored too: the drop is tested on the same samples.
        preprocess: what to do with each sample, as in ``Dataset.open``.
        labels: instead of the data's own, as in ``Dataset.open``.
        class_names: the model's list of classes, as in ``Dataset.open``.
        label_offset: added to class numbers; 1 for models whose class 0 is the background.
        output: the output to look at, where the model has several.
        decode: module:function that turns the outputs of a sample into text or boxes, or ctc:SYMBOLS.txt.
        limit: how many samples at most, drawn by ``seed``; all by default.
        seed: of the draw and of the bootstrap.
        confidence: of the intervals; a drop is significant where its p-value is below 1 − confidence.
        resamples: draws of the bootstrap.
        threads: of the runtime.
        processes: how many share the samples; the result is the same.
        kernels: "delegate" is XNNPACK, "builtin" and "reference" are without it.
        signature: the signature to run; the first by default.

    Example:
        >>> import litesmith
        >>> score = evaluate(litesmith.samples.model(), litesmith.samples.dataset(), limit=50)
        >>> score.low <= score.value <= score.high
        True
    """
    from litesmith.accuracy._predict import Candidate

    if not 0.5 <= confidence < 1:
        raise UsageError(f"a confidence of {confidence} makes no sense; give 0.95 or the like")
    if resamples < 20:
        raise UsageError(f"{resamples} draws tell nothing; give resamples=1000 or the like")
    dataset = _opened(data, preprocess, labels, class_names, limit, seed)
    how: dict[str, Any] = {"signature": signature, "kernels": kernels, "threads": threads}
    scored = metric_named(
        metric,
        labels=dataset.labels,
        class_names=dataset.class_names,
        output=output,
        decode=decode,
        label_offset=label_offset,
    )
    compared = None if reference is None else Candidate.of(reference, **how)
    settings: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "seed": seed}
    result = _score(Candidate.of(model, **how), dataset, scored, compared, processes, settings)
    if against is None:
        return result
    other = _score(Candidate.of(against, **how), dataset, scored, compared, processes, settings)
    drop = _drop(other, result, settings)
    return _with_predictions(replace(result, drop=drop), result.predictions)


def compare_accuracy(
    first: ModelLike | Evaluation,
    second: ModelLike | Evaluation,
    data: DataLike | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    **options: Any,
) -> AccuracyComparison:
    """Score two models on the same samples and test what the second loses against the first.

    Args:
        first: the model to hold on to, usually the float one; or its Evaluation.
        second: the model in question; or its Evaluation, on the same samples by the same metric.
        data: the samples; not needed for two Evaluations.
        confidence: as in ``evaluate``.
        resamples: as in ``evaluate``.
        seed: as in ``evaluate``.
        options: all other arguments of ``evaluate``.
    """
    settings: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "seed": seed}
    scores = []
    for one in (first, second):
        if not isinstance(one, Evaluation):
            if data is None:
                raise UsageError("to compare models, give the data to score them on")
            one = evaluate(one, data, **settings, **options)
        scores.append(one)
    before, after = scores
    if before.metric != after.metric or before.samples != after.samples or before.data != after.data:
        raise UsageError(
            f"these scores cannot be paired: {before.metric} on {before.samples} samples of {before.data}, and "
            f"{after.metric} on {after.samples} of {after.data}; evaluate both the same way"
        )
    return AccuracyComparison(before, after, _drop(before, after, settings))


def _opened(data: Any, preprocess: Any, labels: Any, class_names: Any, limit: int | None, seed: int) -> Dataset:
    dataset = Dataset.open(data, preprocess=preprocess, labels=labels, class_names=class_names)
    return dataset if limit is None or limit >= len(dataset) else dataset.take(limit, seed=seed)


def _score(
    candidate: Candidate,
    dataset: Dataset,
    metric: Metric,
    reference: Candidate | None,
    processes: int,
    settings: Mapping[str, Any],
) -> Evaluation:
    from litesmith.accuracy._predict import Job, observe

    labels = dataset.labels
    metric.check(Question(candidate.inputs, candidate.outputs, reference is not None, labels, dataset.class_names))
    if reference is not None:
        _check_outputs(candidate, reference)
    started = time.perf_counter()
    seen = observe(Job(candidate, dataset, metric, reference), processes=processes)
    seconds = time.perf_counter() - started
    interval, method = metric.interval(seen, **settings)
    ties = metric.ties(seen)
    result = Evaluation(
        model=candidate.name,
        data=repr(dataset),
        metric=metric.name,
        value=metric.scorer(seen)(None),
        low=interval.low,
        high=interval.high,
        confidence=settings["confidence"],
        interval=method,
        samples=len(dataset),
        higher_is_better=metric.higher_is_better,
        is_fraction=metric.is_fraction,
        ties=ties,
        reference="" if reference is None else reference.name,
        drop=None,
        kernels=candidate.kernels,
        threads=candidate.threads,
        processes=processes,
        seconds=seconds,
        notes=_notes(ties, len(dataset), candidate.remembers),
    )
    return _with_predictions(result, Predictions(seen, metric))


def _check_outputs(candidate: Candidate, reference: Candidate) -> None:
    ours, theirs = ([list(port.shape) for port in one.outputs] for one in (candidate, reference))
    if len(ours) != len(theirs):
        raise DataError(
            f"{candidate.name} has {len(ours)} outputs and the reference {reference.name} has {len(theirs)}; give the "
            "model that this one was made from"
        )
    for position, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if -1 not in (*one, *other) and one != other:
            raise DataError(
                f"output {position} of {candidate.name} is {one} and that of the reference {reference.name} is "
                f"{other}; give the model that this one was made from"
            )


def _drop(before: Evaluation, after: Evaluation, settings: Mapping[str, Any]) -> Drop:
    ours, theirs = after.predictions, before.predictions
    if ours is None or theirs is None:
        raise UsageError("an evaluation that was read from JSON has no predictions to pair; evaluate the model again")
    metric = ours._metric  # noqa: SLF001 (predictions carry their metric for this)
    right_before, right_after = metric.successes(theirs._arrays), metric.successes(ours._arrays)  # noqa: SLF001
    if right_before is not None and right_after is not None:
        test = mcnemar(right_before, right_after, confidence=settings["confidence"])
    else:
        scorers = (metric.scorer(theirs._arrays), metric.scorer(ours._arrays))  # noqa: SLF001
        test = paired_bootstrap(*scorers, len(ours), **settings)
    return oriented(
        test, before.model, (before.value, before.low, before.high), after.higher_is_better, settings["confidence"]
    )


def oriented(
    test: PairedTest, against: str, score: tuple[float, float, float], higher_is_better: bool, confidence: float
) -> Drop:
    """Turn a difference from a score (value, low, high) into a drop: what is lost counts positive for every metric."""
    sign = 1 if higher_is_better else -1
    low, high = sorted((sign * test.low, sign * test.high))
    return Drop(
        against,
        *score,
        drop=sign * test.difference,
        drop_low=low,
        drop_high=high,
        p_value=test.p_value,
        significant=test.p_value < 1 - confidence,
        test=test.method,
        lost=test.only_first,
        won=test.only_second,
    )


def _notes(ties: Ties | None, samples: int, remembers: bool) -> tuple[str, ...]:
    notes = []
    if remembers:
        notes.append("the model keeps resource variables from one sample to the next: the score depends on their order")
    if ties is not None and ties.samples:
        notes.append(
            f"{100 * ties.share:.2g} % of the samples tie at the top; the lowest class is taken, and the score would "
            f"be {100 * ties.low:.2f} % if each such tie were lost and {100 * ties.high:.2f} % if each were won"
        )
    if samples < 100:
        notes.append(f"{samples} samples are few: the interval is wide")
    return tuple(notes)


def _with_predictions(result: Evaluation, predictions: Predictions | None) -> Evaluation:
    object.__setattr__(result, "_predictions", predictions)
    return result


def _savable(array: Array) -> Array:
    if array.dtype != object:
        return array
    if array.size and isinstance(array[0], np.ndarray):
        return np.concatenate([np.insert(rows, 0, number, axis=1) for number, rows in enumerate(array)])
    return array.astype(str)
