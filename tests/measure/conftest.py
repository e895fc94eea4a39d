# SPDX-License-Identifier: Apache-2.0
"""Small models to measure, and a Ctrl-C that comes at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.measure import MachineFacts, Roofline
from litesmith.measure import _profile as profile_module
from litesmith.model import Builder, Model, Quantization


@pytest.fixture(scope="session")
def tiny_model() -> Model:
    """A convolution, a depthwise one, a mean and a fully connected layer."""
    b = Builder("tiny")
    x = b.input("image", (1, 32, 32, 3))
    x = b.conv2d(x, 16, kernel=3, stride=2, activation="RELU6", name="stem")
    x = b.depthwise_conv2d(x, kernel=3, activation="RELU6", name="deep")
    x = b.conv2d(x, 32, kernel=1, activation="RELU6", name="wide")
    x = b.op("MEAN", x, np.array([1, 2], np.int32))
    return b.build({"logits": b.fully_connected(x, 5, name="head")})


@pytest.fixture(scope="session")
def tiny(tiny_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in a file."""
    path = tmp_path_factory.mktemp("models") / "tiny.tflite"
    tiny_model.save(path)
    return path


@pytest.fixture(scope="session")
def int16_model() -> Model:
    """An input, a multiplication and an output in int16."""
    b = Builder()
    scale = Quantization(scale=(0.001,), zero_point=(0,))
    x = b.input("x", (1, 64), "int16", quantization=scale)
    return b.build({"y": b.op("MUL", x, x, quantization=scale, dtype="int16")})


@pytest.fixture(scope="session")
def int64_model() -> Model:
    """Token numbers in int64, as of a language model."""
    b = Builder()
    return b.build({"y": b.op("CAST", b.input("tokens", (1, 16), "int64"), dtype="float32", in_data_type="INT64")})


@pytest.fixture(scope="session")
def where_model() -> Model:
    """An output whose shape depends on the data: only the Interpreter runs it."""
    b = Builder()
    positive = b.op("GREATER", b.input("x", (4,)), np.zeros(4, np.float32))
    return b.build({"indices": b.op("WHERE", positive, outputs=[((4, 1), "int64")])})


@pytest.fixture
def quick_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare a profile what is measured besides the operators for long: the overhead, and the peaks of the machine."""
    monkeypatch.setattr(profile_module, "OVERHEAD_SECONDS", 0.02)
    monkeypatch.setattr(profile_module, "roofline", lambda threads: Roofline(threads, 50.0, 10.0, 100.0))


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have Ctrl-C come when a function is called for the nth time."""

    def at(module: Any, function: str, call: int) -> None:
        real, calls = getattr(module, function), iter(range(1, 1_000_000))

        def interrupted(*arguments: Any, **named: Any) -> Any:
            if next(calls) == call:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        monkeypatch.setattr(module, function, interrupted)

    return at


@pytest.fixture(scope="session")
def other_machine() -> MachineFacts:
    """The facts of a machine that is not this one."""
    return MachineFacts("Cortex-A76", "aarch64", 4, ("asimd",), 8, "performance", (0.0,), False, "Linux", "3.11", {})
