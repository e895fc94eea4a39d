# SPDX-License-Identifier: Apache-2.0
"""A small question on the bundled sample, and one finished search that several tests look at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litesmith import samples
from litesmith.tune import Tuned, tune

Command = Callable[..., "subprocess.CompletedProcess[str]"]
QUICK: dict[str, Any] = {
    "preprocess": "scale=1/255",
    "limit": 256,
    "only": (
        "float16",
        "dynamic",
        "int16x8(minmax, recover=, samples=20)",
    ),  # of three sizes: no tie for latency to break
    "max_drop": "5%",
    "minimize": "size",
    "seconds": 0.1,
}
"""A search of seconds."""
OPTIONS = [
    "--preprocess",
    "scale=1/255",
    "--limit",
    "256",
    "--max-drop",
    "5%",
    "--minimize",
    "size",
    "--seconds",
    "0.1",
]
"""The same for the command line, without the candidates."""


def quick_tune(output: Path, **options: Any) -> Tuned:
    return tune(samples.path(), samples.path("fashion-test.npz"), output=output, **{**QUICK, **options})


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A search that is done, and its folder."""
    return quick_tune(tmp_path_factory.mktemp("tune") / "run", workers=1)


@pytest.fixture
def litesmith(tmp_path: Path) -> Command:
    """Run `litesmith …` in an empty folder and return what it printed."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
        command = [sys.executable, "-m", "litesmith", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return run
