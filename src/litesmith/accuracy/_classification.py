# SPDX-License-Identifier: Apache-2.0
"""Metrics of classifiers: top-k, agreement with another model, F1, area under the ROC curve.

Among equal values the lowest class counts as the first, as ``argmax`` has it in NumPy and in LiteRT. An int8 output has
256 values, so ties at the top are common; they are counted, and the score is also given with all of them lost and won.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.accuracy._metric import Array, MeanMetric, Metric, Observed, Question, Seen, Ties, rows
from litesmith.accuracy._statistics import Scorer, Weights
from litesmith.errors import DataError, MissingExtraError, UsageError


class TopK(MeanMetric):
    """The share of samples (or of their positions, as in segmentation) whose class is among the k highest."""

    def __init__(self, k: int = 1, *, output: str | None = None, label_offset: int = 0) -> None:
        super().__init__(output=output)
        self.k, self.label_offset, self.name = k, label_offset, f"top{k}"

    def check(self, question: Question) -> None:
        """Refuse outputs that are no scores of classes and labels that are no classes."""
        super().check(question)
        port = self.pick({port.name: port for port in question.outputs})
        classes = _check_classes(self.name, port.name, port.shape)
        if self.needs_labels and question.labels is not None:
            check_class_numbers(question.labels, classes, self.label_offset)
        if self.k > classes > 0:
            raise UsageError(f"top-{self.k} is always right: the model has {classes} classes")

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the class that wins, whether it is the right one, and whether the cut falls between equal values."""
        scores = _positions(self.pick(observed.outputs))
        return top_k(scores, self._right(observed, scores), self.k)

    def _right(self, observed: Observed, scores: Array) -> Array:
        assert observed.labels is not None  # check() refused
        return class_labels(observed.labels, scores, self.label_offset, observed.first)

    def successes(self, seen: Seen) -> NDArray[np.bool_] | None:
        """Return which samples are right, unless a sample has many positions."""
        return np.asarray(seen["score"] == 1) if "prediction" in seen else None

    def ties(self, seen: Seen) -> Ties | None:
        """Return how much of the score hangs on ties."""
        tied = int(np.count_nonzero(seen["tied"]))
        low, high = (float(seen[name].mean(dtype=np.float64)) for name in ("score_low", "score_high"))
        return Ties(tied, tied / len(seen["tied"]), low, high)


class Agreement(TopK):
    """The share of samples for which the model and the reference model choose the same class."""

    needs_labels = False
    needs_reference = True

    def __init__(self, *, output: str | None = None) -> None:
        super().__init__(1, output=output)
        self.name = "agreement"

    def _right(self, observed: Observed, scores: Array) -> Array:
        assert observed.target is not None
        target = _positions(matching_target(self, observed))
        if target.shape != scores.shape:
            raise DataError(
                f"the outputs of the two models differ: {scores.shape[1:]} against {target.shape[1:]} of the reference "
                "(positions, classes); give the float model that this one was made from"
            )
        return np.asarray(target.argmax(axis=-1))


class ClassF1(Metric):
    """F1 of the classes: the harmonic mean of precision and recall, averaged as scikit-learn's ``average`` says."""

    def __init__(self, average: str = "macro", *, output: str | None = None, label_offset: int = 0) -> None:
        super().__init__(output=output)
        self.average, self.label_offset = average, label_offset
        self.name = "f1" if average == "macro" else f"f1-{average}"

    def check(self, question: Question) -> None:
        """Refuse what is no classifier, and a missing scikit-learn."""
        super().check(question)
        port = self.pick({port.name: port for port in question.outputs})
        classes = _check_classes(self.name, port.name, port.shape)
        assert question.labels is not None
        check_class_numbers(question.labels, classes, self.label_offset)
        if self.average == "binary" and classes != 2:
            raise UsageError(
                f"f1-binary is for two classes, and the model has {classes}; use f1, f1-micro or f1-weighted"
            )
        _sklearn("F1")

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the class that wins and the right one."""
        scores = _positions(self.pick(observed.outputs))
        assert observed.labels is not None
        right = class_labels(observed.labels, scores, self.label_offset, observed.first)
        if scores.shape[1] != 1:
            raise UsageError(f"{self.name} takes one class a sample, and this model gives {scores.shape[1]}; use top1")
        return {"prediction": scores[:, 0].argmax(axis=-1).astype(np.int32), "label": right[:, 0].astype(np.int32)}

    def scorer(self, seen: Seen) -> Scorer:
        """Score by scikit-learn; the draws of the bootstrap by the counts of each pair of classes, which is faster."""
        metrics = _sklearn("F1")
        prediction, label = seen["prediction"], seen["label"]
        classes = int(max(prediction.max(), label.max())) + 1
        pairs = label.astype(np.int64) * classes + prediction

        def score(weights: Weights | None) -> float:
            if weights is None:
                return float(metrics.f1_score(label, prediction, average=self.average, zero_division=0))
            counts = np.bincount(pairs, weights.astype(np.float64), minlength=classes * classes)
            return f1_of_counts(counts.reshape(classes, classes), self.average)

        return score


class Auc(Metric):
    """Area under the ROC curve; of more than two classes, the mean over classes of each against the rest.

    The score of a sample is its output (one value), or class 1 against class 0 (two values). Of a model that gives its
    input back, such as an autoencoder for anomalies, it is the mean squared error of the reconstruction.
    """

    name = "auc"
    is_fraction = False

    def __init__(self, *, output: str | None = None, label_offset: int = 0) -> None:
        super().__init__(output=output)
        self.label_offset = label_offset

    def check(self, question: Question) -> None:
        """Refuse labels that are not classes, or of one class only, and a missing scikit-learn."""
        super().check(question)
        self.pick({port.name: port for port in question.outputs})
        assert question.labels is not None
        check_class_numbers(question.labels, 0, self.label_offset)
        if len(np.unique(question.labels)) < 2:
            raise DataError("the area under the ROC curve needs samples of at least two classes; the labels have one")
        _sklearn("AUC")

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the score of each class that the curve needs."""
        assert observed.labels is not None
        count = len(observed.labels)
        values = rows(self.pick(observed.outputs), count)
        given = [rows(array, count) for array in observed.inputs.values()]
        if len(given) == 1 and given[0].shape == values.shape and values.shape[1] > 2:
            values = np.square(values - given[0]).mean(axis=1, keepdims=True)
        elif values.shape[1] == 2:
            values = values[:, 1:] - values[:, :1]
        labels = observed.labels.astype(np.int64) + self.label_offset
        if labels.max() > max(1, values.shape[1] - 1):
            raise DataError(f"label {labels.max()} does not fit a model that gives {values.shape[1]} scores a sample")
        return {"scores": values.astype(np.float32), "label": labels}

    def scorer(self, seen: Seen) -> Scorer:
        """Score by scikit-learn; the draws of the bootstrap by ranks sorted once, which is faster."""
        metrics = _sklearn("AUC")
        scores, label = seen["scores"], seen["label"]
        classes = [1] if scores.shape[1] == 1 else np.unique(label).tolist()
        columns = [(label == c, scores[:, 0 if scores.shape[1] == 1 else c]) for c in classes]
        curves = [RankedCurve(right, values) for right, values in columns]

        def score(weights: Weights | None) -> float:
            if weights is None:
                return float(np.mean([metrics.roc_auc_score(right, values) for right, values in columns]))
            return float(np.mean([curve.area(weights) for curve in curves]))

        return score


class RankedCurve:
    """A ROC curve whose samples are sorted once and then counted with any weights."""

    def __init__(self, positive: Array, values: Array) -> None:
        self._order = np.argsort(values, kind="stable")
        ordered = values[self._order]
        self._positive = np.asarray(positive)[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))

    def area(self, weights: Weights) -> float:
        """Return the area: how often a positive sample stands above a negative one, half for equals."""
        ordered = weights[self._order]
        positive = np.add.reduceat(np.where(self._positive, ordered, 0), self._starts)
        negative = np.add.reduceat(np.where(self._positive, 0, ordered), self._starts)
        pairs = int(positive.sum()) * int(negative.sum())
        below = np.cumsum(negative) - negative
        return float(positive @ (below + negative / 2)) / pairs if pairs else float("nan")


def top_k(scores: Array, right: Array, k: int) -> dict[str, Array]:
    """Return for each sample the winner, the share of positions whose class is among the k highest, and the ties.

    Args:
        scores: (samples, positions, classes).
        right: (samples, positions), the right classes.
        k: how many of the highest count.
    """
    own = np.take_along_axis(scores, right[..., None], axis=-1)
    above = np.count_nonzero(scores > own, axis=-1)
    equal = scores == own
    before = np.count_nonzero(equal & (np.arange(scores.shape[-1]) < right[..., None]), axis=-1)
    equals = np.count_nonzero(equal, axis=-1) - 1
    cut = scores.max(axis=-1) if k == 1 else np.partition(scores, -k, axis=-1)[..., -k]
    tied = np.count_nonzero(scores >= cut[..., None], axis=-1) > k
    kept = {
        "score": (above + before < k).mean(axis=1, dtype=np.float32),
        "score_low": (above + equals < k).mean(axis=1, dtype=np.float32),
        "score_high": (above < k).mean(axis=1, dtype=np.float32),
        "tied": tied.any(axis=1),
    }
    if scores.shape[1] == 1:
        kept["prediction"] = scores[:, 0].argmax(axis=-1).astype(np.int32)
    return kept


def f1_of_counts(counts: NDArray[Any], average: str) -> float:
    """Return F1 from how often each class (row) was taken for each class (column)."""
    right = np.diag(counts)
    support, chosen = counts.sum(axis=1), counts.sum(axis=0)
    total = support + chosen
    each = np.divide(2 * right, total, out=np.zeros_like(right), where=total > 0)
    if average == "binary":
        return float(each[1]) if len(each) > 1 else 0.0
    if average == "micro":
        return float(right.sum() / counts.sum())
    if average == "weighted":
        return float(each @ support / support.sum())
    return float(each[total > 0].mean())


def matching_target(metric: Metric, observed: Observed) -> Array:
    """Return the reference's output that corresponds to the one looked at: by name, else by position."""
    assert observed.target is not None
    if metric.output is not None and metric.output in observed.target:
        return observed.target[metric.output]
    position = list(observed.outputs).index(metric.output) if metric.output is not None else 0
    if position >= len(observed.target):
        raise DataError(f"the reference has {len(observed.target)} outputs, and the model {len(observed.outputs)}")
    return list(observed.target.values())[position]


def class_labels(labels: Array, scores: Array, offset: int, first: int) -> Array:
    """Return the right class of each position, (samples, positions); from numbers or one-hot rows."""
    count, positions, classes = scores.shape
    if positions == 1 and labels.shape == (count, classes) and classes > 1 and (labels.sum(axis=1) == 1).all():
        return np.asarray(labels.argmax(axis=1)[:, None])
    if labels.size != count * positions:
        raise DataError(
            f"the labels have {labels.size // count} values a sample, and the output has {positions} positions of "
            f"{classes} classes; choose the output that the labels are for"
        )
    right = labels.reshape(count, positions).astype(np.int64) + offset
    wrong = np.argwhere((right < 0) | (right >= classes))
    if len(wrong):
        sample, position = wrong[0]
        raise DataError(
            f"sample {first + int(sample)} has label {right[sample, position] - offset}, and the model has {classes} "
            f"classes (0 … {classes - 1}): give class_names in the model's order, or label_offset=1 for models whose "
            "class 0 is the background"
        )
    return right


def check_class_numbers(labels: Array, classes: int, offset: int) -> None:
    """Refuse labels that are not class numbers of the model; 0 classes means any number of them."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iub":
        if labels.ndim != 1 or not classes:
            return
        low, high = int(labels.min()) + offset, int(labels.max()) + offset
        if low < 0 or high >= classes:
            raise DataError(
                f"the labels are {low - offset} … {high - offset}, and the model has {classes} classes (0 … "
                f"{classes - 1}): give class_names in the model's order, or label_offset=1 for models whose class 0 is "
                "the background"
            )
        return
    if isinstance(labels, np.ndarray) and labels.dtype.kind == "f" and labels.ndim == 2 and labels.shape[1] == classes:
        return
    kind = str(labels.dtype) if isinstance(labels, np.ndarray) else type(labels).__name__
    raise DataError(
        f"the labels are {kind}, not class numbers: give numbers, or class_names; for regression use metric mse or "
        "cosine, for text wer, cer, exact-match or f1"
    )


def _check_classes(metric: str, output: str, shape: tuple[int, ...]) -> int:
    """Return how many classes an output has, 0 where that is not known yet."""
    classes = shape[-1] if shape else 1
    if classes == 1:
        raise UsageError(
            f"{metric} needs a score for each class, and the output {output!r} of shape {list(shape)} has one value; "
            "use metric auc for a score, mse or cosine for a number"
        )
    return max(classes, 0)


def _positions(output: Array) -> Array:
    """Return (samples, positions, classes)."""
    return output.reshape(len(output), -1, output.shape[-1])


def _sklearn(purpose: str) -> Any:
    try:
        return importlib.import_module("sklearn.metrics")
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "metrics", purpose) from error
