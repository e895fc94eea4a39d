# SPDX-License-Identifier: Apache-2.0
"""A small net and data that it can learn, so that trainings of a few seconds show something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from litesmith.data import Dataset
from litesmith.model import Builder, Model

torch = pytest.importorskip("torch", reason="torch is not installed")
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests run side by side; each takes one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pattern_images(count: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Return noisy 12×12 images of four patterns: stripes either way, a checkerboard, a blob."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:12, 0:12]
    blob = np.exp(-((rows - 5.5) ** 2 + (columns - 5.5) ** 2) / 8)
    shapes = np.stack([rows // 2 % 2, columns // 2 % 2, (rows + columns) // 2 % 2, blob * 2]).astype(np.float32) - 0.5
    labels = random.integers(0, 4, count)
    images = shapes[labels] + random.normal(0, 0.7, (count, 12, 12)).astype(np.float32)
    return np.repeat(images[..., None], 3, axis=3).astype(np.float32), labels


def small_net(*, seed: int = 0, softmax: bool = False) -> Model:
    """Return a residual net with a depthwise layer, untrained."""
    b = Builder("small", seed=seed)
    x = b.conv2d(b.input("image", (1, 12, 12, 3)), 8, kernel=3, stride=2, activation="RELU", name="stem")
    y = b.conv2d(x, 16, kernel=1, activation="RELU6", name="expand")
    y = b.depthwise_conv2d(y, kernel=3, activation="RELU6", name="depthwise")
    y = b.conv2d(y, 8, kernel=1, name="project")
    x = b.op("ADD", x, y, name="sum", fused_activation_function="NONE")
    x = b.conv2d(x, 16, kernel=3, stride=2, activation="RELU", name="last")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    x = b.fully_connected(x, 4, name="head")
    return b.build({"scores": b.op("SOFTMAX", x, name="probabilities", beta=1.0) if softmax else x})


@pytest.fixture(scope="session")
def data() -> Dataset:
    return Dataset.from_arrays(*pattern_images(400))


@pytest.fixture(scope="session")
def held_out() -> Dataset:
    return Dataset.from_arrays(*pattern_images(600, seed=1))


@pytest.fixture(scope="session")
def learned(data: Dataset) -> Model:
    """The small net, trained on the labels alone."""
    from litesmith.train import train

    torch.set_num_threads(1)
    return train(small_net(), data, label_weight=1.0, epochs=12, learning_rate=1e-2, batch=32).model


@pytest.fixture
def accuracy(held_out: Dataset) -> Callable[[Model], float]:
    from litesmith.accuracy import evaluate

    return lambda model: evaluate(model, held_out).value
