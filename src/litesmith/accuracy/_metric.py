# SPDX-License-Identifier: Apache-2.0
"""What every metric is: it looks at samples as they come, keeps little of each, and scores what it kept.

``observe`` sees a few samples at a time and returns arrays with one row for each: all that is ever kept, so that an
evaluation needs little memory whatever the outputs are. ``scorer`` turns all rows into a function of how often each
sample counts, from which the score, its interval and the paired test of two models follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.accuracy._ports import Port
from litesmith.accuracy._statistics import Interval, Scorer, Weights, bootstrap, wilson
from litesmith.errors import DataError, UsageError

Array = NDArray[Any]
Seen = Mapping[str, Array]
"""What a metric kept: arrays by name, one row a sample."""


@dataclass(frozen=True)
class Observed:
    """Some samples and what the model made of them; the first axis of each array counts the samples.

    Attributes:
        outputs: the model's, dequantized, by name.
        labels: what the dataset says is right, or None.
        target: the outputs of the reference model, by name, or None.
        inputs: what the model was given, as reals.
        first: the position of the first of these samples in the dataset.
    """

    outputs: Mapping[str, Array]
    labels: Array | None
    target: Mapping[str, Array] | None
    inputs: Mapping[str, Array]
    first: int = 0


@dataclass(frozen=True)
class Question:
    """What is known before the first sample, so that a metric can refuse early.

    Attributes:
        inputs: of the model.
        outputs: of the model.
        has_reference: whether there is a reference model to agree with.
        labels: all labels of the dataset, or None.
        class_names: what the class numbers mean, or None.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    has_reference: bool
    labels: Array | None
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Ties:
    """Samples whose score hangs on which of several equal values is taken first; the lowest class is.

    Attributes:
        samples: how many samples have equal values at the top (for top-k: across the cut after the k-th).
        share: of all samples.
        low: the score if each tie that touches the right class were lost.
        high: the score if each were won.
    """

    samples: int
    share: float
    low: float
    high: float


class Metric(ABC):
    """A way to score a model. Metrics are plain values: they are sent to other processes.

    Attributes:
        name: as the user writes it.
        higher_is_better: whether more is better.
        is_fraction: whether the score is a share, to be shown in percent.
        needs_labels: whether the dataset must have labels.
        output: the name of the output to look at, where the model has several.
    """

    name: str = ""
    higher_is_better: bool = True
    is_fraction: bool = True
    needs_labels: bool = True
    needs_reference: bool = False

    def __init__(self, *, output: str | None = None) -> None:
        self.output = output

    def check(self, question: Question) -> None:
        """Refuse what this metric cannot score, before any sample is run."""
        if self.needs_reference and not question.has_reference:
            raise UsageError(f"the metric {self.name} compares with another model; give it as reference")
        if self.needs_labels and question.labels is None:
            raise DataError(
                f"the metric {self.name} needs labels, and the dataset has none; give labels=… (in an .npz: y), or use "
                "metric agreement with a reference model, which needs none"
            )
        check_output(self.output, question.outputs)

    def pick(self, outputs: Mapping[str, Any]) -> Any:
        """Return the output to look at: the one named, or the only one."""
        if self.output is not None:
            return outputs[self.output]
        if len(outputs) != 1:
            raise UsageError(
                f"the metric {self.name} looks at one output, and the model has {len(outputs)}: choose with output=…, "
                f"one of {', '.join(outputs)}"
            )
        return next(iter(outputs.values()))

    @abstractmethod
    def observe(self, observed: Observed) -> dict[str, Array]:
        """Return what is to be kept of these samples."""

    @abstractmethod
    def scorer(self, seen: Seen) -> Scorer:
        """Return the score of all samples as a function of how often each counts."""

    def successes(self, seen: Seen) -> NDArray[np.bool_] | None:
        """Return which samples are right, where a sample is right or wrong and the score is their share."""
        del seen
        return None

    def interval(self, seen: Seen, *, confidence: float, resamples: int, seed: int) -> tuple[Interval, str]:
        """Return the interval of the score, and how it was found."""
        right = self.successes(seen)
        if right is not None:
            return wilson(int(right.sum()), len(right), confidence=confidence), "Wilson"
        count = len(next(iter(seen.values())))
        found = bootstrap(self.scorer(seen), count, confidence=confidence, resamples=resamples, seed=seed)
        return found, f"bootstrap, {resamples} draws"

    def ties(self, seen: Seen) -> Ties | None:
        """Return how much of the score hangs on ties, where that can be."""
        del seen
        return None


def mean_scorer(scores: Array) -> Scorer:
    """Score by the mean over samples."""
    values = scores.astype(np.float64)

    def score(weights: Weights | None) -> float:
        return float(values.mean()) if weights is None else float(values @ weights) / len(values)

    return score


def ratio_scorer(numerators: Array, denominators: Array) -> Scorer:
    """Score by a sum over samples divided by another."""
    above, below = numerators.astype(np.float64), denominators.astype(np.float64)

    def score(weights: Weights | None) -> float:
        over, under = (above.sum(), below.sum()) if weights is None else (above @ weights, below @ weights)
        return float(over / under) if under else float("nan")

    return score


def check_output(name: str | None, outputs: Sequence[Port]) -> None:
    """Refuse the name of an output that the model does not have; None is none."""
    if name is not None and name not in {port.name for port in outputs}:
        names = ", ".join(port.name for port in outputs)
        raise UsageError(f"the model has no output {name!r}; its outputs are: {names}")


class MeanMetric(Metric):
    """A metric that gives each sample a score of its own, kept as ``score``, and is their mean."""

    def scorer(self, seen: Seen) -> Scorer:
        """Score by the mean over samples."""
        return mean_scorer(seen["score"])


def rows(array: Array, count: int) -> Array:
    """Return an output with all of a sample's values in one row."""
    return array.reshape(count, -1)
