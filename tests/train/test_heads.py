# SPDX-License-Identifier: Apache-2.0
"""What a model ends with decides how it is taught: one class of several, or a yes or no for each score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.train.conftest import pattern_images

from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError
from litesmith.model import Builder, Model
from litesmith.train import retrain, train
from litesmith.train._feed import Mixed
from litesmith.train._objective import Objective, targets

Array = np.ndarray[Any, Any]
INTS = np.int32
FAST: dict[str, Any] = {"label_weight": 1.0, "epochs": 12, "learning_rate": 1e-2, "batch": 32}


def network(outputs: int, *ends: str, shape: tuple[int, ...] | None = None, seed: int = 0) -> Model:
    """Return a small net for the patterns that ends with these operators behind its scores."""
    b = Builder("small", seed=seed)
    x = b.conv2d(b.input("image", (1, 12, 12, 3)), 8, kernel=3, stride=2, activation="RELU")
    x = b.conv2d(x, 16, kernel=3, stride=2, activation="RELU")
    x = b.fully_connected(b.op("MEAN", x, np.array([1, 2], INTS)), outputs, name="scores")
    wanted = shape or (1, outputs)
    for kind in ends:
        if kind == "RESHAPE":
            x = b.op(kind, x, np.array(wanted, INTS), new_shape=list(wanted))
        else:
            x = b.op(kind, x, **{"SOFTMAX": {"beta": 1.0}, "SQUEEZE": {"squeeze_dims": [1, 2]}}.get(kind, {}))
    return b.build({"y": x})


def patterns(count: int = 300, *, seed: int = 0) -> tuple[Array, Array]:
    images, labels = pattern_images(count, seed=seed)
    return images, labels.astype(np.int64)


def stripes(labels: Array) -> Array:
    """Return a question with one answer: are there stripes?"""
    return (labels < 2).astype(np.int64)


def properties(labels: Array) -> Array:
    """Return several answers for a sample: it changes along rows, along columns, it is bright in the middle."""
    return np.stack([np.isin(labels, (0, 2)), np.isin(labels, (1, 2)), labels == 3], axis=1).astype(np.int64)


@pytest.mark.parametrize(
    ("ends", "shape", "kind", "steps_back"),
    [
        ((), None, "", 0),
        (("SOFTMAX",), None, "softmax", 1),
        (("SOFTMAX", "RESHAPE"), (1, 1, 4), "softmax", 2),
        (("RESHAPE", "SOFTMAX", "SQUEEZE"), (1, 1, 1, 4), "softmax", 2),
        (("LOG_SOFTMAX",), None, "softmax", 1),
        (("LOGISTIC",), None, "logistic", 1),
        (("LOGISTIC", "RESHAPE"), (1, 1, 1, 4), "logistic", 2),
    ],
)
def test_scores_are_found_behind_what_makes_probabilities_of_them(
    ends: tuple[str, ...], shape: tuple[int, ...] | None, kind: str, steps_back: int
) -> None:
    graph = network(4, *ends, shape=shape).main
    (target,) = targets(graph)

    assert (target.kind, target.classes) == (kind, 4)
    assert target.tensor == graph.operators[len(graph.operators) - 1 - steps_back].outputs[0]


def test_a_softmax_over_parts_is_none_over_the_classes() -> None:
    b = Builder("parts")
    x = b.op("SOFTMAX", b.fully_connected(b.input("x", (1, 3, 8)), 5, keep_num_dims=True))
    (target,) = targets(b.build({"y": b.op("RESHAPE", x, np.array([1, 15], INTS), new_shape=[1, 15])}).main)

    assert (target.kind, target.tensor) == ("", target.output)


@pytest.mark.parametrize("form", ["whole numbers", "fractions", "a column"])
def test_one_answer_is_binary_classification(form: str) -> None:
    images, labels = patterns()
    truth = stripes(labels)
    given = {"whole numbers": truth, "fractions": truth.astype(np.float32), "a column": truth[:, None]}[form]
    held_out = patterns(200, seed=1)
    trained = train(network(1, "LOGISTIC"), Dataset.from_arrays(images, given), qat="int8", **FAST)
    result = trained.result

    assert result.metric == "accuracy"
    assert result.original < 0.8
    assert result.written > 0.9
    assert result.written == pytest.approx(result.simulated, abs=0.04)
    assert result.curve[-1].loss < 0.4, "cross-entropy of one answer begins at 0.69"
    assert not result.notes
    scored = train(
        trained.model, Dataset.from_arrays(images, truth), validation=Dataset.from_arrays(held_out[0], stripes(held_out[1])),
        epochs=1, learning_rate=1e-9,
    )  # fmt: skip
    assert scored.result.original > 0.85


def test_several_answers_are_taught_each_by_itself() -> None:
    images, labels = patterns()
    result = train(network(3, "LOGISTIC", "RESHAPE"), Dataset.from_arrays(images, properties(labels)), **FAST).result

    assert result.metric == "accuracy"
    assert result.written > 0.9
    assert result.written == pytest.approx(result.simulated, abs=1e-3)


def test_class_numbers_mean_one_class_for_any_head() -> None:
    images, labels = patterns()
    for ends in (("SOFTMAX", "RESHAPE"), ("LOGISTIC",)):
        result = train(network(4, *ends), Dataset.from_arrays(images, labels), **FAST).result
        assert result.metric == "top1"
        assert result.written > 0.85
        assert result.written == pytest.approx(result.simulated, abs=1e-3)


def test_without_labels_answers_agree_with_those_of_the_teacher() -> None:
    images, labels = patterns()
    taught = train(network(3, "LOGISTIC"), Dataset.from_arrays(images, properties(labels)), **FAST).model
    result = train(taught, Dataset.from_arrays(images), qat="int8", epochs=1).result

    assert result.metric == "agreement"
    assert result.original == 1.0
    assert result.written > 0.95
    assert result.written == pytest.approx(result.simulated, abs=0.03)
    assert not result.notes, "that they are scores is no guess"


def test_the_loss_of_answers_is_that_of_each_score() -> None:
    graph = network(3, "LOGISTIC").main
    objective = Objective(graph, graph, labelled=True, label_weight=1.0, temperature=1.0, answers=True)
    place = objective.student[0].tensor
    scores = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    truth = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 0]])
    each = torch.nn.functional.binary_cross_entropy(scores.sigmoid(), truth.float(), reduction="none").sum(dim=1)

    torch.testing.assert_close(objective.loss({place: scores}, None, truth), each.mean())
    part = torch.tensor([0.0, 0.5, 0.2, 0.1, 0.3])
    blend = torch.lerp(truth.float(), truth.flip(0).float(), part[:, None])
    expected = torch.nn.functional.binary_cross_entropy(scores.sigmoid(), blend, reduction="none").sum(dim=1).mean()
    torch.testing.assert_close(objective.loss({place: scores}, None, Mixed(truth, truth.flip(0), part)), expected)
    assert objective.points({place: scores}, None, truth).tolist() == pytest.approx(
        ((scores > 0) == (truth > 0)).float().mean(dim=1).tolist()
    )


def test_the_distance_from_equal_answers_is_zero() -> None:
    graph = network(3, "LOGISTIC").main
    objective = Objective(graph, graph, labelled=False, label_weight=0.0, temperature=4.0)
    place = objective.student[0].tensor
    scores = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))

    assert float(objective.loss({place: scores}, {place: scores}, None)) == pytest.approx(0.0, abs=1e-5)
    assert float(objective.loss({place: scores + 1.0}, {place: scores}, None)) > 0.1  # a softmax would not see it


def test_labels_and_teachers_that_do_not_fit_are_refused() -> None:
    images, labels = patterns(60)
    with pytest.raises(DataError, match="yes or no 1 times, and the labels are not 0 or 1"):
        train(network(1, "LOGISTIC"), Dataset.from_arrays(images, labels), epochs=1)
    with pytest.raises(DataError, match="3 whole numbers a sample, and the model chooses one class of 4"):
        train(network(4, "SOFTMAX"), Dataset.from_arrays(images, properties(labels)), epochs=1)
    with pytest.raises(UsageError, match="ends with a LOGISTIC, a yes or no for each score, and the other does not"):
        train(network(4, "SOFTMAX"), Dataset.from_arrays(images), teacher=network(4, "LOGISTIC"), epochs=1)


def test_a_base_with_yes_or_no_answers_is_retrained_as_such() -> None:
    images, labels = patterns()
    data = Dataset.from_arrays(images, labels, class_names=("across", "down", "checkers", "blob"))
    base = train(network(1, "LOGISTIC"), Dataset.from_arrays(images, stripes(labels)), **FAST).model
    done = retrain(base, data, preprocess="", epochs=2, augment="none")

    assert done.model.main.operators[-1].kind == "LOGISTIC"
    assert done.result.float32.accuracy > 0.7
    assert done.result.curve[0].loss < 2.5, "cross-entropy of four answers, not of one of four probabilities"
