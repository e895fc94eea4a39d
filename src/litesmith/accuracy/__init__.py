# SPDX-License-Identifier: Apache-2.0
"""How good a model is at its task, and which layer of a quantized one loses it."""

from litesmith.accuracy._causes import Cause, Repair
from litesmith.accuracy._diagnose import diagnose
from litesmith.accuracy._evaluate import (
    AccuracyComparison,
    Drop,
    Evaluation,
    Predictions,
    compare_accuracy,
    evaluate,
)
from litesmith.accuracy._layer_report import Layer, LayerReport, OutputError
from litesmith.accuracy._metric import Ties
from litesmith.accuracy._named import METRICS
from litesmith.accuracy._outputs import MetricScore

__all__ = [
    "METRICS",
    "AccuracyComparison",
    "Cause",
    "Drop",
    "Evaluation",
    "Layer",
    "LayerReport",
    "MetricScore",
    "OutputError",
    "Predictions",
    "Repair",
    "Ties",
    "compare_accuracy",
    "diagnose",
    "evaluate",
]
