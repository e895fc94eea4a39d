# SPDX-License-Identifier: Apache-2.0
"""Metrics by name, and what each is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from litesmith.accuracy._classification import Agreement, Auc, ClassF1, TopK
from litesmith.accuracy._custom import Custom
from litesmith.accuracy._decode import Decode
from litesmith.accuracy._detection import MeanAveragePrecision
from litesmith.accuracy._metric import Array, Metric
from litesmith.accuracy._regression import Cosine, MeanSquaredError
from litesmith.accuracy._text import CharacterErrorRate, ExactMatch, TextF1, WordErrorRate
from litesmith.errors import UsageError

MetricLike: TypeAlias = "str | Callable[..., Any]"

METRICS = {
    "top1": "share of samples whose class is the highest",
    "top5": "share of samples whose class is among the 5 highest; any number will do",
    "agreement": "share of samples for which the reference model chooses the same class",
    "f1": "F1, the mean over classes (f1-micro, f1-weighted, f1-binary); of text, of the words in common",
    "exact-match": "share of samples whose text is that of the label",
    "wer": "word error rate",
    "cer": "character error rate",
    "map50": "mean average precision of boxes at an overlap of 0.5",
    "map": "mean average precision as COCO has it, over overlaps from 0.5 to 0.95",
    "auc": "area under the ROC curve",
    "mse": "mean squared error against labels or the reference model",
    "cosine": "cosine against labels or the reference model",
    "module:function": "your own: function(outputs, labels)",
}
"""The names of metrics."""

_ALIASES = {
    "em": "exact-match",
    "exactmatch": "exact-match",
    "map@0.5": "map50",
    "map@.5": "map50",
    "cocomap": "map",
} | {"accuracy": "top1"}
_F1_AVERAGES = ("micro", "macro", "weighted", "binary")


def metric_named(
    metric: MetricLike,
    *,
    labels: Array | None,
    class_names: tuple[str, ...] | None,
    output: str | None = None,
    decode: Decode | None = None,
    label_offset: int = 0,
) -> Metric:
    """Return the metric of a name, or of the user's function.

    Example:
        >>> metric_named("top-5", labels=None, class_names=None).name
        'top5'
    """
    if not isinstance(metric, str) or ":" in metric:
        return Custom(metric, output=output)
    name = metric.lower().replace("_", "-")
    name = _ALIASES.get(name.replace("-", ""), _ALIASES.get(name, name))
    made = _of_text(name, output, decode, labels, class_names) or _of_classes(name, output, label_offset)
    if made is not None and decode is not None and not hasattr(made, "decode"):
        raise UsageError(f"decode is for metrics of text and boxes; {made.name} looks at the outputs themselves")
    if made is None and name in ("map", "map50"):
        made = MeanAveragePrecision(at_half=name == "map50", output=output, decode=decode, label_offset=label_offset)
    if made is None:
        raise UsageError(f"there is no metric {metric!r}; choose one of {', '.join(METRICS)}")
    return made


def _of_classes(name: str, output: str | None, label_offset: int) -> Metric | None:
    if top := re.fullmatch(r"top-?([1-9]\d*)", name):
        return TopK(int(top[1]), output=output, label_offset=label_offset)
    average = name.removeprefix("f1-") if name != "f1" else "macro"
    if name.startswith("f1") and average in _F1_AVERAGES:
        return ClassF1(average, output=output, label_offset=label_offset)
    if name == "auc":
        return Auc(output=output, label_offset=label_offset)
    simple: dict[str, Callable[..., Metric]] = {"agreement": Agreement, "mse": MeanSquaredError, "cosine": Cosine}
    return simple[name](output=output) if name in simple else None


def _of_text(
    name: str, output: str | None, decode: Decode | None, labels: Array | None, class_names: tuple[str, ...] | None
) -> Metric | None:
    is_text = labels is not None and len(labels) > 0 and isinstance(labels[0], (str, bytes))
    if name == "f1" and (is_text or (decode is not None and class_names is not None)):
        return TextF1(output=output, decode=decode)
    kind = {"wer": WordErrorRate, "cer": CharacterErrorRate, "exact-match": ExactMatch}.get(name)
    return None if kind is None else kind(output=output, decode=decode)
