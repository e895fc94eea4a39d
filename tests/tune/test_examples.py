# SPDX-License-Identifier: Apache-2.0
"""The CI example: valid YAML, and its commands do what it says on a real search."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import REPOSITORY

from litesmith import samples
from litesmith.tune import Lock, tune


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return what a CI job checks out, in another place than where the search was."""
    made = tmp_path / "made"
    (made / "model").mkdir(parents=True)
    shutil.copy(samples.path(), made / "model/float.tflite")
    shutil.copy(samples.path("fashion-test.npz"), made / "model/test.npz")
    tune(
        made / "model/float.tflite",
        made / "model/test.npz",
        preprocess="scale=1/255",
        output=made / "model/tuned",
        only=("float16",),
        limit=128,
        seconds=0.1,
        workers=1,
    )
    return Path(shutil.move(made, tmp_path / "elsewhere"))


def _run_steps(folder: Path) -> str:
    """Run the commands of the example as GitHub does, and return what they print."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((REPOSITORY / "examples" / "github-actions.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "run" in step and "pip" not in step["run"]]
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, module in (("python", ""), ("litesmith", "-m litesmith")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RUNNER_TEMP": str(folder)}
    printed = ""
    for command in steps:
        done = subprocess.run(
            ["bash", "-e", "-c", command], cwd=folder, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed += done.stdout
    return printed


def test_the_commands_of_the_github_actions_example_run(checkout: Path) -> None:
    printed = _run_steps(checkout)

    assert "passed" in printed
    assert (checkout / "again.tflite").read_bytes() == (checkout / "model/tuned/winner.tflite").read_bytes()


def test_the_example_makes_nothing_again_on_another_kind_of_cpu(checkout: Path) -> None:
    path = checkout / "model/tuned/litesmith.lock"
    lock = Lock.from_json(path)
    replace(lock, machine=replace(lock.machine, cpu="Cortex-A72"), measured_on=lock.machine).to_json(path)
    printed = _run_steps(checkout)

    assert "passed" in printed
    assert "not made again: the winner was made on Cortex-A72" in printed
    assert not (checkout / "again.tflite").exists()
