# SPDX-License-Identifier: Apache-2.0
"""Scores that are a yes or no each, as a LOGISTIC makes them: one for a question, or one for each of several labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.accuracy import evaluate
from litesmith.data import Dataset
from litesmith.model import Model

Array = np.ndarray[Any, Any]


def yes_no_loss(scores: Tensor, truth: Tensor, sample_weights: Tensor | None = None) -> Tensor:
    """Return the binary cross-entropy of scores before the LOGISTIC: summed over those of a sample, the mean of samples."""
    each = nnf.binary_cross_entropy_with_logits(scores, truth, reduction="none").sum(dim=1)
    return each.mean() if sample_weights is None else (each * sample_weights).sum() / sample_weights.sum()


def yes_no_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the answers, 0 where they are the same."""
    answers = teacher.sigmoid()
    return yes_no_loss(student, answers) - yes_no_loss(teacher, answers)


def share_of_right_answers(model: Model, data: Dataset, *, reference: Model | None) -> float:
    """Return the share of the answers of a file in LiteRT that are those of the labels, or of another model."""
    right = np.asarray(data.labels) > 0 if reference is None else _answers(reference, data)
    answers = _answers(model, data)
    return float((answers == right.reshape(answers.shape)).mean())


def first_output(model: Model) -> str:
    """Return the name of the first output, as a session has it."""
    graph = model.main
    named = {tensor: name for name, tensor in model.signatures[0].outputs} if model.signatures else {}
    return named.get(graph.outputs[0], graph.tensors[graph.outputs[0]].name)


def _answers(model: Model, data: Dataset) -> Array:
    """Return yes or no for each score of each sample."""
    kept = evaluate(model, data, metric=_keep_outputs, output=first_output(model), resamples=20).predictions
    assert kept is not None
    (outputs,) = (kept[name] for name in kept.names if name != "labels")
    return np.asarray(outputs.reshape(len(outputs), -1) > 0.5)


def _keep_outputs(outputs: Array, _labels: Array | None) -> float:
    """Score nothing; of a metric of all samples at once, evaluation keeps the outputs."""
    return float(len(outputs))


_keep_outputs.whole = True  # type: ignore[attr-defined]
