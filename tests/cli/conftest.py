# SPDX-License-Identifier: Apache-2.0
"""The command line as a user runs it: a process of its own, 80 columns wide."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litesmith.model import Builder

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def litesmith(tmp_path: Path) -> Command:
    """Run `litesmith …` in an empty folder and return what it printed."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
        command = [sys.executable, "-m", "litesmith", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional model in a file."""
    b = Builder("tiny")
    x = b.input("image", (1, 16, 16, 3))
    x = b.conv2d(x, 8, kernel=3, stride=2, activation="RELU6", name="stem")
    x = b.depthwise_conv2d(x, kernel=3, activation="RELU6", name="deep")
    x = b.op("MEAN", x, np.array([1, 2], np.int32))
    path = tmp_path_factory.mktemp("models") / "tiny.tflite"
    b.build({"logits": b.fully_connected(x, 5, name="head")}, description="a tiny net").save(path)
    return path
