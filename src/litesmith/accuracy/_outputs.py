# SPDX-License-Identifier: Apache-2.0
"""Score outputs that were made elsewhere, on an accelerator say: the metrics of ``evaluate``, and nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from litesmith.accuracy._decode import Decode
from litesmith.accuracy._metric import Array, Observed, Question
from litesmith.accuracy._named import MetricLike, metric_named
from litesmith.accuracy._ports import ports
from litesmith.data import Dataset
from litesmith.model import Model

CONFIDENCE = 0.95
RESAMPLES = 1000


@dataclass(frozen=True)
class MetricScore:
    """A score by one of the metrics of ``evaluate``, with its 95 % interval."""

    metric: str
    value: float
    low: float
    high: float
    higher_is_better: bool
    is_fraction: bool


class OutputScorer:
    """A metric for the outputs of one model on some samples; refuses what it cannot score before anything is run.

    Metrics that compare with another model are given the outputs to compare with; those that can do without use labels
    where there are any.
    """

    def __init__(
        self,
        model: Model,
        data: Dataset,
        metric: MetricLike,
        *,
        output: str | None = None,
        decode: Decode | None = None,
        label_offset: int = 0,
    ) -> None:
        self._inputs, self._outputs = ports(model)
        self._data = data
        self._metric = metric_named(
            metric,
            labels=data.labels,
            class_names=data.class_names,
            output=output,
            decode=decode,
            label_offset=label_offset,
        )
        self._compares = self._metric.needs_reference or data.labels is None
        self._metric.check(Question(self._inputs, self._outputs, self._compares, data.labels, data.class_names))

    def score(self, outputs: Mapping[str, Array], reference: Mapping[str, Array], *, seed: int = 0) -> MetricScore:
        """Score raw outputs, stacked; ``reference`` are those to compare with.

        Example:
            >>> import litesmith
            >>> data = litesmith.samples.dataset().take(4, seed=0)
            >>> scorer = OutputScorer(litesmith.samples.model(), data, "top1")
            >>> scores = {port.name: np.eye(10)[data.labels] for port in scorer._outputs}
            >>> scorer.score(scores, scores).value
            1.0
        """
        metric = self._metric
        ours, theirs = ({p.name: p.reals(given[p.name]) for p in self._outputs} for given in (outputs, reference))
        samples = [sample.inputs for sample in self._data]
        inputs = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
        labels, target = self._data.labels, theirs if self._compares else None
        seen = metric.observe(Observed(ours, labels, target, inputs))
        interval, _ = metric.interval(seen, confidence=CONFIDENCE, resamples=RESAMPLES, seed=seed)
        value = metric.scorer(seen)(None)
        return MetricScore(metric.name, value, *interval, metric.higher_is_better, metric.is_fraction)
