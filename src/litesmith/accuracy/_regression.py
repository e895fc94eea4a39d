# SPDX-License-Identifier: Apache-2.0
"""Metrics of outputs that are numbers: mean squared error and cosine, against labels or against another model."""

from __future__ import annotations

import numpy as np

from litesmith.accuracy._classification import matching_target
from litesmith.accuracy._metric import Array, MeanMetric, Observed, Question, rows
from litesmith.errors import DataError, UsageError


class _Distance(MeanMetric):
    """A score of one vector against another, for each sample."""

    is_fraction = False

    def check(self, question: Question) -> None:
        """Refuse labels that are not numbers."""
        self.needs_labels = not question.has_reference
        super().check(question)
        self.pick({port.name: port for port in question.outputs})
        labels = question.labels
        if not question.has_reference and (not isinstance(labels, np.ndarray) or labels.dtype.kind not in "fiub"):
            raise DataError(
                f"the metric {self.name} compares with numbers, and the labels are none; give arrays as labels, or a "
                "reference model"
            )

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the score of each sample."""
        output = self.pick(observed.outputs)
        wanted = observed.labels if observed.target is None else matching_target(self, observed)
        assert wanted is not None
        count = len(output)
        ours, theirs = rows(output, count).astype(np.float64), rows(wanted, count).astype(np.float64)
        if ours.shape != theirs.shape:
            source = "the reference gives" if observed.target is not None else "the label has"
            hint = "for class numbers use metric top1" if theirs.shape[1] == 1 else "choose with output=…"
            raise UsageError(f"the output has {ours.shape[1]} values a sample, and {source} {theirs.shape[1]}; {hint}")
        return {"score": self._score(ours, theirs)}

    def _score(self, ours: Array, theirs: Array) -> Array:
        raise NotImplementedError


class MeanSquaredError(_Distance):
    """The mean over samples of the mean squared difference of their values."""

    name = "mse"
    higher_is_better = False

    def _score(self, ours: Array, theirs: Array) -> Array:
        return np.asarray(np.square(ours - theirs).mean(axis=1))


class Cosine(_Distance):
    """The mean over samples of the cosine between output and target; 1 for two zero vectors, 0 for one."""

    name = "cosine"

    def _score(self, ours: Array, theirs: Array) -> Array:
        lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        products = (ours * theirs).sum(axis=1)
        cosines = np.asarray(~ours.any(axis=1) & ~theirs.any(axis=1), np.float64)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        return cosines
