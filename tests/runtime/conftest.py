# SPDX-License-Identifier: Apache-2.0
"""Small models for the sessions' tests, and the two back ends that must behave alike."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from litesmith.model import Builder, Model
from litesmith.runtime import Session

RunScript = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["compiled", "interpreter"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each test that asks for this runs on both back ends."""
    return str(request.param)


@pytest.fixture
def open_session(backend: str) -> Callable[..., Session]:
    """A Session on the back end under test; "compiled" is what is tried first, as a user has it."""
    chosen = "auto" if backend == "compiled" else backend
    return lambda model, **options: Session(model, backend=chosen, **options)


@pytest.fixture(scope="session")
def add_model() -> Model:
    """sum = x + y and difference = x - y on (2, 3) floats; the batch may change. The names are not sorted."""
    b = Builder()
    x, y = b.input("x", (-1, 3)), b.input("a", (-1, 3))
    model = b.build({"sum": b.op("ADD", x, y), "difference": b.op("SUB", x, y)})
    return _with_batch(model, 2)


@pytest.fixture(scope="session")
def where_model() -> Model:
    """The indices of the positive elements of x: an output whose shape depends on the data."""
    b = Builder()
    x = b.input("x", (4,))
    positive = b.op("GREATER", x, np.zeros(4, np.float32))
    return b.build({"indices": b.op("WHERE", positive, outputs=[((4, 1), "int64")]), "minus": b.op("NEG", x)})


@pytest.fixture(scope="session")
def conv_model() -> Model:
    """A convolution, a softmax that is int8 nowhere, and enough work for threads to meet."""
    b = Builder()
    x = b.input("image", (1, 32, 32, 3))
    for _ in range(3):
        x = b.conv2d(x, 16, kernel=3, activation="RELU")
    x = b.op("MEAN", x, np.array([1, 2], np.int32))
    return b.build({"logits": b.fully_connected(x, 10)})


@pytest.fixture
def run_script() -> RunScript:
    """Run Python source in a process of its own, which must end within five minutes even on a busy machine."""

    def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return run


def _with_batch(model: Model, batch: int) -> Model:
    tensors = tuple(replace(t, shape=(batch, *t.shape[1:])) if len(t.shape) == 2 else t for t in model.main.tensors)
    return model.with_main(replace(model.main, tensors=tensors))
