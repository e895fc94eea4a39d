# SPDX-License-Identifier: Apache-2.0
"""What a student sees, and what it is told about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.model import Builder, Model
from litesmith.train._feed import Augment, Mixed, Samples
from litesmith.train._lessons import Lessons, Teacher
from litesmith.train._module import GraphModule
from litesmith.train._objective import Objective

COUNT = 12


def network(*, values: bool = False) -> Model:
    b = Builder("lessons", seed=0)
    x = b.fully_connected(b.input("x", (1, 6)), 1 if values else 3)
    return b.build({"y": x if values else b.op("SOFTMAX", x, beta=1.0)})


def samples(labels: np.ndarray | None = None) -> Samples:
    inputs = np.random.default_rng(0).standard_normal((COUNT, 6)).astype(np.float32)
    return Samples(Dataset.from_arrays(inputs, labels), network())


def test_mixed_samples_lie_between_two_and_so_do_their_labels() -> None:
    lessons = Lessons(samples(np.arange(COUNT) % 3), augment=Augment.parse("mix=0.5"), seed=3)
    positions = np.array([7, 2, 5])
    (shown,), labels = lessons.inputs(positions, epoch=1).values(), lessons.labels_of(positions, epoch=1)
    assert isinstance(labels, Mixed)
    assert ((labels.part >= 0) & (labels.part <= 0.5)).all()
    assert labels.part.unique().numel() == 3
    (every,) = lessons.samples.inputs(np.arange(COUNT)).values()
    for row, first, second, part, position in zip(
        shown, labels.first, labels.second, labels.part, positions, strict=True
    ):
        blends = (1 - part) * every[position] + part * every
        others = [n for n in range(COUNT) if torch.allclose(blends[n], row, atol=1e-6)]
        assert [n % 3 for n in others] == [int(second)]
        assert int(first) == position % 3
    again = lessons.inputs(np.array([2]), epoch=1)
    assert torch.equal(next(iter(again.values()))[0], shown[1])
    other = lessons.inputs(positions, epoch=2)
    assert not torch.allclose(next(iter(other.values())), shown)


def test_the_teacher_is_asked_about_the_mixture() -> None:
    model = network()
    module = GraphModule(model)
    tensor = model.main.operators[0].outputs[0]
    teacher = Teacher(module, (tensor,), {"x": model.main.inputs[0]})
    for epochs in (2, 40):  # asked each time, and remembered
        lessons = Lessons(samples(), teacher, augment=Augment.parse("mix=0.5"), epochs=epochs)
        positions = np.array([1, 4, 9])
        inputs = lessons.inputs(positions, 1)
        answers = lessons.answers(positions, inputs, 1)
        assert answers is not None
        torch.testing.assert_close(answers[tensor], teacher.answer(inputs)[tensor])


def test_the_loss_of_a_mixture_is_the_mixture_of_the_losses() -> None:
    graph = network().main
    objective = Objective(graph, graph, labelled=True, label_weight=1.0, temperature=1.0)
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    student = {objective.student[0].tensor: scores}
    first, second, part = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 2]), torch.tensor([0.0, 0.5, 0.25, 0.1])
    got = objective.loss(student, None, Mixed(first, second, part))
    each = [torch.nn.functional.cross_entropy(scores, y, reduction="none") for y in (first, second)]
    torch.testing.assert_close(got, ((1 - part) * each[0] + part * each[1]).mean())


def test_values_are_mixed_as_numbers() -> None:
    mixture = Mixed(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0]), torch.tensor([0.25, 0.5]))
    torch.testing.assert_close(mixture.blended(0), torch.tensor([1.5, 2.0]))


def test_whole_numbers_are_not_mixed() -> None:
    b = Builder("tokens", seed=0)
    tokens = b.op("CAST", b.input("tokens", (1, 6), "int32"), outputs=[((1, 6), "float32")])
    model = b.build({"y": b.fully_connected(tokens, 3)})
    data = Samples(Dataset.from_arrays(np.zeros((COUNT, 6), np.int32)), model)
    with pytest.raises(UsageError, match="'tokens' has whole numbers, which cannot be mixed"):
        Lessons(data, augment=Augment.parse("mix=0.3"))
