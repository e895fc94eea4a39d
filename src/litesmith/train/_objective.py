# SPDX-License-Identifier: Apache-2.0
"""What training minimizes: the distance from the float model's answers, from the labels, or a mixture of both.

For class scores the distance is the Kullback-Leibler divergence of the softened probabilities, ``T² · KL(teacher/T ‖
student/T)`` (Hinton et al., arXiv:1503.02531), and cross-entropy for labels; both are taken for each score by itself
where a LOGISTIC makes a yes or no of it. Any other output is compared by its square error over the variance of the
teacher's. Features, where asked for, are compared like that as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.errors import DataError, UsageError
from litesmith.model import Subgraph
from litesmith.train._feed import Mixed
from litesmith.train._head_chain import head_chains
from litesmith.train._yes_no import yes_no_distance, yes_no_loss

Values = Mapping[int, Tensor]
TASKS = ("auto", "classes", "values")
_PROBABILITIES = {"SOFTMAX": "softmax", "LOG_SOFTMAX": "softmax", "LOGISTIC": "logistic"}
_SAME_VALUES = frozenset({"RESHAPE", "SQUEEZE"})


@dataclass(frozen=True)
class Target:
    """One output, and where the scores that it is made of are found in the graph.

    Attributes:
        output: the output.
        tensor: its scores, before what makes probabilities of them.
        classes: how many there are, 0 where the output is no scores.
        kind: "softmax" where they share one probability, "logistic" where each has its own, "" where nothing tells.
    """

    output: int
    tensor: int
    classes: int
    kind: str = ""


def targets(graph: Subgraph, task: str = "classes") -> tuple[Target, ...]:
    """Return what the outputs are compared by: scores before a softmax or LOGISTIC where they are probabilities.

    ``task`` says what a list of numbers is: the scores of "classes", or "values".
    """
    found = []
    for output in graph.outputs:
        shape = graph.tensors[output].shape
        wide = [d for d in shape[1:] if d != 1]
        kind, scores = _scores(graph, output)
        is_answer = kind == "logistic" and not wide
        if task == "values" or (len(wide) != 1 and not is_answer) or graph.tensors[output].dtype != "float32":
            found.append(Target(output, output, 0))
            continue
        found.append(Target(output, scores, 1 if is_answer else wide[0], kind))
    return tuple(found)


def _scores(graph: Subgraph, output: int) -> tuple[str, int]:
    """Return what makes probabilities of scores at an output, and the scores; "" and the output where nothing does."""
    producers, tensor = graph.producers(), output
    while tensor in producers:
        op = graph.operators[producers[tensor]]
        if op.kind in _PROBABILITIES:
            kind, rows = _PROBABILITIES[op.kind], math.prod(graph.tensors[tensor].shape[:-1])
            if kind == "softmax" and rows not in (1, *graph.tensors[output].shape[:1]):
                break  # it is over parts of what the output lists, not over the classes
            return kind, op.inputs[0]
        if op.kind not in _SAME_VALUES:
            break
        tensor = op.inputs[0]
    return "", output


def are_answers(target: Target, labels: Tensor) -> bool:
    """Say whether labels are a yes or no for each score, and not the number of the one that is right."""
    return target.kind == "logistic" and (target.classes == 1 or labels.ndim > 1)


def task_of(graph: Subgraph, labels: Tensor | None) -> tuple[str, bool]:
    """Return whether outputs are "classes" or "values", by the labels or the graph; and whether it is only a guess."""
    output = targets(graph)[0]
    if labels is not None:
        return ("values" if labels.is_floating_point() and not fit_answers(output, labels) else "classes"), False
    return "classes", bool(output.classes) and output.tensor == output.output


def fit_answers(target: Target, labels: Tensor) -> bool:
    """Say whether labels are 0 or 1 for each score that is a yes or no."""
    values = labels.reshape(len(labels), -1)
    return (
        are_answers(target, labels)
        and values.shape[1] == target.classes
        and bool(((values == 0) | (values == 1)).all())
    )


def feature_tensor(graph: Subgraph) -> int | None:
    """Return the tensor that the last layer reads, None where there is no such layer."""
    chains = head_chains(graph)
    return graph.operators[chains[0][0]].inputs[0] if chains else None


class Objective:
    """The loss and the score of a student against a teacher and labels."""

    def __init__(
        self,
        student: Subgraph,
        teacher: Subgraph,
        *,
        labelled: bool,
        label_weight: float,
        task: str = "classes",
        temperature: float,
        feature_weight: float = 0.0,
        class_weights: Tensor | None = None,
        answers: bool = False,
    ) -> None:
        self.student, self.teacher = targets(student, task), targets(teacher, task)
        self._are_logistic = tuple(map(_is_logistic, self.student, self.teacher))
        self._answers = answers
        self.label_weight = label_weight if labelled else 0.0
        self.temperature, self.class_weights = temperature, class_weights
        self.features = feature_tensor(student), feature_tensor(teacher)
        self.feature_weight = feature_weight if None not in self.features else 0.0
        widths = {
            g.tensors[f].shape[-1] for g, f in zip((student, teacher), self.features, strict=True) if f is not None
        }
        if self.feature_weight and len(widths) > 1:
            raise UsageError(
                f"the last layers of teacher and student read {' and '.join(map(str, sorted(widths)))} features, which "
                "cannot be compared; leave out feature_weight"
            )
        self.labelled = labelled

    @property
    def metric(self) -> str:
        """What the score is: top1 or accuracy with labels, else agreement, or closeness for what is no scores."""
        return metric_of(self.student[0], labelled=self.labelled, answers=self._answers)

    def kept(self, *, teacher: bool = False) -> tuple[int, ...]:
        """Return the tensors that must be kept from a run."""
        chosen = self.teacher if teacher else self.student
        feature = self.features[1 if teacher else 0]
        extra = (feature,) if self.feature_weight and feature is not None else ()
        return (*(target.tensor for target in chosen), *extra)

    def loss(self, student: Values, teacher: Values | None, labels: Tensor | Mixed | None) -> Tensor:
        """Return the mean loss of a batch."""
        total = torch.zeros(())
        if teacher is not None and self.label_weight < 1.0:
            for ours, theirs, is_logistic in zip(self.student, self.teacher, self._are_logistic, strict=True):
                distance = self._distance(ours, student[ours.tensor], teacher[theirs.tensor], is_logistic=is_logistic)
                total = total + (1.0 - self.label_weight) * distance
            first, second = self.features
            if self.feature_weight and first is not None and second is not None:
                total = total + self.feature_weight * _square_error(student[first], teacher[second])
        if labels is not None and self.label_weight > 0.0:
            total = total + self.label_weight * self._label_loss(student[self.student[0].tensor], labels)
        return total

    def _distance(self, target: Target, student: Tensor, teacher: Tensor, *, is_logistic: bool) -> Tensor:
        if not target.classes:
            return _square_error(student, teacher)
        t = self.temperature
        scores = [x.reshape(-1, target.classes) / t for x in (student, teacher)]
        if is_logistic:
            return t * t * yes_no_distance(*scores)
        ours, theirs = (nnf.log_softmax(x, dim=1) for x in scores)
        return t * t * nnf.kl_div(ours, theirs, reduction="batchmean", log_target=True)

    def _truth(self, labels: Tensor | Mixed) -> Tensor:
        """Return how true each score of each sample is, from 0 to 1."""
        classes = self.student[0].classes
        if isinstance(labels, Mixed):
            return torch.lerp(self._truth(labels.first), self._truth(labels.second), labels.part.reshape(-1, 1))
        if are_answers(self.student[0], labels) or labels.ndim > 1:
            return labels.reshape(-1, classes).float()
        return nnf.one_hot(labels, classes).float()

    def _label_loss(self, student: Tensor, labels: Tensor | Mixed) -> Tensor:
        if self._are_logistic[0]:
            truth = self._truth(labels)
            weights = None if self.class_weights is None else truth @ self.class_weights
            return yes_no_loss(student.reshape(truth.shape), truth, weights)
        if isinstance(labels, Mixed):
            labels = labels.blended(self.student[0].classes)
        if not self.student[0].classes:
            return _square_error(student.reshape(labels.shape), labels)
        return nnf.cross_entropy(student.reshape(len(labels), -1), labels, self.class_weights)

    def check_labels(self, labels: Tensor) -> None:
        """Refuse labels that the first output cannot have."""
        target = self.student[0]
        classes = target.classes
        if classes and are_answers(target, labels):
            if not fit_answers(target, labels):
                raise DataError(
                    f"the model answers yes or no {classes} times, and the labels are not 0 or 1 for each of them"
                )
            return
        if labels.is_floating_point():
            return
        if not classes:
            raise DataError("the labels are class numbers, but the first output of the model is no list of scores")
        if labels.ndim > 1:
            raise DataError(
                f"the labels are {math.prod(labels.shape[1:])} whole numbers a sample, and the model chooses one class of "
                f"{classes}; give class numbers"
            )
        if int(labels.min()) < 0 or int(labels.max()) >= classes:
            raise DataError(
                f"labels reach from {int(labels.min())} to {int(labels.max())}, but the model has {classes} classes; "
                "give class_names, or shift the labels"
            )

    @torch.no_grad()
    def points(self, student: Values, teacher: Values | None, labels: Tensor | None) -> Tensor:
        """Return the score of each sample of a batch."""
        target = self.student[0]
        ours = student[target.tensor]
        if not target.classes:
            reference = labels if labels is not None and labels.is_floating_point() else None
            reference = teacher[self.teacher[0].tensor] if reference is None and teacher is not None else reference
            assert reference is not None
            rows = ours.reshape(len(reference), -1), reference.reshape(len(reference), -1)
            return -torch.mean((rows[0] - rows[1]) ** 2, dim=1)
        if self._answers or (labels is None and self._are_logistic[0]):
            truth = teacher[self.teacher[0].tensor] > 0 if labels is None and teacher is not None else labels
            assert truth is not None
            right = (ours.reshape(-1, target.classes) > 0) == (truth.reshape(-1, target.classes) > 0)
            return right.float().mean(dim=1)
        answers = ours.reshape(-1, target.classes).argmax(dim=1)
        if labels is None or labels.is_floating_point():
            assert teacher is not None
            labels = teacher[self.teacher[0].tensor].reshape(-1, target.classes).argmax(dim=1)
        return (answers == labels).float()


def metric_of(target: Target, *, labelled: bool, answers: bool) -> str:
    """Return the name of the score of an output."""
    if not target.classes:
        return "closeness"
    return "agreement" if not labelled else "accuracy" if answers else "top1"


def _is_logistic(student: Target, teacher: Target) -> bool:
    """Say whether each score is a yes or no; raise where it is for one of the models and not for the other."""
    are_logistic = {target.kind == "logistic" for target in (student, teacher)}
    if len(are_logistic) > 1:
        raise UsageError(
            "one of the model and its teacher ends with a LOGISTIC, a yes or no for each score, and the other does not; "
            "take a teacher that ends as the model does"
        )
    return are_logistic == {True}


def _square_error(student: Tensor, teacher: Tensor) -> Tensor:
    return torch.mean((student - teacher) ** 2) / (teacher.var() + 1e-8)
