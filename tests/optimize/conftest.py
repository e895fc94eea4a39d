# SPDX-License-Identifier: Apache-2.0
"""What the tests of optimization share: running models in LiteRT, and how far two outputs are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from litesmith.model import Builder, Model, Signature, Subgraph
from litesmith.optimize._run import GraphRunner

Array = np.ndarray[Any, Any]
KERNELS = ("builtin", "delegate")

# A busy machine is no failure of a property.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def net() -> Model:
    """A stem, an inverted residual, a strided layer and a classifier."""
    b = Builder("net", seed=5)
    x = b.conv2d(b.input("image", (1, 12, 12, 3)), 16, kernel=3, activation="RELU", name="stem")
    y = b.depthwise_conv2d(b.conv2d(x, 48, activation="RELU6", name="expand"), activation="RELU6", name="dw")
    x = b.op("ADD", x, b.conv2d(y, 16, name="project"), name="residual")
    x = b.conv2d(x, 32, kernel=3, stride=2, activation="RELU", name="down")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    return b.build({"logits": b.fully_connected(x, 10, name="logits")})


@pytest.fixture
def twins() -> Model:
    """Two signatures on the same weights."""
    return make_twins(8)


def make_twins(second_size: int) -> Model:
    """Return a model of two signatures on the same weights, as prefill and decode have them."""
    random = np.random.default_rng(1)
    shapes = [(16, 3, 3, 3), (32, 1, 1, 16), (32, 1, 1, 32), (4, 1, 1, 32)]
    weights = [random.standard_normal(shape, np.float32) * np.float32(0.3) for shape in shapes]
    graphs = [_branch(size, weights) for size in (8, second_size)]
    held = {t.name: t.buffer for t in graphs[0].tensors if t.buffer is not None}
    second = tuple(replace(t, buffer=held.get(t.name)) for t in graphs[1].tensors)
    signatures = [
        Signature(key, (("x", graph.inputs[0]),), (("y", graph.outputs[0]),), number)
        for number, (key, graph) in enumerate(zip(("large", "small"), graphs, strict=True))
    ]
    return Model((graphs[0], replace(graphs[1], tensors=second)), tuple(signatures))


def _branch(size: int, weights: Sequence[Array]) -> Subgraph:
    b = Builder("branch")
    x = b.input("x", (1, size, size, 3))
    for name, weight in zip(("stem", "one", "two"), weights, strict=False):
        x = b.conv2d(x, len(weight), kernel=weight.shape[1], weight=weight, activation="RELU", name=name)
    return b.build({"y": b.conv2d(x, 4, weight=weights[-1], name="last")}).main


def are_shared(model: Model) -> bool:
    """Say whether both subgraphs of the written file hold the same weights."""
    first, second = (graph.tensors for graph in Model.from_bytes(model.to_bytes()).subgraphs)
    return all(a.buffer is b.buffer for a, b in zip(first, second, strict=True) if a.buffer is not None)


def run(model: Model, samples: Sequence[Any], *, kernels: str = "delegate") -> list[list[Array]]:
    """Return the outputs for each sample, of the model as it is after writing and reading."""
    model = Model.from_bytes(model.to_bytes())
    runner = GraphRunner(model, kernels=kernels)
    results = []
    for sample in samples:
        arrays = sample if isinstance(sample, tuple) else (sample,)
        runner.run(dict(zip(model.main.inputs, arrays, strict=True)))
        results.append([np.array(runner.view(t)) for t in model.main.outputs])
    return results


def sqnr_db(reference: Sequence[Sequence[Array]], other: Sequence[Sequence[Array]]) -> float:
    """Return the ratio of signal to error in decibels, over all outputs."""
    signal = error = 0.0
    for expected, got in zip(reference, other, strict=True):
        for a, b in zip(expected, got, strict=True):
            signal += float(np.sum(a.astype(np.float64) ** 2))
            error += float(np.sum((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    return 200.0 if error == 0 else 10 * float(np.log10(max(signal, 1e-30) / error))


@pytest.fixture
def convnet() -> Model:
    """A small convolutional network with a residual, depthwise layers and a classifier head."""
    b = Builder("convnet", seed=3)
    x = b.input("image", (1, 16, 16, 3))
    x = b.conv2d(x, 8, kernel=3, stride=2, activation="RELU6", name="stem")
    y = b.depthwise_conv2d(x, activation="RELU6", name="dw")
    y = b.conv2d(y, 8, name="project")
    x = b.op("ADD", x, y, name="residual")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    x = b.fully_connected(x, 10, name="logits")
    return b.build({"probabilities": b.op("SOFTMAX", x, name="softmax", beta=1.0)})


@pytest.fixture
def images() -> list[Array]:
    """Samples for the convnet."""
    random = np.random.default_rng(0)
    return [random.standard_normal((1, 16, 16, 3), np.float32) for _ in range(12)]


@pytest.fixture
def make_samples() -> Callable[..., list[Any]]:
    """A function that draws samples for a model's float inputs."""

    def draw(model: Model, count: int = 6, *, positive: bool = False) -> list[Any]:
        random = np.random.default_rng(1)
        samples = []
        for _ in range(count):
            arrays = [random.standard_normal(model.main.tensors[i].shape, np.float32) for i in model.main.inputs]
            samples.append(tuple(np.abs(a) + 0.1 if positive else a for a in arrays))
        return samples

    return draw
