# SPDX-License-Identifier: Apache-2.0
"""What training minimizes: the distance from the float model's answers, from the labels, or a mixture of both.

For class scores the distance is the Kullback-Leibler divergence of the softened probabilities, ``T² · KL(teacher/T ‖
student/T)`` (Hinton et al., arXiv:1503.02531), and cross-entropy for labels. Any other output is compared by its square
error over the variance of the teacher's. Features, where asked for, are compared like that as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.errors import DataError, UsageError
from litesmith.model import Subgraph
from litesmith.train._head_chain import head_chains

Values = Mapping[int, Tensor]
TASKS = ("auto", "classes", "values")
_SOFTMAX = ("SOFTMAX", "LOG_SOFTMAX")


@dataclass(frozen=True)
class Target:
    """One output: where its value, before any softmax, is found in the graph."""

    output: int
    tensor: int
    classes: int  # 0 where the output is no class scores


def targets(graph: Subgraph, task: str = "classes") -> tuple[Target, ...]:
    """Return what the outputs are compared by: scores before the softmax where they are class probabilities.

    ``task`` says what a list of numbers is: the scores of "classes", or "values".
    """
    producers = graph.producers()
    found = []
    for output in graph.outputs:
        shape = graph.tensors[output].shape
        wide = [d for d in shape[1:] if d != 1]
        if task == "values" or len(wide) != 1 or graph.tensors[output].dtype != "float32":
            found.append(Target(output, output, 0))
            continue
        maker = graph.operators[producers[output]] if output in producers else None
        before = maker.inputs[0] if maker is not None and maker.kind in _SOFTMAX else output
        found.append(Target(output, before, wide[0]))
    return tuple(found)


def task_of(graph: Subgraph, labels: Tensor | None) -> tuple[str, bool]:
    """Return whether outputs are "classes" or "values", by the labels or a softmax; and whether it is only a guess."""
    if labels is not None:
        return ("values" if labels.is_floating_point() else "classes"), False
    output = targets(graph)[0]
    return "classes", bool(output.classes) and output.tensor == output.output


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
    ) -> None:
        self.student, self.teacher = targets(student, task), targets(teacher, task)
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
        """What the score is: top1 with labels, else agreement, or closeness for what is no class scores."""
        if not self.student[0].classes:
            return "closeness"
        return "top1" if self.labelled else "agreement"

    def kept(self, *, teacher: bool = False) -> tuple[int, ...]:
        """Return the tensors that must be kept from a run."""
        chosen = self.teacher if teacher else self.student
        feature = self.features[1 if teacher else 0]
        extra = (feature,) if self.feature_weight and feature is not None else ()
        return (*(target.tensor for target in chosen), *extra)

    def loss(self, student: Values, teacher: Values | None, labels: Tensor | None) -> Tensor:
        """Return the mean loss of a batch."""
        total = torch.zeros(())
        if teacher is not None and self.label_weight < 1.0:
            for ours, theirs in zip(self.student, self.teacher, strict=True):
                distance = self._distance(ours, student[ours.tensor], teacher[theirs.tensor])
                total = total + (1.0 - self.label_weight) * distance
            first, second = self.features
            if self.feature_weight and first is not None and second is not None:
                total = total + self.feature_weight * _square_error(student[first], teacher[second])
        if labels is not None and self.label_weight > 0.0:
            total = total + self.label_weight * self._label_loss(student[self.student[0].tensor], labels)
        return total

    def _distance(self, target: Target, student: Tensor, teacher: Tensor) -> Tensor:
        if not target.classes:
            return _square_error(student, teacher)
        t = self.temperature
        ours = nnf.log_softmax(student.reshape(-1, target.classes) / t, dim=1)
        theirs = nnf.log_softmax(teacher.reshape(-1, target.classes) / t, dim=1)
        return t * t * nnf.kl_div(ours, theirs, reduction="batchmean", log_target=True)

    def _label_loss(self, student: Tensor, labels: Tensor) -> Tensor:
        if labels.is_floating_point():
            return _square_error(student.reshape(labels.shape), labels)
        return nnf.cross_entropy(student.reshape(len(labels), -1), labels, self.class_weights)

    def check_labels(self, labels: Tensor) -> None:
        """Refuse labels that the first output cannot have."""
        classes = self.student[0].classes
        if labels.is_floating_point():
            return
        if not classes:
            raise DataError("the labels are class numbers, but the first output of the model is no list of scores")
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
        answers = ours.reshape(-1, target.classes).argmax(dim=1)
        if labels is None or labels.is_floating_point():
            assert teacher is not None
            labels = teacher[self.teacher[0].tensor].reshape(-1, target.classes).argmax(dim=1)
        return (answers == labels).float()


def _square_error(student: Tensor, teacher: Tensor) -> Tensor:
    return torch.mean((student - teacher) ** 2) / (teacher.var() + 1e-8)
