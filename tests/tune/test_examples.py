# SPDX-License-Identifier: Apache-2.0
"""The CI example: valid YAML, and its commands do what it says on a real search."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import REPOSITORY

from litesmith import samples
from litesmith.tune import tune


def test_the_commands_of_the_github_actions_example_run(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((REPOSITORY / "examples" / "github-actions.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "run" in step and "pip" not in step["run"]]
    (tmp_path / "model").mkdir()
    shutil.copy(samples.path(), tmp_path / "model/float.tflite")
    shutil.copy(samples.path("fashion-test.npz"), tmp_path / "model/test.npz")
    tune(
        tmp_path / "model/float.tflite",
        tmp_path / "model/test.npz",
        preprocess="scale=1/255",
        output=tmp_path / "model/tuned",
        only=("float16",),
        limit=128,
        seconds=0.1,
        workers=1,
    )
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "model", moved / "model")  # a checkout in another place
    for command in steps:
        words = command.replace("/tmp/again", str(moved / "again")).split()
        program = [sys.executable, "-m", "litesmith"] if words[0] == "litesmith" else [words[0]]
        done = subprocess.run([*program, *words[1:]], cwd=moved, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
