# SPDX-License-Identifier: Apache-2.0
"""The verbs around accelerators and kernels as a user runs them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litesmith.cli.accelerators import command
from litesmith.measure import Accelerators, OperatorContest, accelerators
from litesmith.model import Builder

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """A model with a custom operator, and its kernel beside it."""
    b = Builder()
    x = b.op("NEG", b.input("x", (4,)))
    b.build({"y": b.op("CUSTOM", x, custom_code="Twice", outputs=[((4,), "float32")])}).save(tmp_path / "custom.tflite")
    (tmp_path / "kernels.py").write_text(
        "import litesmith\n\n@litesmith.custom_op('Twice')\ndef twice(x):\n    return x * 2\n\n"
        "def broken(x):\n    return 1 / 0\n\ndef minus(x):\n    return -x\n"
    )
    return tmp_path / "custom.tflite"


def test_options_are_the_functions_arguments() -> None:
    options, arguments = (inspect.signature(f).parameters for f in (command, accelerators))
    own = {"json", "save", "plot", "preprocess", "labels", "class_names", "device", "devices"}
    assert {n: p.default for n, p in options.items() if n not in own} == {n: p.default for n, p in arguments.items()}


def test_accelerators_for_people_and_programs(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    words = ("accelerators", tiny, "--only", "xnnpack", "--runs", 10, "--seconds", 0.1)
    done = litesmith(*words, "--plot", "plot.html", "--save", "saved.json")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    result = Accelerators.from_json(tmp_path / "saved.json")
    for run in result.runs:
        assert run.name in done.stdout
    assert f"the best here: {result.best}" in done.stdout
    assert (tmp_path / "plot.html").stat().st_size > 1000


def test_accelerators_of_a_device(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "devices.toml").write_text(
        f'[here]\nurl = "local://"\npython = "{sys.executable}"\nruntime = "installed"\n'
    )
    words = ("--only", "xnnpack", "--runs", 10, "--seconds", 0.1, "--device", "here", "--devices", "devices.toml")
    done = litesmith("accelerators", tiny, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert [run.name for run in Accelerators.from_json(done.stdout).runs] == ["xnnpack", "reference"]


def test_wrong_words_are_told(litesmith: Command, tiny: Path) -> None:
    for words, message in (
        (("--only", "tpu"), "there is no accelerator 'tpu'"),
        (("--option", "a=b"), "give its file too"),
        (("--delegate", "none.so"), "there is no file none.so"),
        (("--delegate", tiny, "--option", "nonsense"), "give KEY=VALUE"),
    ):
        done = litesmith("accelerators", tiny, *words)
        assert done.returncode == 2, done.stdout
        assert message in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


def test_custom_op_on_a_verb(litesmith: Command, custom: Path) -> None:
    missing = litesmith("run", custom)
    assert missing.returncode == 1
    assert "custom operator 'Twice'; register one with" in " ".join(missing.stderr.split())
    assert litesmith("run", custom, "--custom-op", "kernels.py").returncode == 0
    assert litesmith("inspect", custom, "--custom-op", "Twice=kernels:minus").returncode == 0
    wrong = litesmith("run", custom, "--custom-op", "nothing.py")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)


def test_a_kernel_that_raises_ends_with_its_traceback(litesmith: Command, custom: Path) -> None:
    done = litesmith("run", custom, "--custom-op", "Twice=kernels.py:broken")
    assert done.returncode == 1
    assert "in broken" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_optimize_op(litesmith: Command, custom: Path, tmp_path: Path) -> None:
    words = ("profile", custom, "--custom-op", "kernels.py", "--seconds", 0.1)
    done = litesmith(*words, "--optimize-op", 0, "--kernel", "kernels.py:minus", "--save", "contest.json")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    contest = OperatorContest.from_json(tmp_path / "contest.json")
    assert contest.operator_kind == "NEG"
    assert contest.right
    assert "yours" in done.stdout
    assert contest.verdict.split(":")[0] in done.stdout
    alone = litesmith(*words, "--optimize-op", 0)
    assert alone.returncode == 2
    assert "go together" in alone.stderr


def test_a_profile_of_a_custom_operator(litesmith: Command, custom: Path) -> None:
    done = litesmith("profile", custom, "--custom-op", "kernels.py", "--runs", 5)
    assert done.returncode == 0, done.stderr
    assert "Twice" in done.stdout
    assert np.char.count(done.stdout, "Twice") >= 2
